"""Records from columns: what an archive proves when it is written, and restores from.

The layout is in ``flintmq.format.stored.record_layout``.  Everything here works on whole batches.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flintmq.format.errors import HostError
from flintmq.format.host import IPV4_HOST_SIZE, IPV6_HOST_SIZE, pack_host
from flintmq.format.properties import NAME_END, PAIR_END
from flintmq.format.stored.record_layout import (
    BODY_LENGTH_TO_BODY,
    HEADERS,
    LENGTHS_SIZE,
    PHYSICAL_OFFSET_AT,
)
from flintmq.format.sys_flag import BORN_HOST_V6, HOSTS_MASK, STORE_HOST_V6
from flintmq.kernels.compiled import Bools, Bytes, Longs, as_bytes
from flintmq.kernels.record_encoding import HeadColumns, PieceColumn, RecordRows, encode_rows
from flintmq.kernels.texts import find_differing, fnv_hashes

Columns = Mapping[str, pa.Array]

_COLUMN_OF: Final = {
    "body_crc": "bodyCRC",
    "queue_id": "queueId",
    "flag": "flag",
    "queue_offset": "queueOffset",
    "physical_offset": "physicalOffset",
    "sys_flag": "sysFlag",
    "born_timestamp": "bornTimestamp",
    "store_timestamp": "storeTimestamp",
    "reconsume_times": "reconsumeTimes",
    "prepared_transaction_offset": "preparedTransactionOffset",
}
"""The columns of an archive that hold the numbers of a header."""
RECORD_COLUMNS: Final = frozenset(_COLUMN_OF.values()) | {
    "topic",
    "body",
    "storedBody",
    "properties",
    "rawProperties",
    "rawRecord",
    "bornHost",
    "storeHost",
}
"""The columns that records are made of; the others of an archive follow from these."""
_TIMES: Final = ("born_timestamp", "store_timestamp")


class Encoded(NamedTuple):
    """Pieces of bytes one behind the other: n + 1 offsets."""

    data: Bytes
    at: Longs

    @property
    def sizes(self) -> Longs:
        """The size of each piece."""
        sizes: Longs = np.diff(self.at)
        return sizes


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
    sizes = header_sizes + LENGTHS_SIZE + topic.sizes + body.sizes + properties.sizes
    sizes = np.where(is_raw, raw.sizes, sizes)
    at = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=at[1:])
    data = np.zeros(int(at[-1]), np.uint8)
    rows = RecordRows(
        _heads(columns, sizes, body.sizes),
        _hosts(columns),
        PieceColumn(*body),
        PieceColumn(*topic),
        PieceColumn(*properties),
        is_raw,
        PieceColumn(*raw),
    )
    encode_rows(rows, at, data)
    return Encoded(data, at)


def move_records(encoded: Encoded, physical_offsets: Longs) -> None:
    """Write other physical offsets into records."""
    stored = physical_offsets.astype(">i8")
    indexes = encoded.at[:-1, None] + PHYSICAL_OFFSET_AT + np.arange(stored.itemsize)
    encoded.data[indexes] = stored.view(np.uint8).reshape(-1, stored.itemsize)


def hash_pieces(data: Bytes, at: Longs, size: npt.NDArray[np.integer]) -> Longs:
    """Return the FNV-1a hash (64 bits, as a signed number) of each piece of ``data``."""
    hashes = np.empty(len(at), np.uint64)
    fnv_hashes(data, at, size.astype(np.int64), hashes)
    return hashes.view(np.int64)


def hash_sum(hashes: Longs) -> int:
    """Return the sum of hashes, modulo 2^64."""
    return int(hashes.view(np.uint64).sum(dtype=np.uint64))


def differing(data: Bytes, at: Longs, size: npt.NDArray[np.integer], others: Encoded) -> Bools:
    """Return for each row whether a piece of a file is another than the one in ``others``."""
    found = np.empty(len(at), np.bool_)
    find_differing(data, at, size.astype(np.int64), others.data, others.at, found)
    return found


def body_positions(
    data: Bytes, positions: Longs, sys_flags: npt.NDArray[np.int32]
) -> tuple[Longs, Longs]:
    """Return where the stored bodies of records start, and their sizes."""
    at = positions + _header_sizes(sys_flags)
    stored = at[:, None] + np.arange(-BODY_LENGTH_TO_BODY, 0)
    sizes = data[stored].view(">i4").ravel().astype(np.int64)
    return at, np.maximum(sizes, 0)


def properties_positions(
    data: Bytes, positions: Longs, sizes: npt.NDArray[np.int32], topic_at: Longs
) -> tuple[Longs, Longs]:
    """Return where the properties texts of records start, and their sizes."""
    at = topic_at + LENGTHS_SIZE + data[topic_at]
    return at, positions + sizes - at


def joined_properties(maps: pa.Array) -> Encoded:
    """Return the properties text of each map; an empty one for null."""
    # A batch is a part of a larger table, of which its children still have all pairs.
    first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    keys, items = (one.slice(first, last - first) for one in (maps.keys, maps.items))
    pairs = pc.binary_join_element_wise(keys, items, NAME_END)
    lists = pa.ListArray.from_arrays(pc.subtract(maps.offsets, first), pairs)
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
    by_form = np.zeros(HOSTS_MASK + 1, np.int64)
    for form, table in HEADERS.items():
        by_form[form] = table.size
    sizes: Longs = by_form[sys_flags & HOSTS_MASK]
    return sizes


def _heads(columns: Columns, sizes: Longs, body_sizes: Longs) -> HeadColumns:
    """Return the numbers of the headers."""
    numbers = {
        field: _milliseconds(columns[column])
        if field in _TIMES
        else _numbers(columns[column]).astype(np.int64)
        for field, column in _COLUMN_OF.items()
    }
    return HeadColumns(size=sizes, body_length=body_sizes, **numbers)


def _hosts(columns: Columns) -> Bytes:
    """Return the packed hosts of all rows, as kernels take them."""
    sys_flags = _numbers(columns["sysFlag"])
    packed = [
        _packed(columns[name], sys_flags & family_bit != 0)
        for name, family_bit in (("bornHost", BORN_HOST_V6), ("storeHost", STORE_HOST_V6))
    ]
    return np.concatenate(packed, axis=1).ravel()


def _packed(column: pa.Array, is_v6: Bools) -> npt.NDArray[np.uint8]:
    """Return packed hosts, each with room for IPv6; zeros for a text of the other family."""
    coded = column.dictionary_encode()
    texts = [*coded.dictionary.to_pylist(), ""]
    rows = _numbers(coded.indices.fill_null(len(texts) - 1))
    v4, v6 = (
        np.frombuffer(
            b"".join(_pack(text, size).ljust(IPV6_HOST_SIZE, b"\0") for text in texts), np.uint8
        ).reshape(-1, IPV6_HOST_SIZE)[rows]
        for size in (IPV4_HOST_SIZE, IPV6_HOST_SIZE)
    )
    hosts: npt.NDArray[np.uint8] = np.where(is_v6[:, None], v6, v4)
    return hosts


def _pack(text: str, size: int) -> bytes:
    address, _, port = text.rpartition(":")
    try:
        packed = pack_host(address.strip("[]"), int(port))
    except (HostError, ValueError):
        return bytes(size)
    return packed if len(packed) == size else bytes(size)
