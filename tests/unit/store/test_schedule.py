"""Delayed messages are delivered when they are due: not before, in order, and none is lost."""

import logging
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.format.host import pack_host
from flintmq.format.java import tags_code
from flintmq.format.properties import encode_properties
from flintmq.format.stored.consume_queue import UNIT
from flintmq.format.stored.consume_queue_ext import is_address
from flintmq.format.stored.record import Record, decode_record
from flintmq.model.message import PutMessage
from flintmq.model.topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from flintmq.store.clock import Clock
from flintmq.store.config import BrokerRole, FlushMode, StoreConfig
from flintmq.store.errors import FlushFailedError, StoreLoadError
from flintmq.store.files.interface import Files
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.state_file import StateFileError
from flintmq.store.message_store import MessageStore
from flintmq.store.results import PutStatus
from flintmq.store.running_flags import RunningFlag
from flintmq.store.upkeep.schedule import HARVEST_MS, RETRY_MAX_MS, LevelProgress
from flintmq.store.upkeep.schedule_pipeline import DeliveryPipeline, Harvest
from flintmq.testing import ROOT, Fault, ManualClock, SimulatedFiles

LEVELS: Final = DelayLevels.parse(DEFAULT_DELAY_LEVELS)
BORN_HOST: Final = pack_host("192.0.2.7", 40123)
STORE_HOST: Final = pack_host("192.0.2.9", 10911)
STATE: Final = ROOT / "config" / "delayOffset.json"
TOPIC: Final = "orders"


def open_store(files: Files, clock: Clock, *, root: Path = ROOT, **changes: Any) -> MessageStore:
    values = {
        "root": root,
        "commit_log_file_size": 16_384,
        "consume_queue_file_size": 400,
        "consume_queue_ext_file_size": 400,
        "hash_slot_count": 8,
        "index_entry_count": 64,
        **changes,
    }
    return MessageStore.open(StoreConfig(**values), files=files, clock=clock, background=False)


def put(store: MessageStore, level: int | str, body: str = "", **properties: str) -> int:
    """Put a delayed message and return its physical offset."""
    result = store.put(
        PutMessage(
            topic=TOPIC,
            queue_id=3,
            body=body.encode(),
            properties={"DELAY": str(level), **properties},
            flag=5,
            born_timestamp=1_600_000_000_000,
            born_host=BORN_HOST,
            store_host=STORE_HOST,
            reconsume_times=2,
        )
    )
    assert result.status is PutStatus.PUT_OK
    return result.physical_offset


def put_as_stored(store: MessageStore, properties: dict[str, str], body: bytes = b"odd") -> None:
    """Put a record into level 1 with these stored properties, whatever they mean."""
    result = store.put(
        PutMessage(
            topic=SCHEDULE_TOPIC,
            queue_id=0,
            body=body,
            properties_text=encode_properties(properties),
            born_host=BORN_HOST,
            store_host=STORE_HOST,
        )
    )
    assert result.status is PutStatus.PUT_OK


def records(store: MessageStore, topic: str = TOPIC, queue_id: int = 3) -> list[Record]:
    """Return everything in a queue."""
    found = []
    offset = store.min_offset_in_queue(topic, queue_id)
    while offset < store.max_offset_in_queue(topic, queue_id):
        result = store.get_messages(topic, queue_id, offset, 32)
        assert result is not None
        with result:
            found += [decode_record(view) for view in result]
            offset = result.next_begin_offset
    return found


