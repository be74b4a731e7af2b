"""What one turn of the loop brought from all connections, handled together.

Many producers with a request each are as much work as one with many, if each request has its own
way through the server.  So reads are kept until the loop has asked all sockets, which is when it
comes to its callbacks.  Then all requests are handled, those that can be gathered over all
connections, and the answers of each connection leave with one write.  Reads of peers that finish
no frames come after all others (`flintmq.remoting.unfinished_reads`).

Known pulls gain nothing from each other, so they are answered at once where nothing else has come
for a while.  Otherwise they are kept like everything else, and handled last: each takes as long as
some sends, and what is sent may be what they wait for.

Where only one connection is busy there is nothing to gather with: its reads are handled at once.
"""

from __future__ import annotations

import asyncio
import logging
import math
import weakref
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from flintmq.remoting.active_wait import ActiveWait
from flintmq.remoting.request_table import RequestSource
from flintmq.remoting.unfinished_reads import UnfinishedReads, UnfinishedSource

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

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
"""A read of so many bytes has few requests; to load machine code for those would not pay."""
LARGE_READ_SIZE: Final = 128 << 10
"""After a read of so many bytes nothing more is read from its connection in this turn: the loop
would take 32 of them in a row, 8 MiB, before it asks another socket."""
LARGE_READS_MAX: Final = 1
"""Connections that had such a read and are read from again in one turn; the others are next."""
UNKNOWN_READS: Final = 32
"""Small reads of a connection that are not offered to machine code after it has known nothing of
some: whoever pulls goes on to do so."""
PULLS_KEPT: Final = 64
"""So many reads of who pulls are kept after one of somebody else."""
UNKNOWN_READS_MIN: Final = 4
"""So many of them in succession: what it does not know it learns from one or two."""


