"""Stored messages that are put once more: given back, asked about, committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.format.properties import encode_properties
from flintmq.model.message import PutMessage

if TYPE_CHECKING:
    from flintmq.format.stored.record import Record


def copy_of(record: Record, properties: dict[str, str]) -> PutMessage:
    """Return a stored message to be put again, with other properties."""
    return PutMessage(
        topic=record.topic,
        queue_id=record.queue_id,
        body=bytes(record.body),
        properties=properties,
        properties_text=encode_properties(properties),
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
    )
