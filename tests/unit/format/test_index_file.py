import datetime

import pytest

from flintmq.format.errors import CorruptIndexError
from flintmq.format.stored.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    IndexEntry,
    IndexHeader,
    entry_position,
    file_size,
    format_file_name,
    key_text_hash,
    slot_position,
)

HEADER = IndexHeader(1700000000456, 1700000000456, 0, 0, 3, 4)
HEADER_HEX = "0000018bcfe569c8 0000018bcfe569c8 0000000000000000 0000000000000000 00000003 00000004"


def test_a_header_is_written_and_read_as_the_reference_store_has_it() -> None:
    assert HEADER.pack() == bytes.fromhex(HEADER_HEX)
    assert IndexHeader.unpack_from(bytes.fromhex(HEADER_HEX)) == HEADER


def test_a_new_file_s_next_entry_is_the_first() -> None:
    assert IndexHeader.unpack_from(bytes(HEADER_SIZE)).index_count == 1
    negative = HEADER._replace(index_count=-5)
    assert IndexHeader.unpack_from(negative.pack()).index_count == 1


def test_a_header_is_packed_in_place() -> None:
    target = bytearray(100)
    HEADER.pack_into(memoryview(target))
    assert IndexHeader.unpack_from(target) == HEADER
    assert target[HEADER_SIZE:] == bytes(60)


@pytest.mark.parametrize(
    ("key", "packed"),
    [
        ("C0A8010A1F9818B4AAC22D2B1A2B0000", "2071f3ca"),
        ("k1", "0029e6a8"),
        ("k2", "0029e6a9"),
    ],
)
def test_an_entry_begins_with_the_hash_of_its_key(key: str, packed: str) -> None:
    entry = IndexEntry(key_text_hash("TopicTest", key), 0, 0, 0)
    assert entry.pack().hex() == packed + "00" * 16
    assert IndexEntry.unpack_from(entry.pack()) == entry


def test_the_keys_of_the_roll_example_have_their_hashes_and_slots() -> None:
    hashes = [key_text_hash("T", f"k{number}") for number in range(6)]
    assert hashes == [2539444, 2539445, 2539446, 2539447, 2539448, 2539449]
    assert [key_hash % 8 for key_hash in hashes[:3]] == [4, 5, 6]


def test_slots_and_entries_stand_where_the_reference_store_puts_them() -> None:
    assert file_size(5_000_000, 20_000_000) == 420_000_040
    assert slot_position(4338890) == 17355600
    assert entry_position(5_000_000, 1) == 20000040 + ENTRY_SIZE


def test_the_name_is_the_local_time_of_creation() -> None:
    moment = datetime.datetime.fromtimestamp(1700000000, datetime.UTC)
    moment += datetime.timedelta(milliseconds=456)
    assert format_file_name(moment) == "20231114221320456"
    east = datetime.timezone(datetime.timedelta(hours=8))
    assert format_file_name(moment.astimezone(east)) == "20231115061320456"


@pytest.mark.parametrize("size", [0, 1, HEADER_SIZE - 1])
def test_a_header_that_is_cut_off_is_damage(size: int) -> None:
    with pytest.raises(CorruptIndexError, match="cut off"):
        IndexHeader.unpack_from(HEADER.pack()[:size])


def test_an_entry_that_is_cut_off_is_damage() -> None:
    with pytest.raises(CorruptIndexError) as caught:
        IndexEntry.unpack_from(bytes(ENTRY_SIZE + 3), 4)
    assert caught.value.offset == 4


@pytest.mark.parametrize(
    "entry", [IndexEntry(-1, 0, 0, 0), IndexEntry(0, -1, 0, 0), IndexEntry(0, 0, 0, -1)]
)
def test_a_negative_hash_offset_or_link_is_damage(entry: IndexEntry) -> None:
    with pytest.raises(CorruptIndexError, match="negative"):
        IndexEntry.unpack_from(entry.pack())
