"""Request and reply: a message whose sender waits for an answer."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Final

from flintmq.client.errors import RequestTimeoutError, UsageError
from flintmq.client.messaging.envelope import Envelope
from flintmq.client.messaging.message_checks import check_body
from flintmq.client.messaging.messages import RECEIVED_BODY_SIZE_MAX, ReceivedMessage
from flintmq.client.wall_clock import wall_ms
from flintmq.format.compression import decompress
from flintmq.format.errors import HostError
from flintmq.format.host import pack_host, parse_address
from flintmq.format.properties import decode_properties, encode_properties
from flintmq.format.stored.record import Record
from flintmq.format.sys_flag import COMPRESSED, compression_type
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.model import property_names as names
from flintmq.model.message_queue import MessageQueue
from flintmq.remoting import Answer

if TYPE_CHECKING:
    from flintmq.format.wire.headers.clients import PushReplyRequest
    from flintmq.remoting import Request

REPLY: Final = "reply"
ARRIVE_TIME: Final = "ARRIVE_TIME"
WAITING_COUNT_MAX: Final = 65_535


class ReplyBox:
    """Requests that wait for replies, by correlation id."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}

    def expect(self) -> tuple[str, asyncio.Future[ReceivedMessage]]:
        """Return a new correlation id and a future of its reply."""
        if len(self._waiting) >= WAITING_COUNT_MAX:
            raise UsageError(f"{WAITING_COUNT_MAX} requests wait for replies already")
        correlation_id = str(uuid.uuid4())
        future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return correlation_id, future

    def forget(self, correlation_id: str) -> None:
        """Stop waiting for a reply."""
        self._waiting.pop(correlation_id, None)

    def take(self, request: Request[PushReplyRequest]) -> Answer:
        """Pass a reply that a broker brings on to the request that waits for it."""
        message = _pushed(request)
        correlation_id = message.properties.get(names.CORRELATION_ID, "")
        future = self._waiting.pop(correlation_id, None)
        if future is None or future.done():
            return Answer(ResponseCode.SUCCESS, remark="nobody waits for this reply any more")
        future.set_result(message)
        return Answer()


async def wait_for_reply(
    future: asyncio.Future[ReceivedMessage], *, timeout_ms: int, topic: str
) -> ReceivedMessage:
    """Return the reply, or raise RequestTimeoutError when the time is up."""
    try:
        async with asyncio.timeout(max(timeout_ms, 0) / 1000):
            return await future
    except TimeoutError:
        raise RequestTimeoutError(
            f"the message to {topic} was sent, but nobody has replied in time"
        ) from None


def _pushed(request: Request[PushReplyRequest]) -> ReceivedMessage:
    header = request.header
    body = request.body
    if header.sys_flag & COMPRESSED:
        body = decompress(body, compression_type(header.sys_flag), limit=RECEIVED_BODY_SIZE_MAX)
    properties = decode_properties((header.properties or "").encode())
    properties[ARRIVE_TIME] = str(wall_ms())
    record = Record(
        size=0,
        body_crc=0,
        queue_id=header.queue_id,
        flag=header.flag,
        queue_offset=0,
        physical_offset=0,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=_packed(header.born_host),
        store_timestamp=header.store_timestamp,
        store_host=_packed(header.store_host),
        reconsume_times=header.reconsume_times or 0,
        prepared_transaction_offset=0,
        body=body,
        topic=header.topic,
        properties_text=encode_properties(properties),
    )
    return ReceivedMessage(record, MessageQueue(header.topic, "", header.queue_id))


def _packed(host: str) -> bytes:
    """Return a host in the form of records; Java's broker writes ``/10.0.0.1:10911``."""
    try:
        return pack_host(*parse_address(host.rpartition("/")[2]))
    except HostError:
        return pack_host("0.0.0.0", 0)


def make_reply_envelope(asked: ReceivedMessage, body: bytes, message_id: str) -> Envelope:
    """Return the envelope of the reply to a request message."""
    check_body(body)
    cluster = asked.properties.get(names.CLUSTER)
    missing = [
        name
        for name in (names.CORRELATION_ID, names.REPLY_TO_CLIENT)
        if name not in asked.properties
    ]
    if cluster is None or missing:
        raise UsageError(f"not a request message: it lacks {', '.join(missing) or names.CLUSTER}")
    properties = {
        names.MSG_TYPE: REPLY,
        names.CORRELATION_ID: asked.properties[names.CORRELATION_ID],
        names.REPLY_TO_CLIENT: asked.properties[names.REPLY_TO_CLIENT],
        names.TTL: asked.properties.get(names.TTL, "3000"),
        names.UNIQ_KEY: message_id,
        names.WAIT: "true",
    }
    return Envelope(
        topic=f"{cluster}_REPLY_TOPIC",
        code=RequestCode.SEND_REPLY_MESSAGE_V2,
        body=bytes(body),
        properties=encode_properties(properties).decode(),
        sys_flag=0,
        flag=0,
        message_id=message_id,
        born_timestamp=wall_ms(),
    )
