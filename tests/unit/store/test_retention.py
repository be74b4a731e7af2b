"""Retention deletes what may go, when it may, and a full disk refuses writes until it has room."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from flintmq.format.host import pack_host
from flintmq.format.stored.record import decode_record
from flintmq.model.message import PutMessage
from flintmq.store.clock import Clock
from flintmq.store.config import FlushMode, StoreConfig
from flintmq.store.files.interface import DiskUsage, Files
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.message_store import MessageStore
from flintmq.store.results import GetStatus, PutResult, PutStatus
from flintmq.store.running_flags import RunningFlag
from flintmq.store.upkeep.retention import MANUAL_RUN_COUNT, DiskRatios, Retention, RetentionResult
from flintmq.testing import ROOT, Fault, ManualClock, SimulatedCrash, SimulatedFiles
from tests.kits.store.store_kit import physical_offset_of

HOST: Final = pack_host("192.0.2.1", 10911)
LOG: Final = ROOT / "commitlog"
QUEUES: Final = ROOT / "consumequeue"
FILE_SIZE: Final = 4096
HOUR_MS: Final = 3_600_000
NOON: Final = 1_700_049_600_000
"""12:00 on 15 November 2023, UTC."""
PER_FILE: Final = 4
"""How many messages of ``fill`` a log file takes."""


class Disks(SimulatedFiles):
    """Files on disks that are as full as a test says."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.ratios: dict[Path, float | None] = {}

    def usage(self, path: Path) -> DiskUsage | None:
        ratio = self.ratios.get(path, 0.5)
        if ratio is None:
            return None
        return DiskUsage(1000, 1000 - round(1000 * ratio), 1000 - round(1000 * ratio))


@pytest.fixture(autouse=True)
def _universal_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def disks(clock: ManualClock) -> Disks:
    return Disks(clock)


def open_store(
    files: Files,
    clock: Clock,
    *,
    root: Path = ROOT,
    background: bool = False,
    changes: Mapping[str, Any] | None = None,
) -> MessageStore:
    values: dict[str, Any] = {
        "root": root,
        "commit_log_file_size": FILE_SIZE,
        "consume_queue_file_size": 100,
        "hash_slot_count": 8,
        "index_entry_count": 20,
        "delete_when": (4,),
        **(changes or {}),
    }
    return MessageStore.open(StoreConfig(**values), files=files, clock=clock, background=background)


def put(store: MessageStore, number: int, *, queue_count: int = 1, size: int = 850) -> PutResult:
    return store.put(
        PutMessage(
            topic="orders",
            queue_id=number % queue_count,
            body=f"{number}".encode().ljust(size, b"."),
            properties={"KEYS": f"k{number}"},
            born_host=HOST,
            store_host=HOST,
        )
    )


def fill(store: MessageStore, file_count: int, *, queue_count: int = 1) -> int:
    """Fill that many log files and begin another; return how many messages that took."""
    count = 0
    while len(store.log.files) <= file_count:
        assert put(store, count, queue_count=queue_count).status is PutStatus.PUT_OK
        count += 1
    store.flush()
    store.dispatch()
    store.checkpoint()
    return count


