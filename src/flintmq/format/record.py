"""Commit-log records, and the blank record that ends a commit-log file.

All numbers are big-endian and signed.  B and S are the sizes of the two hosts, 8 or 20 bytes,
as the sys flag says; n, t and p are the lengths of body, topic and properties:

    at        size  field
    0            4  size: the whole record, 75 + B + S + n + t + p
    4            4  magic
    8            4  body_crc: CRC-32 of the stored body without its highest bit
    12           4  queue_id
    16           4  flag: the application's
    20           8  queue_offset
    28           8  physical_offset: where the record itself starts
    36           4  sys_flag
    40           8  born_timestamp
    48           B  born_host
    48+B         8  store_timestamp
    56+B         S  store_host
    56+B+S       4  reconsume_times
    60+B+S       8  prepared_transaction_offset
    68+B+S       4  body length n
    72+B+S       n  body
    72+B+S+n     1  topic length t, at most 127
    73+B+S+n     t  topic, UTF-8
    73+B+S+n+t   2  properties length p, at most 32767
    75+B+S+n+t   p  properties, see ``flintmq.format.properties``

A blank record fills the rest of a file that had no room for the next record: its size, which
reaches to the end of the file, and another magic; what follows those 8 bytes means nothing.
A body or properties length below zero is read as zero, since Java does.
"""

import re
import struct
import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

from flintmq.format.buffer import Buffer
from flintmq.format.errors import CorruptRecordError, HostError, RecordTooLargeError
from flintmq.format.java import encoded_tags_code
from flintmq.format.message_id import encode_offset_id
from flintmq.format.properties import decode_properties, find_property
from flintmq.format.record_scan import (
    BLANK_MAGIC,
    BLANK_SIZE,
    FIXED_SIZE,
    MESSAGE_MAGIC,
    PROPERTIES_LENGTH_MAX,
    RECORD_SIZE_MIN,
    TOPIC_LENGTH_MAX,
    Blank,
    CheckedRecord,
    check_record,
    encode_blank,
)
from flintmq.format.sys_flag import HOSTS_MASK, host_sizes
from flintmq.model import property_names
from flintmq.model.topics import SCHEDULE_TOPIC

__all__ = [
    "BLANK_MAGIC",
    "BLANK_SIZE",
    "CRC_MASK",
    "FIXED_SIZE",
    "IPV4_HEADER",
    "MESSAGE_MAGIC",
    "PHYSICAL_OFFSET_AT",
    "PROPERTIES_LENGTH_MAX",
    "QUEUE_OFFSET_AT",
    "RECORD_SIZE_MIN",
    "SYS_FLAG_AT",
    "TOPIC_LENGTH_MAX",
    "Blank",
    "CheckedRecord",
    "Record",
    "check_record",
    "decode_record",
    "dispatch_fields",
    "dispatch_tags_code",
    "encode_blank",
    "encode_record",
    "index_keys",
    "read_store_timestamp",
    "record_size",
    "store_timestamp_at",
]

QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36

CRC_MASK: Final = 0x7FFFFFFF
"""Records keep a CRC without its highest bit."""
_LONG_MAX: Final = (1 << 63) - 1
_INT_MAX: Final = (1 << 31) - 1
_INT_DIGITS_MAX: Final = 64

_TAGS: Final = property_names.TAGS.encode()
_KEYS: Final = property_names.KEYS.encode()
_UNIQ_KEY: Final = property_names.UNIQ_KEY.encode()
_DELAY: Final = property_names.DELAY.encode()
_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")


def _header(born_host_size: int, store_host_size: int) -> struct.Struct:
    """Return the layout from the size to the body length, for these sizes of the hosts."""
    return struct.Struct(
        ">"
        "ii"  # size, magic
        "iii"  # body_crc, queue_id, flag
        "qq"  # queue_offset, physical_offset
        "i"  # sys_flag
        f"q{born_host_size}s"  # born_timestamp, born_host
        f"q{store_host_size}s"  # store_timestamp, store_host
        "iq"  # reconsume_times, prepared_transaction_offset
        "i"  # body length
    )


