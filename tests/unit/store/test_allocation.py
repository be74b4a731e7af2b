import contextlib
import logging
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.store.clock import SystemClock
from flintmq.store.errors import DiskFullError, StoreClosedError, StoreIOError
from flintmq.store.files import allocation
from flintmq.store.files.allocation import RETRY_AFTER_MS, Allocator
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.transient_pool import TransientPool
from flintmq.store.message_store import MessageStore
from flintmq.testing import ROOT, Fault, ManualClock, SimulatedFiles
from flintmq.testing.simulated_region import SimulatedRegion
from tests.kits.store.store_kit import SMALL, message

SIZE = 16384
LOG = ROOT / "commitlog"
PATHS = [LOG / f"{number * SIZE:020d}" for number in range(6)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def files(clock: ManualClock) -> SimulatedFiles:
    return SimulatedFiles(clock=clock)


def by_hand(files: SimulatedFiles, **settings: object) -> Allocator:
    return Allocator(
        files=files,
        clock=files.clock,
        by_hand=True,
        wait_ms=0,
        **settings,  # type: ignore[arg-type]  # The settings under test, each of its own type.
    )


def names(files: SimulatedFiles | LocalFiles, directory: Path = LOG) -> list[str]:
    return [entry.name for entry in files.list(directory)]


def test_a_request_without_threads_makes_its_file_and_nothing_ahead(files: SimulatedFiles) -> None:
    allocator = Allocator(files=files, clock=files.clock, threads=False)
    region = allocator.request(PATHS[0], PATHS[1], SIZE)
    assert region is not None
    assert (region.path, region.size) == (PATHS[0], SIZE)
    assert names(files) == [PATHS[0].name]
    assert not allocator.allocate_once()
    allocator.close()
    assert names(files) == [PATHS[0].name]


def test_the_following_file_is_made_ahead(files: SimulatedFiles) -> None:
    allocator = by_hand(files)
    assert allocator.request(PATHS[0], PATHS[1], SIZE) is None
    assert allocator.allocate_once()
    assert names(files) == [PATHS[0].name]
    assert allocator.allocate_once()
    assert not allocator.allocate_once()
    assert names(files) == [PATHS[0].name, PATHS[1].name]
    for number in range(2):
        region = allocator.request(PATHS[number], PATHS[number + 1], SIZE)
        assert region is not None
        assert region.path == PATHS[number]
    allocator.allocate_once()
    assert names(files) == [PATHS[0].name, PATHS[1].name, PATHS[2].name]


def test_a_thread_makes_the_files(tmp_path: Path) -> None:
    files = LocalFiles()
    allocator = Allocator(files=files, clock=ManualClock())
    paths = [tmp_path / "commitlog" / path.name for path in PATHS]
    for number in range(4):
        region = allocator.request(paths[number], paths[number + 1], SIZE)
        assert region is not None
        assert region.path == paths[number]
        region.close()
    deadline = time.monotonic() + 10
    while not files.exists(paths[4]):
        assert time.monotonic() < deadline
    allocator.close()
    assert names(files, tmp_path / "commitlog") == [path.name for path in paths[:4]]
    assert not files.exists(tmp_path / "commitlog.new")
    with pytest.raises(StoreClosedError):
        allocator.request(paths[4], paths[5], SIZE)
    allocator.close()


def test_a_request_that_is_not_served_in_time_can_be_collected_later(
    files: SimulatedFiles, caplog: pytest.LogCaptureFixture
) -> None:
    allocator = by_hand(files)
    with caplog.at_level(logging.WARNING):
        assert allocator.request(PATHS[0], PATHS[1], SIZE) is None
    assert "not made in time" in caplog.text
    allocator.allocate_once()
    assert allocator.request(PATHS[0], PATHS[1], SIZE) is not None


def test_a_full_disk_is_told_as_such_and_tried_again_later(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    files.capacity = SIZE - 1
    allocator = by_hand(files)
    allocator.request(PATHS[0], PATHS[1], SIZE)
    assert allocator.allocate_once()
    assert allocator.allocate_once()
    for _ in range(3):
        with pytest.raises(DiskFullError) as caught:
            allocator.request(PATHS[0], PATHS[1], SIZE)
        assert caught.value.size == SIZE
    assert not allocator.allocate_once()
    files.capacity = None
    clock.advance(RETRY_AFTER_MS)
    assert allocator.request(PATHS[0], PATHS[1], SIZE) is None
    assert allocator.allocate_once()
    assert allocator.request(PATHS[0], PATHS[1], SIZE) is not None


def test_a_failure_ahead_does_not_spoil_the_file_that_is_ready(files: SimulatedFiles) -> None:
    allocator = by_hand(files)
    files.capacity = SIZE
    allocator.request(PATHS[0], PATHS[1], SIZE)
    allocator.allocate_once()
    allocator.allocate_once()
    assert allocator.request(PATHS[0], PATHS[1], SIZE) is not None


def test_without_threads_every_request_tries_again(files: SimulatedFiles) -> None:
    allocator = Allocator(files=files, clock=files.clock, threads=False)
    files.fail_next("create", Fault.ENOSPC)
    with pytest.raises(DiskFullError):
        allocator.request(PATHS[0], PATHS[1], SIZE)
    assert allocator.request(PATHS[0], PATHS[1], SIZE) is not None


@pytest.mark.parametrize("operation", ["create", "region_sync", "rename", "sync_directory"])
def test_a_file_that_fails_leaves_nothing_behind(files: SimulatedFiles, operation: str) -> None:
    allocator = Allocator(files=files, clock=files.clock, threads=False)
    files.make_directory(LOG)
    files.fail_next(operation, Fault.EIO)
    with pytest.raises(StoreIOError):
        allocator.request(PATHS[0], PATHS[1], SIZE)
    assert names(files) == []
    assert names(files, LOG.with_name("commitlog.new")) == []


def test_files_made_and_never_used_are_removed_at_the_end(files: SimulatedFiles) -> None:
    allocator = by_hand(files)
    allocator.request(PATHS[0], PATHS[1], SIZE)
    while allocator.allocate_once():
        pass
    assert allocator.request(PATHS[0], PATHS[1], SIZE) is not None
    allocator.close()
    assert names(files) == [PATHS[0].name]
    assert not files.exists(LOG.with_name("commitlog.new"))


def test_what_a_crash_left_half_made_is_removed(files: SimulatedFiles) -> None:
    leftover = LOG.with_name("commitlog.new") / PATHS[3].name
    files.make_directory(leftover.parent)
    files.write(leftover, b"half")
    allocator = Allocator(files=files, clock=files.clock, threads=False)
    allocator.request(PATHS[0], PATHS[1], SIZE)
    assert not files.exists(leftover)


def test_a_file_made_in_a_directory_that_became_full_is_used_all_the_same(
    files: SimulatedFiles,
) -> None:
    allocator = by_hand(files)
    allocator.request(PATHS[0], PATHS[1], SIZE)
    while allocator.allocate_once():
        pass
    allocator.request(PATHS[0], PATHS[1], SIZE)
    other = ROOT / "elsewhere" / PATHS[1].name
    region = allocator.request(other, PATHS[2], SIZE)
    assert region is not None
    assert region.path == PATHS[1]
    assert not files.exists(other)


def test_files_ahead_of_an_end_that_was_cut_off_are_removed(files: SimulatedFiles) -> None:
    allocator = by_hand(files)
    allocator.request(PATHS[2], PATHS[3], SIZE)
    while allocator.allocate_once():
        pass
    allocator.request(PATHS[0], PATHS[1], SIZE)
    while allocator.allocate_once():
        pass
    assert names(files) == [PATHS[0].name, PATHS[1].name]


def test_a_warm_file_is_synced(files: SimulatedFiles) -> None:
    allocator = Allocator(files=files, clock=files.clock, threads=False, warm=True)
    assert allocator.request(PATHS[0], PATHS[1], SIZE) is not None
    assert [call.operation for call in files.calls][-2:] == ["region_write", "region_sync"]


def test_failing_fast_makes_no_more_files_than_there_are_buffers(files: SimulatedFiles) -> None:
    pool = TransientPool(2, SIZE)
    allocator = by_hand(files, pool=pool, fail_fast=True)
    assert pool.borrow() is not None
    allocator.request(PATHS[0], PATHS[1], SIZE)
    while allocator.allocate_once():
        pass
    assert names(files) == [PATHS[0].name]
    assert allocator.request(PATHS[0], PATHS[1], SIZE) is not None
    assert pool.borrow() is not None
    assert allocator.request(PATHS[1], PATHS[2], SIZE) is None
    assert not allocator.allocate_once()


def test_an_unexpected_failure_is_reported_and_the_thread_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = LocalFiles()
    clock = ManualClock()
    allocator = Allocator(files=files, clock=clock)
    paths = [tmp_path / path.name for path in PATHS]

    def broken(path: Path, size: int) -> None:
        raise ZeroDivisionError("unexpected")

    with monkeypatch.context() as patch:
        patch.setattr(files, "create_durable", broken)
        with pytest.raises(Exception, match="unexpected"):
            allocator.request(paths[0], paths[1], SIZE)
        assert "ZeroDivisionError" in caplog.text
    clock.advance(RETRY_AFTER_MS)
    region = allocator.request(paths[0], paths[1], SIZE)
    assert region is not None
    region.close()
    allocator.close()


def test_a_file_that_will_be_needed_is_made_without_waiting(files: SimulatedFiles) -> None:
    allocator = by_hand(files)
    allocator.prepare(PATHS[1], SIZE)
    allocator.prepare(PATHS[1], SIZE)
    assert not files.exists(PATHS[1])
    assert allocator.allocate_once()
    assert not allocator.allocate_once()
    region = allocator.request(PATHS[1], PATHS[2], SIZE)
    assert region is not None
    assert region.path == PATHS[1]
    allocator.close()
    allocator.prepare(PATHS[3], SIZE)
    assert not allocator.allocate_once()


def test_an_opened_log_has_its_next_file_made_before_it_rolls(tmp_path: Path) -> None:
    def opened() -> MessageStore:
        return MessageStore.open(replace(SMALL, root=tmp_path))

    large = message(b"x" * 1500)
    with opened() as store:
        store.put(large)
        files = store.files
    with opened() as store:
        following = store.log.files.next_path(SMALL.commit_log_file_size)
        assert not files.exists(following)
        store.put(large)
        deadline = time.monotonic() + 30
        while not files.exists(following):
            assert time.monotonic() < deadline
        store.put(large)
        assert store.log.files.last is not None
        assert store.log.files.last.path == following


def test_an_owner_that_must_not_wait_is_told_that_its_first_file_is_being_made(
    files: SimulatedFiles,
) -> None:
    allocator = by_hand(files, roll_wait_ms=0)
    assert allocator.is_awaited(PATHS[0], PATHS[1], SIZE)
    assert allocator.is_late
    assert allocator.request(PATHS[0], PATHS[1], SIZE) is None
    allocator.allocate_once()
    assert not allocator.is_late
    assert not allocator.is_awaited(PATHS[0], PATHS[1], SIZE)
    assert allocator.request(PATHS[0], PATHS[1], SIZE) is not None
    assert allocator.allocate_once(), "the one behind it is made ahead"


def test_a_first_file_that_cannot_be_made_is_not_waited_for(files: SimulatedFiles) -> None:
    allocator = by_hand(files, roll_wait_ms=0)
    files.capacity = SIZE - 1
    assert allocator.is_awaited(PATHS[0], PATHS[1], SIZE)
    allocator.allocate_once()
    assert not allocator.is_late
    assert not allocator.is_awaited(PATHS[0], PATHS[1], SIZE)
    with pytest.raises(DiskFullError):
        allocator.request(PATHS[0], PATHS[1], SIZE)


def test_an_owner_that_may_wait_does(files: SimulatedFiles) -> None:
    assert not by_hand(files).is_awaited(PATHS[0], PATHS[1], SIZE)
    without_threads = Allocator(files=files, clock=files.clock, threads=False, roll_wait_ms=0)
    assert not without_threads.is_awaited(PATHS[0], PATHS[1], SIZE)


def test_a_file_is_made_with_as_many_bytes_ready_as_somebody_will_write(
    files: SimulatedFiles,
) -> None:
    allocator = by_hand(files)
    allocator.prepare(PATHS[0], SIZE)
    allocator.allocate_once()
    allocator.prepare(PATHS[0], SIZE, ready_size=5000)
    region = allocator.request(PATHS[0], PATHS[1], SIZE)
    assert isinstance(region, SimulatedRegion)
    assert (0, 5000) in region.prepared


def test_a_file_that_the_log_has_gone_on_to_is_not_made_again(
    files: SimulatedFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """A thread has looked where the log ends, and the log rolls before it says so."""
    allocator = by_hand(files)
    assert allocator.request(PATHS[0], PATHS[1], SIZE) is None
    while allocator.allocate_once():
        pass
    assert allocator.request(PATHS[0], PATHS[1], SIZE) is not None
    assert allocator.request(PATHS[1], PATHS[2], SIZE) is not None
    caplog.clear()
    for stale in PATHS[:2]:
        allocator.prepare(stale, SIZE, ready_size=5000)
    assert allocator.allocate_once(), "the one that is made ahead"
    assert not allocator.allocate_once()
    assert not caplog.records
    assert allocator.request(PATHS[2], PATHS[3], SIZE) is not None


def test_however_many_ask_first_one_thread_makes_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two of them a file could be replaced that the log writes into."""
    started: list[threading.Thread] = []
    everybody = threading.Barrier(4)

    class Slow(threading.Thread):
        def __init__(self, **given: Any) -> None:
            with contextlib.suppress(threading.BrokenBarrierError):
                everybody.wait(0.2)
            super().__init__(**given)
            started.append(self)

    allocator = Allocator(files=LocalFiles(), clock=SystemClock())
    askers = [
        threading.Thread(target=allocator.prepare, args=(tmp_path / "log" / PATHS[0].name, SIZE))
        for _ in range(everybody.parties)
    ]
    monkeypatch.setattr(allocation, "threading", SimpleNamespace(Thread=Slow))
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    allocator.close()
    assert len(started) == 1
