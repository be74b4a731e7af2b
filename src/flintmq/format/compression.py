"""Compressed bodies: the only place that knows the codecs.

ZLIB bodies are zlib streams, LZ4 bodies LZ4 frames, ZSTD bodies Zstandard frames.  A body is
exactly one of those; bytes after its end are damage.
"""

import sys
import zlib
from collections.abc import Iterator
from typing import Any, Final

import lz4.frame  # type: ignore[import-untyped]  # the package has no type hints

from flintmq.format.buffer import Buffer
from flintmq.format.errors import CompressionError, UnpackedSizeError
from flintmq.format.sys_flag import CompressionType

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["LEVEL", "CompressionType", "compress", "decompress", "decompress_giving_way"]

LEVEL: Final = 5
"""The level Java clients use unless they are told otherwise."""
PACKED_PIECE_SIZE: Final = 64 << 10
PIECE_SIZE: Final = 256 << 10
"""Bytes that go into a codec and come out of it in one call of `decompress_giving_way`."""


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


def decompress_giving_way(data: Buffer, type: CompressionType, *, limit: int) -> bytes:
    """Return what `decompress` does, in a thread beside one that must not wait.

    A codec lets go of the interpreter while it works, but not while it copies what has become of
    the data.  So that is done piece by piece, and the pieces are joined without the interpreter.
    """
    pieces, size = [], 0
    stream: Any
    try:
        if type is CompressionType.ZLIB:
            stream = zlib.decompressobj()
            results = _zlib_pieces(stream, data)
        else:
            is_lz4 = type is CompressionType.LZ4
            stream = lz4.frame.LZ4FrameDecompressor() if is_lz4 else zstd.ZstdDecompressor()
            results = _frame_pieces(stream, data)
        fed_size = 0
        for fed_size, piece in results:  # noqa: B007 - the last one counts
            size += len(piece)
            if size > limit:
                raise UnpackedSizeError(f"more than {limit} bytes after decompression")
            pieces.append(piece)
    except (zlib.error, zstd.ZstdError, RuntimeError, EOFError) as error:
        raise CompressionError(f"damaged {type.name} data: {error}") from error
    rest = bytes(stream.unused_data or b"") + bytes(data[fed_size:])
    return _whole(b"".join(pieces), limit, eof=stream.eof, rest=rest)


def _zlib_pieces(stream: Any, data: Buffer) -> Iterator[tuple[int, bytes]]:
    """Yield how much of the data a stream was given, and what has become of it, in turn."""
    for at in range(0, len(data), PACKED_PIECE_SIZE):
        packed: Buffer = data[at : at + PACKED_PIECE_SIZE]
        fed_size = at + len(packed)
        while not stream.eof:
            piece = stream.decompress(packed, PIECE_SIZE)
            yield fed_size, piece
            packed = stream.unconsumed_tail
            if not packed and len(piece) < PIECE_SIZE:
                break
        if stream.eof:
            return


def _frame_pieces(stream: Any, data: Buffer) -> Iterator[tuple[int, bytes]]:
    """Yield the same of a stream that keeps what it has not read yet."""
    for at in range(0, len(data), PACKED_PIECE_SIZE):
        packed = bytes(data[at : at + PACKED_PIECE_SIZE])
        fed_size = at + len(packed)
        while not stream.eof:
            yield fed_size, stream.decompress(packed, PIECE_SIZE)
            packed = b""
            if stream.needs_input:
                break
        if stream.eof:
            return


def _whole(result: bytes, limit: int, *, eof: bool, rest: bytes | None) -> bytes:
    if len(result) > limit:
        raise UnpackedSizeError(f"more than {limit} bytes after decompression")
    if not eof:
        raise CompressionError("the compressed data is cut off")
    if rest:
        raise CompressionError(f"{len(rest)} bytes follow the compressed data")
    return result
