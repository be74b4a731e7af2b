import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.format import compression
from flintmq.format.compression import (
    CompressionType,
    compress,
    decompress,
    decompress_giving_way,
)
from flintmq.format.errors import CompressionError

BODY = b"the body of a message, " * 100
TYPES = list(CompressionType)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("body", [b"", b"x", BODY, bytes(1 << 20)])
def test_what_was_compressed_comes_back(kind: CompressionType, body: bytes) -> None:
    for level in (1, 5, 9):
        packed = compress(body, kind, level)
        assert decompress(packed, kind, limit=len(body)) == body
        assert decompress(memoryview(packed), kind, limit=len(body) + 1) == body


@pytest.mark.parametrize("kind", TYPES)
def test_output_past_the_limit_is_refused(kind: CompressionType) -> None:
    packed = compress(bytes(1 << 24), kind, 5)
    for limit in (0, 1, (1 << 24) - 1):
        with pytest.raises(CompressionError, match="more than"):
            decompress(packed, kind, limit=limit)


@pytest.mark.parametrize("unpack", [decompress, decompress_giving_way])
@pytest.mark.parametrize("kind", TYPES)
def test_no_more_than_the_limit_is_ever_unpacked(
    kind: CompressionType, unpack: Callable[..., bytes]
) -> None:
    """What is refused in the end could have taken all memory, and much time, before."""
    packed, limit = compress(bytes(32 << 20), kind, 5), 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError, match="more than"):
            unpack(packed, kind, limit=limit)
        _, most_size = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_size < 4 * limit


@pytest.mark.parametrize("kind", TYPES)
def test_data_that_is_cut_off_is_refused(kind: CompressionType) -> None:
    packed = compress(BODY, kind, 5)
    for size in range(len(packed)):
        with pytest.raises(CompressionError):
            decompress(packed[:size], kind, limit=len(BODY))


@pytest.mark.parametrize("kind", TYPES)
def test_data_of_another_kind_is_refused(kind: CompressionType) -> None:
    for data in (BODY, bytes(100), b"\xff" * 100):
        with pytest.raises(CompressionError):
            decompress(data, kind, limit=1000)


@pytest.mark.parametrize("kind", TYPES)
def test_bytes_after_the_end_are_refused(kind: CompressionType) -> None:
    with pytest.raises(CompressionError, match="follow"):
        decompress(compress(BODY, kind, 5) + b"x", kind, limit=len(BODY))


def test_a_zlib_body_is_a_plain_zlib_stream() -> None:
    assert zlib.decompress(compress(BODY, CompressionType.ZLIB)) == BODY


def outcome(unpack: Callable[..., bytes], data: bytes, kind: CompressionType, limit: int) -> bytes:
    try:
        return b"is " + unpack(data, kind, limit=limit)
    except CompressionError as error:
        # Who reads piece by piece may find damage, or too much, where the other finds the end.
        return (
            b"refused" if "damaged" in str(error) or "more" in str(error) else str(error).encode()
        )


@given(
    kind=st.sampled_from(TYPES),
    words=st.lists(st.sampled_from([b"ab", b"0" * 50, b"xyz", bytes(range(40))]), max_size=30),
    limit=st.integers(0, 900),
    cut=st.integers(0, 30),
    flipped=st.none() | st.integers(0, 2000),
    more=st.binary(max_size=3),
)
def test_piece_by_piece_the_same_comes_out(
    kind: CompressionType,
    words: list[bytes],
    limit: int,
    cut: int,
    flipped: int | None,
    more: bytes,
) -> None:
    packed = bytearray(compress(b"".join(words), kind))
    if flipped is not None:
        packed[flipped % len(packed)] ^= 1 << flipped % 8
    data = bytes(packed[: len(packed) - cut] if cut < len(packed) else packed) + more
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, "PACKED_PIECE_SIZE", 7)
        patch.setattr(compression, "PIECE_SIZE", 16)
        found = outcome(decompress_giving_way, data, kind, limit)
    wanted = outcome(decompress, data, kind, limit)
    if b"refused" in (found, wanted):
        assert not found.startswith(b"is ")
        assert not wanted.startswith(b"is ")
    else:
        assert found == wanted


@pytest.mark.parametrize("kind", TYPES)
def test_a_large_body_comes_out_piece_by_piece(kind: CompressionType) -> None:
    body = bytes(range(256)) * (1 << 13) + bytes(1 << 20)
    packed = compress(body, kind)
    assert decompress_giving_way(memoryview(packed), kind, limit=len(body)) == body
    with pytest.raises(CompressionError, match="more than"):
        decompress_giving_way(packed, kind, limit=len(body) - 1)
