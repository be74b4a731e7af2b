"""Pulls that found nothing and wait: for a message that matches, or for their time to be up.

The dispatcher says which queue got a message; the pulls of that queue are then answered at once,
after the dispatch, when the message can be read.  A pull whose peer has much unread waits on until
that peer has read it: its answer is read from the log only when the socket takes it.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from flintmq.broker.waiting.awaited_queue import AwaitedQueue, Judging
from flintmq.broker.waiting.held_pull import HeldPull, Queue
from flintmq.remoting.refusal_counts import HELD_PULLS

if TYPE_CHECKING:
    from flintmq.remoting.peer import Peer
    from flintmq.remoting.refusal_counts import RefusalCounts
    from flintmq.store.message_store import MessageStore

logger = logging.getLogger(__name__)

HELD_COUNT_MAX: Final = 100_000
HELD_BY_ONE_COUNT_MAX: Final = 16_384
"""Pulls of one connection that wait."""

HELD_ON_ONE_COUNT_MAX: Final = 2048
"""Pulls of one queue that wait: one message may be for all of them."""

HELD_SIZE_MAX: Final = 128 << 20
"""Bytes that all pulls which wait may take together, by what is charged for each."""

HOLD_MS_MAX: Final = 120_000
WAKE_COUNT_MAX: Final = 256
WAKE_MS: Final = 2.0
"""Pulls that are answered in one turn of the loop, and for how long, at most; the others have
their answers in the next one.  Each reads, and may read much of which it wants nothing."""

_ANSWERED_COUNT_MIN: Final = 64

_KeyT = TypeVar("_KeyT")


class HeldPulls:
    """All pulls that wait at one broker."""

    def __init__(
        self,
        store: MessageStore,
        *,
        refused: RefusalCounts,
        count_max: Callable[[], int],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._refused = refused
        self._count_max = count_max
        self._loop = asyncio.get_running_loop()
        self._now = now
        self._by_queue: dict[Queue, dict[HeldPull, None]] = {}
        self._awaited: dict[Queue, AwaitedQueue] = {}
        """The pulls that nothing has come for."""
        self._judging = Judging()
        self._by_connection: dict[Peer, dict[HeldPull, None]] = {}
        self._deadlines: list[tuple[float, int, HeldPull]] = []
        self._sequence = itertools.count()
        self._ready: list[HeldPull] = []
        self._waiting_for_room: dict[Peer, list[HeldPull]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next_wake: asyncio.Handle | None = None
        self.count = 0
        self.size = 0
        """Bytes that are charged for all pulls that wait."""

    def _is_full_for(self, pull: HeldPull) -> bool:
        """Return whether too many wait already for one more."""
        own = self._by_connection.get(pull.connection)
        return (
            self.count >= HELD_COUNT_MAX
            or self.count >= self._count_max()
            or self.size + pull.size > HELD_SIZE_MAX
            or (own is not None and len(own) >= HELD_BY_ONE_COUNT_MAX)
            or len(self._by_queue.get(pull.queue, ())) >= HELD_ON_ONE_COUNT_MAX
        )

    def wait_for_any(self, queues: Iterable[Queue]) -> bool:
        """Whether any pull waits for a message of these queues."""
        awaited = self._awaited
        return bool(awaited) and any(queue in awaited for queue in queues)

    def hold(self, pull: HeldPull, timeout_ms: int, *, counts_refusal: bool = True) -> bool:
        """Have a pull wait; return False when too many wait already.

        Without ``counts_refusal`` somebody else tries again, who says that the pull is refused.
        """
        if self._is_full_for(pull):
            if counts_refusal:
                self._refused.note(HELD_PULLS)
            return False
        deadline = self._loop.time() + min(max(timeout_ms, 0), HOLD_MS_MAX) / 1000
        self._by_queue.setdefault(pull.queue, {})[pull] = None
        awaited = self._awaited.get(pull.queue)
        if awaited is None:
            awaited = self._awaited[pull.queue] = AwaitedQueue()
        awaited.add(pull)
        self._by_connection.setdefault(pull.connection, {})[pull] = None
        heapq.heappush(self._deadlines, (deadline, next(self._sequence), pull))
        self.count += 1
        self.size += pull.size
        self._store.dispatcher.on_arrival = self._arrived
        self._store.dispatcher.awaited_queues = self._awaited
        # A timer that comes too early, for a pull that was answered before, sets the next one.
        if self._timer is None or deadline < self._timer.when():
            self._set_timer()
        return True

    def _arrived(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        tags_code: int,
        store_timestamp: int,
        bitmap: bytes | None,
        read_properties: Callable[[], Mapping[str, str]],
    ) -> None:
        awaited = self._awaited.get((topic, queue_id))
        if awaited is None:
            return
        found = awaited.take(queue_offset, tags_code, read_properties, self._judging)
        for pull in found:
            pull.is_woken = True
        self._ready += found
        if not awaited:
            del self._awaited[topic, queue_id]

    def wake(self) -> None:
        """Answer the pulls for which something has come; call it after each dispatch."""
        if self._next_wake is not None:
            return  # Others wait for the next turn of the loop already.
        answered, until = 0, 0.0
        self._judging.count = 0
        while self._ready:
            until = until or self._now() + WAKE_MS / 1000
            ready, self._ready = self._ready, []
            for number, pull in enumerate(ready):
                if answered >= WAKE_COUNT_MAX or (answered and self._now() >= until):
                    self._ready = ready[number:] + self._ready
                    self._next_wake = self._loop.call_soon(self._wake_again)
                    return
                answered += not pull.is_answered
                self._finish(pull)

    def _wake_again(self) -> None:
        self._next_wake = None
        self.wake()

    def _finish(self, pull: HeldPull) -> None:
        """Answer a pull, or have it wait until its peer has read what it was sent before."""
        connection = pull.connection
        if pull.is_answered or pull.waits_for_room:
            return
        if connection.is_closed:
            self._let_go(pull)
        elif connection.has_room:
            self._let_go(pull)
            try:
                pull.answer()
            except Exception:
                # It concerns one pull only: the others are answered, and so is who has sent.
                logger.exception("a pull that waited could not be answered: queue=%s", pull.queue)
        else:
            pull.waits_for_room = True
            waiting = self._waiting_for_room.get(connection)
            if waiting is not None:
                waiting.append(pull)
                return
            self._waiting_for_room[connection] = [pull]
            connection.when_room(functools.partial(self._has_room, connection))

    def _has_room(self, connection: Peer) -> None:
        """Answer those pulls of a connection that waited for it to read."""
        for pull in self._waiting_for_room.pop(connection, ()):
            pull.waits_for_room = False
            self._finish(pull)

    def _let_go(self, pull: HeldPull) -> None:
        pull.is_answered = True
        self.count -= 1
        self.size -= pull.size
        _take_out(self._by_queue, pull.queue, pull)
        _take_out(self._by_connection, pull.connection, pull)
        awaited = self._awaited.get(pull.queue)
        if awaited is not None and not pull.is_woken:
            awaited.remove(pull)
            if not awaited:
                del self._awaited[pull.queue]
        if not self.count:
            self._store.dispatcher.on_arrival = None
        if len(self._deadlines) > 2 * self.count + _ANSWERED_COUNT_MIN:
            # Those answered before their time was up must not be kept until then.
            self._deadlines = [one for one in self._deadlines if not one[2].is_answered]
            heapq.heapify(self._deadlines)

    def _set_timer(self) -> None:
        while self._deadlines and self._deadlines[0][2].is_answered:
            heapq.heappop(self._deadlines)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._deadlines:
            self._timer = self._loop.call_at(self._deadlines[0][0], self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        now = self._loop.time()
        for _ in range(WAKE_COUNT_MAX):
            if not self._deadlines or self._deadlines[0][0] > now:
                break
            self._finish(heapq.heappop(self._deadlines)[2])
        self._set_timer()

    def drop(self, connection: Peer) -> None:
        """Forget the pulls of a connection that has ended."""
        self._waiting_for_room.pop(connection, None)
        for pull in list(self._by_connection.get(connection, ())):
            self._let_go(pull)

    def close(self) -> None:
        """Answer all pulls that wait, although nothing has come for them.

        Those whose peers do not read get no answer; their connections are closed next.
        """
        for pull in [one for pulls in self._by_queue.values() for one in pulls]:
            self._finish(pull)
        for handle in (self._timer, self._next_wake):
            if handle is not None:
                handle.cancel()
        self._timer = self._next_wake = None


def _take_out(table: dict[_KeyT, dict[HeldPull, None]], key: _KeyT, pull: HeldPull) -> None:
    pulls = table[key]
    del pulls[pull]
    if not pulls:
        del table[key]
