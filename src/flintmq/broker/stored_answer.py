"""The answer to a send that was stored, which a broker gives more often than any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from flintmq.format.command import encode_answer_head
from flintmq.format.frame import HeaderType
from flintmq.format.headers.send import SendAnswer, SendMessageResponse
from flintmq.remoting import Answer

if TYPE_CHECKING:
    from flintmq.broker.config import BrokerConfig
    from flintmq.format.command import Command
    from flintmq.store.results import PutResult


class SharedAnswer(NamedTuple):
    """What all answers to sends have in common while the settings stay as they are."""

    config: BrokerConfig
    header: SendAnswer
    json_start: str
    """The header as a JSON object without its end; it is never empty."""

    @classmethod
    def of(cls, config: BrokerConfig) -> Self:
        """Return what the answers under some settings share."""
        header = SendAnswer(region=config.region_id, trace_on=config.trace_on)
        return cls(config, header, header.encode_json()[:-1])


class StoredAnswer(Answer):
    """Tells where a message was stored.

    In JSON the text that all answers share is made once; what differs is set in behind it.
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
            self.header = SendMessageResponse(
                region=shared.header.region,
                trace_on=shared.header.trace_on,
                msg_id=result.message_id,
                queue_id=self._queue_id,
                queue_offset=result.queue_offset,
            )
            return super().encode(command)
        return encode_answer_head(
            code=self.code,
            opaque=command.opaque,
            remark=self.remark,
            ext_json=(
                f'{shared.json_start},"msgId":"{result.message_id}",'
                f'"queueId":"{self._queue_id}","queueOffset":"{result.queue_offset}"}}'
            ),
            body_size=0,
        )
