"""What one turn of the loop brought from all connections, handled together.

Many producers with a request each are as much work as one with many, if each request has its own
way through the server.  So reads are kept until the loop has asked all sockets, which is when it
comes to its callbacks.  Then all requests are handled, those that can be gathered over all
connections, and the answers of each connection leave with one write.

Where only one connection is busy there is nothing to gather with: its reads are handled at once.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Final, Protocol

from flintmq.remoting.request_table import RequestSource

if TYPE_CHECKING:
    from flintmq.remoting.fair_turns import FairTurns
    from flintmq.remoting.request_table import RequestTable

logger = logging.getLogger(__name__)

GATHERED_SIZE_MAX: Final = 512 << 10
"""Bytes of reads whose requests are gathered together: so long nobody else has his turn."""

PARTS_ANYWAY: Final = 4
"""Parts of a turn, of GATHERED_SIZE_MAX each, whose known requests are handled even if its time is
over: machine code takes a few milliseconds for them."""

CALM_S: Final = 0.0005
"""Reads of two connections that come within this time make an inbox crowded."""
CROWDED_TURNS: Final = 256
"""Turns with one read each after which an inbox is calm again."""
SMALL_READ_SIZE: Final = 1500
"""A read of so many bytes has few requests, which cost less when they are looked at in Python."""
UNKNOWN_READS: Final = 32
"""Small reads of a connection that are not offered to machine code after it has known nothing of
one: whoever pulls goes on to do so."""


class ReadSource(RequestSource, Protocol):
    """A connection whose reads are kept."""

    unknown_reads: int
    """How many of its next small reads are taken to bring nothing that machine code knows."""

    @property
    def is_lost(self) -> bool:
        """Whether it has ended, and everybody was told."""
        ...

    @property
    def peer_text(self) -> str:
        """The other side as RocketMQ writes addresses."""
        ...

    def handle_read(self, data: bytes) -> None:
        """Handle all that a read brought, and answer."""
        ...

    def open_read(self, data: bytes) -> bytes | None:
        """Return a read from where a frame begins; None if it has to go by `take_read`."""
        ...

    def take_read(self, data: bytes) -> None:
        """Handle what a read brought; what is gathered of it and its answers wait."""
        ...

    def finish_read(self) -> None:
        """Write what the requests of a read have led to."""
        ...

    def abort(self) -> None:
        """Close now."""
        ...


class InboxOwner(Protocol):
    """A server whose connections share an inbox."""

    requests: RequestTable
    turns: FairTurns | None

    def end_of_read(self) -> None:
        """Learn that what a turn brought was handled; the answers are not written yet."""
        ...


class TurnInbox:
    """Keeps the reads of a turn of the loop, and has them handled at its end."""

    def __init__(self, owner: InboxOwner) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._reads: list[tuple[ReadSource, bytes]] = []
        self._crowded_turns = 0
        """Turns in which reads are kept, even if they stay alone; 0 while the inbox is calm."""
        self._last_source: ReadSource | None = None
        self._last_time = -math.inf

    def add(self, connection: ReadSource, data: bytes) -> None:
        """Keep what a read brought until all sockets were asked, or handle it now if it is calm."""
        if not self._reads:
            turns = self._owner.turns
            if turns is not None and not self._crowded_turns and self._is_alone(connection, turns):
                if len(data) <= SMALL_READ_SIZE:
                    connection.handle_read(data)
                else:
                    self._handle_together([(connection, data)])
                return
            self._loop.call_soon(self.handle)
        self._reads.append((connection, data))

    def _is_alone(self, connection: ReadSource, turns: FairTurns) -> bool:
        """Whether no other connection had a read just now; if one had, the inbox is crowded."""
        now = turns.now()
        is_alone = connection is self._last_source or now - self._last_time > CALM_S
        self._last_source, self._last_time = connection, now
        if not is_alone:
            self._crowded_turns = CROWDED_TURNS
            self._last_source = None
        return is_alone

    def handle(self) -> None:
        """Handle what has come, and answer."""
        reads, self._reads = self._reads, []
        if self._crowded_turns:
            self._crowded_turns = CROWDED_TURNS if len(reads) > 1 else self._crowded_turns - 1
        first = size = part_count = 0
        for number, (_, data) in enumerate(reads):
            size += len(data)
            if size > GATHERED_SIZE_MAX:
                self._handle_together(reads[first : number + 1], part_count)
                first, size, part_count = number + 1, 0, part_count + 1
        self._handle_together(reads[first:], part_count)

    def _handle_together(self, reads: list[tuple[ReadSource, bytes]], part_count: int = 0) -> None:
        """Handle the requests of some reads, those that can be gathered together.

        ``part_count`` is how many parts of the turn were handled before.
        """
        # What has waited for lost connections was told already.
        reads = [read for read in reads if not read[0].is_lost]
        if not reads:
            return
        turns, requests = self._owner.turns, self._owner.requests
        has_time = turns is None or turns.begin() > 0
        is_small = len(reads) == 1 and len(reads[0][1]) <= SMALL_READ_SIZE
        # What is put off takes ten times as long later, and the machine may only have been busy.
        if requests.takes_reads and not is_small and (has_time or part_count < PARTS_ANYWAY):
            reads = self._take_known(reads)
        for connection, data in reads:
            if not data:
                continue
            try:
                connection.take_read(data)
            except Exception:
                # As a transport does with a connection whose read could not be handled.
                logger.exception("requests could not be handled: peer=%s", connection.peer_text)
                connection.abort()
            if turns is not None:
                turns.end(requests.last_code)
        self._finish([connection for connection, _ in reads])

    def _take_known(self, reads: list[tuple[ReadSource, bytes]]) -> list[tuple[ReadSource, bytes]]:
        """Have requests of known kinds handled all at once; return what is left of each read."""
        opened: dict[int, bytes] = {}
        seen: set[ReadSource] = set()
        for number, (connection, data) in enumerate(reads):
            if connection.unknown_reads and len(data) <= SMALL_READ_SIZE:
                connection.unknown_reads -= 1
                seen.add(connection)
                continue
            # Of two reads of one connection the second may begin in the middle of a frame.
            if connection not in seen and (whole := connection.open_read(data)) is not None:
                opened[number] = whole
            seen.add(connection)
        if not opened:
            return reads
        rests = list(reads)
        for number, whole in opened.items():
            rests[number] = reads[number][0], whole
        try:
            handled = self._owner.requests.take_reads([rests[number] for number in opened])
        except Exception:
            logger.exception("requests could not be handled: peers=%d", len(opened))
            for number in opened:
                reads[number][0].abort()
            return [read for number, read in enumerate(reads) if number not in opened]
        for number, size in zip(opened, handled, strict=False):
            reads[number][0].unknown_reads = 0 if size else UNKNOWN_READS
            rests[number] = reads[number][0], opened[number][size:]
        return rests

    def _finish(self, open_connections: list[ReadSource]) -> None:
        """Have gathered requests handled, and let all answers leave."""
        owner = self._owner
        try:
            owner.requests.finish()
            owner.end_of_read()
        except Exception:
            logger.exception("requests could not be handled: peers=%d", len(open_connections))
            for connection in open_connections:
                connection.abort()
        for connection in open_connections:
            connection.finish_read()
        if owner.turns is not None:
            owner.turns.end(owner.requests.last_code)
