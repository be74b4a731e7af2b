"""The queues that a stored record enters: its own, and further ones that its properties name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.format.properties import decode_properties
from flintmq.format.sys_flag import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from flintmq.model.property_names import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET
from flintmq.model.topics import LMQ_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flintmq.format.stored.record import CheckedRecord

MULTI_DISPATCH: Final = INNER_MULTI_DISPATCH.encode() + b"\x01"
"""What stands in the properties text of a record that enters several queues."""

MULTI_OFFSETS: Final = INNER_MULTI_QUEUE_OFFSET.encode() + b"\x01"
"""What stands there besides: at which offsets it enters them."""

NO_UNIT: Final = TRANSACTION_PREPARED
"""A bit that prepared and rolled-back records, which have no unit, share; the others lack it."""
assert TRANSACTION_ROLLBACK & NO_UNIT


class QueueSlot(NamedTuple):
    """One more queue that a multi-dispatch message enters."""

    name: str
    queue_id: int
    queue_offset: int


def multi_slots(properties: Mapping[str, str], queue_id: int, *, lmq: bool) -> list[QueueSlot]:
    """Read from a stored message which further queues it enters, and at which offsets."""
    names = properties.get(INNER_MULTI_DISPATCH, "").split(",")
    offsets = properties.get(INNER_MULTI_QUEUE_OFFSET, "").split(",")
    if len(names) != len(offsets) or not all(offset.isdecimal() for offset in offsets):
        return []
    return [
        QueueSlot(name, 0 if lmq and name.startswith(LMQ_PREFIX) else queue_id, int(offset))
        for name, offset in zip(names, offsets, strict=True)
    ]


def queue_claims(record: CheckedRecord, *, lmq: bool) -> list[tuple[str, int, int]]:
    """Return (topic, queue id, queue offset) of every unit that a record asks for."""
    if record.sys_flag & NO_UNIT:
        return []
    topic = record.topic.decode("utf-8", "replace")
    claims = [(topic, record.queue_id, record.queue_offset)]
    if MULTI_DISPATCH in record.properties:
        properties = decode_properties(record.properties)
        claims += [
            (slot.name, slot.queue_id, slot.queue_offset)
            for slot in multi_slots(properties, record.queue_id, lmq=lmq)
        ]
    return claims