# By the two host bits of the sys flag.
_HOST_BITS: Final = (0x00, 0x10, 0x20, 0x30)
_HEADERS: Final = {bits: (_header(*host_sizes(bits)), *host_sizes(bits)) for bits in _HOST_BITS}
assert all(_HEADERS[bits][0].size == 72 + sum(host_sizes(bits)) for bits in _HOST_BITS)

_FIXED_SIZES: Final = {bits: FIXED_SIZE + sum(host_sizes(bits)) for bits in _HOST_BITS}

IPV4_HEADER: Final = _HEADERS[0][0]
"""The layout from the size to the body length where both hosts are of IPv4, as nearly always."""

# By the length of the topic: topic length, topic, properties length.
_TOPICS: Final = tuple(struct.Struct(f">b{size}sh") for size in range(TOPIC_LENGTH_MAX + 1))


def store_timestamp_at(sys_flag: int) -> int:
    """Return where the store timestamp stands in a record with this sys flag."""
    return 48 + host_sizes(sys_flag)[0]


def read_store_timestamp(source: Buffer, position: int = 0) -> int:
    """Return the store timestamp of the record at ``position``; nothing else of it is checked."""
    if position < 0 or len(source) - position < RECORD_SIZE_MIN:
        raise CorruptRecordError("no record has so few bytes", position)
    (sys_flag,) = _INT.unpack_from(source, position + SYS_FLAG_AT)
    (timestamp,) = _LONG.unpack_from(source, position + store_timestamp_at(sys_flag))
    return int(timestamp)


def record_size(sys_flag: int, body_size: int, topic_length: int, properties_length: int) -> int:
    """Return the size of a record from the lengths of its parts."""
    return _FIXED_SIZES[sys_flag & HOSTS_MASK] + body_size + topic_length + properties_length


def encode_record(
    topic: bytes,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: bytes,
    properties: bytes,
    body_crc: int | None = None,
) -> bytes:
    """Return the record of a message; ``body_crc`` is computed unless it is given."""
    topic_length = len(topic)
    properties_length = len(properties)
    body_size = len(body)
    if topic_length > TOPIC_LENGTH_MAX:
        raise RecordTooLargeError("topic length", topic_length, TOPIC_LENGTH_MAX)
    if properties_length > PROPERTIES_LENGTH_MAX:
        raise RecordTooLargeError("properties length", properties_length, PROPERTIES_LENGTH_MAX)
    header, born_host_size, store_host_size = _HEADERS[sys_flag & HOSTS_MASK]
    if len(born_host) != born_host_size or len(store_host) != store_host_size:
        raise HostError(
            f"hosts of {len(born_host)} and {len(store_host)} bytes with sys flag {sys_flag:#x}"
        )
    size = header.size + 3 + body_size + topic_length + properties_length
    try:
        return b"".join(
            (
                header.pack(
                    size,
                    MESSAGE_MAGIC,
                    zlib.crc32(body) & CRC_MASK if body_crc is None else body_crc,
                    queue_id,
                    flag,
                    queue_offset,
                    physical_offset,
                    sys_flag,
                    born_timestamp,
                    born_host,
                    store_timestamp,
                    store_host,
                    reconsume_times,
                    prepared_transaction_offset,
                    body_size,
                ),
                body,
                _TOPICS[topic_length].pack(topic_length, topic, properties_length),
                properties,
            )
        )
    except struct.error:
        _refuse_wide_ints(
            size=size,
            body_crc=body_crc or 0,
            queue_id=queue_id,
            flag=flag,
            sys_flag=sys_flag,
            reconsume_times=reconsume_times,
        )
        _refuse_wide_longs(
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            born_timestamp=born_timestamp,
            store_timestamp=store_timestamp,
            prepared_transaction_offset=prepared_transaction_offset,
        )
        raise


def _refuse_wide_ints(**fields: int) -> None:
    for name, value in fields.items():
        if not ~_INT_MAX <= value <= _INT_MAX:
            raise RecordTooLargeError(name, value, _INT_MAX)


