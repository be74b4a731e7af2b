"""Records from columns: what an archive proves when it is written, and restores from.

The layout is told in ``flintmq.format.record``.  Everything here works on whole batches.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flintmq.format.errors import HostError
from flintmq.format.host import pack_host
from flintmq.format.properties import NAME_END, PAIR_END
from flintmq.format.record import FIXED_SIZE, MESSAGE_MAGIC, PHYSICAL_OFFSET_AT
from flintmq.format.sys_flag import HOSTS_MASK, host_sizes
from flintmq.kernels.compiled import (
    Bools,
    Bytes,
    Longs,
    as_bytes,
    copy_bytes,
    kernel,
    load_byte,
)
from flintmq.kernels.texts import are_equal

Columns = Mapping[str, pa.Array]

_HOST_BITS: Final = (0x00, 0x10, 0x20, 0x30)
_TAIL_SIZE: Final = 3
"""Of the lengths of topic and properties; the header ends with the length of the body."""
_FNV_START: Final = np.uint64(0xCBF29CE484222325)
_FNV_PRIME: Final = np.uint64(0x100000001B3)


class Encoded(NamedTuple):
    """Pieces of bytes one behind the other: n + 1 offsets."""

    data: Bytes
    at: Longs

    @property
    def sizes(self) -> Longs:
        """The size of each piece."""
        sizes: Longs = np.diff(self.at)
        return sizes


def _header(bits: int) -> np.dtype[np.void]:
    born_host_size, store_host_size = host_sizes(bits)
    return np.dtype(
        [
            ("size", ">i4"),
            ("magic", ">i4"),
            ("bodyCRC", ">i4"),
            ("queueId", ">i4"),
            ("flag", ">i4"),
            ("queueOffset", ">i8"),
            ("physicalOffset", ">i8"),
            ("sysFlag", ">i4"),
            ("bornTimestamp", ">i8"),
            ("bornHost", "u1", (born_host_size,)),
            ("storeTimestamp", ">i8"),
            ("storeHost", "u1", (store_host_size,)),
            ("reconsumeTimes", ">i4"),
            ("preparedTransactionOffset", ">i8"),
            ("bodySize", ">i4"),
        ]
    )


_HEADERS: Final = {bits: _header(bits) for bits in _HOST_BITS}
assert all(_HEADERS[bits].itemsize == 72 + sum(host_sizes(bits)) for bits in _HOST_BITS)
assert all(
    _HEADERS[bits].itemsize + _TAIL_SIZE == FIXED_SIZE + sum(host_sizes(bits))
    for bits in _HOST_BITS
)
_PLAIN: Final = (
    "bodyCRC",
    "queueId",
    "flag",
    "queueOffset",
    "physicalOffset",
    "sysFlag",
    "reconsumeTimes",
    "preparedTransactionOffset",
)

_USED: Final = frozenset({*_PLAIN, "bornTimestamp", "storeTimestamp", "bornHost", "storeHost"})


def encode_records(columns: Columns) -> Encoded:
    """Return the records of the rows of an archive, at the physical offsets they had."""
    topic, body = _texts(columns["topic"]), _texts(_either(columns, "storedBody", "body"))
    raw_properties = columns["rawProperties"]
    properties = joined_properties(columns["properties"])
    if raw_properties.null_count < len(raw_properties):
        properties = _texts(pc.coalesce(raw_properties, _binary(properties)))
    raw = _texts(columns["rawRecord"])
    is_raw = pc.is_valid(columns["rawRecord"]).to_numpy(zero_copy_only=False)
    header_sizes = _header_sizes(_numbers(columns["sysFlag"]))
    sizes = header_sizes + _TAIL_SIZE + topic.sizes + body.sizes + properties.sizes
    sizes = np.where(is_raw, raw.sizes, sizes)
    at = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=at[1:])
    data = np.zeros(int(at[-1]), np.uint8)
    _put_headers(data, at, columns, sizes, body.sizes, ~is_raw)
    _fill(data, at, header_sizes, *body, *topic, *properties, is_raw, *raw)
    return Encoded(data, at)


def move_records(encoded: Encoded, physical_offsets: Longs) -> None:
    """Write other physical offsets into records."""
    places = encoded.at[:-1, None] + PHYSICAL_OFFSET_AT + np.arange(8)
    encoded.data[places] = physical_offsets.astype(">i8").view(np.uint8).reshape(-1, 8)


def hash_pieces(data: Bytes, at: Longs, size: npt.NDArray[np.integer]) -> Longs:
    """Return the FNV-1a hash (64 bits, as a signed number) of each piece of ``data``."""
    hashes = np.empty(len(at), np.uint64)
    _hash(data, at, size.astype(np.int64), hashes)
    return hashes.view(np.int64)


def hash_sum(hashes: Longs) -> int:
    """Return the sum of hashes, modulo 2^64."""
    return int(hashes.view(np.uint64).sum(dtype=np.uint64))


def differing(data: Bytes, at: Longs, size: npt.NDArray[np.integer], others: Encoded) -> Bools:
    """Return for each row whether a piece of a file is another than the one in ``others``."""
    found = np.empty(len(at), np.bool_)
    _differ(data, at, size.astype(np.int64), others.data, others.at, found)
    return found


def body_places(
    data: Bytes, positions: Longs, sys_flags: npt.NDArray[np.int32]
) -> tuple[Longs, Longs]:
    """Return where the stored bodies of records start, and their sizes."""
    at = positions + _header_sizes(sys_flags)
    sizes = data[at[:, None] + np.arange(-4, 0)].view(">i4").ravel().astype(np.int64)
    return at, np.maximum(sizes, 0)


def property_places(
    data: Bytes, positions: Longs, sizes: npt.NDArray[np.int32], topic_at: Longs
) -> tuple[Longs, Longs]:
    """Return where the property strings of records start, and their sizes."""
    at = topic_at + _TAIL_SIZE + data[topic_at]
    return at, positions + sizes - at


def joined_properties(maps: pa.Array) -> Encoded:
    """Return the property string of each map; an empty one for null."""
    pairs = pc.binary_join_element_wise(maps.keys, maps.items, NAME_END)
    lists = pa.ListArray.from_arrays(maps.offsets, pairs)
    return _texts(pc.binary_join(lists, PAIR_END))


def _either(columns: Columns, first: str, second: str) -> pa.Array:
    if columns[first].null_count == len(columns[first]):
        return columns[second]
    return pc.coalesce(columns[first], columns[second])


def _texts(column: pa.Array) -> Encoded:
    """Return the bytes of a column of texts; null is empty."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    wide = pc.fill_null(column.cast(pa.large_binary()), b"")
    _, offsets, data = wide.buffers()
    at = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1]
    return Encoded(as_bytes(b"") if data is None else as_bytes(memoryview(data)), at)


