"""Deliveries that are in the log but not on the disk yet: the pipeline of one delay level.

With synchronous flush and ``enableScheduleAsyncDeliver`` a level does not count a delivery as
done when the log has taken it, but when it is flushed; meanwhile it goes on with the next ones.
Deliveries are done in the order of their queue.  RocketMQ sends a failed one again while younger
ones overtake it; here the level goes back to the first one that failed, so that nothing does.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from flintmq.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable


class WhenFlushed(Protocol):
    """How to learn that the log is on the disk up to an offset (``MessageStore.when_flushed``)."""

    def __call__(self, offset: int, done: Callable[[PutStatus, str], None]) -> None:
        """Call ``done(status, reason)``, maybe from another thread, maybe before returning."""
        ...


class _Flight:
    """One delivery on its way to the disk.  The flushing thread writes only the last two fields."""

    __slots__ = ("end_offset", "following", "reason", "status")

    def __init__(self, following: int, end_offset: int) -> None:
        self.following = following
        self.end_offset = end_offset
        self.reason = ""
        self.status: PutStatus | None = None

    def finish(self, status: PutStatus, reason: str) -> None:
        self.reason = reason
        self.status = status


class Harvest(NamedTuple):
    """What became of the deliveries of a level since the last look."""

    done: int | None
    """The queue offset after the last delivery that is done, None when none is."""
    failure: str | None
    """Why the next one failed, None when it has not: those after it are given up too."""


class DeliveryPipeline:
    """The deliveries of one level that wait for a flush, oldest first.

    Everything but ``_Flight.finish`` is called by the owner of the store.
    """

    def __init__(self, when_flushed: WhenFlushed) -> None:
        self._when_flushed = when_flushed
        self._flights: deque[_Flight] = deque()

    def __len__(self) -> int:
        return len(self._flights)

    def add(self, following: int, end_offset: int) -> None:
        """Wait for a delivery whose record ends at ``end_offset`` of the log.

        ``following`` is the queue offset the level has reached when it is done.
        """
        flight = _Flight(following, end_offset)
        self._flights.append(flight)
        self._when_flushed(end_offset, flight.finish)

    def harvest(self) -> Harvest:
        """Take out what is done, in order; on a failure take out everything."""
        done = None
        flights = self._flights
        while flights:
            flight = flights[0]
            status = flight.status
            if status is PutStatus.PUT_OK:
                done = flights.popleft().following
            elif status is PutStatus.FLUSH_DISK_TIMEOUT:
                # It is in the log, so a second one would be a duplicate: the disk is only slow.
                flight.status = None
                self._when_flushed(flight.end_offset, flight.finish)
                if flight.status is PutStatus.FLUSH_DISK_TIMEOUT:
                    break
            elif status is not None:
                flights.clear()
                return Harvest(done, flight.reason or status.value)
            else:
                break
        return Harvest(done, None)