def bodies(store: MessageStore) -> list[str]:
    return [bytes(record.body).decode() for record in records(store)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def files(clock: ManualClock) -> SimulatedFiles:
    return SimulatedFiles(clock=clock)


# -- when ------------------------------------------------------------------------------------


def test_nothing_waits_in_an_empty_store(files: SimulatedFiles, clock: ManualClock) -> None:
    with open_store(files, clock) as store:
        assert store.schedule.next_due_ms() is None
        assert store.schedule.deliver_due() == 0
        assert store.schedule.progress() == {}
    assert not files.exists(STATE)


def test_each_of_the_18_levels_delivers_at_its_very_millisecond(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    start = clock.now_ms()
    with open_store(files, clock) as store:
        for level in reversed(range(1, 19)):
            put(store, level, f"level {level}")
        for level in range(1, 19):
            due = start + LEVELS.delay_ms(level)
            assert store.schedule.next_due_ms() == due
            clock.set(due - 1)
            assert store.schedule.deliver_due() == 0
            clock.set(due)
            assert store.schedule.deliver_due() == 1
            assert bodies(store)[-1] == f"level {level}"
            assert records(store)[-1].store_timestamp == due
        assert store.schedule.next_due_ms() is None
        assert len(records(store)) == 18
        assert store.schedule.delivered_count == 18


def test_a_level_above_the_highest_is_the_highest(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_store(files, clock) as store:
        put(store, 99, "patient")
        assert store.max_offset_in_queue(SCHEDULE_TOPIC, 17) == 1
        assert store.schedule.next_due_ms() == clock.now_ms() + LEVELS.delay_ms(18)
        clock.advance(LEVELS.delay_ms(18))
        assert store.schedule.deliver_due() == 1


def test_the_longest_due_is_delivered_first(files: SimulatedFiles, clock: ManualClock) -> None:
    with open_store(files, clock) as store:
        put(store, 2, "due after 5 s")
        clock.advance(1)
        put(store, 1, "due after 1.001 s")
        put(store, 1, "and its successor")
        put(store, 3, "due after 10.001 s")
        clock.advance(60_000)
        assert store.schedule.deliver_due() == 4
        assert bodies(store) == [
            "due after 1.001 s",
            "and its successor",
            "due after 5 s",
            "due after 10.001 s",
        ]


def test_one_call_does_no_more_than_it_is_allowed_to(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_store(files, clock) as store:
        for number in range(5):
            put(store, 1, str(number))
        due = clock.now_ms() + 1000
        clock.advance(1500)
        assert store.schedule.deliver_due(2) == 2
        assert store.schedule.next_due_ms() == due
        assert store.schedule.deliver_due(count_max=2) == 2
        assert store.schedule.deliver_due(count_max=2) == 1
        assert bodies(store) == ["0", "1", "2", "3", "4"]


def test_a_time_further_ahead_than_the_delay_is_due_at_once(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_store(files, clock) as store:
        put(store, 4, "from the future")
        clock.set(clock.now_ms() - 1)
        assert store.schedule.next_due_ms() == clock.now_ms()
        assert store.schedule.deliver_due() == 1


def test_a_unit_with_the_hash_of_a_tag_waits_for_its_time_all_the_same(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    """A Java broker's abnormal recovery leaves such units."""
    with open_store(files, clock) as store:
        put(store, 2, TAGS="TagA")
        store.dispatch()
        queue = store.queues.get(SCHEDULE_TOPIC, 1)
        assert queue is not None
        tail = queue.files.last
        assert tail is not None
        offset, size, _ = UNIT.unpack_from(tail.view, 0)
        UNIT.pack_into(tail.view, 0, offset, size, tags_code("TagA"))
        assert store.schedule.next_due_ms() == clock.now_ms() + 5000
        clock.advance(4999)
        assert store.schedule.deliver_due() == 0
        clock.advance(1)
        assert store.schedule.deliver_due() == 1


def test_due_times_in_the_extension_are_found(files: SimulatedFiles, clock: ManualClock) -> None:
    with open_store(files, clock, enable_consume_queue_ext=True) as store:
        put(store, 2, "extended")
        store.dispatch()
        queue = store.queues.get(SCHEDULE_TOPIC, 1)
        assert queue is not None
        unit = queue.unit_at(0)
        assert unit is not None
        assert is_address(unit[2])
        assert store.schedule.next_due_ms() == clock.now_ms() + 5000
        clock.advance(4999)
        assert store.schedule.deliver_due() == 0
        clock.advance(1)
        assert store.schedule.deliver_due() == 1


def test_without_the_extension_the_record_tells_when(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    start = clock.now_ms()
    with open_store(files, clock, enable_consume_queue_ext=True) as store:
        put(store, 4, "extended")
    clock.advance(10_000)
    with open_store(files, clock, enable_consume_queue_ext=False) as store:
        assert store.schedule.next_due_ms() == start + 30_000
        clock.set(start + 29_999)
        assert store.schedule.deliver_due() == 0
        clock.set(start + 30_000)
        assert store.schedule.deliver_due() == 1


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 12_000)), max_size=25
    )
)
def test_whenever_messages_come_they_go_in_time_in_order_and_once(
    steps: list[tuple[int, int, int]],
) -> None:
    clock = ManualClock()
    levels: dict[str, int] = {}
    put_at: dict[str, int] = {}
    with open_store(SimulatedFiles(clock=clock), clock) as store:
        for level, count, pause_ms in steps:
            for _ in range(count):
                body = str(len(levels))
                put(store, level, body)
                levels[body], put_at[body] = level, clock.now_ms()
            # An owner that sleeps until it is told to wake delivers to the millisecond.
            end = clock.now_ms() + pause_ms
            while (due := store.schedule.next_due_ms()) is not None and due <= end:
                clock.set(max(due, clock.now_ms()))
                assert store.schedule.deliver_due() > 0
            clock.set(end)
        clock.advance(30_000)
        store.schedule.deliver_due()
        delivered = records(store)
        order = [bytes(record.body).decode() for record in delivered]
        assert sorted(order, key=int) == list(levels)
        for level in range(1, 5):
            of_level = [int(body) for body in order if levels[body] == level]
            assert of_level == sorted(of_level)
        for record, body in zip(delivered, order, strict=True):
            late = record.store_timestamp - put_at[body] - LEVELS.delay_ms(levels[body])
            assert late == 0 or (late > 0 and record.store_timestamp == clock.now_ms())


# -- what ------------------------------------------------------------------------------------


def test_a_delivered_message_is_the_delayed_one_in_its_own_queue(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_store(files, clock) as store:
        offset = put(store, 1, "body", TAGS="TagA", KEYS="k1", WAIT="true")
        delayed = store.look(offset)
        assert delayed is not None
        assert delayed.topic == SCHEDULE_TOPIC
        clock.advance(1000)
        store.schedule.deliver_due()
        (delivered,) = records(store)
        assert delivered.properties_text == delayed.properties_text
        assert delivered.properties["DELAY"] == "1"
        assert delivered == delayed._replace(
            size=delayed.size - len(SCHEDULE_TOPIC) + len(TOPIC),
            topic=TOPIC,
            queue_id=3,
            queue_offset=0,
            physical_offset=delivered.physical_offset,
            store_timestamp=clock.now_ms(),
        )
        queue = store.queues.get(TOPIC, 3)
        assert queue is not None
        unit = queue.unit_at(0)
        assert unit is not None
        assert unit[2] == tags_code("TagA")
        assert len(store.query(TOPIC, "k1", 10, 0, clock.now_ms()).slices) == 1


def test_the_delivered_message_is_announced(files: SimulatedFiles, clock: ManualClock) -> None:
    arrivals: list[tuple[str, int, int]] = []
    with open_store(files, clock) as store:
        store.dispatcher.on_arrival = lambda topic, queue_id, offset, *_: arrivals.append(
            (topic, queue_id, offset)
        )
        put(store, 1)
        clock.advance(1000)
        store.schedule.deliver_due()
    assert arrivals == [(SCHEDULE_TOPIC, 0, 1), (TOPIC, 3, 1)]


# -- state -----------------------------------------------------------------------------------


def test_a_restart_goes_on_where_the_last_run_stopped(tmp_path: Path, clock: ManualClock) -> None:
    """On the real file system."""
    root = tmp_path / "store"
    with open_store(LocalFiles(), clock, root=root) as store:
        for number in range(6):
            put(store, 1 + number % 2, str(number))
        clock.advance(10_000)
        assert store.schedule.deliver_due(4) == 4
    assert (root / "config" / "delayOffset.json").read_text() == (
        '{\n\t"offsetTable":{1:3,2:1\n\t}\n}'
    )
    with open_store(LocalFiles(), clock, root=root) as store:
        assert store.schedule.progress() == {1: LevelProgress(3, 3), 2: LevelProgress(1, 3)}
        assert store.schedule.deliver_due() == 2
        assert bodies(store) == ["0", "2", "4", "1", "3", "5"]
        assert store.runtime_info()["scheduleMessageOffset_2"] == "3,3"


def test_a_crash_after_the_put_and_before_the_save_repeats_a_delivery(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    store = open_store(files, clock)
    put(store, 1, "a")
    put(store, 1, "b")
    clock.advance(1000)
    assert store.schedule.deliver_due(1) == 1
    assert store.schedule.persist()
    assert store.schedule.deliver_due(1) == 1
    with open_store(files.process_crash_image(), clock) as restarted:
        assert bodies(restarted) == ["a", "b"]
        assert restarted.schedule.deliver_due() == 1
        assert bodies(restarted) == ["a", "b", "b"]
    store.close()


@pytest.mark.parametrize("flush_mode", FlushMode)
@pytest.mark.parametrize("pipelined", [False, True])
def test_no_power_failure_loses_a_delayed_message(
    files: SimulatedFiles, clock: ManualClock, flush_mode: FlushMode, pipelined: bool
) -> None:
    settings_of: dict[str, Any] = {"flush_mode": flush_mode, "schedule_async_deliver": pipelined}
    store = open_store(files, clock, **settings_of)
    sent = [str(number) for number in range(8)]
    for body in sent:
        put(store, 1, body)
    store.flush()
    clock.advance(1000)
    store.schedule.deliver_due(3)
    store.schedule.persist()
    store.schedule.deliver_due(2)
    if flush_mode is FlushMode.SYNC:
        store.flusher.flush()
        store.schedule.deliver_due(1)
        store.schedule.persist()
        store.schedule.deliver_due(1)
    for number, image in enumerate(files.crash_images(Random(5), 30)):
        with open_store(image, clock, **settings_of) as restarted:
            while restarted.schedule.deliver_due():
                pass
            restarted.flush()
            assert set(bodies(restarted)) == set(sent), number
    store.close()


def test_the_offsets_are_saved_only_when_the_deliveries_are_on_the_disk(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    store = open_store(files, clock)
    put(store, 1)
    clock.advance(1000)
    store.schedule.deliver_due()
    files.fail_next("region_sync", Fault.EIO)
    with pytest.raises(FlushFailedError):
        store.schedule.persist()
    assert not files.exists(STATE)
    store.close()


def test_offsets_are_saved_every_ten_seconds_if_they_have_changed(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_store(files, clock) as store:
        put(store, 1)
        clock.advance(9999)
        store.schedule.deliver_due()
        assert not store.schedule.housekeep(clock.now_ms())
        clock.advance(1)
        assert store.schedule.housekeep(clock.now_ms())
        assert files.read(STATE) == b'{\n\t"offsetTable":{1:1\n\t}\n}'
        clock.advance(10_000)
        assert not store.schedule.housekeep(clock.now_ms())


def test_a_disk_that_refuses_the_offsets_is_reported_once_and_asked_again(
    files: SimulatedFiles, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "flintmq.store.upkeep.schedule")
    with open_store(files, clock) as store:
        put(store, 1)
        clock.advance(10_000)
        store.schedule.deliver_due()
        for _ in range(3):
            files.fail_next("write", Fault.ENOSPC)
            assert not store.schedule.housekeep(clock.now_ms())
            clock.advance(10_000)
        assert [record.message[:26] for record in caplog.records] == ["delay offsets not saved: r"]
        assert store.schedule.housekeep(clock.now_ms())


@pytest.mark.parametrize(
    ("saved", "level_1"),
    [
        ('{"offsetTable":{1:7}}', LevelProgress(2, 2)),
        ('{"offsetTable":{1:-3}}', LevelProgress(0, 2)),
        ('{"offsetTable":{"1":1}}', LevelProgress(1, 2)),
        ('{"offsetTable":{}}', None),
    ],
)
def test_saved_offsets_are_moved_into_their_queue(
    files: SimulatedFiles, clock: ManualClock, saved: str, level_1: LevelProgress | None
) -> None:
    with open_store(files, clock) as store:
        put(store, 1)
        put(store, 1)
    files.make_directory(STATE.parent)
    files.write(STATE, saved.encode())
    with open_store(files, clock) as store:
        assert store.schedule.progress().get(1) == level_1


def test_offsets_of_levels_that_are_not_configured_stay_in_the_file(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    files.make_directory(STATE.parent)
    files.write(STATE, b'{"offsetTable":{1:0,4:9}}')
    with open_store(files, clock, delay_levels="1s 5s") as store:
        put(store, 1)
        clock.advance(1000)
        store.schedule.deliver_due()
        assert store.schedule.progress()[4] == LevelProgress(9, 0)
    assert files.read(STATE) == b'{\n\t"offsetTable":{1:1,4:9\n\t}\n}'


@pytest.mark.parametrize("saved", ["[1]", '{"offsets":{}}', '{"offsetTable":{"x":1}}', "7"])
def test_a_file_that_is_no_table_refuses_the_start(
    files: SimulatedFiles, clock: ManualClock, saved: str
) -> None:
    files.make_directory(STATE.parent)
    files.write(STATE, saved.encode())
    with pytest.raises(StoreLoadError, match="no table of levels and offsets"):
        open_store(files, clock)


def test_a_torn_file_without_a_backup_refuses_the_start(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    files.make_directory(STATE.parent)
    files.write(STATE, b'{"offsetTab')
    with pytest.raises(StateFileError):
        open_store(files, clock)


def test_messages_that_expired_before_they_were_due_are_counted_and_passed(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_store(files, clock) as store:
        for number in range(60):
            put(store, 1, f"{number}".ljust(700, "."))
        store.dispatch()
        assert store.log.files.delete_expired_by_time(0, forced_after_ms=0, limit=1) == 1
        store.delete_expired_views()
        least = store.min_offset_in_queue(SCHEDULE_TOPIC, 0)
        assert least > 0
        clock.advance(1000)
        assert store.schedule.deliver_due() == 60 - least
        assert store.schedule.expired_count == least
        assert bodies(store)[0].startswith(f"{least}.")


def test_a_log_file_is_kept_while_delayed_messages_wait_in_it(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    """A message that was given back waited for ten seconds, and went with its log file."""

    def expire(store: MessageStore) -> None:
        store.dispatch()
        store.checkpoint()
        store.retention.request_manual_delete()
        clock.advance(60_000)
        store.retention.step(clock.now_ms())

    with open_store(files, clock, file_reserved_hours=0) as store:
        put(store, 18, "in two hours")
        for _ in range(20):
            put(store, 1, "x" * 1000)
        expire(store)
        assert store.log.min_offset == 0
        clock.advance(2 * 3_600_000)
        store.schedule.deliver_due()
        expire(store)
        assert store.log.min_offset == 0, "a crash would deliver them again"
        store.schedule.persist()
        expire(store)
        assert store.log.min_offset == 16_384
        assert "in two hours" in bodies(store)


# -- who -------------------------------------------------------------------------------------


def test_a_slave_delivers_and_saves_nothing(files: SimulatedFiles, clock: ManualClock) -> None:
    with open_store(files, clock) as store:
        put(store, 1)
        put(store, 1)
        clock.advance(1000)
        store.schedule.deliver_due(1)
    saved = files.read(STATE)
    with open_store(files, clock, broker_role=BrokerRole.SLAVE) as store:
        assert store.schedule.next_due_ms() is None
        assert store.schedule.deliver_due() == 0
        assert not store.schedule.persist()
        assert store.schedule.progress() == {1: LevelProgress(1, 2)}
    assert files.read(STATE) == saved


# -- what goes wrong -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"DELAY": "1", "REAL_QID": "3"}, "it has no REAL_TOPIC"),
        ({"DELAY": "1", "REAL_TOPIC": TOPIC}, "its REAL_QID is no queue id: ''"),
        ({"DELAY": "1", "REAL_TOPIC": TOPIC, "REAL_QID": "-1"}, "its REAL_QID is no queue id"),
        ({"DELAY": "1", "REAL_TOPIC": TOPIC, "REAL_QID": "2147483648"}, "its REAL_QID is no"),
        (
            {"REAL_TOPIC": TRANS_HALF_TOPIC, "REAL_QID": "0"},
            f"its REAL_TOPIC is {TRANS_HALF_TOPIC}",
        ),
        ({"REAL_TOPIC": SCHEDULE_TOPIC, "REAL_QID": "0"}, f"its REAL_TOPIC is {SCHEDULE_TOPIC}"),
        ({"REAL_TOPIC": "../up", "REAL_QID": "0"}, "MESSAGE_ILLEGAL: not a topic name"),
        ({"REAL_TOPIC": "x" * 128, "REAL_QID": "0"}, "MESSAGE_ILLEGAL: topic of 128"),
    ],
)
def test_a_message_that_cannot_be_delivered_does_not_block_its_level(
    files: SimulatedFiles,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    properties: dict[str, str],
    reason: str,
) -> None:
    caplog.set_level(logging.WARNING, "flintmq.store.upkeep.schedule")
    with open_store(files, clock) as store:
        put_as_stored(store, properties)
        put(store, 1, "good")
        clock.advance(1000)
        assert store.schedule.deliver_due() == 1
        assert bodies(store) == ["good"]
        assert store.schedule.skipped_count == 1
        (skipped,) = store.schedule.skipped
        assert (skipped.level, skipped.queue_offset) == (1, 0)
        assert skipped.reason.startswith(reason)
        assert sum("skipped" in record.message for record in caplog.records) == 1
        assert store.schedule.progress() == {1: LevelProgress(2, 2)}


def damage_body(log: memoryview, offset: int) -> None:
    log[offset + 88] ^= 1


def damage_magic(log: memoryview, offset: int) -> None:
    log[offset + 4] ^= 1


def damage_queue_id(log: memoryview, offset: int) -> None:
    log[offset + 15] = 9


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (damage_body, "its body does not match its checksum"),
        (damage_magic, "its record is damaged"),
        (damage_queue_id, f"its unit leads to {SCHEDULE_TOPIC}/9"),
    ],
)
def test_a_damaged_message_is_not_delivered_with_a_fresh_checksum(
    files: SimulatedFiles,
    clock: ManualClock,
    damage: Callable[[memoryview, int], None],
    reason: str,
) -> None:
    with open_store(files, clock) as store:
        offset = put(store, 1, "bad")
        put(store, 1, "good")
        store.dispatch()
        assert store.log.files.first is not None
        damage(store.log.files.first.view, offset)
        clock.advance(1000)
        assert store.schedule.deliver_due() == 1
        assert bodies(store) == ["good"]
        assert store.schedule.skipped[0].physical_offset == offset
        assert store.schedule.skipped[0].reason.startswith(reason)


def test_a_message_alone_that_cannot_be_delivered_is_skipped_for_good(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_store(files, clock) as store:
        put_as_stored(store, {"DELAY": "1"})
        clock.advance(1000)
        assert store.schedule.deliver_due() == 0
        assert store.schedule.next_due_ms() is None
    with open_store(files, clock) as store:
        assert store.schedule.next_due_ms() is None


def test_a_refused_put_is_tried_again_and_nothing_is_skipped(
    files: SimulatedFiles, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "flintmq.store.upkeep.schedule")
    with open_store(files, clock) as store:
        for number in range(3):
            put(store, 1, str(number))
        clock.advance(1000)
        store.flags.set(RunningFlag.DISK_FULL, "for the test")
        for _ in range(5):
            assert store.schedule.deliver_due() == 0
            assert store.schedule.next_due_ms() == clock.now_ms() + 100
            failed = store.statistics.failed_put_count
            clock.advance(99)
            assert store.schedule.deliver_due() == 0
            assert store.statistics.failed_put_count == failed
            clock.advance(1)
        assert store.schedule.progress() == {}
        (warning,) = (record for record in caplog.records if "delivery" in record.message)
        assert "SERVICE_NOT_AVAILABLE: disk full: for the test" in warning.message
        store.flags.clear(RunningFlag.DISK_FULL)
        assert store.schedule.deliver_due() == 3
        assert bodies(store) == ["0", "1", "2"]
        assert store.schedule.skipped_count == 0


def test_a_full_disk_delays_deliveries_until_there_is_room(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_store(files, clock, commit_log_file_size=4096) as store:
        for number in range(15):
            put(store, 1, f"{number}".ljust(200, "."))
        store.dispatch()
        clock.advance(1000)
        usage = files.usage(ROOT)
        assert usage is not None
        files.capacity = usage.total - usage.free
        first = store.schedule.deliver_due()
        assert 0 < first < 15
        assert store.schedule.next_due_ms() == clock.now_ms() + 100
        files.capacity = None
        clock.advance(100)
        assert store.schedule.deliver_due() == 15 - first
        assert [body.rstrip(".") for body in bodies(store)] == [str(n) for n in range(15)]


# -- pipelined -------------------------------------------------------------------------------


def open_pipelined(files: Files, clock: Clock, **changes: Any) -> MessageStore:
    return open_store(
        files, clock, flush_mode=FlushMode.SYNC, schedule_async_deliver=True, **changes
    )


def test_a_pipelined_delivery_counts_when_it_is_flushed(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_pipelined(files, clock) as store:
        for number in range(3):
            put(store, 1, str(number))
        store.flush()
        clock.advance(1000)
        assert store.schedule.deliver_due() == 3
        assert store.schedule.progress() == {}
        assert store.schedule.next_due_ms() == clock.now_ms() + HARVEST_MS
        store.flush()
        assert store.schedule.deliver_due() == 0
        assert store.schedule.progress() == {1: LevelProgress(3, 3)}
        assert store.schedule.next_due_ms() is None
        assert bodies(store) == ["0", "1", "2"]


def test_a_pipeline_takes_so_many_and_then_waits(files: SimulatedFiles, clock: ManualClock) -> None:
    with open_pipelined(files, clock, schedule_async_pending_max=2) as store:
        for number in range(8):
            put(store, 1, str(number))
        store.flush()
        clock.advance(1000)
        assert store.schedule.deliver_due() == 3
        assert store.schedule.deliver_due() == 0
        assert store.schedule.next_due_ms() == clock.now_ms() + HARVEST_MS
        store.flush()
        assert store.schedule.deliver_due() == 3
        store.flush()
        assert store.schedule.deliver_due() == 2
        store.flush()
        assert bodies(store) == [str(number) for number in range(8)]


def test_a_skipped_message_counts_after_those_before_it(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_pipelined(files, clock) as store:
        put(store, 1, "good")
        put_as_stored(store, {"DELAY": "1"})
        store.flush()
        clock.advance(1000)
        assert store.schedule.deliver_due() == 1
        assert store.schedule.progress() == {}
        store.flush()
        store.schedule.deliver_due()
        assert store.schedule.progress() == {1: LevelProgress(2, 2)}


def test_after_a_failed_flush_nothing_counts_and_a_restart_delivers_again(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    store = open_pipelined(files, clock)
    for number in range(3):
        put(store, 1, str(number))
    store.flush()
    clock.advance(1000)
    assert store.schedule.deliver_due(1) == 1
    store.flush()
    assert store.schedule.deliver_due() == 2
    assert store.schedule.progress() == {1: LevelProgress(1, 3)}
    files.fail_next("region_sync", Fault.EIO)
    with pytest.raises(FlushFailedError):
        store.flush()
    # The store is read-only now: the level goes back and keeps trying, ever more seldom.
    assert store.schedule.deliver_due() == 0
    for attempt in range(1, 5):
        assert store.schedule.next_due_ms() == clock.now_ms() + 100 * attempt
        clock.advance(100 * attempt)
        assert store.schedule.deliver_due() == 0
    assert store.schedule.progress() == {1: LevelProgress(1, 3)}
    assert store.schedule.skipped_count == 0
    store.close()
    for image in files.crash_images(Random(1), 10):
        with open_pipelined(image, clock) as restarted:
            restarted.schedule.deliver_due()
            restarted.flush()
            assert set(bodies(restarted)) == {"0", "1", "2"}


def test_the_pause_before_another_try_grows_to_a_minute(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_pipelined(files, clock) as store:
        put(store, 1)
        store.flush()
        clock.advance(1000)
        store.flags.set(RunningFlag.DISK_FULL, "for the test")
        pauses = []
        for _ in range(605):
            assert store.schedule.deliver_due() == 0
            due = store.schedule.next_due_ms()
            assert due is not None
            pauses.append(due - clock.now_ms())
            clock.advance(pauses[-1])
        assert pauses == [min(100 * count, RETRY_MAX_MS) for count in range(1, 606)]


def test_a_slow_disk_makes_no_duplicates(files: SimulatedFiles, clock: ManualClock) -> None:
    with open_pipelined(files, clock) as store:
        put(store, 1, "once")
        store.flush()
        clock.advance(1000)
        assert store.schedule.deliver_due() == 1
        for _ in range(3):
            clock.advance(store.config.sync_flush_timeout_ms)
            assert store.flusher.expire() == 1
            assert store.schedule.deliver_due() == 0
        assert store.schedule.progress() == {}
        store.flush()
        assert store.schedule.deliver_due() == 0
        assert store.schedule.progress() == {1: LevelProgress(1, 1)}
        assert bodies(store) == ["once"]


def test_after_too_many_failures_one_delivery_at_a_time_is_tried(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_pipelined(files, clock, schedule_async_resend_max=2) as store:
        for number in range(3):
            put(store, 1, str(number))
        store.flush()
        clock.advance(1000)
        store.flags.set(RunningFlag.DISK_FULL, "for the test")
        for attempt in range(1, 4):
            assert store.schedule.deliver_due() == 0
            clock.advance(100 * attempt)
        store.flags.clear(RunningFlag.DISK_FULL)
        assert store.schedule.deliver_due() == 1
        assert store.schedule.deliver_due() == 0
        store.flush()
        assert store.schedule.deliver_due() == 2


def test_without_synchronous_flush_there_is_nothing_to_wait_for(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_store(files, clock, schedule_async_deliver=True) as store:
        put(store, 1)
        clock.advance(1000)
        assert store.schedule.deliver_due() == 1
        assert store.schedule.progress() == {1: LevelProgress(1, 1)}


def test_closing_counts_what_was_flushed_in_the_end(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_pipelined(files, clock) as store:
        put(store, 1)
        store.flush()
        clock.advance(1000)
        store.schedule.deliver_due()
    assert files.read(STATE) == b'{\n\t"offsetTable":{1:1\n\t}\n}'


class Flushes:
    """A disk whose flushes end when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, Callable[[PutStatus, str], None]]] = []

    def __call__(self, offset: int, done: Callable[[PutStatus, str], None]) -> None:
        self.waiting.append((offset, done))

    def finish(self, number: int, status: PutStatus = PutStatus.PUT_OK, reason: str = "") -> None:
        self.waiting[number][1](status, reason)


def test_a_pipeline_counts_in_order_whatever_ends_first() -> None:
    flushes = Flushes()
    pipeline = DeliveryPipeline(flushes)
    for following in (1, 2, 3):
        pipeline.add(following, end_offset=following * 100)
    flushes.finish(2)
    assert pipeline.harvest() == Harvest(None, None)
    flushes.finish(0)
    assert pipeline.harvest() == Harvest(1, None)
    flushes.finish(1)
    assert pipeline.harvest() == Harvest(3, None)
    assert len(pipeline) == 0


def test_a_pipeline_gives_everything_up_behind_a_failure() -> None:
    flushes = Flushes()
    pipeline = DeliveryPipeline(flushes)
    for following in (1, 2, 3):
        pipeline.add(following, end_offset=following * 100)
    flushes.finish(0)
    flushes.finish(1, PutStatus.SERVICE_NOT_AVAILABLE, "the disk is gone")
    flushes.finish(2)
    assert pipeline.harvest() == Harvest(1, "the disk is gone")
    assert len(pipeline) == 0


def test_a_pipeline_waits_again_after_a_timeout() -> None:
    flushes = Flushes()
    pipeline = DeliveryPipeline(flushes)
    pipeline.add(1, end_offset=100)
    flushes.finish(0, PutStatus.FLUSH_DISK_TIMEOUT)
    assert pipeline.harvest() == Harvest(None, None)
    assert [offset for offset, _ in flushes.waiting] == [100, 100]
    flushes.finish(1)
    assert pipeline.harvest() == Harvest(1, None)
