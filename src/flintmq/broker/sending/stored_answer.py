"""The answer to a send that was stored, which a broker gives more often than any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from flintmq.format.message_id import packed_offset_ids
from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.command import encode_answer_head
from flintmq.format.wire.frame import HeaderType
from flintmq.format.wire.headers.send import SendAnswer, SendMessageResponse
from flintmq.remoting import Answer

if TYPE_CHECKING:
    from flintmq.broker.config import BrokerConfig
    from flintmq.format.wire.command import Command
    from flintmq.remoting import ReceivedRequest
    from flintmq.store.append_group.sends import StoredAt
    from flintmq.store.results import PutResult


class SharedAnswer(NamedTuple):
    """What all answers to sends have in common while the settings stay as they are."""

    config: BrokerConfig
    header: SendAnswer
    json_start: str
    """The header as a JSON object without its closing brace; it has at least one member."""

    @classmethod
    def of(cls, config: BrokerConfig) -> Self:
        """Return what the answers under some settings share."""
        header = SendAnswer(region=config.region_id, trace_on=config.trace_on)
        return cls(config, header, header.encode_json()[:-1])

    def answer_to(
        self, request: ReceivedRequest, queue_id: int, stored: StoredAt, store_host: bytes
    ) -> bytes:
        """Return the answer to a plain send in the notation of its request."""
        message_id = packed_offset_ids(store_host, stored.physical_offsets)
        if request.header_type is HeaderType.JSON:
            return encode_stored_answer(
                self.json_start, request.opaque, message_id, queue_id, stored.queue_offset
            )
        header = stored_header(self.header, message_id, queue_id, stored.queue_offset)
        return Answer(header=header).encode(request.command)


class StoredAnswer(Answer):
    """Tells where a message was stored.

    In JSON the text that all answers share is made once; what differs is put behind it.
    """

    __slots__ = ("_queue_id", "_result", "_shared")

    def __init__(
        self,
        code: int,
        shared: SharedAnswer,
        remark: str | None,
        result: PutResult,
        queue_id: int,
    ) -> None:
        self.code = code
        self.header = shared.header
        self.remark = remark
        self.parts = ()
        self.release = None
        self._shared = shared
        self._result = result
        self._queue_id = queue_id

    def encode(self, command: Command) -> bytes:
        """Return the frame that answers ``command``; `SendMessageResponse` describes it."""
        result, shared = self._result, self._shared
        if command.serialize_type is not HeaderType.JSON:
            self.header = stored_header(
                shared.header, result.message_id, self._queue_id, result.queue_offset
            )
            return super().encode(command)
        return encode_stored_answer(
            shared.json_start,
            command.opaque,
            result.message_id,
            self._queue_id,
            result.queue_offset,
            code=self.code,
            remark=self.remark,
        )


def stored_header(
    shared: SendAnswer, message_id: str, queue_id: int, queue_offset: int
) -> SendMessageResponse:
    """Return the header of an answer that tells where a message was stored."""
    return SendMessageResponse(
        region=shared.region,
        trace_on=shared.trace_on,
        msg_id=message_id,
        queue_id=queue_id,
        queue_offset=queue_offset,
    )


def encode_stored_answer(
    json_start: str,
    opaque: int,
    message_id: str,
    queue_id: int,
    queue_offset: int,
    *,
    code: int = ResponseCode.SUCCESS,
    remark: str | None = None,
) -> bytes:
    """Return the frame of an answer in JSON that tells where a message was stored.

    ``json_start`` is what all answers share, see `SharedAnswer`.
    """
    return encode_answer_head(
        code=code,
        opaque=opaque,
        remark=remark,
        ext_json=(
            f'{json_start},"msgId":"{message_id}",'
            f'"queueId":"{queue_id}","queueOffset":"{queue_offset}"}}'
        ),
        body_size=0,
    )
