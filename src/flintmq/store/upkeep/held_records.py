"""Held records: what stands in the log for a message that is delivered later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.format.errors import FormatError
from flintmq.format.stored.record import decode_record
from flintmq.model.message import PutMessage
from flintmq.model.property_names import DELAY, DELIVERY_TIMES, REAL_QID, REAL_TOPIC, WAIT
from flintmq.model.topics import DUE_TIME_TOPICS, TRANS_HALF_TOPIC
from flintmq.store.errors import StoreError
from flintmq.store.results import PutStatus

if TYPE_CHECKING:
    from flintmq.format.stored.record import Record
    from flintmq.store.reading.store_reader import StoreReader

LASTING_REFUSALS: Final = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)
"""Why a put is refused for what it is: trying again would not help."""

_QUEUE_ID_MAX: Final = 2**31 - 1


class PoisonError(StoreError):
    """A held message can never be delivered."""


class BadBodyError(PoisonError):
    """The body of a held message does not match its checksum."""


def delivery_of(record: Record) -> PutMessage:
    """Return the message to put for a held record that is due.

    Its stored property text is that of the held record, DELAY and all, as RocketMQ has it;
    only what the store acts on names no delay, so that it is not delayed again, and WAIT=false.

    Raises:
        PoisonError: the record does not say where it belongs, or belongs where it would be
            delayed or held back again.
    """
    properties = record.properties
    topic = properties.get(REAL_TOPIC)
    queue_id = properties.get(REAL_QID, "")
    if not topic:
        raise PoisonError("it has no REAL_TOPIC")
    if topic in DUE_TIME_TOPICS or topic == TRANS_HALF_TOPIC:
        raise PoisonError(f"its REAL_TOPIC is {topic}")
    if not (queue_id.isascii() and queue_id.isdecimal()) or int(queue_id) > _QUEUE_ID_MAX:
        raise PoisonError(f"its REAL_QID is no queue id: {queue_id[:20]!r}")
    for name in (DELAY, *DELIVERY_TIMES):
        properties.pop(name, None)
    properties[WAIT] = "false"
    return PutMessage(
        topic=topic,
        queue_id=int(queue_id),
        body=bytes(record.body),
        properties=properties,
        properties_text=record.properties_text,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
    )


def read_held(
    reader: StoreReader, topic: str, queue_id: int, physical_offset: int, size: int
) -> Record:
    """Return the record that a unit of a queue leads to.

    Raises:
        PoisonError: it is gone or belongs to another queue.
        BadBodyError: it is damaged.
    """
    piece = reader.select(physical_offset, size)
    if piece is None:
        raise PoisonError("its record is gone")
    with piece:
        try:
            record = decode_record(piece.view)
        except FormatError as error:
            raise PoisonError(f"its record is damaged: {error}") from error
    # A put computes the checksum anew: damage must be seen now or never.
    if not record.crc_ok:
        raise BadBodyError("its body does not match its checksum")
    if (record.topic, record.queue_id) != (topic, queue_id):
        raise PoisonError(f"its unit leads to {record.topic}/{record.queue_id}")
    return record
