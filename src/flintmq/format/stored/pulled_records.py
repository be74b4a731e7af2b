"""Records one behind the other, as the answer to a pull brings them.

The layout of a record is in ``flintmq.format.stored.record_layout``.  Here is a fast path through
records with IPv4 hosts, which nearly all are: they are checked and cut, and decoded when somebody
asks for more than their bodies.  Whatever looks otherwise is decoded field by field.
"""

from typing import Final, NamedTuple

from flintmq.format.errors import CorruptRecordError
from flintmq.format.stored.record import Record, decode_record
from flintmq.format.stored.record_layout import (
    IPV4,
    IPV4_BODY_AT,
    LENGTHS_SIZE,
    MESSAGE_MAGIC,
    PROPERTIES_LENGTH,
    PROPERTIES_LENGTH_SIZE,
    RECORD_SIZE_MIN,
    TOPIC_LENGTH_SIZE,
)
from flintmq.format.sys_flag import HOSTS_MASK

_SIZE: Final = IPV4.pick("size")

# Found faster here than as attributes of their types.
_unpack_all: Final = IPV4.struct.unpack_from
_unpack_some: Final = IPV4.pick(
    "size", "magic", "queue_offset", "sys_flag", "body_length"
).unpack_from
_unpack_length: Final = PROPERTIES_LENGTH.unpack_from
_new_tuple: Final = tuple.__new__


class PlainRecord(NamedTuple):
    """A record with IPv4 hosts, checked as far as `decode_record` does."""

    stored: bytes
    topic: str
    queue_offset: int
    sys_flag: int
    body_size: int

    @property
    def body(self) -> bytes:
        """The body, as it is stored."""
        return self.stored[IPV4_BODY_AT : IPV4_BODY_AT + self.body_size]

    @property
    def properties_text(self) -> bytes:
        """The property string."""
        topic_at = IPV4_BODY_AT + self.body_size
        return self.stored[topic_at + LENGTHS_SIZE + self.stored[topic_at] :]

    def decode(self) -> Record:
        """Return all fields."""
        fields = _unpack_all(self.stored)
        texts = (self.body, self.topic, self.properties_text)
        # A Record has its fields in the order of the layout, without the magic code.
        return _new_tuple(Record, fields[:1] + fields[2:-1] + texts)


def decode_records(source: bytes) -> list[Record]:
    """Return the records that fill ``source``; checksums are not looked at.

    Raises:
        CorruptRecordError: it holds something else, or ends within a record.
    """
    return [one.decode() if isinstance(one, PlainRecord) else one for one in split_records(source)]


def split_records(source: bytes) -> list[PlainRecord | Record]:
    """Return what `decode_records` does, with those records undecoded that are plain."""
    found: list[PlainRecord | Record] = []
    at, end = 0, len(source)
    stored_topic, topic = b"", ""
    # The last record that was checked: its sizes, and the bytes from its topic to its properties.
    known_size, known_body_size, known_lengths = 0, 0, b""
    while at < end:
        if end - at < RECORD_SIZE_MIN:
            raise CorruptRecordError("the answer ends within a record", at)
        size, magic, queue_offset, sys_flag, body_size = _unpack_some(source, at)
        body_at, next_at = at + IPV4_BODY_AT, at + size
        topic_at = body_at + body_size
        if (
            magic != MESSAGE_MAGIC
            or sys_flag & HOSTS_MASK
            or not body_at <= topic_at <= next_at - LENGTHS_SIZE
            or next_at > end
        ):
            at = _decode_one(source, at, found)
            continue
        # Records are often alike, down to their sizes: then one look shows that all lengths fit.
        if not (
            size == known_size
            and body_size == known_body_size
            and source.startswith(known_lengths, topic_at)
        ):
            properties_at = topic_at + LENGTHS_SIZE + source[topic_at]
            length_at = properties_at - PROPERTIES_LENGTH_SIZE
            if (
                properties_at > next_at
                or _unpack_length(source, length_at)[0] != next_at - properties_at
            ):
                at = _decode_one(source, at, found)
                continue
            # Mostly the topic is that of the record before.
            if not stored_topic or not source.startswith(stored_topic, topic_at):
                stored_topic = source[topic_at:length_at]
                if not stored_topic.isascii():
                    stored_topic, known_size = b"", 0
                    at = _decode_one(source, at, found)
                    continue
                topic = stored_topic[TOPIC_LENGTH_SIZE:].decode()
            known_size, known_body_size = size, body_size
            known_lengths = source[topic_at:properties_at]
        record = (source[at:next_at], topic, queue_offset, sys_flag, body_size)
        found.append(_new_tuple(PlainRecord, record))
        at = next_at
    return found


def _decode_one(source: bytes, at: int, found: list[PlainRecord | Record]) -> int:
    """Decode the record at ``at`` and return where the next one starts."""
    (size,) = _SIZE.unpack_from(source, at)
    left = len(source) - at
    if not 0 < size <= left:
        raise CorruptRecordError(f"a record of {size} bytes, {left} are left", at)
    found.append(decode_record(source[at : at + size]))
    return at + int(size)
