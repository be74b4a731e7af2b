"""The units of Java's consume queues, and of their extensions, say what Java says of them."""

from collections import defaultdict
from typing import Any

import pytest

from flintmq.format.stored.consume_queue import UNIT_SIZE, ConsumeQueueUnit, read_units
from flintmq.format.stored.consume_queue_ext import (
    END_MARK,
    FILE_END_BLANK,
    ExtUnit,
    address,
    byte_offset,
    decode_ext_unit,
    encode_ext_unit,
    is_address,
)
from tests.kits.golden.golden_sets import STORE_SET_NAMES, GoldenSet, damaged_set, golden_set

Queue = tuple[str, int]


def messages_by_queue(stored: GoldenSet) -> dict[Queue, list[dict[str, Any]]]:
    queues: dict[Queue, list[dict[str, Any]]] = defaultdict(list)
    for message in stored.messages():
        if message["tagsCode"] is not None:
            queues[message["topic"], message["queueId"]].append(message)
    return queues


@pytest.mark.parametrize("name", STORE_SET_NAMES)
def test_each_unit_leads_to_its_message(name: str) -> None:
    stored = golden_set(name)
    on_disk = stored.expected()["consumeQueueFiles"]
    queues = messages_by_queue(stored)
    for (topic, queue_id), messages in queues.items():
        raw = stored.queue_bytes(topic, queue_id)
        units = list(read_units(raw))
        assert units == [
            ConsumeQueueUnit(message["physicalOffset"], message["size"], message["tagsCode"])
            for message in messages
        ]
        assert [message["queueOffset"] for message in messages] == list(range(len(units)))
        assert b"".join(unit.pack() for unit in units) == raw[: len(units) * UNIT_SIZE]
        expected = on_disk[topic][str(queue_id)]
        assert len(units) == expected["unitsOnDisk"]
        last = units[-1]
        assert last.physical_offset + last.record_size == expected["endOfLastUnit"]
    assert len(queues) == sum(map(len, on_disk.values()))


def test_each_address_leads_to_the_unit_in_the_extension() -> None:
    stored = golden_set("extended")
    file_size = stored.expected()["config"]["mappedFileSizeConsumeQueueExt"]
    checked = 0
    for message in stored.messages():
        expected = message["ext"]
        raw = stored.queue_bytes(message["topic"], message["queueId"], ext=True)
        offset = byte_offset(message["tagsCode"])
        assert offset == expected["byteOffset"]
        assert is_address(message["tagsCode"])
        assert address(offset) == message["tagsCode"]
        unit = decode_ext_unit(raw, offset)
        bitmap = expected["filterBitMap"]
        assert unit == ExtUnit(
            expected["tagsCode"],
            expected["msgStoreTime"],
            bytes.fromhex(bitmap) if bitmap is not None else None,
        )
        assert unit is not None
        assert unit.size == expected["size"]
        assert encode_ext_unit(unit) == raw[offset : offset + unit.size]
        assert offset % file_size + unit.size <= file_size - FILE_END_BLANK
        checked += 1
    assert checked == 71


def test_hopping_over_an_extension_ends_at_the_mark_of_a_full_file() -> None:
    stored = golden_set("extended")
    file_size = stored.expected()["config"]["mappedFileSizeConsumeQueueExt"]
    first_file = stored.queue_bytes("golden-sql", 0, ext=True)[:file_size]
    position = 0
    while unit := decode_ext_unit(first_file, position):
        position += unit.size
    assert first_file[position : position + len(END_MARK)] == END_MARK
    offsets = [
        message["ext"]["byteOffset"]
        for message in stored.messages()
        if (message["topic"], message["queueId"]) == ("golden-sql", 0)
    ]
    assert min(offset for offset in offsets if offset >= position) == file_size


def test_reading_stops_where_units_were_zeroed() -> None:
    whole = golden_set("rolled")
    behind = damaged_set("consumequeue-behind")
    for topic, queue_id in messages_by_queue(whole):
        units = list(read_units(whole.queue_bytes(topic, queue_id)))
        assert list(read_units(behind.queue_bytes(topic, queue_id))) == units[:-5]
