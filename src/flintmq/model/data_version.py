"""How a table of settings tells that it has changed."""

from typing import NamedTuple


class DataVersion(NamedTuple):
    """Two tables are the same if both numbers are."""

    timestamp: int = 0
    counter: int = 0

    def next(self, now_ms: int) -> "DataVersion":
        """Return the version after one more change."""
        return DataVersion(now_ms, self.counter + 1)