def _refuse_wide_longs(**fields: int) -> None:
    for name, value in fields.items():
        if not ~_LONG_MAX <= value <= _LONG_MAX:
            raise RecordTooLargeError(name, value, _LONG_MAX)


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
    def tags_code(self) -> int:
        """The signed hash of the tags, zero without any."""
        return _tags_code(self.properties_text)

    @property
    def crc_ok(self) -> bool:
        """Whether the body matches its checksum; that of an empty body is not looked at."""
        return not self.body or zlib.crc32(self.body) & CRC_MASK == self.body_crc


def decode_record(source: Buffer, position: int = 0, *, copy_body: bool = True) -> Record:
    """Return the record at ``position``; its checksum is not looked at (see `Record.crc_ok`).

    Without ``copy_body`` the body is a view of ``source``, which it then keeps alive.
    """
    if position < 0:
        raise CorruptRecordError("a position before the start", position)
    checked = check_record(source, position, len(source), check_crc=False, expected_offset=None)
    if isinstance(checked, Blank):
        raise CorruptRecordError("a blank, not a message", position)
    header, _, _ = _HEADERS[checked.sys_flag & HOSTS_MASK]
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


def _tags_code(properties: bytes) -> int:
    tags = find_property(properties, _TAGS)
    return encoded_tags_code(tags) if tags else 0


def dispatch_tags_code(
    topic: bytes,
    properties: bytes,
    store_timestamp: int,
    delay_ms: Callable[[int], int] | None,
) -> int:
    """Return the tags code that belongs into the consume-queue unit of a record.

    It is the hash of the tags, but the time of delivery for a delayed message.  ``delay_ms``
    gives the delay of a level and caps levels that are too high (`DelayLevels.delay_ms`);
    without it delayed messages are treated like others.
    """
    if topic == _SCHEDULE_TOPIC and delay_ms is not None:
        text = find_property(properties, _DELAY)
        if text is not None:
            level = _parse_level(text)
            if level > 0:
                return store_timestamp + delay_ms(level)
    tags = find_property(properties, _TAGS)
    return encoded_tags_code(tags) if tags else 0


def _parse_level(text: bytes) -> int:
    # int() would also take spaces and underscores, which Java does not.
    digits = text[1:] if text[:1] in (b"+", b"-") else text
    if digits.isdigit() and len(digits) <= _INT_DIGITS_MAX:
        level = int(text)
        if ~_INT_MAX <= level <= _INT_MAX:
            return level
    raise CorruptRecordError(f"the delay level is no number: {text[:32]!r}")


def index_keys(properties: bytes) -> list[bytes]:
    """Return the keys under which the key index enters a message, the unique key first."""
    unique_key = find_property(properties, _UNIQ_KEY)
    keys = find_property(properties, _KEYS)
    found = [unique_key] if unique_key else []
    if keys:
        found += filter(None, keys.split(b" "))
    return found


_find_dispatched: Final = re.compile(rb"(?:^|\x02)(TAGS|KEYS|UNIQ_KEY)\x01([^\x02]+)").findall
"""Finds what dispatch needs in one go, by the rules of ``find_property``."""


def dispatch_fields(
    topic: bytes,
    properties: bytes,
    store_timestamp: int,
    delay_ms: Callable[[int], int] | None,
) -> tuple[int, list[bytes]]:
    """Return the tags code and the index keys of a record.

    The same as `dispatch_tags_code` and `index_keys`, in less time: recovery and dispatch from
    the log call it for every record.
    """
    tags = keys = unique_key = b""
    for name, value in _find_dispatched(properties):
        if name == _TAGS:
            tags = value
        elif name == _KEYS:
            keys = value
        else:
            unique_key = value
    if topic == _SCHEDULE_TOPIC:
        code = dispatch_tags_code(topic, properties, store_timestamp, delay_ms)
    else:
        code = encoded_tags_code(tags) if tags else 0
    found = [unique_key] if unique_key else []
    if keys:
        if b" " in keys:
            found += filter(None, keys.split(b" "))
        else:
            found.append(keys)
    return code, found
