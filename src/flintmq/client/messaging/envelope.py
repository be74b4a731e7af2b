"""Envelopes: messages and batches ready to be sent, and what the answers to them mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.client.errors import ResponseError, UsageError
from flintmq.client.messaging.messages import (
    BODY_SIZE_MAX,
    WAITING_TEXT,
    Message,
    SendResult,
    SendStatus,
)
from flintmq.client.routing.queue_lists import NEW_TOPIC_QUEUE_COUNT
from flintmq.client.wall_clock import wall_ms
from flintmq.format.compression import compress
from flintmq.format.errors import RecordTooLargeError
from flintmq.format.properties import encode_properties
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.sys_flag import COMPRESSED, TRANSACTION_PREPARED, CompressionType
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.send import SendMessageRequestV2, read_send_receipt
from flintmq.model import property_names as names
from flintmq.model.topics import AUTO_CREATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.format.wire.command import Command
    from flintmq.model.message_queue import MessageQueue

COMPRESS_FROM: Final = 4096
"""Producers compress bodies of at least this size, unless they are told otherwise."""

_STATUSES: Final[dict[int, SendStatus]] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}
STORED_CODES: Final = frozenset(_STATUSES)


class Envelope(NamedTuple):
    """A message or batch that is ready to be sent; only its queue is still open."""

    topic: str
    code: int
    body: bytes
    properties: str
    sys_flag: int
    flag: int
    message_id: str
    born_timestamp: int
    is_batch: bool = False
    reconsume_times: int = 0
    max_reconsume_times: int | None = None

    def header(self, group: str, queue: MessageQueue) -> SendMessageRequestV2:
        """Return the header of the send to a queue."""
        return SendMessageRequestV2(
            producer_group=group,
            topic=self.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=NEW_TOPIC_QUEUE_COUNT,
            queue_id=queue.queue_id,
            sys_flag=self.sys_flag,
            born_timestamp=self.born_timestamp,
            flag=self.flag,
            properties=self.properties,
            reconsume_times=self.reconsume_times,
            unit_mode=False,
            max_reconsume_times=self.max_reconsume_times,
            batch=self.is_batch,
            broker_name=queue.broker_name,
        )

    def result(self, answer: Command, queue: MessageQueue, *, address: str) -> SendResult:
        """Return where the message went; ResponseError if it was not stored."""
        status = _STATUSES.get(answer.code)
        if status is None:
            raise ResponseError.for_code(answer.code, answer.remark, address=address)
        msg_id, queue_id, queue_offset, region, trace_on = read_send_receipt(answer.ext_fields)
        return SendResult(
            status=status,
            message_id=self.message_id or msg_id,
            offset_message_id=msg_id,
            queue=queue if queue.queue_id == queue_id else queue._replace(queue_id=queue_id),
            queue_offset=queue_offset,
            region=region or "DefaultRegion",
            trace_on=trace_on is not False,
        )


def make_envelope(
    message: Message,
    message_id: str,
    *,
    topic: str,
    extra: dict[str, str] | None = None,
    compression: CompressionType,
    compress_from: int,
) -> Envelope:
    """Make a message ready; ``extra`` are properties that the client itself adds."""
    body, sys_flag = message.body, 0
    size = len(body)
    if size > BODY_SIZE_MAX:
        raise UsageError(f"a body of {size} bytes, at most {BODY_SIZE_MAX} are allowed")
    if size >= compress_from:
        body = compress(body, compression)
        sys_flag = COMPRESSED | compression
    # Every message says whether it waits, so there is a property before the id.
    text = message.wire_text() + _ID_NAME + message_id.encode()
    if extra:
        text += b"\x02" + encode_properties(extra)
        if extra.get(names.TRAN_MSG) == "true":
            sys_flag |= TRANSACTION_PREPARED
    return Envelope(
        topic, _SEND, body, text.decode(), sys_flag, message.flag, message_id, wall_ms()
    )


_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)


_ID_NAME: Final = b"\x02%b\x01" % names.UNIQ_KEY.encode()


def batch_items(messages: Sequence[Message]) -> list[BatchItem]:
    """Return messages as items of a batch; they have no unique ids yet."""
    topic, wait = messages[0].topic, messages[0].wait
    items = []
    for message in messages:
        text = message.wire_text()
        if (
            message.topic != topic
            or message.wait != wait
            or (text is not WAITING_TEXT and message.is_held_back)
        ):
            raise UsageError(
                "the messages of a batch have one topic and one way of waiting, and no delay"
            )
        items.append(_new_item(BatchItem, (message.flag, message.body, text)))
    return items


_new_item: Final = tuple.__new__
"""Makes a NamedTuple in half the time of its own constructor."""


def split_by_size(items: Sequence[BatchItem], size_max: int) -> list[list[BatchItem]]:
    """Cut a list into batches whose bodies and properties stay below ``size_max`` each."""
    if sum([_OVERHEAD + len(body) + len(properties) for _, body, properties in items]) <= size_max:
        return [list(items)] if items else []
    batches: list[list[BatchItem]] = []
    size = size_max
    for item in items:
        own = _OVERHEAD + len(item.body) + len(item.properties)
        if size + own > size_max:
            batches.append([])
            size = 0
        batches[-1].append(item)
        size += own
    return batches


_OVERHEAD: Final = 96
"""Bytes of a message in a batch besides its body and properties, its unique id included."""


def make_batch_envelope(
    items: Sequence[BatchItem],
    message_ids: Sequence[str],
    *,
    topic: str,
    wait: bool,
    extra: dict[str, str] | None = None,
) -> Envelope:
    """Make the items of one batch ready to be sent, each with its unique id."""
    behind = b"\x02" + encode_properties(extra) if extra else b""
    ids = ",".join(message_ids)
    try:
        body = encode_batch(
            (flag, stored, properties + _ID_NAME + message_id + behind)
            for (flag, stored, properties), message_id in zip(
                items, ids.encode().split(b","), strict=True
            )
        )
    except RecordTooLargeError as error:
        raise UsageError(f"a message of the batch: {error}") from error
    if len(body) > BODY_SIZE_MAX:
        raise UsageError(f"a batch of {len(body)} bytes, at most {BODY_SIZE_MAX} are allowed")
    return Envelope(
        topic=topic,
        code=RequestCode.SEND_BATCH_MESSAGE,
        body=body,
        properties=encode_properties({names.WAIT: "true" if wait else "false"}).decode(),
        sys_flag=0,
        flag=0,
        message_id=ids,
        is_batch=True,
        born_timestamp=wall_ms(),
    )
