"""How far groups have fetched: the offset that each asked for last, by queue.

What a group has fetched and not committed is in flight; what it has not fetched is ready.  The
table is in memory only, and is noted by every pull, so it does as little as it can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PAIR_COUNT_MAX: Final = 100_000
"""Topics of groups that are remembered; of others nothing is known."""


class FetchedOffsets:
    """The offset of the last pull by topic, group and queue; all below it was fetched."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[str, str], dict[int, int]] = {}

    def note(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note an admitted pull, whose queue is therefore one of the topic's."""
        queues = self._offsets.get((topic, group))
        if queues is None:
            if len(self._offsets) >= PAIR_COUNT_MAX:
                return
            queues = self._offsets[topic, group] = {}
        queues[queue_id] = offset

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the offsets of a group in a topic, by queue."""
        return self._offsets.get((topic, group), {})

    def forget_topic(self, topic: str) -> None:
        """Forget a topic that is deleted."""
        self._offsets = {key: one for key, one in self._offsets.items() if key[0] != topic}

    def forget_group(self, group: str) -> None:
        """Forget a group that is deleted."""
        self._offsets = {key: one for key, one in self._offsets.items() if key[1] != group}
