import pytest

from flintmq.format import sys_flag
from flintmq.format.errors import CompressionError
from flintmq.format.sys_flag import (
    CompressionType,
    compression_type,
    host_sizes,
    transaction_type,
    with_hosts,
)


def test_the_transaction_bits_stand_apart_from_the_others() -> None:
    assert transaction_type(0xFFF3) == sys_flag.TRANSACTION_NONE
    assert transaction_type(0x34) == sys_flag.TRANSACTION_PREPARED
    assert transaction_type(0x309) == sys_flag.TRANSACTION_COMMIT
    assert transaction_type(0xC) == sys_flag.TRANSACTION_ROLLBACK


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        (0x001, CompressionType.ZLIB),
        (0x101, CompressionType.LZ4),
        (0x201, CompressionType.ZSTD),
        (0x301, CompressionType.ZLIB),
    ],
)
def test_no_compression_type_means_zlib(flag: int, expected: CompressionType) -> None:
    assert compression_type(flag) is expected


@pytest.mark.parametrize("flag", [0x400, 0x501, 0x700])
def test_other_compression_types_are_errors(flag: int) -> None:
    with pytest.raises(CompressionError, match="unknown compression type"):
        compression_type(flag)


def test_each_host_has_its_own_bit() -> None:
    assert host_sizes(0) == (8, 8)
    assert host_sizes(sys_flag.BORN_HOST_V6) == (20, 8)
    assert host_sizes(sys_flag.STORE_HOST_V6) == (8, 20)
    assert host_sizes(0x730) == (20, 20)


def test_the_host_bits_follow_the_hosts() -> None:
    assert with_hosts(0x3F, born_host=bytes(8), store_host=bytes(8)) == 0x0F
    assert with_hosts(0x01, born_host=bytes(20), store_host=bytes(8)) == 0x11
    assert with_hosts(0x01, born_host=bytes(8), store_host=bytes(20)) == 0x21
