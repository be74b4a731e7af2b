"""The answer to a send that was stored, which a broker gives more often than any other."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flintmq.format.command import encode_answer_head
from flintmq.format.frame import HeaderType
from flintmq.format.headers.send import SendAnswer, SendMessageResponse
from flintmq.remoting import Answer

if TYPE_CHECKING:
    from flintmq.format.command import Command
    from flintmq.store.results import PutResult


@dataclass(slots=True)
class StoredAnswer(Answer):
    """Tells where a message was stored.

    ``header`` is what every answer to a send carries.  In JSON its text is made once for many
    answers; what differs is set in behind it.
    """

    result: PutResult = field(kw_only=True)
    queue_id: int = field(kw_only=True)

    def encode(self, command: Command) -> bytes:
        """Return the frame that answers ``command``; `SendMessageResponse` describes it."""
        result, always = self.result, self.header
        assert isinstance(always, SendAnswer)
        if command.serialize_type is not HeaderType.JSON:
            self.header = SendMessageResponse(
                region=always.region,
                trace_on=always.trace_on,
                msg_id=result.message_id,
                queue_id=self.queue_id,
                queue_offset=result.queue_offset,
            )
            # Without arguments it would look for a class that the slots have replaced.
            return Answer.encode(self, command)
        return encode_answer_head(
            code=self.code,
            opaque=command.opaque,
            remark=self.remark,
            ext_json=(
                f'{always_json(always)[:-1]},"msgId":"{result.message_id}",'
                f'"queueId":"{self.queue_id}","queueOffset":"{result.queue_offset}"}}'
            ),
            body_size=0,
        )


@functools.lru_cache(maxsize=64)
def always_json(header: SendAnswer) -> str:
    """Return the JSON object of what every answer to a send carries; it is never empty."""
    return header.encode_json()
