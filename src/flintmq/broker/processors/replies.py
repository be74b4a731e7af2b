"""Request and reply: bringing a reply to the client that waits for it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from flintmq.broker.sending.received_messages import received_message
from flintmq.broker.sending.send_admission import admit_send
from flintmq.errors import FlintError
from flintmq.format.properties import decode_properties, encode_properties
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.clients import PushReplyRequest
from flintmq.format.wire.headers.send import SendAnswer, SendMessageRequest, SendMessageResponse
from flintmq.model.message import PutMessage
from flintmq.model.property_names import PUSH_REPLY_TIME, REPLY_TO_CLIENT
from flintmq.remoting import Answer, RefusedError, Request
from flintmq.remoting.refusal_counts import WAITING_REPLIES

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from flintmq.broker.context import BrokerContext

logger = logging.getLogger(__name__)

WAITING_SIZE_MAX: Final = 64 << 20
"""Bytes of all replies that may wait for their clients to answer; more are refused."""

PUSH_TIMEOUT_MS: Final = 10_000
_PUSHED_ID: Final = "0"


class ReplyProcessor:
    """Serves replies."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._waiting_size = 0
        """Bytes of replies whose clients have not answered yet."""

    def reply(self, request: Request[SendMessageRequest]) -> Awaitable[Answer]:
        """Push a reply to the client that asked, and keep it if that is wanted."""
        # The body is let go of as of any request that waits, so it is kept and counted here.
        body, properties = request.body, request.header.properties or ""
        if self._waiting_size + len(body) + len(properties) > WAITING_SIZE_MAX:
            self._context.refused.note(WAITING_REPLIES)
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]replies of {self._waiting_size} bytes wait for their clients",
            )
        return self._reply_counted(request, body, len(body) + len(properties))

    async def _reply_counted(
        self, request: Request[SendMessageRequest], body: bytes, size: int
    ) -> Answer:
        self._waiting_size += size
        try:
            return await self._reply(request, body)
        finally:
            self._waiting_size -= size

    async def _reply(self, request: Request[SendMessageRequest], body: bytes) -> Answer:
        config = self._context.config
        header = request.header
        try:
            queue_id = admit_send(self._context, header).queue_id
        except RefusedError as refusal:
            always = SendAnswer(region=config.region_id, trace_on=config.trace_on)
            return Answer(refusal.code, always, refusal.remark)
        # Nothing is added to a reply, and nothing is taken from it.
        properties = decode_properties((header.properties or "").encode())
        fault = await self._push(request, body, queue_id, dict(properties))
        message_id, queue_offset = _PUSHED_ID, 0
        if config.store_replies:
            result = await self._context.puts.put_done(
                self._context.store.put(self._message(request, body, queue_id, properties))
            )
            self._context.dispatch()
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
        self,
        request: Request[SendMessageRequest],
        body: bytes,
        queue_id: int,
        properties: dict[str, str],
    ) -> str | None:
        """Push the reply to its client; return what went wrong, if anything did."""
        context, header = self._context, request.header
        client_id = properties.get(REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{REPLY_TO_CLIENT}] is null"
        client = context.producers.by_id(client_id)
        if client is None or client.connection.is_closed:
            return f"push reply message fail, channel of <{client_id}> not found."
        now_ms = context.clock.now_ms()
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
            store_host=context.address,
            store_timestamp=now_ms,
        )
        try:
            answer = await client.connection.call(
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
                pushed,
                body,
                timeout_ms=PUSH_TIMEOUT_MS,
            )
        except FlintError as error:
            logger.warning("reply not pushed: id=%s reason=%s", client_id, error)
            return f"push reply message to {client_id} fail: {error}"
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} fail: {answer.remark}"
        return None

    def _message(
        self,
        request: Request[SendMessageRequest],
        body: bytes,
        queue_id: int,
        properties: dict[str, str],
    ) -> PutMessage:
        request.command.body = body
        return received_message(
            PutMessage,
            request,
            topic=request.header.topic,
            queue_id=queue_id,
            sys_flag=request.header.sys_flag,
            properties=properties,
            text=encode_properties(properties),
            store_host=self._context.store_host,
        )
