import pytest

from flintmq.format.errors import CorruptUnitError, RecordTooLargeError
from flintmq.format.stored.consume_queue_ext import (
    ADDRESS_MAX,
    BITMAP_SIZE_MAX,
    BYTE_OFFSET_MAX,
    END_MARK,
    HEADER_SIZE,
    ExtUnit,
    address,
    byte_offset,
    decode_ext_unit,
    encode_ext_unit,
    is_address,
)

UNIT = ExtUnit(2598919, 1700000000456, bytes(range(1, 9)))
UNIT_BYTES = bytes.fromhex("001c 000000000027a807 0000018bcfe569c8 0008 0102030405060708")


def test_a_unit_is_written_and_read_as_the_reference_store_has_it() -> None:
    assert encode_ext_unit(UNIT) == UNIT_BYTES
    assert decode_ext_unit(UNIT_BYTES) == UNIT
    assert UNIT.size == len(UNIT_BYTES) == 28


def test_units_are_found_anywhere_in_a_file() -> None:
    file = UNIT_BYTES * 2 + END_MARK + bytes(6)
    assert decode_ext_unit(memoryview(file), 28) == UNIT
    assert decode_ext_unit(file, 56) is None
    assert decode_ext_unit(bytes(64), 0) is None


def test_an_empty_bitmap_is_none() -> None:
    encoded = encode_ext_unit(ExtUnit(1, 2, b""))
    assert encoded == encode_ext_unit(ExtUnit(1, 2, None))
    assert len(encoded) == HEADER_SIZE
    assert decode_ext_unit(encoded) == ExtUnit(1, 2, None)


def test_a_bitmap_has_a_limit() -> None:
    largest = ExtUnit(1, 2, b"\xff" * BITMAP_SIZE_MAX)
    assert decode_ext_unit(encode_ext_unit(largest)) == largest
    with pytest.raises(RecordTooLargeError, match="bitmap"):
        encode_ext_unit(ExtUnit(1, 2, b"\xff" * (BITMAP_SIZE_MAX + 1)))


@pytest.mark.parametrize("size", range(len(UNIT_BYTES)))
def test_a_unit_that_is_cut_off_is_damage(size: int) -> None:
    with pytest.raises(CorruptUnitError):
        decode_ext_unit(UNIT_BYTES[:size])


def test_a_size_that_contradicts_the_bitmap_is_damage() -> None:
    for size in (1, 19, 20, 27, 29):
        damaged = size.to_bytes(2, "big") + UNIT_BYTES[2:] + bytes(8)
        with pytest.raises(CorruptUnitError):
            decode_ext_unit(damaged)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (0, 0x8000000000000000),
        (28, 0x800000000000001C),
        (64, 0x8000000000000040),
        (92, 0x800000000000005C),
    ],
)
def test_an_address_is_the_offset_less_2_63(offset: int, expected: int) -> None:
    assert address(offset) & 0xFFFFFFFFFFFFFFFF == expected
    assert byte_offset(address(offset)) == offset


def test_every_hash_is_above_every_address() -> None:
    assert ADDRESS_MAX == -2147483649
    assert is_address(ADDRESS_MAX)
    assert not is_address(-2147483648)
    assert not is_address(-1)
    assert address(BYTE_OFFSET_MAX) == ADDRESS_MAX
    assert byte_offset(ADDRESS_MAX) == BYTE_OFFSET_MAX


def test_offsets_without_an_address_and_hashes_are_refused() -> None:
    for offset in (-1, BYTE_OFFSET_MAX + 1):
        with pytest.raises(RecordTooLargeError):
            address(offset)
    for tags_code in (ADDRESS_MAX + 1, 0, 2598919):
        with pytest.raises(CorruptUnitError):
            byte_offset(tags_code)
