"""Commit-log records, read in Python by ``flintmq.format.stored.record_layout``.

They are written by ``flintmq.format.stored.record_encoding``, and scanned by the checks of
``flintmq.format.stored.record_scan``.
"""

import struct
from typing import Final, NamedTuple

from flintmq.format.buffer import Buffer
from flintmq.format.errors import CorruptRecordError
from flintmq.format.java import crc31
from flintmq.format.message_id import encode_offset_id
from flintmq.format.properties import decode_properties
from flintmq.format.stored.record_layout import HEADERS, RECORD_SIZE_MIN, SYS_FLAG_AT
from flintmq.format.stored.record_scan import (
    Blank,
    CheckedRecord,
    check_record,
)
from flintmq.format.sys_flag import HOSTS_MASK

__all__ = [
    "Blank",
    "CheckedRecord",
    "Record",
    "check_record",
    "decode_record",
    "read_store_timestamp",
]

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")

_STORE_TIMESTAMP_AT: Final = {form: table.at("store_timestamp") for form, table in HEADERS.items()}


def read_store_timestamp(source: Buffer, position: int = 0) -> int:
    """Return the store timestamp of the record at ``position``; nothing else of it is checked."""
    if position < 0 or len(source) - position < RECORD_SIZE_MIN:
        raise CorruptRecordError("no record has so few bytes", position)
    (sys_flag,) = _INT.unpack_from(source, position + SYS_FLAG_AT)
    at = _STORE_TIMESTAMP_AT[sys_flag & HOSTS_MASK]
    (timestamp,) = _LONG.unpack_from(source, position + at)
    return int(timestamp)


def read_record_properties(source: Buffer) -> dict[str, str]:
    """Return the properties of the record that ``source`` begins with; its body is not read."""
    return decode_properties(_checked_message(source).properties)


def read_record_topic(source: Buffer) -> str:
    """Return the topic of the record that ``source`` begins with; its body is not read."""
    return _checked_message(source).topic.decode("utf-8", "replace")


def _checked_message(source: Buffer) -> CheckedRecord:
    """Return the record that ``source`` begins with; its body is not read."""
    checked = check_record(source, 0, len(source), check_crc=False, expected_offset=None)
    if isinstance(checked, Blank):
        raise CorruptRecordError("a blank, not a message", 0)
    return checked


class Record(NamedTuple):
    """A record with all its fields.  The body is as stored, that is maybe compressed."""

    size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes | memoryview
    topic: str
    properties_text: bytes

    @property
    def properties(self) -> dict[str, str]:
        """The properties, decoded anew at each call."""
        return decode_properties(self.properties_text)

    @property
    def message_id(self) -> str:
        """The offset id: store host and physical offset."""
        return encode_offset_id(self.store_host, self.physical_offset)

    @property
    def crc_ok(self) -> bool:
        """Whether the body matches its checksum; that of an empty body is not looked at."""
        return not self.body or crc31(self.body) == self.body_crc


def decode_record(source: Buffer, position: int = 0, *, copy_body: bool = True) -> Record:
    """Return the record at ``position``; its checksum is not looked at (see `Record.crc_ok`).

    Without ``copy_body`` the body is a view of ``source``, which it then keeps alive.
    """
    if position < 0:
        raise CorruptRecordError("a position before the start", position)
    checked = check_record(source, position, len(source), check_crc=False, expected_offset=None)
    if isinstance(checked, Blank):
        raise CorruptRecordError("a blank, not a message", position)
    header = HEADERS[checked.sys_flag & HOSTS_MASK].struct
    size, _, *fields, body_size = header.unpack_from(source, position)
    body_at = position + header.size
    body = memoryview(source)[body_at : body_at + max(body_size, 0)]
    try:
        topic = checked.topic.decode()
    except UnicodeDecodeError as error:
        raise CorruptRecordError("the topic is not UTF-8", position) from error
    # A Record has its fields in the order of the layout, so most go over as they are.
    stored_body = bytes(body) if copy_body else body
    return Record._make((size, *fields, stored_body, topic, checked.properties))
