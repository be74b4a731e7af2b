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

    from flintmq.client.messaging.messages import ReceivedMessage

NOTHING: Final = -1
"""Stands for an offset where nothing may be committed."""

LOCK_VALID_MS: Final = 30_000
"""How long a client trusts the lock of a queue after it was given; brokers keep it for 60 s."""

PULL_EXPIRED_MS: Final = 120_000
"""A queue that was not pulled from for so long is given up and taken up again."""


class ProcessQueue:
    """What a consumer holds of one queue.

    It lives as long as the queue is assigned.  A queue that is taken up again gets a new one, so
    late results of the old one cannot commit anything.
    """

    def __init__(self, *, now_ms: int) -> None:
        self._messages: dict[int, ReceivedMessage] = {}
        self._offsets: list[int] = []
        self._taken: dict[int, ReceivedMessage] = {}
        self._started: dict[int, int] = {}
        self.size = 0
        """Bytes of the bodies held."""
        self.max_offset = NOTHING
        """The highest offset ever held."""
        self.is_dropped = False
        self.is_locked = False
        self.locked_ms = 0
        self._has_lapsed = False
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms

    @property
    def count(self) -> int:
        """Messages held, the taken ones included."""
        return len(self._offsets) + len(self._taken)

    @property
    def untaken_count(self) -> int:
        """Messages that wait to be taken."""
        return len(self._offsets)

    @property
    def first_untaken(self) -> int | None:
        """The offset of the message that is taken next."""
        return self._offsets[0] if self._offsets else None

    @property
    def span(self) -> int:
        """How far the oldest and the newest message are apart."""
        return self._offsets[-1] - self._offsets[0] if self._offsets else 0

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The lowest and the highest offset held."""
        offsets = [*self._taken, *self._offsets]
        return (min(offsets), max(offsets)) if offsets else None

    @property
    def oldest(self) -> int | None:
        """The lowest offset held."""
        bounds = self.bounds
        return None if bounds is None else bounds[0]

    def lock(self, *, now_ms: int) -> None:
        """Note that the broker has given the lock, which was asked for at a time."""
        self.is_locked, self.locked_ms = True, now_ms

    def renew_lock(self, *, asked_ms: int, now_ms: int) -> None:
        """Note that the broker has given the lock again, which was asked for at ``asked_ms``.

        If the lock is not valid any more, another member may have had it in between, and what is
        held may be handled already: the queue has to be taken up again before it is consumed.
        """
        self._has_lapsed = not self.is_lock_valid(now_ms)
        self.lock(now_ms=asked_ms)

    def has_lock(self, now_ms: int) -> bool:
        """Whether no other member has the queue now."""
        return self.is_locked and now_ms - self.locked_ms <= LOCK_VALID_MS

    def is_lock_valid(self, now_ms: int) -> bool:
        """Whether the queue may be consumed in order now: no other member has had it since."""
        return self.has_lock(now_ms) and not self._has_lapsed

    def is_pull_expired(self, now_ms: int) -> bool:
        """Whether the last pull was too long ago."""
        return now_ms - self.last_pull_ms > PULL_EXPIRED_MS

    # -- both kinds of consumption -----------------------------------------------------------

    def put(self, messages: Iterable[ReceivedMessage], *, next_offset: int) -> int:
        """Hold what a pull has brought; return the offset that may be committed, or NOTHING.

        A pull may bring less than it has passed, since messages with other tags are left out.
        All before ``next_offset`` is done only while nothing is held.
        """
        offsets, held, added_size = self._offsets, self._messages, 0
        for message in messages:
            offset = message.queue_offset
            if offset > self.max_offset:
                # Nearly always a pull goes on behind all that was ever held.
                offsets.append(offset)
                self.max_offset = offset
            elif offset in held or offset in self._taken:
                continue
            else:
                bisect.insort(offsets, offset)
            held[offset] = message
            added_size += message.stored_body_size
        self.size += added_size
        return NOTHING if self.count else next_offset

    # -- concurrent --------------------------------------------------------------------------

    def start(self, messages: Iterable[ReceivedMessage], *, now_ms: int) -> None:
        """Note when a handler got messages."""
        for message in messages:
            self._started[message.queue_offset] = now_ms

    def holds(self, message: ReceivedMessage) -> bool:
        """Whether a message is still held."""
        return message.queue_offset in self._messages

    def remove(self, messages: Iterable[ReceivedMessage]) -> int:
        """Drop handled messages; return the offset that may be committed, or NOTHING."""
        offsets, held, started = self._offsets, self._messages, self._started
        if not offsets:
            return NOTHING
        oldest_count = removed_size = 0
        for message in messages:
            offset = message.queue_offset
            if started:
                started.pop(offset, None)
            if held.pop(offset, None) is None:
                continue
            removed_size += message.stored_body_size
            # Mostly it is the oldest one; those leave the list together.
            if offsets[oldest_count] == offset:
                oldest_count += 1
            else:
                del offsets[bisect.bisect_left(offsets, offset, oldest_count)]
        del offsets[:oldest_count]
        self.size -= removed_size
        return offsets[0] if offsets else self.max_offset + 1

    def stuck(self, *, now_ms: int, timeout_ms: int) -> ReceivedMessage | None:
        """Return the oldest message if a handler has had it for too long.

        It is the one that holds the committed offset back.
        """
        if not self._offsets:
            return None
        oldest = self._offsets[0]
        started_ms = self._started.get(oldest)
        if started_ms is None or now_ms - started_ms <= timeout_ms:
            return None
        return self._messages[oldest]

    # -- orderly -----------------------------------------------------------------------------

    def take(self, count: int) -> list[ReceivedMessage]:
        """Take the oldest messages for consumption."""
        assert not self._taken, "messages are taken while others are"
        offsets = self._offsets[:count]
        del self._offsets[:count]
        self._taken = {offset: self._messages.pop(offset) for offset in offsets}
        return list(self._taken.values())

    def commit(self) -> int:
        """Drop what was taken; return the offset that may be committed, or NOTHING."""
        return self.commit_first(list(self._taken.values()))

    def commit_first(
        self, handled: Sequence[ReceivedMessage], *, put_back: Sequence[ReceivedMessage] = ()
    ) -> int:
        """Drop the first of what was taken, and put the others back to the front.

        ``put_back`` replaces messages of its offsets.  Return the offset that may be committed, or
        NOTHING.
        """
        offset = NOTHING
        for message in handled:
            if self._taken.pop(message.queue_offset, None) is not None:
                self.size -= message.stored_body_size
                offset = message.queue_offset + 1
        self.put_back(put_back)
        return offset

    def put_back(self, changed: Sequence[ReceivedMessage] = ()) -> None:
        """Put what was taken back to the front; ``changed`` replaces messages of its offsets."""
        taken = self._taken | {one.queue_offset: one for one in changed}
        assert taken.keys() == self._taken.keys(), "messages are put back that were not taken"
        self._taken = {}
        self._messages.update(taken)
        self._offsets[:0] = sorted(taken)
