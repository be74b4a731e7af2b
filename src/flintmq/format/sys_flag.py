"""The sys flag of a record: compression, transaction state and the families of its hosts.

    bits   mask   meaning
    0      0x001  the body is compressed
    1      0x002  the topic takes several tags per message; changes nothing here
    2-3    0x00C  transaction: none, prepared (0x4), commit (0x8), rollback (0xC)
    4      0x010  the born host is IPv6
    5      0x020  the store host is IPv6
    6-7    0x0C0  reserved
    8-10   0x700  compression: 0x100 LZ4, 0x200 ZSTD, 0x300 ZLIB; 0 also means ZLIB

Clients that know only ZLIB leave the last field zero.
"""

import enum
from typing import Final

from flintmq.format.buffer import Buffer
from flintmq.format.errors import CompressionError
from flintmq.format.host import IPV4_HOST_SIZE, IPV6_HOST_SIZE, is_ipv6

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2
TRANSACTION_MASK: Final = 0xC
TRANSACTION_NONE: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
HOSTS_MASK: Final = BORN_HOST_V6 | STORE_HOST_V6
COMPRESSION_MASK: Final = 0x700


class CompressionType(enum.IntEnum):
    """How a body is compressed; the value is what the sys flag holds."""

    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300


def transaction_type(flag: int) -> int:
    """Return the transaction bits of a sys flag, one of the TRANSACTION constants."""
    return flag & TRANSACTION_MASK


def compression_type(flag: int) -> CompressionType:
    """Return the type a sys flag names; whether the body is compressed is another bit."""
    bits = flag & COMPRESSION_MASK
    if not bits:
        return CompressionType.ZLIB
    try:
        return CompressionType(bits)
    except ValueError:
        raise CompressionError(f"unknown compression type {bits:#x} in the sys flag") from None


def host_sizes(flag: int) -> tuple[int, int]:
    """Return how many bytes the born host and the store host take."""
    return (
        IPV6_HOST_SIZE if flag & BORN_HOST_V6 else IPV4_HOST_SIZE,
        IPV6_HOST_SIZE if flag & STORE_HOST_V6 else IPV4_HOST_SIZE,
    )


def with_hosts(flag: int, *, born_host: Buffer, store_host: Buffer) -> int:
    """Return ``flag`` with the two host bits set or cleared to fit these packed hosts."""
    flag &= ~HOSTS_MASK
    if is_ipv6(born_host):
        flag |= BORN_HOST_V6
    if is_ipv6(store_host):
        flag |= STORE_HOST_V6
    return flag
