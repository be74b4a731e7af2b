import zlib

import pytest

from flintmq.format.compression import CompressionType, compress, decompress
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
