import pytest

from flintmq.format.errors import CorruptCheckpointError
from flintmq.format.stored.checkpoint import (
    FILE_SIZE,
    MARKS_AT,
    Checkpoint,
    CheckpointMarks,
    decode_checkpoint,
    encode_checkpoint,
)

MARKS = CheckpointMarks(
    log_flushed=735,
    dispatched=569,
    index_file=20231114221320456,
    index_count=4,
    index_slot_count=3,
    queue_count=3,
    unit_total=6,
)
PAGE = encode_checkpoint(Checkpoint(1700000000456, 1700000000456, 0, MARKS))
MARKS_END = MARKS_AT + 84


def test_the_times_stand_where_java_has_them() -> None:
    page = encode_checkpoint(Checkpoint(1700000000456, 1700000000456, 0))
    assert page[:24].hex() == "0000018bcfe569c8" * 2 + "0000000000000000"
    assert page[24:] == bytes(FILE_SIZE - 24)
    assert decode_checkpoint(page) == Checkpoint(1700000000456, 1700000000456, 0)


def test_marks_follow_at_byte_64_and_java_s_part_is_the_same() -> None:
    assert PAGE[:24].hex() == "0000018bcfe569c8" * 2 + "0000000000000000"
    assert PAGE[MARKS_AT : MARKS_AT + 8] == b"FLINTMQ1"
    assert PAGE[MARKS_END:] == bytes(FILE_SIZE - MARKS_END)
    assert decode_checkpoint(PAGE).marks == MARKS
    assert decode_checkpoint(memoryview(PAGE)).marks == MARKS


def test_a_flipped_bit_anywhere_in_the_marks_or_the_times_makes_the_marks_void() -> None:
    for at in [*range(24), *range(MARKS_AT, MARKS_END)]:
        damaged = bytearray(PAGE)
        damaged[at] ^= 0x10
        assert decode_checkpoint(damaged).marks is None, at


def test_times_moved_by_a_java_broker_are_read_and_the_marks_are_void() -> None:
    page = encode_checkpoint(Checkpoint(1700000009999, 1700000000456, 0))[:24] + PAGE[24:]
    assert decode_checkpoint(page) == Checkpoint(1700000009999, 1700000000456, 0)


@pytest.mark.parametrize("size", [0, 24, FILE_SIZE - 1, FILE_SIZE + 1])
def test_a_page_of_another_size_is_damage(size: int) -> None:
    with pytest.raises(CorruptCheckpointError):
        decode_checkpoint(bytes(size))
