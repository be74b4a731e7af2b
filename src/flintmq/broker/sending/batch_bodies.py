"""Batches that a client compressed as a whole.

Java's clients never compress a batch.  The C++ client does, from 4 KiB on, and says so in the sys
flag.  Its items have to be taken out: the flag of a record speaks of that record's own body.

A few kilobytes can become as much as a message may have, which takes too long for a turn of the
loop.  So only what is small on both sides is unpacked at once, and the rest in a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.format.errors import UnpackedSizeError
from flintmq.format.sys_flag import COMPRESSED, COMPRESSION_MASK, compression_type

if TYPE_CHECKING:
    from flintmq.format.buffer import Buffer

PACKED_AT_ONCE_MAX: Final = 16 << 10
UNPACKED_AT_ONCE_MAX: Final = 64 << 10
"""Bytes of a body that is unpacked at once, before and after that."""
_SIZE_LENGTH: Final = 4


def is_packed(body: Buffer, sys_flag: int) -> bool:
    """Whether the body of a batch is compressed as a whole."""
    return bool(sys_flag & COMPRESSED) and not _begins_with_item(body)


def items_flag(sys_flag: int) -> int:
    """Return the sys flag that the items of a packed batch have."""
    return sys_flag & ~(COMPRESSED | COMPRESSION_MASK)


def unpacked_at_once(body: Buffer, sys_flag: int, *, limit: int) -> bytes | None:
    """Return the items of a packed batch; None if that takes longer than a turn has time.

    Raises:
        CompressionError: the body is damaged, or has more than ``limit`` bytes when unpacked.
    """
    if len(body) > PACKED_AT_ONCE_MAX:
        return None
    # Few brokers ever see such a batch: the start of all others need not wait for the codecs.
    from flintmq.format.compression import decompress

    try:
        return decompress(body, compression_type(sys_flag), limit=min(limit, UNPACKED_AT_ONCE_MAX))
    except UnpackedSizeError:
        if limit <= UNPACKED_AT_ONCE_MAX:
            raise
        return None


def unpacked(body: Buffer, sys_flag: int, *, limit: int) -> bytes:
    """Return the items of a packed batch, in a thread; it raises what `unpacked_at_once` does."""
    from flintmq.format.compression import decompress_giving_way

    return decompress_giving_way(body, compression_type(sys_flag), limit=limit)


def _begins_with_item(body: Buffer) -> bool:
    """Whether the items themselves are there; the body of each may be compressed.

    An item begins with its size.  Read as one, the first bytes of every codec are above what a
    frame can hold: at least 134 MB for zlib, 69 MB for LZ4, 683 MB for zstd.
    """
    return int.from_bytes(body[:_SIZE_LENGTH], "big") <= len(body)
