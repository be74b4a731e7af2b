import pytest

from flintmq.format.errors import CorruptUnitError
from flintmq.format.stored.consume_queue import (
    PRE_BLANK,
    PRE_BLANK_SIZE,
    UNIT_SIZE,
    ConsumeQueueUnit,
    read_units,
)

TOPIC_TEST_3 = [
    ConsumeQueueUnit(0, 0xB0, 2598919),
    ConsumeQueueUnit(0xB0, 0x87, 2598920),
    ConsumeQueueUnit(0x137, 0x86, 2598919),
    ConsumeQueueUnit(0x1BD, 0x7C, 0),
]
TOPIC_TEST_3_BYTES = bytes.fromhex(
    "0000000000000000 000000b0 000000000027a807"
    "00000000000000b0 00000087 000000000027a808"
    "0000000000000137 00000086 000000000027a807"
    "00000000000001bd 0000007c 0000000000000000"
)


def test_units_are_written_and_read_as_the_reference_store_has_them() -> None:
    assert b"".join(unit.pack() for unit in TOPIC_TEST_3) == TOPIC_TEST_3_BYTES
    assert list(read_units(TOPIC_TEST_3_BYTES)) == TOPIC_TEST_3


@pytest.mark.parametrize(
    ("unit", "packed"),
    [
        (ConsumeQueueUnit(0x239, 0xA6, 1700000010456), "0000000000000239000000a60000018bcfe590d8"),
        (ConsumeQueueUnit(0x2DF, 0x9C, 2598922), "00000000000002df0000009c000000000027a80a"),
    ],
)
def test_a_unit_holds_a_delivery_time_or_a_hash(unit: ConsumeQueueUnit, packed: str) -> None:
    assert unit.pack().hex() == packed


def test_reading_stops_at_the_first_unit_that_was_never_written() -> None:
    padded = TOPIC_TEST_3_BYTES + bytes(UNIT_SIZE) + TOPIC_TEST_3_BYTES
    assert list(read_units(memoryview(padded))) == TOPIC_TEST_3


def test_a_unit_is_packed_in_place() -> None:
    target = bytearray(3 * UNIT_SIZE)
    TOPIC_TEST_3[1].pack_into(target, UNIT_SIZE)
    assert target == bytes(UNIT_SIZE) + TOPIC_TEST_3[1].pack() + bytes(UNIT_SIZE)


def test_pre_blank_units_are_told_from_real_ones() -> None:
    assert PRE_BLANK.hex() == "00000000000000007fffffff0000000000000000"
    (blank,) = read_units(PRE_BLANK)
    assert blank.record_size == PRE_BLANK_SIZE
    assert blank.is_pre_blank
    assert not TOPIC_TEST_3[0].is_pre_blank


def test_a_unit_that_is_cut_off_is_damage() -> None:
    with pytest.raises(CorruptUnitError, match="cut off") as caught:
        list(read_units(TOPIC_TEST_3_BYTES[:-1]))
    assert caught.value.offset == 60


@pytest.mark.parametrize("unit", [ConsumeQueueUnit(-1, 100, 0), ConsumeQueueUnit(0, -100, 0)])
def test_a_negative_offset_or_size_is_damage(unit: ConsumeQueueUnit) -> None:
    with pytest.raises(CorruptUnitError) as caught:
        list(read_units(TOPIC_TEST_3_BYTES + unit.pack()))
    assert caught.value.offset == 80
