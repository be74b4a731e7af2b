"""Requests of ours that wait for answers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from flintmq.format.wire.command import Command
from flintmq.format.wire.frame import HeaderType

if TYPE_CHECKING:
    from flintmq.format.wire.headers.codec import HeaderFields

_OPAQUE_MASK: Final = 0x7FFFFFFF

Expire: TypeAlias = "Callable[[asyncio.Future[Command], int, int], None]"
"""Called with the future, the code and the time in milliseconds of a request whose time is up."""


_Limit: TypeAlias = tuple[float, int, int]
"""When the time of a request is up, its code, and how many milliseconds it has."""


class ThreadAnswer:
    """What a thread waits with for an answer, where a coroutine has a future.

    The loop settles it once, by its answer or its error.
    """

    __slots__ = ("_answer", "_error", "_is_open")

    def __init__(self) -> None:
        self._answer: Command | None = None
        self._error: Exception | None = None
        self._is_open = threading.Lock()
        self._is_open.acquire()

    def done(self) -> bool:
        """Whether it is settled."""
        return not self._is_open.locked()

    def set_result(self, answer: Command) -> None:
        """Give the answer to the thread."""
        self._answer = answer
        self._is_open.release()

    def set_exception(self, error: Exception) -> None:
        """Have the thread raise an error."""
        self._error = error
        self._is_open.release()

    def wait(self, timeout_s: float = -1) -> Command | None:
        """Wait in the calling thread and return the answer; None if there is none in time."""
        if not self._is_open.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX)):
            return None
        if self._error is not None:
            raise self._error
        return self._answer


class InFlight:
    """The requests of one connection that wait for answers, by their opaque numbers.

    Threads may take numbers, and wait and give up by `open_in_thread` and `close_in_thread`;
    everything else is for the loop.  One timer serves all requests of the loop: it is set for the
    one whose time is up first, and most are answered long before it rings.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, expire: Expire) -> None:
        self._loop = loop
        self._expire = expire
        self._waiting: dict[int, asyncio.Future[Command] | ThreadAnswer] = {}
        self._limits: dict[int, _Limit] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0
        self._opaques = itertools.count(1)
        """One call gives one number, whoever else asks: a sum of ours might be lost to another."""

    def __len__(self) -> int:
        return len(self._waiting)

    def next_opaque(self) -> int:
        """Return a number for one more request."""
        return next(self._opaques) & _OPAQUE_MASK

    def new(self, code: int, header: HeaderFields | None, body: bytes) -> Command:
        """Return a request with a number of its own."""
        return Command(
            code=code,
            opaque=self.next_opaque(),
            ext_fields={} if header is None else header.encode(),
            body=body,
            serialize_type=HeaderType.JSON,
        )

    def open(self, opaque: int) -> asyncio.Future[Command]:
        """Return the future that gets the answer to a request."""
        future: asyncio.Future[Command] = self._loop.create_future()
        self._waiting[opaque] = future
        return future

    def open_in_thread(self, opaque: int) -> ThreadAnswer:
        """Return what the calling thread waits with for the answer to a request."""
        answer = self._waiting[opaque] = ThreadAnswer()
        return answer

    def close_in_thread(self, opaque: int) -> bool:
        """Wait no longer in the calling thread; return False if the answer is being given."""
        return self._waiting.pop(opaque, None) is not None

    def limit(self, opaque: int, code: int, timeout_ms: int) -> None:
        """Have a request that waits expire when its time is up."""
        ends_at = self._loop.time() + timeout_ms / 1000
        self._limits[opaque] = ends_at, code, timeout_ms
        if self._timer is None or ends_at < self._rings_at:
            self._set_timer(ends_at)

    def _set_timer(self, moment: float) -> None:
        self._stop_timer()
        self._rings_at = moment
        self._timer = self._loop.call_at(moment, self._ring)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        # A loop may ring a little early, by the resolution of its clock.
        now = max(self._loop.time(), self._rings_at)
        for opaque, (ends_at, code, timeout_ms) in list(self._limits.items()):
            if ends_at <= now:
                del self._limits[opaque]
                # Whoever was answered in this turn has not taken the answer yet.
                future = self._waiting.get(opaque)
                # Threads look at the clock themselves.
                if future is not None and not isinstance(future, ThreadAnswer):
                    self._expire(future, code, timeout_ms)
        if self._limits and self._timer is None:
            self._set_timer(min(ends_at for ends_at, _, _ in self._limits.values()))

    def close(self, opaque: int) -> None:
        """Wait for an answer no longer."""
        self._waiting.pop(opaque, None)
        self._limits.pop(opaque, None)

    def answered(self, command: Command) -> bool:
        """Give an answer to whoever waits for it; return whether anybody did."""
        future = self._waiting.pop(command.opaque, None)
        if future is not None and not future.done():
            future.set_result(command)
        return future is not None

    def fail(self, error: Exception) -> None:
        """Tell all that wait that there is no answer any more."""
        # Threads may add to the table and take from it meanwhile.
        while self._waiting:
            with contextlib.suppress(KeyError):
                _, future = self._waiting.popitem()
                if not future.done():
                    future.set_exception(error)
        self._limits.clear()
        self._stop_timer()
