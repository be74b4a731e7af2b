"""Message ids: hexadecimal texts that say where a message is, or who made it.

The offset id, given by the store, in upper-case hex:

    size     field            meaning
    8 or 20  store host       see ``flintmq.format.host``
    8        physical offset

The unique id, given by the producer's client (property UNIQ_KEY):

    size     field            meaning
    4 or 16  address          of the producer's host
    2        process id       its low 16 bits
    4        loader hash      a constant of the process
    4        elapsed time     milliseconds since the first day of the month, local time
    2        counter          its low 16 bits

Either has 32 characters with an IPv4 address and 56 with an IPv6 one.
"""

import functools
import re
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from flintmq.format.buffer import Buffer
from flintmq.format.errors import MessageIdError, RecordTooLargeError
from flintmq.format.host import IPV4_HOST_SIZE, IPV6_HOST_SIZE

OFFSET_MAX: Final = (1 << 63) - 1
_ID_LENGTHS: Final = (32, 56)
_HEX: Final = re.compile(r"[0-9A-Fa-f]*")
_OFFSET: Final = struct.Struct(">q")
_HOST_COUNT_MAX: Final = 1024
"""Hosts whose text is kept: all messages of a broker name the same one."""
_UNIQUE_TAIL: Final = struct.Struct(
    ">"
    "H"  # process id
    "I"  # loader hash
    "I"  # elapsed time: more than 2^31 milliseconds from the 25th day on, hence unsigned
    "H"  # counter
)


class UniqueId(NamedTuple):
    """The parts of a producer's unique id."""

    ip: bytes
    process_id: int
    loader_hash: int
    elapsed_ms: int
    counter: int


def encode_offset_id(host: Buffer, physical_offset: int) -> str:
    """Return the id of the message at ``physical_offset`` of the store at packed ``host``."""
    start = _host_text(bytes(host))
    if not 0 <= physical_offset <= OFFSET_MAX:
        raise RecordTooLargeError("physical offset", physical_offset, OFFSET_MAX)
    return f"{start}{physical_offset:016X}"


def encode_offset_ids(host: Buffer, physical_offsets: Sequence[int]) -> str:
    """Return the ids of several messages of one store, with commas between them."""
    if not 0 <= min(physical_offsets) <= max(physical_offsets) <= OFFSET_MAX:
        raise RecordTooLargeError("physical offset", max(physical_offsets), OFFSET_MAX)
    return packed_offset_ids(host, pack_offsets(physical_offsets))


pack_offset: Final = _OFFSET.pack
"""Returns an offset as a big-endian number of eight bytes."""


def pack_offsets(physical_offsets: Sequence[int]) -> bytes:
    """Return offsets as big-endian numbers of eight bytes, one behind the other."""
    return struct.pack(f">{len(physical_offsets)}q", *physical_offsets)


def packed_offset_ids(host: Buffer, physical_offsets: bytes) -> str:
    """Return offset ids joined by commas, of offsets as `pack_offsets` gives them.

    None of the offsets may be negative.
    """
    start = _host_text(bytes(host))
    return start + physical_offsets.hex(",", _OFFSET.size).upper().replace(",", f",{start}")


@functools.lru_cache(maxsize=_HOST_COUNT_MAX)
def _host_text(host: bytes) -> str:
    if len(host) not in (IPV4_HOST_SIZE, IPV6_HOST_SIZE):
        raise MessageIdError(f"a host has 8 or 20 bytes, not {len(host)}")
    return host.hex().upper()


def decode_offset_id(text: str) -> tuple[bytes, int]:
    """Return the packed store host and the physical offset that an offset id names."""
    data = _from_hex(text)
    (physical_offset,) = _OFFSET.unpack_from(data, len(data) - _OFFSET.size)
    if physical_offset < 0:
        raise MessageIdError(f"the offset is negative: {text}")
    return data[: -_OFFSET.size], physical_offset


def encode_unique_id(
    ip: bytes, process_id: int, loader_hash: int, elapsed_ms: int, counter: int
) -> str:
    """Return the unique id made of these parts, each cut to the bits it has there."""
    if len(ip) not in (4, 16):
        raise MessageIdError(f"an address has 4 or 16 bytes, not {len(ip)}")
    tail = _UNIQUE_TAIL.pack(
        process_id & 0xFFFF, loader_hash & 0xFFFFFFFF, elapsed_ms & 0xFFFFFFFF, counter & 0xFFFF
    )
    return (ip + tail).hex().upper()


def decode_unique_id(text: str) -> UniqueId:
    """Return the parts of a unique id."""
    data = _from_hex(text)
    address_size = len(data) - _UNIQUE_TAIL.size
    return UniqueId(data[:address_size], *_UNIQUE_TAIL.unpack_from(data, address_size))


def _from_hex(text: str) -> bytes:
    if len(text) not in _ID_LENGTHS:
        raise MessageIdError(f"a message id has 32 or 56 characters, not {len(text)}")
    # bytes.fromhex() alone would skip spaces.
    if not _HEX.fullmatch(text):
        raise MessageIdError(f"not hexadecimal: {text!r}")
    return bytes.fromhex(text)
