"""Compressed bodies: the only place that knows the codecs.

ZLIB bodies are zlib streams, LZ4 bodies LZ4 frames, ZSTD bodies Zstandard frames.  A body is
exactly one of those; bytes after its end are damage.
"""

import sys
import zlib
from typing import Final

import lz4.frame  # type: ignore[import-untyped]  # the package has no type hints

from flintmq.format.buffer import Buffer
from flintmq.format.errors import CompressionError
from flintmq.format.sys_flag import CompressionType

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["LEVEL", "CompressionType", "compress", "decompress"]

LEVEL: Final = 5
"""The level Java clients use unless they are told otherwise."""


def compress(data: Buffer, type: CompressionType, level: int = LEVEL) -> bytes:
    """Return ``data`` compressed; what a level means depends on the type."""
    if type is CompressionType.ZLIB:
        return zlib.compress(data, level)
    if type is CompressionType.LZ4:
        frame: bytes = lz4.frame.compress(bytes(data), compression_level=level)
        return frame
    return zstd.compress(data, level)


def decompress(data: Buffer, type: CompressionType, *, limit: int) -> bytes:
    """Return ``data`` decompressed, or raise CompressionError if it has more than ``limit`` bytes.

    No more than the limit is ever held, whatever the data claims.
    """
    try:
        if type is CompressionType.ZLIB:
            stream = zlib.decompressobj()
            # A limit of zero would mean none, and one byte more than allowed tells the excess.
            result = stream.decompress(data, limit + 1)
            return _whole(result, limit, eof=stream.eof, rest=stream.unused_data)
        if type is CompressionType.LZ4:
            frame = lz4.frame.LZ4FrameDecompressor()
            result = frame.decompress(bytes(data), max_length=limit + 1)
            return _whole(result, limit, eof=frame.eof, rest=frame.unused_data)
        zstd_frame = zstd.ZstdDecompressor()
        result = zstd_frame.decompress(data, limit + 1)
        return _whole(result, limit, eof=zstd_frame.eof, rest=zstd_frame.unused_data)
    except (zlib.error, zstd.ZstdError, RuntimeError, EOFError) as error:
        raise CompressionError(f"damaged {type.name} data: {error}") from error


def _whole(result: bytes, limit: int, *, eof: bool, rest: bytes | None) -> bytes:
    if len(result) > limit:
        raise CompressionError(f"more than {limit} bytes after decompression")
    if not eof:
        raise CompressionError("the compressed data is cut off")
    if rest:
        raise CompressionError(f"{len(rest)} bytes follow the compressed data")
    return result