def names(store: MessageStore) -> list[int]:
    """Return the numbers of the log files that are left."""
    return [file.first_offset // FILE_SIZE for file in store.log.files.snapshot()]


def run(store: MessageStore, clock: ManualClock) -> RetentionResult | None:
    """Let one whole run happen, if there is a reason for it."""
    retention = store.retention
    clock.set(max(clock.now_ms(), retention._run_timer.at_ms))
    while True:
        result = retention.step(clock.now_ms())
        if retention._run is None:
            return result
        clock.set(max(clock.now_ms(), retention.next_due_ms()))


# -- when ------------------------------------------------------------------------------------


def test_the_first_run_comes_after_a_minute_and_the_disk_is_measured_after_a_second(
    disks: Disks, clock: ManualClock
) -> None:
    with open_store(disks, clock) as store:
        retention = store.retention
        retention.request_manual_delete()
        assert not retention.due(NOON + 999)
        assert retention.due(NOON + 1000)
        assert retention.next_due_ms() == NOON + 1000
        measured = []
        for now in range(NOON, NOON + 90_000, 500):
            clock.set(now)
            assert retention.due(now) == (now >= retention.next_due_ms())
            before = retention.last_result
            if retention.step(now) is not None:
                assert retention.last_result is not before
                measured.append(now - NOON)
        assert measured == [60_000, 70_000, 80_000]


def test_a_clock_that_was_set_back_does_not_stop_retention(
    disks: Disks, clock: ManualClock
) -> None:
    with open_store(disks, clock) as store:
        run(store, clock)
        clock.set(clock.now_ms() - 24 * HOUR_MS)
        assert store.retention.due(clock.now_ms())


@pytest.mark.parametrize(
    ("zone", "hour"), [("UTC", 12), ("Asia/Kolkata", 17), ("America/St_Johns", 8)]
)
def test_the_hour_is_that_of_the_local_clock(
    disks: Disks, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, zone: str, hour: int
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    with open_store(disks, clock, changes={"delete_when": (hour,)}) as store:
        fill(store, 2)
        # 72 hours later it is the same hour; the first run is past its first minute.
        clock.advance(72 * HOUR_MS)
        result = run(store, clock)
        assert result is not None
        assert result.reason == f"hour {hour:02d}"
        assert len(result.deleted) == 2


def test_expired_files_stay_until_their_hour(disks: Disks, clock: ManualClock) -> None:
    with open_store(disks, clock, changes={"delete_when": (4, 16)}) as store:
        fill(store, 3)
        clock.advance(72 * HOUR_MS)
        assert run(store, clock) is None
        assert names(store) == [0, 1, 2, 3]
        clock.set(NOON + 76 * HOUR_MS - 1)
        assert run(store, clock) is None
        clock.set(NOON + 76 * HOUR_MS)
        assert run(store, clock) == RetentionResult(
            "hour 16",
            tuple(LOG / f"{number * FILE_SIZE:020d}" for number in range(3)),
            unexpired=False,
        )
        assert names(store) == [3]


def test_a_file_expires_with_its_last_modification(disks: Disks, clock: ManualClock) -> None:
    with open_store(disks, clock, changes={"delete_when": range(24)}) as store:
        fill(store, 2)
        clock.advance(HOUR_MS)
        fill(store, 5)
        clock.set(NOON + 72 * HOUR_MS - 1)
        assert run(store, clock) == RetentionResult("hour 11", (), unexpired=False)
        clock.set(NOON + 72 * HOUR_MS)
        result = run(store, clock)
        assert result is not None
        # File 2 was begun in the first hour and finished in the second.
        assert names(store) == [2, 3, 4, 5]
        clock.set(NOON + 73 * HOUR_MS)
        run(store, clock)
        assert names(store) == [5]


def test_ten_files_go_in_one_run_a_little_apart_and_never_the_last(
    disks: Disks, clock: ManualClock
) -> None:
    with open_store(disks, clock, changes={"file_reserved_hours": 0}) as store:
        fill(store, 13)
        store.retention.request_manual_delete()
        clock.advance(60_000)
        began = clock.now_ms()
        deleted_at = []
        left = len(names(store))
        for now in range(began, began + 1100, 10):
            clock.set(now)
            store.retention.step(now)
            deleted_at += [now - began] * (left - len(names(store)))
            left = len(names(store))
        assert deleted_at == [100 * number for number in range(10)]
        assert names(store) == [10, 11, 12, 13]
        run(store, clock)
        run(store, clock)
        assert names(store) == [13]


def test_deleting_by_hand_takes_part_in_twenty_runs_and_spares_what_has_not_expired(
    disks: Disks, clock: ManualClock
) -> None:
    with open_store(disks, clock) as store:
        fill(store, 3)
        store.retention.request_manual_delete()
        for left in reversed(range(MANUAL_RUN_COUNT)):
            result = run(store, clock)
            assert result is not None
            assert result.reason == f"asked for by hand, {left} runs left"
            assert result.deleted == ()
        assert run(store, clock) is None
        clock.set(NOON + 73 * HOUR_MS)
        assert run(store, clock) is None
        store.retention.request_manual_delete()
        result = run(store, clock)
        assert result is not None
        assert len(result.deleted) == 3


# -- full disks ------------------------------------------------------------------------------

NOTHING: Final = ""
EXPIRED: Final = "expired"
ANY: Final = "any"


@pytest.mark.parametrize(
    ("log", "queues", "changes", "deletes", "refuses"),
    [
        (0.75, 0.75, {}, NOTHING, False),
        (0.76, 0.50, {}, EXPIRED, False),
        (0.50, 0.76, {}, EXPIRED, False),
        (0.85, 0.85, {}, EXPIRED, False),
        (0.86, 0.50, {}, ANY, False),
        (0.50, 0.86, {}, ANY, False),
        (0.90, 0.90, {}, ANY, False),
        (0.91, 0.50, {}, ANY, True),
        (0.50, 0.91, {}, ANY, True),
        (1.00, 1.00, {}, ANY, True),
        # A log disk that is full enough is where RocketMQ stops looking.
        (0.80, 0.91, {}, EXPIRED, True),
        # A missing directory counts as full: expired files may go.
        (None, 0.50, {}, EXPIRED, False),
        (0.50, None, {}, EXPIRED, False),
        # Who forbids it loses nothing before its time.
        (0.95, 0.95, {"clean_forcibly": False}, EXPIRED, True),
        (0.95, 0.95, {"refuse_rather_than_delete": True}, EXPIRED, True),
        # The limits are settings.
        (0.60, 0.50, {"disk_max_used_ratio": 60}, NOTHING, False),
        (0.61, 0.50, {"disk_max_used_ratio": 60}, EXPIRED, False),
        (0.79, 0.50, {"disk_clean_forcibly_ratio": 0.78}, ANY, False),
        (0.88, 0.50, {"disk_warning_ratio": 0.87}, ANY, True),
        (0.95, 0.50, {"disk_warning_ratio": 0.96}, ANY, False),
    ],
)
def test_how_full_a_disk_is_decides(
    disks: Disks,
    clock: ManualClock,
    log: float | None,
    queues: float | None,
    changes: dict[str, Any],
    deletes: str,
    refuses: bool,
) -> None:
    for expired in (False, True):
        files = Disks(clock)
        with open_store(files, clock, changes=changes) as store:
            fill(store, 2)
            files.ratios = {LOG: log, QUEUES: queues}
            if expired:
                clock.advance(72 * HOUR_MS)
            run(store, clock)
            gone = deletes == ANY or (deletes == EXPIRED and expired)
            assert names(store) == ([2] if gone else [0, 1, 2])
            assert store.flags.writable is not refuses


def test_above_the_forcible_ratio_but_below_the_limit_the_hour_decides(
    disks: Disks, clock: ManualClock
) -> None:
    """RocketMQ asks for a reason first, and then whether files may go before their time."""
    with open_store(disks, clock, changes={"disk_max_used_ratio": 95}) as store:
        fill(store, 2)
        disks.ratios = {LOG: 0.88}
        assert run(store, clock) is None
        clock.set(NOON + 16 * HOUR_MS)
        assert run(store, clock) == RetentionResult(
            "hour 04",
            (LOG / "00000000000000000000", LOG / "00000000000000004096"),
            unexpired=True,
        )


def test_the_reason_names_the_disk_its_ratio_and_the_limit(
    disks: Disks, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "flintmq.store.upkeep.retention")
    with open_store(disks, clock) as store:
        fill(store, 2)
        disks.ratios = {LOG: 0.93}
        result = run(store, clock)
        assert result is not None
        assert result.reason == (f"{LOG}: 93% of the disk used, files are deleted above 75%")
        assert result.unexpired
        assert any(
            "log files deleted: count=2" in record.message and result.reason in record.message
            for record in caplog.records
        )
        refused = put(store, 0)
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert refused.reason == (
            f"disk full: {LOG}: 93% of the disk used, writes are refused above 90%"
        )


def test_writes_are_taken_again_when_the_disk_has_room(disks: Disks, clock: ManualClock) -> None:
    with open_store(disks, clock) as store:
        assert put(store, 0).ok
        disks.ratios = {QUEUES: 0.91}
        clock.advance(1000)
        store.retention.step(clock.now_ms())
        assert not put(store, 1).ok
        # Reading goes on, and so does dispatch.
        result = store.get_messages("orders", 0, 0, 1)
        assert result is not None
        with result:
            assert result.status is GetStatus.FOUND
        disks.ratios = {QUEUES: 0.90}
        clock.advance(9_999)
        store.retention.step(clock.now_ms())
        assert not put(store, 1).ok
        clock.advance(1)
        store.retention.step(clock.now_ms())
        assert put(store, 1).ok
        assert store.flags.bits == RunningFlag(0)


def test_what_a_run_has_freed_is_noticed_at_once(clock: ManualClock) -> None:
    """On a disk of twenty pages, eighteen of them full of log files."""
    files = SimulatedFiles(clock=clock)
    with open_store(files, clock, changes={"index_enabled": False}) as store:
        fill(store, 17)
        usage = files.usage(ROOT)
        assert usage is not None
        files.capacity = (usage.total - usage.free) * 100 // 95
        clock.advance(1000)
        store.retention.step(clock.now_ms())
        assert not store.flags.writable
        result = run(store, clock)
        assert result is not None
        assert len(result.deleted) == 10
        assert store.flags.writable


def test_a_disk_that_cannot_be_measured_does_not_stop_anything(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    files = SimulatedFiles(clock=clock)
    with open_store(files, clock) as store:
        files.fail_next("usage", Fault.EIO)
        assert store.retention.check_disk() == DiskRatios({LOG: -1.0}, -1.0)
        assert store.flags.writable
        assert "disk not measured" in caplog.text


def test_the_runtime_info_has_the_ratios(disks: Disks, clock: ManualClock) -> None:
    with open_store(disks, clock) as store:
        disks.ratios = {LOG: 0.31, QUEUES: None}
        info = store.runtime_info()
        assert info[f"commitLogDiskRatio_{LOG}"] == "0.31"
        assert info["commitLogDiskRatio"] == "0.31"
        assert info["consumeQueueDiskRatio"] == "-1.0"


# -- several log directories -----------------------------------------------------------------


def test_a_full_directory_gets_no_new_file_while_another_has_room(
    disks: Disks, clock: ManualClock
) -> None:
    first, second = ROOT / "a", ROOT / "b"
    with open_store(disks, clock, changes={"commit_log_paths": (first, second)}) as store:
        disks.ratios = {first: 0.86, second: 0.2}
        store.retention.check_disk()
        assert store.log.files.placement.full == {first}
        fill(store, 3)
        assert {file.path.parent for file in store.log.files.snapshot()} == {second}
        disks.ratios = {first: 0.97, second: 0.90}
        store.retention.check_disk()
        assert store.flags.writable
        disks.ratios = {first: 0.97, second: 0.91}
        store.retention.check_disk()
        assert not store.flags.writable
        assert str(second) in store.flags.reasons()[0]
        disks.ratios = {}
        store.retention.check_disk()
        assert store.flags.writable
        assert store.log.files.placement.full == frozenset()


# -- what must stay --------------------------------------------------------------------------


def test_what_is_not_durably_in_the_queues_is_not_deleted(disks: Disks, clock: ManualClock) -> None:
    changes = {"flush_mode": FlushMode.SYNC, "file_reserved_hours": 0}
    with open_store(disks, clock, changes=changes) as store:
        count = 0
        while len(store.log.files) < 4:
            assert put(store, count).ok
            count += 1
        store.retention.request_manual_delete()
        assert run(store, clock) is not None
        assert names(store) == [0, 1, 2, 3]
        store.flush()
        store.dispatch()
        assert store.max_offset_in_queue("orders", 0) == count
        run(store, clock)
        assert names(store) == [0, 1, 2, 3]
        store.checkpoint()
        run(store, clock)
        assert names(store) == [3]


def test_a_file_that_is_read_goes_when_its_reader_has_finished(
    disks: Disks, clock: ManualClock
) -> None:
    with open_store(disks, clock, changes={"file_reserved_hours": 0}) as store:
        fill(store, 2)
        store.retention.request_manual_delete()
        reading = store.get_messages("orders", 0, 0, 1)
        assert reading is not None
        with reading:
            (view,) = reading
            before = bytes(view)
            result = run(store, clock)
            assert result is not None
            assert result.deleted == ()
            assert names(store) == [0, 1, 2]
            assert disks.exists(LOG / f"{0:020d}")
            assert bytes(view) == before
            # Nobody else may begin to read it: the queue starts with the next file.
            other = store.get_messages("orders", 0, 0, 1)
            assert other is not None
            assert other.status is GetStatus.OFFSET_TOO_SMALL
            assert other.next_begin_offset == PER_FILE
            other.release()
            del view
        result = run(store, clock)
        assert result is not None
        assert len(result.deleted) == 2
        assert names(store) == [2]


def test_a_file_that_was_read_is_removed_later_whatever_the_hour(
    disks: Disks, clock: ManualClock
) -> None:
    with open_store(disks, clock, changes={"file_reserved_hours": 0}) as store:
        fill(store, 2)
        disks.ratios = {LOG: 0.8}
        reading = store.get_messages("orders", 0, 0, 1)
        assert reading is not None
        with reading:
            run(store, clock)
            disks.ratios = {}
        assert run(store, clock) is None
        assert names(store) == [0, 1, 2]
        while clock.now_ms() < NOON + store.config.redelete_hanged_interval_ms:
            run(store, clock)
        assert names(store) == [1, 2]
        assert not disks.exists(LOG / f"{0:020d}")
        assert store.min_offset_in_queue("orders", 0) == PER_FILE


def test_a_reader_who_never_finishes_keeps_its_bytes_but_not_the_name(
    disks: Disks, clock: ManualClock
) -> None:
    with open_store(disks, clock, changes={"file_reserved_hours": 0}) as store:
        fill(store, 1)
        store.retention.request_manual_delete()
        reading = store.get_messages("orders", 0, 0, 1)
        assert reading is not None
        with reading:
            (view,) = reading
            before = bytes(view)
            run(store, clock)
            assert names(store) == [0, 1]
            clock.advance(store.config.destroy_forcibly_interval_ms)
            run(store, clock)
            assert names(store) == [1]
            assert bytes(view) == before
            del view


def test_a_file_that_cannot_be_removed_is_tried_again(disks: Disks, clock: ManualClock) -> None:
    with open_store(disks, clock, changes={"file_reserved_hours": 0}) as store:
        fill(store, 2)
        store.retention.request_manual_delete()
        disks.fail_next("remove", Fault.EIO)
        run(store, clock)
        assert names(store) == [0, 1, 2]
        disks.fail_next("sync_directory", Fault.EIO)
        run(store, clock)
        run(store, clock)
        assert names(store) == [2]


# -- queues and index ------------------------------------------------------------------------


def assert_views_follow(store: MessageStore, count: int, queue_count: int) -> None:
    """Assert that queues and index begin where the log does, and that the rest is whole."""
    log_min = store.log.min_offset
    for queue_id in range(queue_count):
        numbers = [number for number in range(count) if number % queue_count == queue_id]
        least = store.min_offset_in_queue("orders", queue_id)
        assert store.max_offset_in_queue("orders", queue_id) == len(numbers)
        for offset in range(least):
            result = store.get_messages("orders", queue_id, offset, 1)
            assert result is not None
            assert result.status is GetStatus.OFFSET_TOO_SMALL
            assert result.next_begin_offset == least
        for offset in range(least, len(numbers)):
            result = store.get_messages("orders", queue_id, offset, 1)
            assert result is not None
            with result:
                record = decode_record(result.messages[0])
            assert record.physical_offset >= log_min
            assert bytes(record.body).rstrip(b".") == str(numbers[offset]).encode()
        if least:
            before = physical_offset_of(store, "orders", queue_id, least - 1)
            assert before < log_min
    assert store.index is not None
    assert all(file.end_offset >= log_min for file in store.index.files[:-1])
    for number in range(count):
        found = store.query("orders", f"k{number}", 32, 0, 1 << 62)
        exists = number // queue_count >= store.min_offset_in_queue("orders", number % queue_count)
        bodies = [bytes(decode_record(piece.view).body).rstrip(b".") for piece in found.slices]
        found.release()
        assert (str(number).encode() in bodies) == exists


@pytest.mark.parametrize("seed", range(6))
def test_queues_and_index_follow_the_log(seed: int, disks: Disks, clock: ManualClock) -> None:
    rng = Random(seed)
    queue_count = rng.randint(1, 5)
    changes = {"file_reserved_hours": 0, "enable_consume_queue_ext": seed % 2 == 1}
    changes["consume_queue_ext_file_size"] = 200
    with open_store(disks, clock, changes=changes) as store:
        count = fill(store, rng.randint(4, 14), queue_count=queue_count)
        assert_views_follow(store, count, queue_count)
        store.retention.request_manual_delete()
        clock.advance(60_000)
        # Stop while every queue has a message left.
        for _ in range(len(names(store)) - 2):
            store.retention.step(clock.now_ms())
            clock.set(store.retention.next_due_ms())
            assert_views_follow(store, count, queue_count)
        assert len(names(store)) <= 4
        queue_files = len(disks.list(QUEUES / "orders" / "0"))
        assert queue_files <= 3
    with open_store(disks, clock, changes=changes) as store:
        assert_views_follow(store, count, queue_count)


def test_a_queue_whose_messages_are_all_gone_leads_to_its_end(
    disks: Disks, clock: ManualClock
) -> None:
    with open_store(disks, clock, changes={"file_reserved_hours": 0}) as store:
        assert put(store, 1, queue_count=2).ok
        assert put(store, 3, queue_count=2).ok
        fill(store, 3)
        store.retention.request_manual_delete()
        run(store, clock)
        assert store.max_offset_in_queue("orders", 1) == 2
        result = store.get_messages("orders", 1, store.min_offset_in_queue("orders", 1), 32)
        assert result is not None
        assert result.status is GetStatus.MESSAGE_WAS_REMOVING
        assert result.next_begin_offset == 2
        # The next message gets the next offset.
        assert put(store, 5, queue_count=2).queue_offset == 2


def test_the_views_are_looked_at_only_when_the_log_has_lost_a_file(
    disks: Disks, clock: ManualClock
) -> None:
    followed: list[int] = []

    def note_follow() -> Iterator[bool]:
        followed.append(store.log.min_offset)
        yield False

    with open_store(disks, clock, changes={"file_reserved_hours": 0}) as store:
        fill(store, 2)
        retention = Retention(
            store.config,
            store.log,
            dispatched=lambda: store.dispatcher.offset,
            delete_views=note_follow,
            keeps=lambda end_offset: False,
            flags=store.flags,
            files=disks,
            clock=clock,
        )
        for _ in range(3):
            assert not retention.follow()
        retention.request_manual_delete()
        clock.advance(60_000)
        for _ in range(9):
            retention.step(clock.now_ms())
            clock.advance(100)
        assert followed == [FILE_SIZE, 2 * FILE_SIZE]


def test_a_crash_at_any_call_of_a_run_leaves_a_store_without_holes(clock: ManualClock) -> None:
    changes = {"file_reserved_hours": 0}

    def begin() -> tuple[SimulatedFiles, MessageStore, int]:
        files = SimulatedFiles(clock=ManualClock(NOON))
        store = open_store(files, files.clock, changes=changes)
        count = fill(store, 4, queue_count=2)
        # The last file has a message of each queue, so that each queue has one left.
        assert put(store, count, queue_count=2).ok
        count += 1
        store.dispatch()
        store.checkpoint()
        store.retention.request_manual_delete()
        return files, store, count

    def expire(store: MessageStore) -> None:
        for step in range(12):
            store.retention.step(NOON + 60_000 + 100 * step)

    files, store, count = begin()
    first_call = len(files.calls)
    expire(store)
    crash_calls = [number for number in files.change_numbers() if number >= first_call]
    assert names(store) == [4]
    store.close()
    for number in crash_calls:
        files, store, count = begin()
        files.crash_at = number
        with pytest.raises(SimulatedCrash):
            expire(store)
        for image in files.crash_images(Random(number), 4):
            with open_store(image, ManualClock(NOON), changes=changes) as restarted:
                assert not restarted.log.files.check_continuity()
                restarted.retention.follow()
                assert_views_follow(restarted, count, 2)


def test_queues_lose_their_files_one_after_the_other_with_time_between(
    disks: Disks, clock: ManualClock
) -> None:
    changes = {"file_reserved_hours": 0, "consume_queue_file_size": 40}
    with open_store(disks, clock, changes=changes) as store:
        fill(store, 4, queue_count=4)
        store.retention.request_manual_delete()
        for step in range(12):
            store.retention.clean_log(NOON + 60_000 + 100 * step)
        assert store.log.min_offset > 0
        at_first = [len(disks.list(QUEUES / "orders" / str(queue_id))) for queue_id in range(4)]

        def changed_queues() -> int:
            now = [len(disks.list(QUEUES / "orders" / str(queue_id))) for queue_id in range(4)]
            return sum(one != other for one, other in zip(at_first, now, strict=True))

        for done in range(1, 5):
            assert store.retention.follow()
            assert changed_queues() == done
            # The next one has to wait.
            assert store.retention.follow()
            assert changed_queues() == done
            clock.advance(store.config.delete_queue_interval_ms + 1)


# -- no room for another file ----------------------------------------------------------------


def fill_disk(store: MessageStore, files: SimulatedFiles) -> tuple[int, PutResult]:
    """Put until no further file can be made; return how many went in, and the refusal."""
    fill(store, 1)
    usage = files.usage(ROOT)
    assert usage is not None
    files.capacity = usage.total - usage.free
    count = PER_FILE + 1
    while (result := put(store, count)).ok:
        count += 1
    return count, result


def test_a_put_that_found_no_room_for_a_file_succeeds_when_there_is_room(
    clock: ManualClock,
) -> None:
    files = SimulatedFiles(clock=clock)
    with open_store(files, clock) as store:
        count, refused = fill_disk(store, files)
        assert refused.status is PutStatus.CREATE_MAPPED_FILE_FAILED
        assert str(LOG.parent) in refused.reason
        assert "no room for 4096 bytes" in refused.reason
        for _ in range(3):
            assert not put(store, count).ok
        assert store.log.end_offset < 2 * FILE_SIZE
        files.capacity = None
        assert put(store, count).ok
        store.dispatch()
        assert store.max_offset_in_queue("orders", 0) == count + 1


def test_files_made_ahead_find_room_again_too(clock: ManualClock) -> None:
    files = SimulatedFiles(clock=clock)
    with open_store(files, clock, background=True) as store:
        fill(store, 1)
        usage = files.usage(ROOT)
        assert usage is not None
        files.capacity = usage.total - usage.free
        count = PER_FILE + 1
        while put(store, count).ok:
            count += 1
        assert not put(store, count).ok
        files.capacity = None
        # The failure is remembered for a second, so as not to try at every put.
        clock.advance(1000)
        assert put(store, count).ok


# -- with threads ----------------------------------------------------------------------------


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    never = threading.Event()
    while not done():
        assert time.monotonic() < deadline
        never.wait(0.005)


def test_the_store_deletes_in_the_background_and_the_owner_follows(tmp_path: Path) -> None:
    """On the real file system, with the real threads."""
    clock = ManualClock(time.time_ns() // 1_000_000)
    root = tmp_path / "store"
    changes = {"delete_log_interval_ms": 10}
    with open_store(LocalFiles(), clock, root=root, background=True, changes=changes) as store:
        count = fill(store, 4, queue_count=2)
        for file in store.log.files.snapshot()[:3]:
            os.utime(file.path, (1_600_000_000, 1_600_000_000))
        store.retention.request_manual_delete()
        clock.advance(60_000)

        def deleted() -> bool:
            clock.advance(10)
            return names(store) == [3, 4]

        wait_until(deleted)
        while store.retention.follow():
            clock.advance(100)
        assert_views_follow(store, count, 2)
        assert min((root / "commitlog").iterdir()).name == f"{3 * FILE_SIZE:020d}"
