"""Delayed messages of a Java broker are delivered as that broker would have delivered them."""

from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.format import fastjson
from flintmq.model.topics import SCHEDULE_TOPIC
from flintmq.store.message_store import MessageStore
from flintmq.testing import ManualClock
from tests.kits.golden.engine import config_of, copy_store
from tests.kits.golden.golden_sets import GoldenSet, golden_set
from tests.kits.store.store_kit import physical_offset_of

SETS: Final = ["kinds", "extended"]
OFFSETS_AT: Final = slice(20, 36)
"""Where a record has its queue offset and its physical offset."""


def delay_offsets(golden: GoldenSet) -> dict[int, int]:
    state = fastjson.loads((golden.store / "config" / "delayOffset.json").read_bytes())
    offsets = state["offsetTable"]
    assert isinstance(offsets, dict)
    return offsets


def due_time(message: dict[str, Any]) -> int:
    code = message["ext"]["tagsCode"] if message.get("ext") else message["tagsCode"]
    assert isinstance(code, int)
    return code


def delayed(golden: GoldenSet, *, waiting: bool) -> list[dict[str, Any]]:
    """Return the messages that wait for their time, or those that were delivered, by due time."""
    offsets = delay_offsets(golden)
    found = [
        message
        for message in golden.messages()
        if message["topic"] == SCHEDULE_TOPIC
        and waiting == (message["queueOffset"] >= offsets.get(message["queueId"] + 1, 0))
    ]
    return sorted(found, key=due_time)


def deliveries(golden: GoldenSet) -> list[dict[str, Any]]:
    """Return the records that the Java broker put when delayed messages were due."""
    return [
        message
        for message in golden.messages()
        if message["properties"].get("DELAY", "0") != "0"
        and message["topic"] == message["properties"].get("REAL_TOPIC")
    ]


def raw(store: MessageStore, physical_offset: int) -> bytearray:
    piece = store.select(physical_offset)
    assert piece is not None
    with piece:
        return bytearray(piece.view)


def last_offset(store: MessageStore, topic: str, queue_id: int) -> int:
    end = store.max_offset_in_queue(topic, queue_id)
    return physical_offset_of(store, topic, queue_id, end - 1)


def open_copy(golden: GoldenSet, root: Path, clock: ManualClock) -> MessageStore:
    return MessageStore.open(config_of(golden.expected(), root), clock=clock, background=False)


@pytest.mark.parametrize("abort", [True, False], ids=["abort", "clean-exit"])
@pytest.mark.parametrize("name", SETS)
def test_what_still_waits_is_delivered_when_it_is_due(
    name: str, abort: bool, tmp_path: Path
) -> None:
    golden = golden_set(name)
    root = copy_store(golden, tmp_path, abort=abort)
    waiting = delayed(golden, waiting=True)
    assert waiting
    clock = ManualClock(golden.messages()[-1]["storeTimestamp"])
    with open_copy(golden, root, clock) as store:
        for message in waiting:
            due = due_time(message)
            assert store.schedule.next_due_ms() == due
            clock.set(due - 1)
            assert store.schedule.deliver_due() == 0
            clock.set(due)
            assert store.schedule.deliver_due() == 1
            properties = message["properties"]
            topic, queue_id = properties["REAL_TOPIC"], int(properties["REAL_QID"])
            delivered = store.look(last_offset(store, topic, queue_id))
            original = store.look(message["physicalOffset"])
            assert delivered is not None
            assert original is not None
            assert delivered == original._replace(
                size=original.size - len(SCHEDULE_TOPIC) + len(topic.encode()),
                topic=topic,
                queue_id=queue_id,
                queue_offset=store.max_offset_in_queue(topic, queue_id) - 1,
                physical_offset=delivered.physical_offset,
                store_timestamp=due,
            )
        assert store.schedule.next_due_ms() is None
        assert store.schedule.skipped_count == 0


@pytest.mark.parametrize("name", SETS)
def test_what_java_delivered_comes_out_byte_for_byte(name: str, tmp_path: Path) -> None:
    golden = golden_set(name)
    root = copy_store(golden, tmp_path, abort=False)
    state = root / "config" / "delayOffset.json"
    java_state = state.read_bytes()
    state.write_text('{"offsetTable":{}}')
    java_deliveries = deliveries(golden)
    assert len(java_deliveries) == len(delayed(golden, waiting=False)) > 0
    clock = ManualClock()
    with open_copy(golden, root, clock) as store:
        for message in java_deliveries:
            clock.set(message["storeTimestamp"])
            assert store.schedule.deliver_due(count_max=1) == 1
            ours = raw(store, last_offset(store, message["topic"], message["queueId"]))
            java = raw(store, message["physicalOffset"])
            assert ours[OFFSETS_AT] != java[OFFSETS_AT]
            ours[OFFSETS_AT] = java[OFFSETS_AT]
            assert ours == java
        assert store.schedule.deliver_due() == 0
    assert state.read_bytes() == java_state


@pytest.mark.parametrize("name", SETS)
def test_what_java_delivered_is_not_delivered_again(name: str, tmp_path: Path) -> None:
    golden = golden_set(name)
    root = copy_store(golden, tmp_path, abort=False)
    clock = ManualClock(golden.messages()[-1]["storeTimestamp"])
    with open_copy(golden, root, clock) as store:
        progress = store.schedule.progress()
        assert {level: offset for level, (offset, _) in progress.items()} == delay_offsets(golden)
        assert store.schedule.deliver_due() == 0
        assert store.log.readable_end == golden.expected()["maxPhyOffset"]
        info = store.runtime_info()
        for level, (offset, end) in progress.items():
            assert info[f"scheduleMessageOffset_{level}"] == f"{offset},{end}"
