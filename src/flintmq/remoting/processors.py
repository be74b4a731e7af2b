"""Requests as processors see them: a typed header in, a typed answer out, no socket, no JSON."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from flintmq.format.errors import FormatError
from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.command import (
    RESPONSE_FLAG,
    Command,
    encode_answer_head,
    encode_command_head,
)
from flintmq.format.wire.frame import HeaderType
from flintmq.format.wire.headers.codec import Header
from flintmq.format.wire.remoting_errors import LocalProtocolError
from flintmq.model.value_class import FieldEquality
from flintmq.remoting.errors import RefusedError

if TYPE_CHECKING:
    from flintmq.format.buffer import Buffer
    from flintmq.remoting.peer import Peer

logger = logging.getLogger(__name__)

HeaderT = TypeVar("HeaderT", bound=Header)


@dataclass(slots=True, eq=False, repr=False)
class Answer(FieldEquality):
    """The answer to a request.

    ``parts`` are sent one after the other as the body.  ``release`` is called once they were copied
    for the transport; views into files are good until then.
    """

    code: int = ResponseCode.SUCCESS
    header: Header | None = None
    remark: str | None = None
    parts: Sequence[Buffer] = ()
    release: Callable[[], None] | None = None

    def encode(self, command: Command) -> bytes:
        """Return the frame that answers ``command``, in the notation it came in."""
        head = self.encode_head(command)
        return b"".join((head, *self.parts)) if self.parts else head

    def encode_head(self, command: Command) -> bytes:
        """Return what stands before the parts in that frame."""
        header, body_size = self.header, sum(map(len, self.parts)) if self.parts else 0
        if command.serialize_type is HeaderType.JSON:
            return encode_answer_head(
                code=self.code,
                opaque=command.opaque,
                remark=self.remark,
                ext_json=None if header is None else header.encode_json(),
                body_size=body_size,
            )
        answer = Command(
            code=self.code,
            opaque=command.opaque,
            flag=RESPONSE_FLAG,
            remark=self.remark,
            ext_fields={} if header is None else header.encode(),
            serialize_type=command.serialize_type,
            empty_ext_fields=header is not None,
        )
        return encode_command_head(answer, body_size=body_size)

    def done(self) -> None:
        """Release what the parts are views of."""
        if self.release is not None:
            self.release()


Hold: TypeAlias = Callable[[Callable[[Exception | None], None]], None]
"""Calls back when an answer may leave, or with the reason why it must not."""


class Request(Generic[HeaderT]):
    """One request of a peer.  A processor that returns None answers later through `answer`."""

    __slots__ = ("_answer", "_hold", "_is_answered", "_told", "command", "connection", "header")

    def __init__(self, connection: Peer, command: Command, header: HeaderT) -> None:
        self.connection = connection
        self.command = command
        self.header = header
        self._is_answered = False
        self._hold: Hold | None = None
        self._answer: Answer | None = None
        """What was sent, once something was."""
        self._told: Callable[[Answer], None] | None = None

    @property
    def body(self) -> bytes:
        """The body as it came."""
        return self.command.body

    def answer(self, answer: Answer) -> None:
        """Send the answer; a one-way request and a connection that has gone get none."""
        assert not self._is_answered, "a request is answered once"
        self._is_answered = True
        if self._hold is None:
            self._send(answer)
        else:
            self._hold(lambda failure: self._release(answer, failure))

    def hold(self, hold: Hold) -> None:
        """Keep the answer back until ``hold`` calls what it is given.

        If it does so with an error, the request is answered with that error instead.
        """
        self._hold = hold

    def _release(self, answer: Answer, failure: Exception | None) -> None:
        if failure is not None:
            answer.done()
            answer = failed(self.command.code, failure)
        self._send(answer)

    def _send(self, answer: Answer) -> None:
        send_answer(self.connection, self.command, answer)
        self._answer = answer
        if self._told is not None:
            self._told(answer)

    def when_answered(self, told: Callable[[Answer], None]) -> None:
        """Tell when the answer was sent, at once if it was already."""
        if self._answer is not None:
            told(self._answer)
        else:
            self._told = told


def send_answer(peer: Peer, command: Command, answer: Answer) -> None:
    """Answer a request of ``peer``, unless it is one-way or nobody is there to hear it."""
    try:
        if command.is_one_way or peer.is_closed:
            return
        try:
            if answer.parts:
                peer.send_pieces((answer.encode_head(command), *answer.parts))
                return
            frame = answer.encode(command)
        except LocalProtocolError as error:
            # The request is at fault that leads to an answer which no frame can hold.
            frame = Answer(ResponseCode.SYSTEM_ERROR, remark=str(error)).encode(command)
        peer.send(frame)
    finally:
        answer.done()


Outcome: TypeAlias = Answer | None
Processor: TypeAlias = Callable[[Request[Any]], Outcome | Awaitable[Outcome]]


def failed(code: int, error: Exception) -> Answer:
    """Return the answer to a request of ``code`` that led to an error.

    A refusal says why by itself; what nobody expected is logged.
    """
    if isinstance(error, RefusedError):
        return Answer(error.code, remark=error.remark)
    if isinstance(error, FormatError):
        # A field of the header or the body is not what it should be; the peer is told which.
        return Answer(ResponseCode.SYSTEM_ERROR, remark=str(error))
    logger.error("request failed: code=%d", code, exc_info=error)
    return Answer(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
