"""Pulls that found nothing and wait: for a message that matches, or for their time to be up.

The dispatcher says which queue got a message; the pulls of that queue are then answered at once,
after the dispatch, when the message can be read.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from flintmq.broker.tag_filter import TagFilter
    from flintmq.store.message_store import MessageStore

HELD_COUNT_MAX: Final = 100_000
HOLD_MS_MAX: Final = 120_000

Queue: TypeAlias = tuple[str, int]


@dataclass(slots=True, eq=False)
class HeldPull:
    """One pull that waits.  ``answer`` runs it again, this time without waiting."""

    queue: Queue
    offset: int
    message_filter: TagFilter | None
    answer: Callable[[], None]
    is_gone: Callable[[], bool]
    is_answered: bool = False


class HeldPulls:
    """All pulls that wait at one broker."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._by_queue: dict[Queue, list[HeldPull]] = {}
        self._deadlines: list[tuple[float, int, HeldPull]] = []
        self._sequence = itertools.count()
        self._ready: list[HeldPull] = []
        self._timer: asyncio.TimerHandle | None = None
        self.count = 0

    def hold(self, pull: HeldPull, timeout_ms: int) -> bool:
        """Keep a pull; return False when there are too many already."""
        if self.count >= HELD_COUNT_MAX:
            return False
        deadline = self._loop.time() + min(max(timeout_ms, 0), HOLD_MS_MAX) / 1000
        self._by_queue.setdefault(pull.queue, []).append(pull)
        heapq.heappush(self._deadlines, (deadline, next(self._sequence), pull))
        self.count += 1
        self._store.dispatcher.on_arrival = self._arrived
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
        pulls = self._by_queue.get((topic, queue_id))
        if pulls is None:
            return
        for pull in pulls:
            if queue_offset > pull.offset and (
                pull.message_filter is None or pull.message_filter.matches_unit(tags_code, None)
            ):
                self._ready.append(pull)

    def wake(self) -> None:
        """Answer the pulls for which something has come; call it after each dispatch."""
        while self._ready:
            ready, self._ready = self._ready, []
            for pull in ready:
                self._finish(pull)

    def _finish(self, pull: HeldPull) -> None:
        if pull.is_answered:
            return
        pull.is_answered = True
        self.count -= 1
        pulls = self._by_queue[pull.queue]
        pulls.remove(pull)
        if not pulls:
            del self._by_queue[pull.queue]
        if not self.count:
            self._store.dispatcher.on_arrival = None
        if not pull.is_gone():
            pull.answer()

    def _set_timer(self) -> None:
        # Those answered before their time was up are only now let go.
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
        while self._deadlines and self._deadlines[0][0] <= now:
            self._finish(heapq.heappop(self._deadlines)[2])
        self._set_timer()

    def drop_gone(self) -> None:
        """Let go of the pulls of connections that have ended."""
        for pull in [one for pulls in self._by_queue.values() for one in pulls if one.is_gone()]:
            self._finish(pull)

    def close(self) -> None:
        """Answer everyone that there is nothing."""
        for pull in [one for pulls in self._by_queue.values() for one in pulls]:
            self._finish(pull)
        if self._timer is not None:
            self._timer.cancel()
