"""Index files of the Java broker answer queries as the Java broker does."""

from pathlib import Path
from typing import Any

import pytest

from flintmq.format.stored.dispatch_fields import index_keys
from flintmq.format.stored.index_file import (
    SLOT,
    IndexEntry,
    IndexHeader,
    entry_position,
    file_size,
    key_text_hash,
    slot_position,
)
from flintmq.format.stored.record import decode_record
from tests.kits.golden.golden_sets import LOADED_SET_NAMES, STORE_SET_NAMES, golden_set


def chain(content: bytes, slots: int, key_hash: int) -> list[tuple[IndexEntry, int]]:
    """Return the entries of a slot, newest first, each with the store time it stands for."""
    header = IndexHeader.unpack_from(content)
    (number,) = SLOT.unpack_from(content, slot_position(key_hash % slots))
    found: list[tuple[IndexEntry, int]] = []
    while 0 < number < header.index_count:
        entry = IndexEntry.unpack_from(content, entry_position(slots, number))
        found.append((entry, header.begin_timestamp + entry.elapsed_seconds * 1000))
        assert entry.previous < number
        number = entry.previous
    return found


def query(files: list[Path], slots: int, asked: dict[str, Any]) -> list[int]:
    """Answer one query by the rules of the Java broker."""
    begin, end = asked["begin"], asked["end"]
    key_hash = key_text_hash(asked["topic"], asked["key"])
    offsets: list[int] = []
    for path in reversed(files):
        content = path.read_bytes()
        header = IndexHeader.unpack_from(content)
        if header.begin_timestamp <= end and header.end_timestamp >= begin:
            for entry, time in chain(content, slots, key_hash):
                if len(offsets) >= asked["maxNum"]:
                    break
                if entry.key_hash == key_hash and begin <= time <= end:
                    offsets.append(entry.physical_offset)
                if time < begin:
                    break
        if header.begin_timestamp < begin or len(offsets) >= asked["maxNum"]:
            break
    return offsets


@pytest.mark.parametrize("name", STORE_SET_NAMES)
def test_headers_are_read_and_written_as_java_has_them(name: str) -> None:
    stored = golden_set(name)
    expected = stored.expected()
    config = expected["config"]
    headers = []
    for path in stored.index_files():
        content = path.read_bytes()
        assert len(content) == file_size(config["maxHashSlotNum"], config["maxIndexNum"])
        header = IndexHeader.unpack_from(content)
        assert content.startswith(header.pack())
        headers.append(
            {
                "name": path.name,
                "beginTimestamp": header.begin_timestamp,
                "endTimestamp": header.end_timestamp,
                "beginPhyOffset": header.begin_offset,
                "endPhyOffset": header.end_offset,
                "hashSlotCount": header.slot_count,
                "indexCount": header.index_count,
            }
        )
    assert headers == expected["indexFiles"]
    assert headers


@pytest.mark.parametrize("name", LOADED_SET_NAMES)
def test_queries_find_what_java_finds(name: str) -> None:
    stored = golden_set(name)
    expected = stored.expected()
    slots = expected["config"]["maxHashSlotNum"]
    files = stored.index_files()
    assert expected["indexQueries"]
    for asked in expected["indexQueries"]:
        assert query(files, slots, asked) == asked["offsets"], asked


@pytest.mark.parametrize("name", ["basic", "rolled", "kinds", "extended", "ipv6"])
def test_the_entries_are_the_keys_of_the_records_in_order(name: str) -> None:
    stored = golden_set(name)
    slots = stored.expected()["config"]["maxHashSlotNum"]
    entered = []
    for path in stored.index_files():
        content = path.read_bytes()
        for number in range(1, IndexHeader.unpack_from(content).index_count):
            raw = IndexEntry.unpack_from(content, entry_position(slots, number))
            assert raw.pack() in content
            entered.append((raw.key_hash, raw.physical_offset))
    log = b"".join(content for _, content in stored.log_files())
    records = [decode_record(log, message["physicalOffset"]) for message in stored.messages()]
    assert entered == [
        (key_text_hash(record.topic, key.decode()), record.physical_offset)
        for record in records
        for key in index_keys(record.properties_text)
    ]
