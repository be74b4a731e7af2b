"""The layout of a commit-log record: one table of fields, and the offsets computed from it.

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
    68+B+S       4  body_length n
    72+B+S       n  body
    72+B+S+n     1  topic length t, at most 127
    73+B+S+n     t  topic, UTF-8
    73+B+S+n+t   2  properties length p, at most 32767
    75+B+S+n+t   p  properties, see ``flintmq.format.properties``

A blank record fills the rest of a file that had no room for the next record: its size, which
reaches to the end of the file, and another magic; what follows those 8 bytes means nothing.
A body or properties length below zero is read as zero, since Java does.

Here are no functions that read or write: `flintmq.format.stored.record` does that in Python, and
`flintmq.kernels` does it in machine code, both by these names.
"""

import struct
from typing import Final

from flintmq.format.host import IPV4_HOST_SIZE, IPV6_HOST_SIZE
from flintmq.format.stored.field_table import FieldTable
from flintmq.format.sys_flag import BORN_HOST_V6, HOSTS_MASK, STORE_HOST_V6, host_sizes

MESSAGE_MAGIC: Final = -626843481
BLANK_MAGIC: Final = -875286124
TOPIC_LENGTH_MAX: Final = 127
PROPERTIES_LENGTH_MAX: Final = 32767


def _header_table(born_host_size: int, store_host_size: int) -> FieldTable:
    """Return the table of the header, from the size to the body length."""
    return FieldTable(
        [
            ("size", "i"),
            ("magic", "i"),
            ("body_crc", "i"),
            ("queue_id", "i"),
            ("flag", "i"),
            ("queue_offset", "q"),
            ("physical_offset", "q"),
            ("sys_flag", "i"),
            ("born_timestamp", "q"),
            ("born_host", f"{born_host_size}s"),
            ("store_timestamp", "q"),
            ("store_host", f"{store_host_size}s"),
            ("reconsume_times", "i"),
            ("prepared_transaction_offset", "q"),
            ("body_length", "i"),
        ]
    )


HOST_FORMS: Final = (0, BORN_HOST_V6, STORE_HOST_V6, HOSTS_MASK)
"""The values that the two host bits of a sys flag can have."""

HEADERS: Final = {form: _header_table(*host_sizes(form)) for form in HOST_FORMS}
"""The header by the host bits of the sys flag."""

IPV4: Final = HEADERS[0]
"""The header of a record whose hosts are both of IPv4, as nearly always."""

# The fields up to the born host stand at the same offset in every record.
SIZE_AT: Final = IPV4.at("size")
MAGIC_AT: Final = IPV4.at("magic")
BODY_CRC_AT: Final = IPV4.at("body_crc")
QUEUE_ID_AT: Final = IPV4.at("queue_id")
FLAG_AT: Final = IPV4.at("flag")
QUEUE_OFFSET_AT: Final = IPV4.at("queue_offset")
PHYSICAL_OFFSET_AT: Final = IPV4.at("physical_offset")
SYS_FLAG_AT: Final = IPV4.at("sys_flag")
BORN_TIMESTAMP_AT: Final = IPV4.at("born_timestamp")
BORN_HOST_AT: Final = IPV4.at("born_host")

# The fields behind it stand here if both hosts are of IPv4.
IPV4_STORE_TIMESTAMP_AT: Final = IPV4.at("store_timestamp")
IPV4_STORE_HOST_AT: Final = IPV4.at("store_host")
IPV4_RECONSUME_TIMES_AT: Final = IPV4.at("reconsume_times")
IPV4_PREPARED_OFFSET_AT: Final = IPV4.at("prepared_transaction_offset")
IPV4_BODY_LENGTH_AT: Final = IPV4.at("body_length")
IPV4_BODY_AT: Final = IPV4.size

# The fields behind the store host stand at the same distance from the body in every record.
STORE_HOST_END_TO_BODY: Final = IPV4.size - IPV4.end_of("store_host")
RECONSUME_TIMES_TO_BODY: Final = IPV4.size - IPV4_RECONSUME_TIMES_AT
PREPARED_OFFSET_TO_BODY: Final = IPV4.size - IPV4_PREPARED_OFFSET_AT
BODY_LENGTH_TO_BODY: Final = IPV4.size - IPV4_BODY_LENGTH_AT

TIMESTAMP_SIZE: Final = IPV4_STORE_HOST_AT - IPV4_STORE_TIMESTAMP_AT
IPV6_GROWTH: Final = IPV6_HOST_SIZE - IPV4_HOST_SIZE
"""By so many bytes an IPv6 host is longer than an IPv4 one."""

TOPIC_LENGTH: Final = struct.Struct(">b")
PROPERTIES_LENGTH: Final = struct.Struct(">h")
TOPIC_LENGTH_SIZE: Final = TOPIC_LENGTH.size
PROPERTIES_LENGTH_SIZE: Final = PROPERTIES_LENGTH.size
LENGTHS_SIZE: Final = TOPIC_LENGTH_SIZE + PROPERTIES_LENGTH_SIZE
"""Bytes of the lengths of topic and properties, which stand before each of them."""

FIXED_SIZES: Final = {form: HEADERS[form].size + LENGTHS_SIZE for form in HOST_FORMS}
"""Bytes of a record besides its body, topic and properties, by the host bits of the sys flag."""

RECORD_SIZE_MIN: Final = FIXED_SIZES[0]

BLANK: Final = IPV4.pick("size", "magic")
BLANK_SIZE: Final = BLANK.size

# What stands from the sys flag to the body length is the same for all records of a batch.
_ORIGIN_FIELDS: Final = (
    "sys_flag",
    "born_timestamp",
    "born_host",
    "store_timestamp",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
)
ORIGINS: Final = {
    form: FieldTable(field for field in HEADERS[form].fields if field[0] in _ORIGIN_FIELDS)
    for form in HOST_FORMS
}
"""The part of a header that says where a message comes from and is stored, by the host bits."""

_HEAD_FIELDS: Final = tuple(field for field in IPV4.fields if IPV4.at(field[0]) < SYS_FLAG_AT)
HEADERS_WITH_ORIGIN: Final = {
    origin.size: FieldTable([*_HEAD_FIELDS, ("origin", f"{origin.size}s"), ("body_length", "i")])
    for origin in ORIGINS.values()
}
"""The header for whoever has the origin packed already, by the size of that."""

BATCH_HEAD: Final = FieldTable(
    field for field in _HEAD_FIELDS if IPV4.at(field[0]) < QUEUE_OFFSET_AT
)
_PLACE_FIELDS: Final = [field for field in _HEAD_FIELDS if IPV4.at(field[0]) >= QUEUE_OFFSET_AT]
BATCH_PLACES: Final = {
    origin.size: FieldTable([*_PLACE_FIELDS, ("origin", f"{origin.size}s")])
    for origin in ORIGINS.values()
}
BODY_LENGTH: Final = FieldTable(IPV4.fields[-1:])
"""The header in parts, for whoever learns last where a record will stand: what comes before its two
offsets, these with the origin, by the size of that, and the length of the body."""

IPV4_ORIGIN_SIZE: Final = ORIGINS[0].size
assert SYS_FLAG_AT + IPV4_ORIGIN_SIZE == IPV4_BODY_LENGTH_AT
assert all(
    HEADERS_WITH_ORIGIN[ORIGINS[form].size].size == HEADERS[form].size for form in HOST_FORMS
)
