"""The messages of one assigned queue that a consumer holds, and how far it may commit.

Nothing here waits or knows sockets.  For concurrent consumption the committed offset is that of
the oldest message still held, so what was not handled is never skipped.  For orderly consumption
messages are *taken* in order, and committed or put back together.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flintmq.client.messages import ReceivedMessage

NOTHING: Final = -1
LOCK_VALID_MS: Final = 30_000
"""How long a client trusts the lock of a queue after it was given."""

PULL_EXPIRED_MS: Final = 120_000
"""A queue that was not pulled from for so long is taken up anew."""


class ProcessQueue:
    """What a consumer holds of one queue."""

    def __init__(self, *, now_ms: int) -> None:
        self._messages: dict[int, ReceivedMessage] = {}
        self._offsets: list[int] = []
        self._taken: dict[int, ReceivedMessage] = {}
        self.size = 0
        """Bytes of the bodies held."""
        self.max_offset = NOTHING
        """The highest offset ever held."""
        self.is_dropped = False
        self.is_locked = False
        self.locked_ms = 0
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms

    @property
    def count(self) -> int:
        """Messages held, the taken ones included."""
        return len(self._offsets) + len(self._taken)

    @property
    def span(self) -> int:
        """How far the oldest and the newest message are apart."""
        return self._offsets[-1] - self._offsets[0] if self._offsets else 0

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The lowest and the highest offset held."""
        offsets = [*self._taken, *self._offsets]
        return (min(offsets), max(offsets)) if offsets else None

    def is_lock_valid(self, now_ms: int) -> bool:
        """Whether the queue may be consumed in order now."""
        return self.is_locked and now_ms - self.locked_ms <= LOCK_VALID_MS

    def is_pull_expired(self, now_ms: int) -> bool:
        """Whether nothing was pulled for too long."""
        return now_ms - self.last_pull_ms > PULL_EXPIRED_MS

    # -- both ways ---------------------------------------------------------------------------

    def put(self, messages: Iterable[ReceivedMessage]) -> None:
        """Hold messages; those held already stay as they are."""
        for message in messages:
            offset = message.queue_offset
            if offset in self._messages or offset in self._taken:
                continue
            self._messages[offset] = message
            if not self._offsets or offset > self._offsets[-1]:
                self._offsets.append(offset)
            else:
                bisect.insort(self._offsets, offset)
            self.size += len(message.body)
            self.max_offset = max(self.max_offset, offset)

    def clear(self) -> None:
        """Let go of everything."""
        self._messages.clear()
        self._offsets.clear()
        self._taken.clear()
        self.size = 0

    # -- concurrent --------------------------------------------------------------------------

    def remove(self, messages: Iterable[ReceivedMessage]) -> int:
        """Let go of handled messages; return the offset that may be committed, or NOTHING."""
        if not self._offsets:
            return NOTHING
        for message in messages:
            offset = message.queue_offset
            if self._messages.pop(offset, None) is not None:
                del self._offsets[bisect.bisect_left(self._offsets, offset)]
                self.size -= len(message.body)
        return self._offsets[0] if self._offsets else self.max_offset + 1

    def oldest(self) -> ReceivedMessage | None:
        """Return the message that holds the committed offset back."""
        return self._messages[self._offsets[0]] if self._offsets else None

    # -- orderly -----------------------------------------------------------------------------

    def take(self, count: int) -> list[ReceivedMessage]:
        """Take the oldest messages for consumption."""
        assert not self._taken, "messages are taken while others are"
        offsets = self._offsets[:count]
        del self._offsets[:count]
        self._taken = {offset: self._messages.pop(offset) for offset in offsets}
        return list(self._taken.values())

    def commit(self) -> int:
        """Let go of what was taken; return the offset that may be committed, or NOTHING."""
        if not self._taken:
            return NOTHING
        self.size -= sum(len(message.body) for message in self._taken.values())
        last = max(self._taken)
        self._taken = {}
        return last + 1

    def put_back(self, changed: Sequence[ReceivedMessage] = ()) -> None:
        """Put what was taken back to the front; ``changed`` replaces messages of its offsets."""
        taken = self._taken | {one.queue_offset: one for one in changed}
        self._taken = {}
        self._messages.update(taken)
        self._offsets[:0] = sorted(taken)
