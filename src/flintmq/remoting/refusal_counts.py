"""How often a server refused something because there was too much of it, and why."""

from collections import Counter
from typing import Final

CONNECTIONS: Final = "connections"
ADDRESS_CONNECTIONS: Final = "connections of one address"
FAILED_HANDSHAKES: Final = "connections not made"
HELD_PULLS: Final = "pulls that wait"
OLD_REQUESTS: Final = "requests that waited too long"
WAITING_SENDS: Final = "sends that wait for the disk"
PACKED_BATCHES: Final = "packed batches that wait"
LARGE_BATCHES: Final = "large batches that wait"
WAITING_REPLIES: Final = "replies that wait for their clients"
STUCK_DISK: Final = "sends while the disk is stuck"
WAITING_REQUESTS: Final = "requests of one connection under way"
HALF_FRAMES: Final = "unfinished frames"
REQUEST_BYTES: Final = "bytes of requests under way"
PEER_REQUEST_BYTES: Final = "bytes of requests of one peer under way"
UNREAD_ANSWERS: Final = "unread answers"
NEW_TOPICS: Final = "new topics a minute"

TOO_MUCH: Final = "too much"
"""Said of a connection that is closed because of what its peer left unread or unfinished."""


class RefusalCounts:
    """Counts by reason."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def note(self, reason: str) -> int:
        """Count a refusal; return how many there were for the same reason."""
        self._counts[reason] += 1
        return self._counts[reason]

    def __getitem__(self, reason: str) -> int:
        """Return how often something was refused for a reason."""
        return self._counts[reason]

    def by_reason(self) -> dict[str, int]:
        """Return how often something was refused, by reason."""
        return dict(self._counts)

    def runtime_info(self) -> dict[str, str]:
        """Return the counts by the names that tools show."""
        by_reason = (f"{reason}:{count}" for reason, count in self._counts.most_common())
        return {
            "refusedCount": str(self._counts.total()),
            "refusedReasons": ",".join(by_reason),
        }