def _binary(texts: Encoded) -> pa.Array:
    buffers = [None, pa.py_buffer(texts.at.copy()), pa.py_buffer(texts.data)]
    return pa.Array.from_buffers(pa.large_binary(), len(texts.at) - 1, buffers).cast(pa.binary())


def _numbers(column: pa.Array) -> npt.NDArray[np.integer]:
    numbers: npt.NDArray[np.integer] = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    return numbers


def _milliseconds(column: pa.Array) -> Longs:
    return (_numbers(column.cast(pa.int64())) // 1000).astype(np.int64)


def _header_sizes(sys_flags: npt.NDArray[np.integer]) -> Longs:
    by_bits = np.zeros(max(_HOST_BITS) + 1, np.int64)
    for bits in _HOST_BITS:
        by_bits[bits] = _HEADERS[bits].itemsize
    sizes: Longs = by_bits[sys_flags & HOSTS_MASK]
    return sizes


def _hosts(column: pa.Array, size: int) -> npt.NDArray[np.uint8]:
    """Return packed hosts; zeros for a text that no host of this size has."""
    coded = column.dictionary_encode()
    packed = [_pack(text, size) for text in coded.dictionary.to_pylist()] + [bytes(size)]
    table = np.frombuffer(b"".join(packed), np.uint8).reshape(-1, size)
    hosts: npt.NDArray[np.uint8] = table[_numbers(coded.indices.fill_null(len(packed) - 1))]
    return hosts


def _pack(text: str, size: int) -> bytes:
    address, _, port = text.rpartition(":")
    try:
        packed = pack_host(address.strip("[]"), int(port))
    except (HostError, ValueError):
        return bytes(size)
    return packed if len(packed) == size else bytes(size)


def _put_headers(
    data: Bytes, at: Longs, columns: Columns, sizes: Longs, body_sizes: Longs, wanted: Bools
) -> None:
    bits = _numbers(columns["sysFlag"]) & HOSTS_MASK
    for form in _HOST_BITS:
        rows = np.flatnonzero(wanted & (bits == form))
        if not len(rows):
            continue
        taken = pa.array(rows)
        some = {name: columns[name].take(taken) for name in _USED}
        headers = np.zeros(len(rows), _HEADERS[form])
        headers["size"], headers["magic"] = sizes[rows], MESSAGE_MAGIC
        headers["bodySize"] = body_sizes[rows]
        for name in _PLAIN:
            headers[name] = _numbers(some[name])
        for name in ("bornTimestamp", "storeTimestamp"):
            headers[name] = _milliseconds(some[name])
        for name, size in zip(("bornHost", "storeHost"), host_sizes(form), strict=True):
            headers[name] = _hosts(some[name], size)
        header_size = headers.itemsize
        places = at[rows, None] + np.arange(header_size)
        data[places] = headers.view(np.uint8).reshape(-1, header_size)


@kernel
def _fill(
    data: Bytes,
    at: Longs,
    header_sizes: Longs,
    body: Bytes,
    body_at: Longs,
    topic: Bytes,
    topic_at: Longs,
    properties: Bytes,
    properties_at: Longs,
    is_raw: Bools,
    raw: Bytes,
    raw_at: Longs,
) -> None:
    for row in range(len(at) - 1):
        to = at[row]
        if is_raw[row]:
            copy_bytes(data, to, raw, raw_at[row], raw_at[row + 1] - raw_at[row])
            continue
        to += header_sizes[row]
        size = body_at[row + 1] - body_at[row]
        copy_bytes(data, to, body, body_at[row], size)
        to += size
        size = topic_at[row + 1] - topic_at[row]
        data[to] = size
        copy_bytes(data, to + 1, topic, topic_at[row], size)
        to += 1 + size
        size = properties_at[row + 1] - properties_at[row]
        data[to] = size >> 8
        data[to + 1] = size & 0xFF
        copy_bytes(data, to + 2, properties, properties_at[row], size)


@kernel
def _differ(
    data: Bytes, at: Longs, size: Longs, others: Bytes, others_at: Longs, found: Bools
) -> None:
    for row in range(len(at)):
        start = others_at[row]
        found[row] = others_at[row + 1] - start != size[row] or not are_equal(
            data, at[row], others, start, size[row]
        )


@kernel
def _hash(data: Bytes, at: Longs, size: Longs, hashes: npt.NDArray[np.uint64]) -> None:
    for row in range(len(at)):
        value = _FNV_START
        for place in range(at[row], at[row] + size[row]):
            value = (value ^ np.uint64(load_byte(data, place))) * _FNV_PRIME
        hashes[row] = value
