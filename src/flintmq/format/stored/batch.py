"""The body of a batch: several messages for one queue, as a producer sends them.

It is a sequence of items:

    at    size  field
     0       4  size of the item; ignored, since the lengths below say it
     4       4  magic; zero, ignored
     8       4  body CRC; zero, ignored
    12       4  flag: the application's
    16       4  body length n
    20       n  body
    20+n     2  properties length p
    22+n     p  properties

Every item becomes a record of its own, with the properties of the batch after its own.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from flintmq.format.buffer import Buffer
from flintmq.format.errors import BatchError, RecordTooLargeError
from flintmq.format.stored.field_table import FieldTable
from flintmq.format.stored.record_layout import PROPERTIES_LENGTH, PROPERTIES_LENGTH_MAX

ITEM_COUNT_MAX: Final = 1 << 18
"""More than fit into a batch of the usual limit, 4 MiB."""

_PAIR_END: Final = b"\x02"
_ITEM_TABLE: Final = FieldTable(
    [
        ("item_size", "i"),
        ("magic", "i"),
        ("body_crc", "i"),
        ("flag", "i"),
        ("body_length", "i"),
    ]
)
ITEM: Final = _ITEM_TABLE.pick("flag", "body_length")
"""Reads what counts of an item before its body."""
_ITEM_TO_WRITE: Final = _ITEM_TABLE.pick("item_size", "flag", "body_length")
LENGTH: Final = PROPERTIES_LENGTH
ITEM_FLAG_AT: Final = _ITEM_TABLE.at("flag")
ITEM_BODY_LENGTH_AT: Final = _ITEM_TABLE.at("body_length")
BODY_AT: Final = _ITEM_TABLE.size
ITEM_SIZE_MIN: Final = BODY_AT + LENGTH.size
assert ITEM.size == _ITEM_TO_WRITE.size == BODY_AT


class BatchItem(NamedTuple):
    """One message of a batch."""

    flag: int
    body: bytes
    properties: bytes


class BatchColumns(NamedTuple):
    """The messages of a batch, field by field."""

    flags: Sequence[int]
    bodies: Sequence[bytes]
    properties: Sequence[bytes]

    def pick(self, places: Sequence[int]) -> "BatchColumns":
        """Return the messages at these places."""
        return BatchColumns(
            [self.flags[place] for place in places],
            [self.bodies[place] for place in places],
            [self.properties[place] for place in places],
        )


def walk_batch(body: Buffer, *, count_max: int = ITEM_COUNT_MAX) -> Iterator[BatchItem]:
    """Yield the items of a batch body; at most ``count_max`` are accepted."""
    total = len(body)
    at = count = 0
    while at < total:
        if count == count_max:
            raise BatchError(f"more than {count_max} items", at)
        if total - at < ITEM_SIZE_MIN:
            raise BatchError("the item is cut off", at)
        flag, body_size = ITEM.unpack_from(body, at)
        body_at = at + ITEM.size
        length_at = body_at + body_size
        if body_size < 0 or length_at + LENGTH.size > total:
            raise BatchError(f"a body of {body_size} bytes, {total - body_at} left", at)
        (properties_length,) = LENGTH.unpack_from(body, length_at)
        properties_at = length_at + LENGTH.size
        end = properties_at + properties_length
        if properties_length < 0 or end > total:
            raise BatchError(
                f"properties of {properties_length} bytes, {total - properties_at} left", at
            )
        yield BatchItem(flag, bytes(body[body_at:length_at]), bytes(body[properties_at:end]))
        count += 1
        at = end


def encode_batch(items: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Return the batch body of ``items``: flag, body and properties of each, as `BatchItem`."""
    parts: list[bytes] = []
    last, head, length = (0, -1, -1), b"", b""
    for flag, body, properties in items:
        # Messages of one batch are often alike, down to their sizes.
        kind = flag, len(body), len(properties)
        if kind != last:
            head, length = _pack_sizes(*kind)
            last = kind
        parts += (head, body, length, properties)
    return b"".join(parts)


def encode_batch_columns(
    items: BatchColumns, tails: Sequence[bytes], *, before: bytes, behind: bytes
) -> bytes:
    """Return the batch body of items whose properties go on with a tail of their own.

    All tails have one size; ``before`` and ``behind`` are what stands before and behind each.
    """
    flags, bodies, texts = items
    assert len(flags) == len(bodies) == len(texts) == len(tails), "columns of one length"
    if not bodies:
        return b""
    count, sizes = len(bodies), list(map(len, bodies))
    tail_size = len(before) + len(tails[0]) + len(behind)
    flag, size, text = flags[0], sizes[0], texts[0]
    if texts.count(text) == sizes.count(size) == flags.count(flag) == count:
        head, length = _pack_sizes(flag, size, len(text) + tail_size)
        parts = [head, b"", length + text + before, b"", behind] * count
        parts[1::5], parts[3::5] = bodies, tails
        return b"".join(parts)
    parts, last = [], (0, -1, -1)
    for flag, body, size, text, tail in zip(flags, bodies, sizes, texts, tails, strict=True):
        kind = flag, size, len(text)
        if kind != last:
            head, length = _pack_sizes(flag, size, len(text) + tail_size)
            last = kind
        parts += (head, body, length, text, before, tail, behind)
    return b"".join(parts)


def _pack_sizes(flag: int, body_length: int, properties_length: int) -> tuple[bytes, bytes]:
    """Return what stands before the body of an item, and before its properties."""
    if properties_length > PROPERTIES_LENGTH_MAX:
        raise RecordTooLargeError("properties length", properties_length, PROPERTIES_LENGTH_MAX)
    size = ITEM_SIZE_MIN + body_length + properties_length
    return _ITEM_TO_WRITE.pack(size, flag, body_length), LENGTH.pack(properties_length)


def join_properties(item: bytes, batch: bytes) -> bytes:
    """Return the property string of an item followed by that of its batch."""
    if item and batch and not item.endswith(_PAIR_END):
        return item + _PAIR_END + batch
    return item + batch
