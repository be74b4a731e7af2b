"""Requests as processors see them: a typed header in, a typed answer out, no socket, no JSON."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from flintmq.format.codes import ResponseCode
from flintmq.format.command import (
    RESPONSE_FLAG,
    Command,
    encode_answer_head,
    encode_command_head,
)
from flintmq.format.errors import FormatError
from flintmq.format.frame import HeaderType
from flintmq.format.headers.codec import Header
from flintmq.format.headers.table import HEADERS
from flintmq.format.remoting_errors import LocalProtocolError
from flintmq.remoting.errors import RefusedError

if TYPE_CHECKING:
    from flintmq.format.buffer import Buffer
    from flintmq.remoting.peer import Peer

logger = logging.getLogger(__name__)

HeaderT = TypeVar("HeaderT", bound=Header)


@dataclass(slots=True)
class Answer:
    """How a request ended.

    ``parts`` are sent behind each other as the body; ``release`` is called once they were copied
    for the transport, so that views into files need not outlive that.
    """

    code: int = ResponseCode.SUCCESS
    header: Header | None = None
    remark: str | None = None
    parts: Sequence[Buffer] = ()
    release: Callable[[], None] | None = None

    def encode(self, command: Command) -> bytes:
        """Return the frame that answers ``command``, in the notation it came in."""
        header, parts = self.header, self.parts
        body_size = sum(map(len, parts)) if parts else 0
        if command.serialize_type is HeaderType.JSON:
            head = encode_answer_head(
                code=self.code,
                opaque=command.opaque,
                remark=self.remark,
                ext_json=None if header is None else header.encode_json(),
                body_size=body_size,
            )
        else:
            answer = Command(
                code=self.code,
                opaque=command.opaque,
                flag=RESPONSE_FLAG,
                remark=self.remark,
                ext_fields={} if header is None else header.encode(),
                serialize_type=command.serialize_type,
                empty_ext_fields=header is not None,
            )
            head = encode_command_head(answer, body_size=body_size)
        return b"".join((head, *parts)) if parts else head

    def done(self) -> None:
        """Give back what the parts are views of."""
        if self.release is not None:
            self.release()


class Request(Generic[HeaderT]):
    """One request of a peer.  A processor that returns None answers later through `answer`."""

    __slots__ = ("_is_answered", "command", "connection", "header")

    def __init__(self, connection: Peer, command: Command, header: HeaderT) -> None:
        self.connection = connection
        self.command = command
        self.header = header
        self._is_answered = False

    @property
    def body(self) -> bytes:
        """The body as it came."""
        return self.command.body

    def answer(self, answer: Answer) -> None:
        """Send the answer; a one-way request and a connection that has gone get none."""
        assert not self._is_answered, "a request is answered once"
        self._is_answered = True
        send_answer(self.connection, self.command, answer)


def send_answer(peer: Peer, command: Command, answer: Answer) -> None:
    """Answer a request of ``peer``, unless it is one-way or nobody is there to hear it."""
    try:
        if command.is_one_way or peer.is_closed:
            return
        try:
            frame = answer.encode(command)
        except LocalProtocolError as error:
            # The request is at fault that leads to an answer which no frame can hold.
            frame = Answer(ResponseCode.SYSTEM_ERROR, remark=str(error)).encode(command)
        peer.send(frame)
    finally:
        answer.done()


Outcome: TypeAlias = Answer | None
Processor: TypeAlias = Callable[[Request[Any]], Outcome | Awaitable[Outcome]]


class ProcessorTable:
    """Which function handles a request code.

    A plain function answers at once or, by returning None, later; a coroutine function runs as a
    task.  Either may raise RefusedError to answer with another code.
    """

    def __init__(self, processors: Mapping[int, Processor]) -> None:
        self._entries = {code: (HEADERS[code].request, run) for code, run in processors.items()}

    def __contains__(self, code: int) -> bool:
        return code in self._entries

    def __iter__(self) -> Iterator[int]:
        return iter(self._entries)

    def handle(self, connection: Peer, command: Command) -> Outcome | Awaitable[Outcome]:
        """Run the processor of a request; the answer says so when that is not possible."""
        entry = self._entries.get(command.code)
        if entry is None:
            remark = f"request type {command.code} not supported"
            return Answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        header_type, run = entry
        try:
            return run(Request(connection, command, header_type.decode(command.ext_fields)))
        except Exception as error:
            return failed(command, error)


def failed(command: Command, error: Exception) -> Answer:
    """Return the answer for a processor that raised; what nobody expected is logged."""
    if isinstance(error, RefusedError):
        return Answer(error.code, remark=error.remark)
    if isinstance(error, FormatError):
        # A field of the header or the body is not what it should be; the peer is told which.
        return Answer(ResponseCode.SYSTEM_ERROR, remark=str(error))
    logger.error("request failed: code=%d", command.code, exc_info=error)
    return Answer(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
