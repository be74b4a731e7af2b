"""Batches that a client compressed as a whole.

Java's clients never compress a batch.  The C++ client does, from 4 KiB on, and says so in the sys
flag.  Its items have to be taken out: the flag of a record speaks of that record's own body.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from flintmq.format.sys_flag import COMPRESSED, COMPRESSION_MASK, compression_type

if TYPE_CHECKING:
    from flintmq.format.buffer import Buffer
    from flintmq.model.message import MessageBatch

_SIZE_LENGTH: Final = 4


def unpacked_batch(batch: MessageBatch, *, limit: int) -> MessageBatch:
    """Return a batch whose body is its items, with the sys flag that their records have.

    Raises:
        CompressionError: the body is damaged, or has more than ``limit`` bytes when unpacked.
    """
    flag = batch.sys_flag
    if not flag & COMPRESSED or _begins_with_item(batch.body):
        return batch
    # Few brokers ever see such a batch: the start of all others need not wait for the codecs.
    from flintmq.format.compression import decompress

    items = decompress(batch.body, compression_type(flag), limit=limit)
    return replace(batch, body=items, sys_flag=flag & ~(COMPRESSED | COMPRESSION_MASK))


def _begins_with_item(body: Buffer) -> bool:
    """Whether the items themselves are there; the body of each may be compressed.

    An item begins with its size.  Read as one, the first bytes of every codec are above what a
    frame can hold: at least 134 MB for zlib, 69 MB for LZ4, 683 MB for zstd.
    """
    return int.from_bytes(body[:_SIZE_LENGTH], "big") <= len(body)
