"""Request and reply: bringing a reply to the client that waits for it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from flintmq.broker.received_messages import received_message
from flintmq.errors import FlintError
from flintmq.format.codes import RequestCode, ResponseCode
from flintmq.format.headers.clients import PushReplyRequest
from flintmq.format.headers.send import SendAnswer, SendMessageRequest, SendMessageResponse
from flintmq.format.properties import decode_properties, encode_properties
from flintmq.model.message import Message
from flintmq.model.property_names import PUSH_REPLY_TIME, REPLY_TO_CLIENT
from flintmq.remoting import Answer, RefusedError, Request

if TYPE_CHECKING:
    from flintmq.broker.parts import BrokerParts
    from flintmq.broker.processors.send import SendProcessor

logger = logging.getLogger(__name__)

PUSH_TIMEOUT_MS: Final = 10_000
_PUSHED_ID: Final = "0"


class ReplyProcessor:
    """Serves replies."""

    def __init__(self, parts: BrokerParts, send: SendProcessor) -> None:
        self._parts = parts
        self._send = send

    async def reply(self, request: Request[SendMessageRequest]) -> Answer:
        """Push a reply to the client that asked, and keep it if that is wanted."""
        config = self._parts.config
        header = request.header
        try:
            topic = self._send.checked_topic(request)
            queue_id = self._send.checked_queue_id(header, topic)
        except RefusedError as refusal:
            always = SendAnswer(region=config.region_id, trace_on=config.trace_on)
            return Answer(refusal.code, always, refusal.remark)
        # Nothing is added to a reply, and nothing is taken from it.
        properties = decode_properties((header.properties or "").encode())
        fault = await self._push(request, queue_id, dict(properties))
        message_id, queue_offset = _PUSHED_ID, 0
        if config.store_replies:
            result = await self._parts.puts.put_done(
                self._parts.store.put(self._message(request, queue_id, properties))
            )
            self._parts.dispatch()
            if result.status.stored:
                message_id, queue_offset = result.message_id, result.queue_offset
        answer = SendMessageResponse(
            region=config.region_id,
            trace_on=config.trace_on,
            msg_id=message_id,
            queue_id=queue_id,
            queue_offset=queue_offset,
        )
        code = ResponseCode.SUCCESS if fault is None else ResponseCode.SYSTEM_ERROR
        return Answer(code, answer, fault)

    async def _push(
        self, request: Request[SendMessageRequest], queue_id: int, properties: dict[str, str]
    ) -> str | None:
        """Bring the reply to its client; return what was in the way."""
        parts, header = self._parts, request.header
        client_id = properties.get(REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{REPLY_TO_CLIENT}] is null"
        client = parts.producers.by_id(client_id)
        if client is None or client.connection.is_closed:
            return f"push reply message fail, channel of <{client_id}> not found."
        now_ms = parts.clock.now_ms()
        properties[PUSH_REPLY_TIME] = str(now_ms)
        pushed = PushReplyRequest(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=encode_properties(properties).decode(),
            reconsume_times=header.reconsume_times or 0,
            unit_mode=header.unit_mode,
            born_host=request.connection.peer_text,
            store_host=parts.address,
            store_timestamp=now_ms,
        )
        try:
            answer = await client.connection.call(
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
                pushed,
                request.body,
                timeout_ms=PUSH_TIMEOUT_MS,
            )
        except FlintError as error:
            logger.warning("reply not pushed: id=%s reason=%s", client_id, error)
            return f"push reply message to {client_id} fail: {error}"
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} fail: {answer.remark}"
        return None

    def _message(
        self, request: Request[SendMessageRequest], queue_id: int, properties: dict[str, str]
    ) -> Message:
        return received_message(
            Message,
            request,
            topic=request.header.topic,
            queue_id=queue_id,
            sys_flag=request.header.sys_flag,
            properties=properties,
            text=encode_properties(properties),
            store_host=self._parts.store_host,
        )
