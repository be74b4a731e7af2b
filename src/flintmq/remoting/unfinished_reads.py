"""Reads of peers whose last one finished no frame: few of them are handled in a turn of the loop.

A peer that has just connected, that writes a byte at a time or that speaks another protocol brings
reads from which no request comes.  Hundreds of them in one turn would keep everybody else waiting
for as long as it takes to look at all of them, and to close those that are none of ours.  So
requests of others are handled and answered first, and then the reads of a few such connections.
The rest wait for the next turns, in their order; one that brings more meanwhile is not read from
until its turn has come.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

UNFINISHED_CONNECTIONS_MAX: Final = 4
"""Such connections whose reads are handled in one turn."""


class UnfinishedSource(Protocol):
    """A connection whose reads may have to wait."""

    has_finished_frame: bool
    """Whether its last read finished a frame; a connection that is new has finished none."""

    def pause_reading(self) -> None:
        """Have nothing more read until what was read is handled."""
        ...


SourceT = TypeVar("SourceT", bound=UnfinishedSource)


class UnfinishedReads(Generic[SourceT]):
    """Keeps reads of peers that have finished no frame until it is their turn."""

    def __init__(self) -> None:
        self._waiting: dict[SourceT, list[bytes]] = {}
        """Reads by connection, in the order in which the connections came."""
        self._paused: set[SourceT] = set()
        """Those of them that are not read from."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, connection: SourceT) -> bool:
        return connection in self._waiting

    def set_aside(self, reads: list[tuple[SourceT, bytes]]) -> list[tuple[SourceT, bytes]]:
        """Take unfinished reads, unless they are few, from those of a turn; return the others."""
        unfinished = {connection for connection, _ in reads if not connection.has_finished_frame}
        if not self._waiting and len(unfinished) <= UNFINISHED_CONNECTIONS_MAX:
            return reads
        for connection, data in reads:
            if connection in unfinished:
                self._keep(connection, data)
        return [read for read in reads if read[0] not in unfinished]

    def _keep(self, connection: SourceT, data: bytes) -> None:
        kept = self._waiting.setdefault(connection, [])
        kept.append(data)
        if len(kept) > 1:
            # Its turn mostly comes before more does; now it has not, and one read more is enough.
            connection.pause_reading()
            self._paused.add(connection)

    def take(self) -> tuple[list[tuple[SourceT, bytes]], list[SourceT]]:
        """Return the reads for this turn, and those of their connections that were paused."""
        chosen = list(islice(self._waiting, UNFINISHED_CONNECTIONS_MAX))
        reads = [(one, data) for one in chosen for data in self._waiting.pop(one)]
        resumed = [one for one in chosen if one in self._paused]
        self._paused.difference_update(resumed)
        return reads, resumed
