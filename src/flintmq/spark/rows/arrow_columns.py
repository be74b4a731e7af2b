"""From the numbers of a `RecordTable` to Arrow arrays, without a Python object per row."""

import functools
from typing import Final

import numpy as np
import pyarrow as pa

from flintmq.format.host import IPV4_HOST_SIZE, IPV6_HOST_SIZE, host_text
from flintmq.kernels.compiled import (
    Bools,
    Bytes,
    Ints,
    Longs,
    as_bytes,
    copy_bytes,
    kernel,
    load_byte,
    load_int,
    load_long,
)
from flintmq.kernels.numbers import HEX_LONG_SIZE, put_digits, put_hex, put_hex_long
from flintmq.kernels.properties import Pairs
from flintmq.kernels.texts import NULL, Gathered, Pieces, gather

_HOSTS_CACHED_MAX: Final = 4096
_HOST_TEXT_MAX: Final = 27
"""The longest text of an IPv4 host: the port has a sign and ten digits at most."""

_PORT_SIZE: Final = 4
_DOT: Final = 46
_COLON: Final = 58

_cached_host_text: Final = functools.lru_cache(maxsize=_HOSTS_CACHED_MAX)(host_text)


def _bitmap(valid: Bools | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _text_array(gathered: Gathered, kind: pa.DataType) -> pa.Array:
    buffers = [_bitmap(gathered.valid), pa.py_buffer(gathered.offsets), pa.py_buffer(gathered.data)]
    return pa.Array.from_buffers(kind, len(gathered.offsets) - 1, buffers)


def number_array(values: Ints | Longs, kind: pa.DataType) -> pa.Array:
    """Return numbers of the width of ``kind`` as an array of it, without a copy."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def time_array(milliseconds: Longs, *, low: int, high: int, kind: pa.DataType) -> pa.Array:
    """Return times in microseconds; those outside of ``low`` to ``high`` are null."""
    is_known = (milliseconds >= low) & (milliseconds <= high)
    if is_known.all():
        return number_array(milliseconds * 1000, kind)
    buffers = [_bitmap(is_known), pa.py_buffer(np.where(is_known, milliseconds, 0) * 1000)]
    return pa.Array.from_buffers(kind, len(milliseconds), buffers)


def piece_array(data: Bytes, pieces: Pieces, kind: pa.DataType) -> pa.Array:
    """Return pieces of bytes as an array of texts or of binary values."""
    return _text_array(gather(data, pieces), kind)


def map_array(data: Bytes, pairs: Pairs, kind: pa.DataType) -> pa.Array:
    """Return the properties of rows as an array of maps."""
    names = piece_array(data, pairs.names, kind.key_type)
    values = piece_array(data, pairs.values, kind.item_type)
    offsets = pa.Array.from_buffers(
        pa.int32(), len(pairs.offsets), [None, pa.py_buffer(pairs.offsets)]
    )
    return pa.MapArray.from_arrays(offsets, names, values)


def host_array(data: Bytes, at: Longs, is_v6: Bools, kind: pa.DataType) -> pa.Array:
    """Return packed hosts as texts."""
    others = Pieces(np.zeros(len(at), np.int64), np.full(len(at), NULL, np.int32))
    rows = np.flatnonzero(is_v6)
    if len(rows):
        hosts = [data[at[row] : at[row] + IPV6_HOST_SIZE].tobytes() for row in rows]
        others = others.replaced(rows, [_cached_host_text(host).encode() for host in hosts])
    offsets = np.zeros(len(at) + 1, np.int32)
    texts = np.empty(len(at) * _HOST_TEXT_MAX + len(others.side), np.uint8)
    _write_hosts(data, at, others.side, others.at, others.size, offsets, texts)
    return _text_array(Gathered(offsets, texts[: offsets[-1]], None), kind)


def offset_ids(data: Bytes, host_at: Longs, is_v6: Bools, physical_offset: Longs) -> Gathered:
    """Return the offset ids of records: store host and physical offset in hexadecimal digits."""
    host_size = np.where(is_v6, IPV6_HOST_SIZE, IPV4_HOST_SIZE).astype(np.int32)
    offsets = np.zeros(len(host_at) + 1, np.int32)
    np.cumsum(host_size * 2 + HEX_LONG_SIZE, out=offsets[1:])
    texts = np.empty(offsets[-1], np.uint8)
    _write_ids(data, host_at, host_size, physical_offset, offsets, texts)
    return Gathered(offsets, texts, None)


def id_array(ids: Gathered, kind: pa.DataType) -> pa.Array:
    """Return ids as an array."""
    return _text_array(ids, kind)


def with_default(pieces: Pieces, defaults: Gathered) -> Pieces:
    """Return pieces where those that are not there are replaced by defaults."""
    missing = np.flatnonzero(pieces.size < 0)
    if not len(missing):
        return pieces
    at, size = pieces.at.copy(), pieces.size.copy()
    at[missing] = ~(defaults.offsets[missing].astype(np.int64) + len(pieces.side))
    size[missing] = np.diff(defaults.offsets)[missing]
    return Pieces(at, size, as_bytes(pieces.side.tobytes() + defaults.data.tobytes()))


@kernel
def _write_hosts(
    data: Bytes,
    at: Longs,
    side: Bytes,
    side_at: Longs,
    side_size: Ints,
    offsets: Ints,
    texts: Bytes,
) -> None:
    """Write the texts of hosts: those at the side as they are, the others are IPv4."""
    end = 0
    last = -1
    for row in range(len(at)):
        start = end
        host_at = at[row]
        if side_size[row] >= 0:
            copy_bytes(texts, start, side, ~side_at[row], side_size[row])
            end = start + side_size[row]
        elif last >= 0 and load_long(data, at[last]) == load_long(data, host_at):
            # Hardly ever another host follows.
            size = offsets[last + 1] - offsets[last]
            copy_bytes(texts, start, texts, offsets[last], size)
            end = start + size
        else:
            for index in range(IPV4_HOST_SIZE - _PORT_SIZE):
                end = put_digits(texts, end, load_byte(data, host_at + index))
                texts[end] = _DOT if index < 3 else _COLON
                end += 1
            end = put_digits(texts, end, load_int(data, host_at + IPV4_HOST_SIZE - _PORT_SIZE))
            last = row
        offsets[row + 1] = end


@kernel
def _write_ids(
    data: Bytes,
    host_at: Longs,
    host_size: Ints,
    physical_offset: Longs,
    offsets: Ints,
    texts: Bytes,
) -> None:
    host = 0
    host_to = -1
    for row in range(len(host_at)):
        to = offsets[row]
        if host_size[row] == IPV4_HOST_SIZE:
            packed = load_long(data, host_at[row])
            if host_to >= 0 and packed == host:
                # All records of a store mostly have one store host.
                copy_bytes(texts, to, texts, host_to, 2 * IPV4_HOST_SIZE)
            else:
                put_hex_long(texts, to, packed)
            host, host_to = packed, to
        else:
            put_hex(texts, to, data, host_at[row], host_size[row])
        put_hex_long(texts, to + 2 * host_size[row], physical_offset[row])