class ReadSource(RequestSource, UnfinishedSource, Protocol):
    """A connection whose reads are kept."""

    unknown_reads: int
    """How many of its next small reads are taken to bring nothing that machine code knows.

    Below zero it is how many in succession have just been offered and have brought nothing.
    """
    reads_large: bool
    """Whether its last read was so large that it has to wait for its turn to be read from again."""

    @property
    def is_lost(self) -> bool:
        """Whether it has ended, and everybody was told."""
        ...

    @property
    def peer_text(self) -> str:
        """The other side as RocketMQ writes addresses."""
        ...

    def read_on(self) -> bool:
        """Read again, unless something that was read is left; return whether that is done."""
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

    def __init__(self, owner: InboxOwner, *, active_wait_s: float = 0.0) -> None:
        """Describe the inbox; ``active_wait_s`` is how long it may wait for a quick client."""
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._active_wait = ActiveWait(self._loop, active_wait_s)
        self._reads: list[tuple[ReadSource, bytes]] = []
        self._paused: list[ReadSource] = []
        """Connections that are not read from before those reads are handled."""
        self._unfinished: UnfinishedReads[ReadSource] = UnfinishedReads()
        self._is_scheduled = False
        """Whether `handle` is called when the loop comes to its callbacks."""
        self._large: deque[ReadSource] = deque()
        """Connections whose large reads were handled; they are read from again in turn."""
        self._resumed: weakref.WeakSet[ReadSource] = weakref.WeakSet()
        """Connections that had a large read, may be read from, and have not been since."""
        self._is_resuming = False
        """Whether the first of them are read from in the next turn of the loop."""
        self._crowded_turns = 0
        """Turns in which reads are kept, even if they stay alone; 0 while the inbox is calm."""
        self._pulls_kept = 0
        """How many of the next reads of who pulls are kept for the end of their turn."""
        self._last_source: ReadSource | None = None
        self._last_time = -math.inf

    def add(self, connection: ReadSource, data: bytes) -> None:
        """Keep what a read brought until all sockets were asked, or handle it now if it is calm."""
        is_pulling = connection.pull_reads > 0
        if not is_pulling:
            self._pulls_kept = PULLS_KEPT
        if not self._reads and not self._unfinished:
            if self._is_calm(connection, data):
                self._active_wait.came(self._last_time)
                self._handle_alone(connection, data)
                self._active_wait.answered()
                return
            if is_pulling and not self._pulls_kept and len(data) <= SMALL_READ_SIZE:
                data = self._take_at_once(connection, data)
                if not data:
                    # No turn was needed for it; but it shows that a crowd has thinned out.
                    if self._crowded_turns:
                        self._crowded_turns -= 1
                    return
        if is_pulling and self._pulls_kept:
            self._pulls_kept -= 1
        if not self._reads:
            self._handle_later()
        self._reads.append((connection, data))
        if len(data) >= LARGE_READ_SIZE:
            self._pause(connection)

    def _is_calm(self, connection: ReadSource, data: bytes) -> bool:
        """Whether a read has nothing to wait for, since nobody else has had one just now."""
        turns = self._owner.turns
        return (
            turns is not None
            and not self._crowded_turns
            and self._is_alone(connection, turns)
            and len(data) < LARGE_READ_SIZE
        )

    def _handle_alone(self, connection: ReadSource, data: bytes) -> None:
        """Handle a read that nothing has come with."""
        if len(data) > SMALL_READ_SIZE:
            self._handle_together([(connection, data)])
            return
        if connection.pull_reads > 0:
            data = self._take_at_once(connection, data)
        if data:
            self._handle_small(connection, data)

    def _take_at_once(self, connection: ReadSource, data: bytes) -> bytes:
        """Have known pulls at the beginning of a read answered; return what is left of it."""
        turns, requests = self._owner.turns, self._owner.requests
        if connection.unknown_reads > 0:
            return data
        if turns is not None and not turns.begin():
            return data
        whole = connection.open_read(data)
        if whole is None:
            return data
        try:
            size = requests.take_at_once(connection, whole)
        except Exception:
            logger.exception("requests could not be handled: peer=%s", connection.peer_text)
            connection.abort()
            return b""
        if size < len(whole):
            if size:
                connection.unknown_reads = 0
            return whole[size:]
        connection.has_finished_frame = True
        connection.finish_read()
        if turns is not None:
            turns.end(requests.last_code)
        return b""

    def _handle_later(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self.handle)

    def _pause(self, connection: ReadSource) -> None:
        """Read nothing more from a connection in this turn, nor from others that may bring much."""
        connection.pause_reading()
        connection.reads_large = True
        self._paused.append(connection)
        self._resumed.discard(connection)
        if len(self._paused) >= LARGE_READS_MAX:
            # One by one they could not be taken out: the garbage collector may take the last one.
            resumed = list(self._resumed)
            self._resumed.clear()
            for other in resumed:
                other.pause_reading()
                other.reads_large = True
                self._large.appendleft(other)

    def _is_alone(self, connection: ReadSource, turns: FairTurns) -> bool:
        """Whether no other connection had a read just now; if one had, the inbox is crowded."""
        now = turns.now()
        is_alone = connection is self._last_source or now - self._last_time > CALM_S
        self._last_source, self._last_time = connection, now
        if not is_alone:
            self._active_wait.end()
            self._crowded_turns = CROWDED_TURNS
            self._last_source = None
        return is_alone

    def _handle_small(self, connection: ReadSource, data: bytes) -> None:
        """Handle a read with a few requests that came alone; it goes the shortest way there is."""
        requests = self._owner.requests
        if connection.unknown_reads > 0:
            connection.unknown_reads -= 1
            connection.handle_read(data)
            return
        if not requests.takes_small_reads:
            connection.handle_read(data)
            return
        if self._owner.turns is not None:
            self._owner.turns.begin()
        rest: bytes | None = data
        if (whole := connection.open_read(data)) is not None:
            rest = self._take_known_of(connection, whole)
        if rest is None:
            return
        if rest:
            self._take_rest(connection, rest, has_known=whole is not None and rest != whole)
        self._finish((connection,))

    def _take_known_of(self, connection: ReadSource, data: bytes) -> bytes | None:
        """Have requests of known kinds handled; return what is left, None if that has failed."""
        try:
            handled = self._owner.requests.take_reads(((connection, data),))
        except Exception:
            logger.exception("requests could not be handled: peer=%s", connection.peer_text)
            connection.abort()
            return None
        size = handled[0] if handled else 0
        self._note_known(connection, size)
        return data[size:]

    @staticmethod
    def _note_known(connection: ReadSource, size: int) -> None:
        """Note how many bytes of a read machine code has known."""
        if size:
            connection.unknown_reads = 0
            connection.has_finished_frame = True
        elif connection.unknown_reads > 1 - UNKNOWN_READS_MIN:
            connection.unknown_reads -= 1
        else:
            connection.unknown_reads = UNKNOWN_READS

    def _take_rest(self, connection: ReadSource, data: bytes, *, has_known: bool) -> None:
        """Have a connection handle its requests one by one.

        With ``has_known`` they came behind others in their read, which were handled already.
        """
        try:
            connection.take_read(data)
            if has_known:
                connection.has_finished_frame = True
        except Exception:
            # As a transport does with a connection whose read could not be handled.
            logger.exception("requests could not be handled: peer=%s", connection.peer_text)
            connection.abort()

    def handle(self) -> None:
        """Handle what has come, and answer."""
        self._is_scheduled = False
        reads, self._reads = self._reads, []
        paused, self._paused = self._paused, []
        if self._crowded_turns:
            self._crowded_turns = CROWDED_TURNS if len(reads) > 1 else self._crowded_turns - 1
        if len(reads) == 1 and not self._unfinished:
            self._handle_in_parts(reads)
        else:
            self._handle_by_kind(self._unfinished.set_aside(reads))
        if self._unfinished:
            paused = [one for one in paused if one not in self._unfinished]
            paused += self._handle_unfinished()
        self._large += paused
        self._resume_later()

    def _handle_by_kind(self, reads: list[tuple[ReadSource, bytes]]) -> None:
        """Handle reads of who pulls behind all others: what others send wakes pulls that wait.

        So neither the answer to a send nor what it wakes waits for pulls that came with it.
        """
        pulling = [read for read in reads if read[0].pull_reads > 0]
        if 0 < len(pulling) < len(reads):
            self._handle_in_parts([read for read in reads if read[0].pull_reads <= 0])
            reads = pulling
        self._handle_in_parts(reads)

    def _handle_in_parts(self, reads: list[tuple[ReadSource, bytes]]) -> None:
        """Handle reads, so many bytes of them together."""
        if len(reads) == 1 and self._owner.turns is not None:
            ((connection, data),) = reads
            if len(data) <= SMALL_READ_SIZE:
                # What has waited for a lost connection was told already.
                if not connection.is_lost:
                    self._handle_small(connection, data)
                return
        first = size = part_count = 0
        for number, (_, data) in enumerate(reads):
            size += len(data)
            if size > GATHERED_SIZE_MAX:
                self._handle_together(reads[first : number + 1], part_count)
                first, size, part_count = number + 1, 0, part_count + 1
        self._handle_together(reads[first:], part_count)

    def _handle_unfinished(self) -> list[ReadSource]:
        """Handle reads of peers that finish no frames, of a few of them.

        Returns those whose last read was large, which are read from in turn.
        """
        reads, resumed = self._unfinished.take()
        self._handle_in_parts(reads)
        for connection in resumed:
            if not connection.reads_large:
                connection.read_on()
        if self._unfinished:
            self._handle_later()
        return [one for one in dict(reads) if one.reads_large]

    def read_on_later(self, connection: ReadSource) -> None:
        """Have a connection read from again when those that wait already had their turn."""
        self._large.append(connection)
        self._resume_later()

    def _resume_later(self) -> None:
        if self._large and not self._is_resuming:
            self._is_resuming = True
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        """Have some connections read from again, so that a turn brings so many large reads."""
        self._is_resuming = False
        count = 0
        while self._large and count < LARGE_READS_MAX:
            connection = self._large.popleft()
            # One with something left comes back when that is handled.
            if connection.read_on():
                connection.reads_large = False
                self._resumed.add(connection)
                count += 1
        self._resume_later()

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
        takes_reads = requests.takes_small_reads if is_small else requests.takes_reads
        known: Collection[ReadSource] = ()
        # What is put off takes ten times as long later, and the machine may only have been busy.
        if takes_reads and (has_time or part_count < PARTS_ANYWAY):
            reads, known = self._take_known(reads)
        for connection, data in reads:
            if not data:
                continue
            self._take_rest(connection, data, has_known=connection in known)
            if turns is not None:
                turns.end(requests.last_code)
        self._finish([connection for connection, _ in reads])

    def _take_known(
        self, reads: list[tuple[ReadSource, bytes]]
    ) -> tuple[list[tuple[ReadSource, bytes]], Collection[ReadSource]]:
        """Have requests of known kinds handled all at once.

        Return what is left of each read, and the connections that had such requests.
        """
        opened: dict[int, bytes] = {}
        seen: set[ReadSource] = set()
        for number, (connection, data) in enumerate(reads):
            if connection.unknown_reads > 0 and len(data) <= SMALL_READ_SIZE:
                connection.unknown_reads -= 1
                seen.add(connection)
                continue
            # Of two reads of one connection the second may begin in the middle of a frame.
            if connection not in seen and (whole := connection.open_read(data)) is not None:
                opened[number] = whole
            seen.add(connection)
        if not opened:
            return reads, ()
        rests = list(reads)
        for number, whole in opened.items():
            rests[number] = reads[number][0], whole
        try:
            handled = self._owner.requests.take_reads([rests[number] for number in opened])
        except Exception:
            logger.exception("requests could not be handled: peers=%d", len(opened))
            for number in opened:
                reads[number][0].abort()
            return [read for number, read in enumerate(reads) if number not in opened], ()
        known = set()
        for number, size in zip(opened, handled, strict=False):
            connection = reads[number][0]
            self._note_known(connection, size)
            rests[number] = connection, opened[number][size:]
            if size:
                known.add(connection)
        return rests, known

    def _finish(self, open_connections: Sequence[ReadSource]) -> None:
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
