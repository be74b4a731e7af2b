"""Envelopes: messages and batches ready to be sent, and what the answers to them mean."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.client.errors import ResponseError, UsageError
from flintmq.client.messaging.messages import (
    BODY_SIZE_MAX,
    NOT_WAITING_TEXT,
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
from flintmq.format.stored.batch import BatchColumns, encode_batch_columns
from flintmq.format.sys_flag import COMPRESSED, TRANSACTION_PREPARED, CompressionType
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.send import SendMessageRequestV2, read_send_receipt
from flintmq.model import property_names as names
from flintmq.model.topics import AUTO_CREATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.client.messaging.unique_ids import IdSeries
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


def batch_items(messages: Sequence[Message]) -> BatchColumns:
    """Return messages as items of a batch; they have no unique ids yet."""
    first = messages[0]
    topic, wait, flag = first.topic, first.wait, first.flag
    for message in messages:
        # Messages are mostly alike but for their bodies.
        if (
            message.properties
            or message.keys
            or message.tag
            or message.flag != flag
            or message.topic != topic
            or message.wait != wait
            or message.delay_level
            or message.deliver_at_ms
            or message.delay_ms
        ):
            return _various_items(messages)
    count, text = len(messages), WAITING_TEXT if wait else NOT_WAITING_TEXT
    return BatchColumns([flag] * count, [message.body for message in messages], [text] * count)


def _various_items(messages: Sequence[Message]) -> BatchColumns:
    """Return messages as items of a batch, each with properties of its own."""
    topic, wait = messages[0].topic, messages[0].wait
    for message in messages:
        if message.topic != topic or message.wait != wait or message.is_held_back:
            raise UsageError(
                "the messages of a batch have one topic and one way of waiting, and no delay"
            )
    return BatchColumns(
        [message.flag for message in messages],
        [message.body for message in messages],
        [message.wire_text() for message in messages],
    )


def split_by_size(items: BatchColumns, size_max: int) -> list[BatchColumns]:
    """Cut a list into batches whose bodies and properties stay below ``size_max`` each."""
    _, bodies, texts = items
    count = len(bodies)
    if _OVERHEAD * count + sum(map(len, bodies)) + sum(map(len, texts)) <= size_max:
        return [items] if count else []
    starts: list[int] = []
    size = size_max
    for place, (body, text) in enumerate(zip(bodies, texts, strict=True)):
        own = _OVERHEAD + len(body) + len(text)
        if size + own > size_max:
            starts.append(place)
            size = 0
        size += own
    return [items.pick(range(*cut)) for cut in itertools.pairwise([*starts, count])]


_OVERHEAD: Final = 96
"""Bytes of a message in a batch besides its body and properties, its unique id included."""


def make_batch_envelope(
    items: BatchColumns,
    ids: IdSeries,
    *,
    topic: str,
    wait: bool,
    extra: dict[str, str] | None = None,
) -> Envelope:
    """Make the items of one batch ready to be sent, each with its unique id."""
    behind = b"\x02" + encode_properties(extra) if extra else b""
    try:
        body = encode_batch_columns(items, ids.tails, before=_ID_NAME + ids.stem, behind=behind)
    except RecordTooLargeError as error:
        raise UsageError(f"a message of the batch: {error}") from error
    if len(body) > BODY_SIZE_MAX:
        raise UsageError(f"a batch of {len(body)} bytes, at most {BODY_SIZE_MAX} are allowed")
    return Envelope(
        topic=topic,
        code=_SEND_BATCH,
        body=body,
        properties=_BATCH_WAITS if wait else _BATCH_DOES_NOT_WAIT,
        sys_flag=0,
        flag=0,
        message_id=ids.listed,
        is_batch=True,
        born_timestamp=wall_ms(),
    )


_SEND_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_BATCH_WAITS: Final = WAITING_TEXT.decode()
_BATCH_DOES_NOT_WAIT: Final = NOT_WAITING_TEXT.decode()
