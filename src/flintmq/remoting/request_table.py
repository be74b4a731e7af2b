"""The one table that leads from a request code to whoever handles it, and the gate before it.

Every request passes `RequestTable.handle`, whichever notation its header has and whether or not it
wants an answer.  There it is admitted first.  Then it goes one of two ways: a bulk handler gathers
it with others of its kind, or its processor has it alone.

Where the gate is open to all there is nothing to ask it, and requests of known kinds may be handled
straight from what the sockets brought (`take_reads`).  Any other gate sees each request.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.table import HEADERS
from flintmq.format.wire.remoting_errors import RemoteProtocolError
from flintmq.remoting.errors import RefusedError
from flintmq.remoting.peer import Peer
from flintmq.remoting.processors import Answer, Request, failed, send_answer
from flintmq.remoting.refusal_counts import RefusalCounts
from flintmq.remoting.request_latencies import UNKNOWN_CODE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.format.wire.command import Command
    from flintmq.format.wire.headers.codec import Header
    from flintmq.remoting.fair_turns import FairTurns
    from flintmq.remoting.processors import Outcome, Processor
    from flintmq.remoting.received_request import ReceivedRequest
    from flintmq.remoting.request_latencies import RequestLatencies

_LONG_POLLING: Final = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})


class RequestSource(Peer, Protocol):
    """A connection as the table and bulk handlers see it."""

    pull_reads: int
    """How many of its next reads are offered first to who knows pulls; not above 0: none."""

    def send_all(self, frames: Sequence[bytes]) -> None:
        """Send several whole frames."""
        ...

    def write_now(self) -> None:
        """Let what was sent so far leave now, and not at the end of the turn."""
        ...

    def process(self, request: ReceivedRequest) -> None:
        """Have an admitted request handled by its processor, alone."""
        ...

    def drop(self, reason: str) -> None:
        """Close now and log why."""
        ...


Admission: TypeAlias = Callable[[RequestSource, "ReceivedRequest"], None]
"""Decides whether a request may be handled; raises RefusedError if it may not."""


def admit_all(connection: RequestSource, request: ReceivedRequest) -> None:
    """Admit every request."""


Shedding: TypeAlias = Callable[[int, float], str | None]
"""Tells by its code and the seconds that it has waited why a request is too old, None if not."""


class BulkHandler(Protocol):
    """Handles several requests of one kind together.

    It is offered the requests of a turn of the loop one after the other, each with the connection
    that it came from.  What it gathered is handled before whatever comes behind it, and at the
    end of a read at the latest: the table calls `finish` then.
    """

    def gather(self, connection: RequestSource, request: ReceivedRequest) -> bool:
        """Take a request over; return False to leave it to its processor."""
        ...

    def finish(self) -> None:
        """Handle and answer all that was gathered."""
        ...


class ReadHandler(Protocol):
    """Handles whole requests straight from what sockets brought, without looking at each."""

    @property
    def is_ready(self) -> bool:
        """Whether it does so by now, and even a single request costs less that way."""
        ...

    def take_at_once(self, connection: RequestSource, data: bytes) -> int:
        """Handle requests at the beginning of a read that gain nothing from those of others.

        Return how many bytes those were.
        """
        ...

    def take(self, reads: Sequence[tuple[RequestSource, bytes]]) -> Sequence[int]:
        """Handle requests at the beginnings of reads; return how many bytes of each those were.

        The rest is for the table, request by request.
        """
        ...


class RequestHandlers(NamedTuple):
    """Who handles the requests of one code."""

    header_class: type[Header]
    processor: Processor
    bulk: BulkHandler | None = None


class RequestTable(Mapping[int, RequestHandlers]):
    """Who handles a request, by its code.

    A processor is a plain function that answers at once or, by returning None, later; or it is a
    coroutine function, which runs as a task.  Either may raise RefusedError to answer with another
    code.  ``bulk`` has the bulk handlers of those codes that have one.
    """

    def __init__(
        self,
        processors: Mapping[int, Processor],
        *,
        bulk: Mapping[int, BulkHandler] | None = None,
        reads: ReadHandler | None = None,
        admit: Admission = admit_all,
        shed: Shedding | None = None,
        latencies: RequestLatencies | None = None,
    ) -> None:
        self._handlers = {
            int(code): RequestHandlers(HEADERS[code].request, processor, (bulk or {}).get(code))
            for code, processor in processors.items()
        }
        self._bulk = {int(code): handler for code, handler in (bulk or {}).items()}
        assert self._bulk.keys() <= self._handlers.keys(), "a bulk handler needs a processor too"
        self.has_bulk = bool(self._bulk)
        """Whether any code has a bulk handler."""
        self.admit = admit
        """Called once for every request, before anything else is done for it."""
        self._shed = shed
        self.latencies = latencies
        """How long requests took; None: nobody wants to know."""
        self.refused = RefusalCounts()
        """What was refused because there was too much of it; a server puts its own here."""
        self._waited_s = 0.0
        """How long requests have waited that are handled now."""
        self.last_code = 0
        """The code of the request that came last: whoever looks for a cause wants to know."""
        self._reads = reads
        self._gathering: BulkHandler | None = None
        """The bulk handler that may have gathered something."""

    def __getitem__(self, code: int) -> RequestHandlers:
        return self._handlers[code]

    def __iter__(self) -> Iterator[int]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)

    @property
    def takes_reads(self) -> bool:
        """Whether requests may be handled straight from reads.

        Only where the gate is open to all: any other admission sees every request.
        """
        return self._reads is not None and self.admit is admit_all

    @property
    def takes_small_reads(self) -> bool:
        """Whether that pays for a read with a request or two."""
        return self._reads is not None and self._reads.is_ready and self.admit is admit_all

    def take_reads(self, reads: Sequence[tuple[RequestSource, bytes]]) -> Sequence[int]:
        """Have requests at the beginnings of reads handled; return how many bytes of each."""
        assert self._reads is not None
        assert self.admit is admit_all, "a gate that is not open to all sees every request"
        return self._reads.take(reads)

    def take_at_once(self, connection: RequestSource, data: bytes) -> int:
        """Have requests handled that gain nothing from those of other connections.

        Return how many bytes of a read those at its beginning were; any gate that is not open to
        all sees every request.
        """
        if self._reads is None or self.admit is not admit_all:
            return 0
        return self._reads.take_at_once(connection, data)

    def handle(self, connection: RequestSource, request: ReceivedRequest) -> None:
        """Admit a request and have it handled; one that is not admitted is answered here."""
        code = self.last_code = request.code
        bulk = self._bulk.get(code)
        if bulk is not self._gathering:
            if self._gathering is not None:
                self.finish()
            self._gathering = bulk
        try:
            self.admit(connection, request)
            if self._waited_s and self._shed is not None:
                self._refuse_if_old(code, self._shed)
        except RemoteProtocolError:
            raise  # The admission has looked at a header that is none.
        except Exception as error:
            self.finish()
            answer = failed(code, error)
            send_answer(connection, request.command, answer)
            self.note_answer(code, answer.code, self.began)
            return
        if bulk is not None:
            if bulk.gather(connection, request):
                return
            bulk.finish()
        connection.process(request)

    @property
    def began(self) -> float:
        """When the requests that are handled now have come."""
        return 0.0 if self.latencies is None else self.latencies.began

    def note_answer(self, code: int, answer_code: int, began: float) -> None:
        """Note that a request which came at a time is answered now."""
        if self.latencies is not None:
            known = code if code in self._handlers else UNKNOWN_CODE
            self.latencies.note(known, answer_code, began)

    def _refuse_if_old(self, code: int, shed: Shedding) -> None:
        reason = shed(code, self._waited_s)
        if reason is not None:
            raise RefusedError(ResponseCode.SYSTEM_BUSY, reason)

    @contextlib.contextmanager
    def late_by(self, turns: FairTurns | None, since: float | None) -> Iterator[None]:
        """Handle requests that have waited since some busy time of the loop: they may be too old.

        Who sends more than can be handled is told so, instead of being answered ever later.
        """
        if turns is not None and since is not None:
            self._waited_s = turns.busy_time - since
        try:
            yield
        finally:
            self._waited_s = 0.0

    def finish(self) -> None:
        """Have all that was gathered handled and answered."""
        bulk, self._gathering = self._gathering, None
        if bulk is not None:
            bulk.finish()

    def process(self, connection: Peer, command: Command) -> Outcome | Awaitable[Outcome]:
        """Run the processor of an admitted request; the answer says so if there is none."""
        handlers = self._handlers.get(command.code)
        if handlers is None:
            remark = f"request type {command.code} not supported"
            return Answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        try:
            header = handlers.header_class.decode(command.ext_fields)
            request = Request(connection, command, header)
            outcome = handlers.processor(request)
        except Exception as error:
            return failed(command.code, error)
        if outcome is None and self.latencies is not None:
            self._follow(request, self.latencies)
        return outcome

    def _follow(self, request: Request[Any], latencies: RequestLatencies) -> None:
        """Note how long a request took when it is answered later, or was by its processor."""
        code, began = request.command.code, latencies.began
        is_held = code in _LONG_POLLING

        def answered(answer: Answer) -> None:
            latencies.note(code, answer.code, began, is_long_polling=is_held)

        request.when_answered(answered)
