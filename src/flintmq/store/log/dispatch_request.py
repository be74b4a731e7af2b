"""What the views need to know of a record, whether it was just appended or read from the log."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from flintmq.format.properties import decode_properties, find_property
from flintmq.format.stored.dispatch_fields import BadDelayLevelError, dispatch_fields
from flintmq.format.stored.queue_claims import multi_slots
from flintmq.format.stored.record import CheckedRecord
from flintmq.format.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE
from flintmq.model.property_names import INNER_MULTI_DISPATCH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flintmq.format.delay_levels import DelayLevels
    from flintmq.format.stored.queue_claims import QueueSlot


class DispatchRequest(NamedTuple):
    """What the views need to know of one record."""

    topic: str
    queue_id: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    queue_offset: int
    sys_flag: int
    keys: Sequence[bytes]
    properties: Mapping[str, str] | bytes
    """The property map, or the stored text where the record came from the log."""
    multi: Sequence[QueueSlot]

    @property
    def in_queue(self) -> bool:
        """Whether the record has a unit: prepared and rolled-back ones have none."""
        return self.sys_flag & TRANSACTION_MASK in (TRANSACTION_NONE, TRANSACTION_COMMIT)

    @property
    def property_map(self) -> Mapping[str, str]:
        """The properties as a map."""
        if isinstance(self.properties, bytes):
            return decode_properties(self.properties)
        return self.properties


def request_from_record(
    record: CheckedRecord, *, delay_levels: DelayLevels, multi_dispatch: bool, lmq: bool
) -> DispatchRequest:
    """Build the request of a record that was read from the log."""
    size, queue_id, queue_offset, physical_offset, sys_flag, store_timestamp, topic = record[:7]
    properties = record.properties
    multi: Sequence[QueueSlot] = ()
    if multi_dispatch and find_property(properties, INNER_MULTI_DISPATCH.encode()) is not None:
        multi = multi_slots(decode_properties(properties), record.queue_id, lmq=lmq)
    return stored_request(
        topic,
        queue_id,
        physical_offset,
        size,
        store_timestamp,
        queue_offset,
        sys_flag,
        properties,
        multi,
        delay_levels=delay_levels,
    )


def stored_request(
    topic: bytes,
    queue_id: int,
    physical_offset: int,
    size: int,
    store_timestamp: int,
    queue_offset: int,
    sys_flag: int,
    properties: bytes,
    multi: Sequence[QueueSlot] = (),
    *,
    delay_levels: DelayLevels,
) -> DispatchRequest:
    """Build the request of a record of whose properties only the stored text is at hand."""
    tags_code, keys = _fields(topic, properties, store_timestamp, delay_levels)
    return tuple.__new__(
        DispatchRequest,
        (
            _topic_text(topic),
            queue_id,
            physical_offset,
            size,
            tags_code,
            store_timestamp,
            queue_offset,
            sys_flag,
            keys,
            properties,
            multi,
        ),
    )


def _fields(
    topic: bytes, properties: bytes, store_timestamp: int, delay_levels: DelayLevels
) -> tuple[int, Sequence[bytes]]:
    """Return the tags code and the keys of a stored record."""
    try:
        return dispatch_fields(topic, properties, store_timestamp, delay_levels)
    except BadDelayLevelError as error:
        return error.fields


@functools.lru_cache(maxsize=4096)
def _topic_text(topic: bytes) -> str:
    return topic.decode("utf-8", "replace")
