"""Sharing the time of the event loop among the connections of a server.

A few kilobytes of requests can ask for seconds of work.  So a turn of the loop has a budget of
time for requests, whichever connections they come from, and within a turn each connection has a
slice.  Requests that a turn has no time for wait in memory, in their order; their connection is
not read from meanwhile, and goes on in a later turn when all others that wait had theirs.

Work that takes long by itself, such as statistics of thousands of groups, is written as a
generator that yields wherever it may be interrupted.  `FairTurns.run` gives it slices in turn with
connections.  A peer may ask for such work thousands of times in a few kilobytes: all that one owner
wants is done one after the other, in the slices of one.  What cannot be interrupted and takes a
good part of a turn is done by `FairTurns.run_alone`, in a turn in which nobody else has a slice.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from flintmq.model.steps import Steps

_T = TypeVar("_T")
_NEVER: Final = -math.inf
TURN_MS: Final = 8.0
"""Time for requests in one turn of the loop."""
SLICE_MS: Final = 2.0
"""Time for the requests of one connection in one turn of the loop."""
GAP_MS: Final = 0.5
"""Slices that follow each other faster than this count as one turn.

Nobody tells when a turn of the loop ends, and a callback that would find out costs a tenth of a
request.  So there is one only on a loop that is busy for longer than `ASK_MS`.
"""
ASK_MS: Final = 2.0
"""A turn that seems to go on for so long is ended by a callback when the loop comes round."""

STALL_MS: Final = 50
"""So much of a turn counts as busy time at most: a stall of the whole process is no overload."""

SLICE_BODY_SIZE: Final = 128 << 10
"""Bytes of bodies that a slice takes in: gathered requests are handled only at its end, when the
time that they take has not been counted yet."""

PLAIN_HEADER_SIZE: Final = 1024
"""Bytes of a header that count for nothing."""
LARGE_HEADER_WEIGHT: Final = 4
"""How many times the bytes of a larger one count, like those of a body: each few of them may be one
more key that is entered into an index."""


class TakesTurns(Protocol):
    """A connection that may have requests left over."""

    def go_on(self) -> None:
        """Handle requests that were left over, within a new slice."""
        ...


class FairTurns:
    """Says how long a connection may go on, and lets those that had to stop go on in turn.

    ``now`` is a clock in seconds.  That of the loop will not do: uvloop's stands still in a turn.
    """

    def __init__(
        self,
        *,
        turn_ms: float = TURN_MS,
        slice_ms: float = SLICE_MS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._turn_time = turn_ms / 1000
        self._slice_time = slice_ms / 1000
        self._gap = GAP_MS / 1000
        self._ask_time = min(turn_ms, ASK_MS) / 1000
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[TakesTurns] = deque()
        self._works: dict[Hashable, deque[_SlicedWork[Any]]] = {}
        """Work that waits, by its owner; the owner whose turn is next comes first."""
        self._is_work_next = False
        """Whether work has the next slice, if connections wait as well."""
        self._alone: deque[_LoneCall] = deque()
        self._was_alone = False
        """Whether the last turn was that of a call which wanted it for itself."""
        self._is_scheduled = False
        """Whether those that wait go on in the next turn of the loop."""
        self._turn_end = 0.0
        self._ask_at = 0.0
        self._has_asked = False
        """Whether the loop was asked to tell when it comes round."""
        self.slice_began = 0.0
        """When the slice began in which requests are handled, or were last."""
        self._slice_ended = _NEVER
        self._long_time = math.inf
        self._on_long_slice: Callable[[float, int | str], None] | None = None
        self.now = now
        self.busy_time = 0.0
        """Seconds in which there was something to do; by this it is told how long requests wait."""
        self._turn_began = _NEVER
        self.turn_count = 0
        """How many turns had requests."""
        self.postponed_count = 0
        """How often requests of a connection were left over for a later turn."""

    @property
    def waiting_count(self) -> int:
        """Connections that wait for their turn, owners of work, and calls that want one alone."""
        return len(self._waiting) + len(self._works) + len(self._alone)

    def when_long(self, seconds: float, told: Callable[[float, int | str], None]) -> None:
        """Tell of every slice that takes so long: its time, and what `end` says was its cause."""
        self._long_time, self._on_long_slice = seconds, told

    def begin(self) -> float:
        """Begin a slice; return the time on ``now`` when it ends, 0 if the turn has none left."""
        now = self.slice_began = self.now()
        if now - self._slice_ended > self._gap and not self._is_scheduled:
            self._begin_turn(now)
        elif now >= self._ask_at and not self._has_asked:
            self._has_asked = True
            self._loop.call_soon(self._came_round)
        slice_end, turn_end = now + self._slice_time, self._turn_end
        if slice_end < turn_end:
            return slice_end
        return turn_end if now < turn_end else 0.0

    def end(self, cause: int | str) -> None:
        """End a slice whose last request had this code, or whose work has this name."""
        now = self._slice_ended = self.now()
        if now - self.slice_began >= self._long_time and self._on_long_slice is not None:
            self._on_long_slice(now - self.slice_began, cause)

    def _begin_turn(self, now: float) -> None:
        self.busy_time += min(now - self._turn_began, STALL_MS / 1000)
        self._turn_began = now
        self._turn_end = now + self._turn_time
        self._ask_at = now + self._ask_time
        self.turn_count += 1

    def _came_round(self) -> None:
        self._has_asked = False
        self._slice_ended = _NEVER

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_turn)

    def postpone(self, connection: TakesTurns) -> None:
        """Let a connection go on when those that wait already had their turn."""
        self.postponed_count += 1
        self._waiting.append(connection)
        self._schedule()

    def run(self, steps: Steps[_T], name: str, owner: Hashable | None = None) -> asyncio.Future[_T]:
        """Do work slice by slice, beginning now; the future has its result.

        Work of one owner is done one after the other; without an owner, work of one name.  If the
        future is cancelled, the work ends where it was interrupted.
        """
        done: asyncio.Future[_T] = self._loop.create_future()
        done.add_done_callback(lambda _: steps.close())
        work = _SlicedWork(self, steps, name, done)
        owner = name if owner is None else owner
        waiting = self._works.get(owner)
        if waiting is not None:
            waiting.append(work)
        elif not work.go_on():
            self._works[owner] = deque([work])
            self._schedule()
        return done

    def run_alone(self, call: Callable[[], None], name: str) -> asyncio.Future[None]:
        """Make a call in a turn in which nobody has a slice; the future tells that it was made.

        Others have the turn between two of them.
        """
        lone = _LoneCall(call, name, self._loop.create_future())
        self._alone.append(lone)
        self._turn_end = 0.0
        self._schedule()
        return lone.done

    def _call_alone(self) -> None:
        call, name, done = self._alone.popleft()
        if done.done():
            return  # Whoever wanted it is gone.
        self.begin()
        began, self._turn_end = self.slice_began, 0.0
        try:
            call()
        except Exception as error:
            done.set_exception(error)
        else:
            done.set_result(None)
        finally:
            self.slice_began = began
            self.end(name)

    def _next_turn(self) -> None:
        self._begin_turn(self.now())
        self._was_alone = bool(self._alone) and not self._was_alone
        try:
            if self._was_alone:
                self._call_alone()
            else:
                self._share_turn()
        finally:
            # Whatever goes wrong with one of them, the others have their turns.
            self._is_scheduled = False
            if self.waiting_count:
                self._schedule()

    def _share_turn(self) -> None:
        # Each at most once, or one that is postponed again would take the slice of another.
        connection_count, owner_count = len(self._waiting), len(self._works)
        while connection_count or owner_count:
            if owner_count and (self._is_work_next or not connection_count):
                owner_count -= 1
                self._is_work_next = False
                self._go_on_with_work()
            else:
                connection_count -= 1
                self._is_work_next = True
                self._waiting.popleft().go_on()
            if self.now() >= self._turn_end:
                break

    def _go_on_with_work(self) -> None:
        """Give a slice to the owner whose turn it is."""
        owner, works = next(iter(self._works.items()))
        # Who asks for more meanwhile finds that some waits, and the others have their turn first.
        del self._works[owner]
        self._works[owner] = works
        if works[0].go_on():
            works.popleft()
        if not works:
            del self._works[owner]


class _LoneCall(NamedTuple):
    """A call that wants a turn for itself."""

    call: Callable[[], None]
    name: str
    done: asyncio.Future[None]


class _SlicedWork(Generic[_T]):
    """Work that is done in slices."""

    def __init__(
        self, turns: FairTurns, steps: Steps[_T], name: str, done: asyncio.Future[_T]
    ) -> None:
        self._turns = turns
        self._steps = steps
        self._name = name
        self._done = done

    def go_on(self) -> bool:
        """Do the steps that one slice has time for; return whether that was the last of them."""
        if self._done.done():
            return True  # Whoever wanted it is gone.
        turns = self._turns
        slice_end = turns.begin()
        try:
            while turns.now() < slice_end:
                next(self._steps)
        except StopIteration as finished:
            self._done.set_result(finished.value)
            return True
        except Exception as error:
            self._done.set_exception(error)
            return True
        finally:
            turns.end(self._name)
        turns.postponed_count += 1
        return False
