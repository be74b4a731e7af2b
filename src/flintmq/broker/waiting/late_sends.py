"""Sends that wait for the next file of the log.

A log whose file is full goes on in one that was made ahead.  If the disk is slower than the
senders, that one is not there yet.  Then sends wait here, in their order, and the event loop goes
on with everything else.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from flintmq.store.message_store import MessageStore

WAIT_MS: Final = 5000
"""How long a send waits; then it fails as it would have at once."""
COUNT_MAX: Final = 10_000
SIZE_MAX: Final = 64 << 20
"""Bytes of bodies and properties that may wait; more sends fail at once."""
LOOK_MS: Final = 5
RETRY_MS: Final = 4
"""How long sends that waited may take of one turn of the loop."""
TRIED_COUNT: Final = 4
"""Sends that waited of which each send that comes later has some tried before it waits itself.

With more than one they become fewer, however fast others come.  Otherwise senders that send again
as soon as they are answered would wait behind each other for as long as they send.
"""


class LateSend(NamedTuple):
    """One send that waits."""

    deadline: float
    size: int
    retry: Callable[[], None]


class LateSends:
    """The sends that wait, in the order in which they came."""

    def __init__(
        self,
        store: MessageStore,
        *,
        dispatch: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._dispatch = dispatch
        self._now = now
        self._loop = asyncio.get_running_loop()
        self.waiting: deque[LateSend] = deque()
        """What waits; whoever comes later has to wait behind it."""
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self.is_retrying = False
        """Whether the send under way has waited before: it keeps its place if it has to wait on."""
        self._may_wait_on = False
        self._waits_on = False

    @property
    def count(self) -> int:
        """How many sends wait."""
        return len(self.waiting)

    @property
    def waited_ms(self) -> int:
        """How long the send has waited that came first; 0 if none waits."""
        if not self.waiting:
            return 0
        return round((self._now() - self.waiting[0].deadline) * 1000) + WAIT_MS

    def hold(self, size: int, retry: Callable[[], None]) -> bool:
        """Have a send wait; return False when too much waits already."""
        if len(self.waiting) >= COUNT_MAX or self._size + size > SIZE_MAX:
            return False
        self.waiting.append(LateSend(self._now() + WAIT_MS / 1000, size, retry))
        self._size += size
        self._look_later()
        return True

    def _look_later(self) -> None:
        if self._timer is None and self.waiting:
            self._timer = self._loop.call_later(LOOK_MS / 1000, self._look)

    def _look(self) -> None:
        self._timer = None
        end = self._now() + RETRY_MS / 1000
        while self._now() < end and self._try_first():
            pass
        self._dispatch()
        self._look_later()

    def try_some(self) -> bool:
        """Try some of those that wait, if their file is there; return whether none waits any more.

        Whoever comes while others wait calls this first.
        """
        for _ in range(TRIED_COUNT):
            if not self._try_first():
                break
        return not self.waiting

    def _try_first(self) -> bool:
        """Try the first send if its file is there; return whether that was its end."""
        if not self.waiting:
            return False
        may_wait_on = self._now() < self.waiting[0].deadline
        if may_wait_on and self._store.is_next_file_late:
            return False
        return self._retry_first(may_wait_on=may_wait_on)

    def wait_on(self) -> bool:
        """Have the send under way, which has waited before, wait for one more file.

        Sends that waited together may fill more than one.  Return False when its time is over.
        """
        self._waits_on = self._may_wait_on
        return self._waits_on

    def _retry_first(self, *, may_wait_on: bool) -> bool:
        """Try the first send again; return whether that was its end."""
        self.is_retrying, self._may_wait_on, self._waits_on = True, may_wait_on, False
        try:
            self.waiting[0].retry()
        finally:
            self.is_retrying = False
            if not self._waits_on:
                self._size -= self.waiting.popleft().size
        return not self._waits_on

    def close(self) -> None:
        """Try all that wait for the last time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self.waiting:
            self._retry_first(may_wait_on=False)
