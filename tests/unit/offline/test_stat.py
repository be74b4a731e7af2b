"""The overview of a store."""

import shutil
from pathlib import Path

from flintmq.offline import find_store, stat
from flintmq.offline.scan import Tail
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.store.offline_stores import (
    ENTRIES,
    LOG_FILE_SIZE,
    QUEUE_FILE_SIZE,
    SLOTS,
    START_MS,
    check,
    log_file,
    make_store,
    message,
    put,
    small_config,
)


def test_a_store_of_the_engine(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    found = stat(find_store(root))
    assert (found.log_start, found.log_end) == (0, check(root).log_end)
    assert found.dispatched_end == found.log_end
    assert (found.log_file_size, found.queue_file_size) == (LOG_FILE_SIZE, QUEUE_FILE_SIZE)
    assert (found.first_store_time, found.last_store_time) == (START_MS, START_MS + 99_000)
    assert [(one.queue_id, one.min_offset, one.max_offset) for one in found.queues] == [
        (0, 0, 50),
        (1, 0, 50),
    ]
    assert found.topic_count == 1
    assert found.geometry is not None
    assert (found.geometry.slots, found.geometry.entries) == (SLOTS, ENTRIES)
    assert [one.header is not None for one in found.index_files] == [True] * 3
    assert found.checkpoint is not None
    marks = found.checkpoint.marks
    assert marks is not None
    assert (marks.log_flushed, marks.queue_count, marks.unit_total) == (found.log_end, 2, 100)
    assert found.log_tail is Tail.CLEAN


def test_a_store_whose_beginning_expired(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    gone = check(root).record_count
    log_file(root, 0).unlink()
    gone -= check(root).record_count
    found = stat(find_store(root))
    assert found.log_start == LOG_FILE_SIZE
    assert sum(queue.min_offset for queue in found.queues) == gone
    assert found.first_store_time == START_MS + 1000 * gone


def test_a_running_store_that_is_behind(tmp_path: Path) -> None:
    clock = ManualClock(START_MS)
    config = small_config(tmp_path / "store")
    with MessageStore.open(config, clock=clock, background=False) as store:
        put(store, clock, 10)
        reached = store.put(message(10))
        found = stat(find_store(config.root))
        assert found.has_abort
        assert found.dispatched_end == reached.physical_offset
        assert found.log_end > reached.physical_offset


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", 3)
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    (root / "checkpoint").unlink()
    found = stat(find_store(root))
    assert (found.queues, found.index_files, found.checkpoint) == ([], [], None)
    assert found.checkpoint_problem == "is missing"
    assert found.dispatched_end is None


def test_an_empty_store(tmp_path: Path) -> None:
    found = stat(find_store(make_store(tmp_path / "store", 0)))
    assert (found.log_end, found.first_store_time, found.last_store_time) == (0, None, None)
