import errno
import logging
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from flintmq.store.errors import (
    DiskFullError,
    FlushFailedError,
    StoreError,
    StoreIOError,
    StoreLoadError,
)
from flintmq.store.files.allocation import Allocator
from flintmq.store.files.interface import MappedRegion
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.mapped_file import PAGE_SIZE, MappedFile
from flintmq.store.files.mapped_file_queue import MappedFileQueue, file_name
from flintmq.store.files.placement import Placement
from flintmq.store.files.transient_pool import TransientPool
from flintmq.testing import ROOT, Fault, ManualClock, SimulatedFiles

SIZE = 4 * PAGE_SIZE
LOG = ROOT / "commitlog"
HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def files(clock: ManualClock) -> SimulatedFiles:
    return SimulatedFiles(clock=clock)


@pytest.fixture
def queue(files: SimulatedFiles) -> MappedFileQueue:
    return make(files)


def make(
    files: SimulatedFiles, directory: Path | Placement = LOG, *, reserve: bool = True
) -> MappedFileQueue:
    return MappedFileQueue(directory, SIZE, files=files, clock=files.clock, reserve=reserve)


def fill(queue: MappedFileQueue, count: int, byte: bytes = b"x") -> list[MappedFile]:
    """Append ``count`` full files."""
    return [fill_one(queue, byte) for _ in range(count)]


def fill_one(queue: MappedFileQueue, byte: bytes = b"x") -> MappedFile:
    file = queue.last_for_append(0)
    assert file.append(byte * (file.size - file.wrote))
    return file


def names(files: SimulatedFiles, directory: Path = LOG) -> list[str]:
    return [entry.name for entry in files.list(directory)]


# -- growing and looking ---------------------------------------------------------------------


def test_a_name_has_twenty_digits() -> None:
    assert file_name(0) == "0" * 20
    assert file_name(1_073_741_824) == "00000000001073741824"


def test_an_empty_queue_has_no_files_and_no_directory(
    files: SimulatedFiles, queue: MappedFileQueue
) -> None:
    assert queue.load() == []
    assert (queue.first, queue.last, queue.find(0), queue.by_time(0)) == (None, None, None, None)
    assert (queue.min_offset, queue.max_offset, queue.max_wrote, len(queue)) == (-1, 0, 0, 0)
    assert (queue.flush(), queue.commit(), queue.check_continuity()) == (False, False, [])
    assert queue.last_for_append(0, create=False) is None
    assert not files.exists(LOG)


def test_files_follow_one_another(files: SimulatedFiles, queue: MappedFileQueue) -> None:
    first = queue.last_for_append(0)
    assert first.first_in_queue
    first.append(b"abc")
    assert queue.last_for_append(0) is first
    assert (queue.min_offset, queue.max_offset, queue.max_wrote) == (0, 3, 3)
    fill_one(queue)
    assert queue.last_for_append(0, create=False) is None
    second = queue.last_for_append(0)
    assert (second.first_offset, second.first_in_queue) == (SIZE, False)
    assert queue.snapshot() == [first, second]
    assert (queue.first, queue.last, queue.max_offset) == (first, second, SIZE)
    assert names(files) == [file_name(0), file_name(SIZE)]


def test_the_next_file_can_be_made_before_the_last_is_full(queue: MappedFileQueue) -> None:
    first = queue.last_for_append(0)
    first.append(b"abc")
    second = queue.make_next()
    assert (second.first_offset, first.wrote) == (SIZE, 3)
    assert queue.last is second


def test_an_empty_queue_begins_at_the_file_of_its_first_offset(queue: MappedFileQueue) -> None:
    assert queue.last_for_append(5 * SIZE + 7).first_offset == 5 * SIZE
    assert queue.min_offset == queue.max_offset == 5 * SIZE


def test_a_full_disk_leaves_the_queue_as_it_was(
    files: SimulatedFiles, queue: MappedFileQueue
) -> None:
    fill(queue, 1)
    files.capacity = 2 * SIZE - 1
    with pytest.raises(DiskFullError):
        queue.last_for_append(0)
    assert len(queue) == 1
    assert names(files) == [file_name(0)]


def test_every_offset_leads_to_its_file(queue: MappedFileQueue) -> None:
    queue.last_for_append(2 * SIZE)
    made = fill(queue, 3)
    for number, file in enumerate(made, start=2):
        assert queue.find(number * SIZE) is file
        assert queue.find((number + 1) * SIZE - 1) is file
    for outside in (-1, 0, 2 * SIZE - 1, 5 * SIZE):
        assert queue.find(outside) is None
        assert queue.find(outside, first_if_missing=True) is made[0]


def test_a_queue_with_a_gap_is_searched_and_reported(
    files: SimulatedFiles, queue: MappedFileQueue
) -> None:
    fill(queue, 5)
    queue.close()
    files.remove(LOG / file_name(SIZE))
    files.remove(LOG / file_name(2 * SIZE))
    queue.load()
    first, fourth, fifth = queue.snapshot()
    assert queue.find(0) is first
    assert queue.find(SIZE) is None
    assert queue.find(3 * SIZE) is fourth
    assert queue.find(5 * SIZE - 1) is fifth
    (problem,) = queue.check_continuity()
    assert file_name(3 * SIZE) in problem


def test_a_time_leads_to_the_first_file_modified_since(
    clock: ManualClock, queue: MappedFileQueue
) -> None:
    made = []
    for _ in range(3):
        made.append(fill_one(queue))
        while queue.flush():
            pass
        clock.advance(HOUR_MS)
    start = clock.now_ms() - 3 * HOUR_MS
    assert queue.by_time(start) is made[0]
    assert queue.by_time(start + 1) is made[1]
    assert queue.by_time(start + 2 * HOUR_MS) is made[2]
    assert queue.by_time(start + 5 * HOUR_MS) is made[2]


# -- loading ---------------------------------------------------------------------------------


def test_loaded_files_count_as_full(files: SimulatedFiles, queue: MappedFileQueue) -> None:
    queue.last_for_append(0).append(b"abc")
    queue.close()
    assert len(queue) == 0
    again = make(files)
    again.load()
    assert (again.min_offset, again.max_offset) == (0, SIZE)
    assert bytes(again.snapshot()[0].view[:4]) == b"abc\0"


def test_files_loaded_for_reading_only_cannot_be_written(
    files: SimulatedFiles, queue: MappedFileQueue
) -> None:
    fill(queue, 1)
    queue.close()
    queue.load(read_only=True)
    with pytest.raises(TypeError):
        queue.snapshot()[0].view[0] = 1


STRAYS: dict[str, Callable[[SimulatedFiles], None]] = {
    "another name": lambda files: files.write(LOG / "stray.tmp", b"x" * SIZE),
    "too few digits": lambda files: files.write(LOG / ("0" * 19), b"x" * SIZE),
    "other digits": lambda files: files.write(LOG / ("\u0660" * 20), b"x" * SIZE),
    "a directory": lambda files: files.make_directory(LOG / file_name(SIZE)),
    "no multiple": lambda files: files.write(LOG / file_name(SIZE + 1), b"x" * SIZE),
    "beyond all offsets": lambda files: files.write(
        LOG / file_name((1 << 63) - (1 << 63) % SIZE), b"x" * SIZE
    ),
    "an empty file": lambda files: files.write(LOG / file_name(SIZE), b""),
    "a short file": lambda files: files.write(LOG / file_name(SIZE), b"x" * (SIZE - 1)),
    "a long file": lambda files: files.write(LOG / file_name(SIZE), b"x" * (SIZE + 1)),
}


@pytest.mark.parametrize("stray", STRAYS.values(), ids=STRAYS.keys())
def test_an_entry_that_does_not_belong_here_refuses_the_load(
    files: SimulatedFiles, queue: MappedFileQueue, stray: Callable[[SimulatedFiles], None]
) -> None:
    fill(queue, 1)
    queue.close()
    stray(files)
    with pytest.raises(StoreLoadError) as caught:
        queue.load()
    assert caught.value.path.parent == LOG
    assert len(queue) == 0


def test_files_of_another_size_can_be_left_out(
    files: SimulatedFiles, queue: MappedFileQueue
) -> None:
    fill(queue, 1)
    queue.close()
    files.write(LOG / file_name(SIZE), b"short")
    assert queue.load(wrong_size="skip") == [LOG / file_name(SIZE)]
    assert len(queue) == 1


def test_a_load_that_fails_half_way_closes_what_it_opened(
    files: SimulatedFiles, queue: MappedFileQueue
) -> None:
    fill(queue, 3)
    queue.close()
    files.fail_next("open", Fault.EIO, name=file_name(SIZE))
    with pytest.raises(StoreIOError):
        queue.load()
    assert len(queue) == 0
    queue.load()
    assert len(queue) == 3


# -- several directories ---------------------------------------------------------------------

A, B, C = (ROOT / name for name in "abc")


def test_files_go_round_the_directories_by_number(files: SimulatedFiles) -> None:
    queue = make(files, Placement([B, A]))
    fill(queue, 4)
    assert names(files, A) == [file_name(0), file_name(2 * SIZE)]
    assert names(files, B) == [file_name(SIZE), file_name(3 * SIZE)]
    queue.close()
    queue.load()
    assert [file.first_offset for file in queue.snapshot()] == [0, SIZE, 2 * SIZE, 3 * SIZE]


def test_full_and_read_only_directories_get_no_new_file() -> None:
    placement = Placement([A, B, C], read_only=[B])
    assert placement.directories == (A, B, C)
    assert [placement.directory_for(number) for number in range(4)] == [A, C, A, C]
    placement.full = frozenset({A})
    assert [placement.directory_for(number) for number in range(3)] == [C, C, C]
    placement.full = frozenset({A, C})
    assert [placement.directory_for(number) for number in range(3)] == [A, C, A]


def test_some_directory_must_be_writable() -> None:
    with pytest.raises(StoreError, match="no directory"):
        Placement([A], read_only=[A])


def test_a_read_only_directory_is_loaded_too(files: SimulatedFiles) -> None:
    old = make(files, A)
    fill(old, 1)
    old.close()
    queue = make(files, Placement([B], read_only=[A]))
    queue.load()
    fill(queue, 1)
    assert [file.path.parent for file in queue.snapshot()] == [A, B]


def test_a_directory_that_really_is_read_only_is_mapped_for_reading(
    files: SimulatedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make(files, A)
    fill(old, 1)
    old.close()
    really_open = files.open

    def refuse(path: Path, *, read_only: bool = False) -> MappedRegion:
        if not read_only:
            raise StoreIOError(path, "open", OSError(errno.EROFS, "read-only"))
        return really_open(path, read_only=True)

    monkeypatch.setattr(files, "open", refuse)
    queue = make(files, Placement([B], read_only=[A]))
    queue.load()
    assert queue.snapshot()[0].region.read_only
    with pytest.raises(StoreIOError):
        make(files, A).load()


def test_one_offset_in_two_directories_refuses_the_load(files: SimulatedFiles) -> None:
    for directory in (A, B):
        files.make_directory(directory)
        files.write(directory / file_name(0), b"x" * SIZE)
    with pytest.raises(StoreLoadError, match="same offset"):
        make(files, Placement([A, B])).load()


# -- flushing and committing -----------------------------------------------------------------


def test_a_flush_says_whether_something_moved(queue: MappedFileQueue) -> None:
    file = queue.last_for_append(0)
    assert not queue.flush()
    file.append(b"abc")
    file.store_timestamp = 77
    assert not queue.flush(least_pages=1)
    assert (queue.flushed_where, queue.store_timestamp) == (0, 0)
    assert queue.flush()
    assert (queue.flushed_where, queue.store_timestamp) == (3, 77)
    assert not queue.flush()


def test_a_flush_takes_one_file_at_a_time(queue: MappedFileQueue) -> None:
    fill(queue, 2)
    queue.last_for_append(0).append(b"abc")
    where = []
    while queue.flush():
        where.append(queue.flushed_where)
    assert where == [SIZE, 2 * SIZE, 2 * SIZE + 3]


def test_a_queue_that_begins_late_is_flushed_from_its_first_file(queue: MappedFileQueue) -> None:
    queue.last_for_append(7 * SIZE).append(b"abc")
    assert queue.flush()
    assert queue.flushed_where == 7 * SIZE + 3


def test_a_flush_goes_on_after_files_that_were_deleted(queue: MappedFileQueue) -> None:
    fill(queue, 3)
    assert queue.delete_expired_by_time(0, forced_after_ms=0, limit=2) == 2
    assert queue.flush()
    assert queue.flushed_where == 3 * SIZE


def test_a_failed_flush_moves_nothing(files: SimulatedFiles, queue: MappedFileQueue) -> None:
    queue.last_for_append(0).append(b"abc")
    files.fail_next("region_sync", Fault.EIO)
    with pytest.raises(FlushFailedError):
        queue.flush()
    assert queue.flushed_where == 0


def test_files_with_a_write_buffer_are_committed_before_they_are_flushed(
    files: SimulatedFiles,
) -> None:
    pool = TransientPool(2, SIZE)
    queue = MappedFileQueue(LOG, SIZE, files=files, clock=files.clock, pool=pool)
    for size in (SIZE, 10):
        file = queue.last_for_append(0)
        assert file.write_buffer is not None
        file.write_buffer[:size] = b"x" * size
        file.wrote = size
    assert (queue.max_wrote, queue.max_offset) == (SIZE + 10, SIZE)
    assert not queue.flush()
    where = []
    while queue.commit():
        where.append(queue.committed_where)
    assert where == [SIZE, SIZE + 10]
    assert (queue.max_offset, pool.free_count) == (SIZE + 10, 1)
    while queue.flush():
        pass
    assert queue.flushed_where == SIZE + 10


def test_new_files_come_from_the_allocator(files: SimulatedFiles) -> None:
    allocator = Allocator(files=files, clock=files.clock, by_hand=True, wait_ms=0)
    queue = MappedFileQueue(LOG, SIZE, files=files, clock=files.clock, allocator=allocator)
    with pytest.raises(StoreError, match="in time"):
        queue.last_for_append(0)
    while allocator.allocate_once():
        pass
    fill(queue, 2)
    allocator.allocate_once()
    assert names(files) == [file_name(0), file_name(SIZE), file_name(2 * SIZE)]
    allocator.close()
    assert names(files) == [file_name(0), file_name(SIZE)]


# -- cutting ---------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 1, PAGE_SIZE, SIZE - 1, SIZE, SIZE + 100, 3 * SIZE - 1])
def test_a_cut_ends_the_queue_there(
    files: SimulatedFiles, queue: MappedFileQueue, offset: int
) -> None:
    fill(queue, 3)
    queue.truncate(offset, zero=False)
    assert len(queue) == offset // SIZE + 1  # A file that begins at the cut stays, empty.
    assert queue.max_wrote == queue.max_offset == offset
    assert names(files) == [file.path.name for file in queue.snapshot()]
    last = queue.last
    assert last is not None
    assert last.flushed == last.committed == last.wrote


def test_a_cut_below_the_first_file_removes_all(
    files: SimulatedFiles, queue: MappedFileQueue
) -> None:
    queue.last_for_append(5 * SIZE)
    fill(queue, 2)
    queue.truncate(SIZE, zero=True)
    assert len(queue) == 0
    assert names(files) == []


def test_a_cut_beyond_the_end_changes_nothing(queue: MappedFileQueue) -> None:
    fill(queue, 2)
    for offset in (2 * SIZE, 9 * SIZE):
        queue.truncate(offset, zero=True)
    assert queue.max_wrote == 2 * SIZE


@pytest.mark.parametrize("offset", [0, 1, 100, PAGE_SIZE, PAGE_SIZE + 1, SIZE - 1])
def test_bytes_that_were_cut_off_cannot_come_back(
    files: SimulatedFiles, queue: MappedFileQueue, offset: int
) -> None:
    fill(queue, 2)
    while queue.flush():
        pass
    files.sync_directory(LOG)
    files.sync_directory(ROOT)
    queue.truncate(offset, zero=True)
    for image in files.crash_images(Random(1), 10):
        assert image.read(LOG / file_name(0)) == b"x" * offset + bytes(SIZE - offset)
        assert names(image) == [file_name(0)]


def test_zeroing_leaves_holes_alone(tmp_path: Path) -> None:
    files = LocalFiles()
    size = 1 << 20
    queue = MappedFileQueue(tmp_path, size, files=files, clock=ManualClock(), reserve=False)
    file = queue.last_for_append(0)
    for position in (0, 500_000, size - 1):
        file.region.reserve(position, position + 1)
        file.view[position] = 1
    blocks = (tmp_path / file_name(0)).stat().st_blocks
    file.wrote = size
    queue.truncate(10, zero=True)
    assert bytes(file.view) == b"\1" + bytes(size - 1)
    assert (tmp_path / file_name(0)).stat().st_blocks == blocks
    queue.close()


def test_later_files_go_from_the_last_one_down(
    files: SimulatedFiles, queue: MappedFileQueue
) -> None:
    fill(queue, 4)
    queue.truncate(10, zero=True)
    removed = [call.path.name for call in files.calls if call.operation == "remove"]
    assert removed == [file_name(3 * SIZE), file_name(2 * SIZE), file_name(SIZE)]


def test_the_last_file_can_be_removed(files: SimulatedFiles, queue: MappedFileQueue) -> None:
    fill(queue, 2)
    queue.delete_last()
    assert (queue.max_wrote, names(files)) == (SIZE, [file_name(0)])
    queue.delete_last()
    queue.delete_last()
    assert (queue.max_wrote, names(files)) == (0, [])


def test_a_destroyed_queue_leaves_no_directory(
    files: SimulatedFiles, queue: MappedFileQueue
) -> None:
    fill(queue, 2)
    queue.flush()
    queue.destroy()
    assert (len(queue), queue.flushed_where, queue.committed_where) == (0, 0, 0)
    assert not files.exists(LOG)
    queue.destroy()
    fill(queue, 1)
    assert names(files) == [file_name(0)]


def test_a_file_that_cannot_be_removed_stays_in_the_queue(
    files: SimulatedFiles, queue: MappedFileQueue
) -> None:
    fill(queue, 2)
    files.fail_next("remove", Fault.EIO)
    with pytest.raises(StoreIOError):
        queue.delete_last()
    assert len(queue) == len(names(files)) == 2
    queue.delete_last()
    assert len(queue) == len(names(files)) == 1


# -- expiring --------------------------------------------------------------------------------


def aged(queue: MappedFileQueue, clock: ManualClock, count: int) -> list[MappedFile]:
    """Fill files that were modified an hour after one another."""
    made = []
    for _ in range(count):
        made.append(fill_one(queue))
        while queue.flush():
            pass
        clock.advance(HOUR_MS)
    return made


def test_files_expire_by_age_but_never_the_last(clock: ManualClock, queue: MappedFileQueue) -> None:
    made = aged(queue, clock, 4)
    assert queue.delete_expired_by_time(5 * HOUR_MS, forced_after_ms=0) == 0
    assert queue.delete_expired_by_time(3 * HOUR_MS, forced_after_ms=0) == 2
    assert queue.snapshot() == made[2:]
    clock.advance(100 * HOUR_MS)
    assert queue.delete_expired_by_time(3 * HOUR_MS, forced_after_ms=0) == 1
    assert queue.snapshot() == made[3:]
    assert queue.min_offset == 3 * SIZE


def test_a_young_file_protects_the_older_looking_ones_after_it(
    files: SimulatedFiles, clock: ManualClock, queue: MappedFileQueue
) -> None:
    first, *_ = aged(queue, clock, 4)
    files.sync(first.path)
    first.region.write(0, b"touched")
    assert queue.delete_expired_by_time(HOUR_MS, forced_after_ms=0) == 0


def test_at_most_ten_files_go_in_one_run(queue: MappedFileQueue) -> None:
    fill(queue, 15)
    arguments = {"expired_ms": 72 * HOUR_MS, "forced_after_ms": 0}
    assert queue.delete_expired_by_time(**arguments, immediate=True, limit=1) == 1
    assert queue.delete_expired_by_time(**arguments, immediate=True, limit=100) == 10
    assert queue.delete_expired_by_time(**arguments, immediate=True) == 3
    assert queue.delete_expired_by_time(**arguments, immediate=True) == 0
    assert queue.max_wrote == 15 * SIZE


def test_a_file_that_is_read_ends_the_run_and_is_retried(
    files: SimulatedFiles, clock: ManualClock, queue: MappedFileQueue
) -> None:
    first, *_ = fill(queue, 4)
    found = first.select(0)
    assert found is not None
    assert queue.delete_expired_by_time(0, forced_after_ms=1000) == 0
    assert queue.first is first
    assert not queue.retry_delete_first(forced_after_ms=1000)
    clock.advance(1000)
    assert queue.retry_delete_first(forced_after_ms=1000)
    assert queue.min_offset == SIZE
    assert file_name(0) not in names(files)
    assert not queue.retry_delete_first(forced_after_ms=1000)
    assert bytes(found.view[:1]) == b"x"
    found.release()


def test_a_removal_that_fails_ends_the_run_and_is_retried(
    files: SimulatedFiles, queue: MappedFileQueue, caplog: pytest.LogCaptureFixture
) -> None:
    fill(queue, 3)
    files.fail_next("remove", Fault.EIO)
    with caplog.at_level(logging.ERROR):
        assert queue.delete_expired_by_time(0, forced_after_ms=0) == 0
    assert "could not be removed" in caplog.text
    assert queue.retry_delete_first(forced_after_ms=0)
    assert names(files) == [file_name(SIZE), file_name(2 * SIZE)]


def test_consume_queue_files_expire_with_the_records_they_lead_to(files: SimulatedFiles) -> None:
    units = 200
    queue = MappedFileQueue(LOG, 20 * units, files=files, clock=files.clock)
    for number in range(4 * units):
        unit = struct.pack(">qiq", number * 100, 100, 0)
        assert queue.last_for_append(0).append(unit)
    assert queue.delete_expired_by_offset(0) == 0
    assert queue.delete_expired_by_offset((units - 1) * 100) == 0
    assert queue.delete_expired_by_offset((units - 1) * 100 + 1) == 1
    assert queue.delete_expired_by_offset(1 << 40, unit_size=20) == 2
    assert queue.min_offset == 3 * 20 * units


def test_a_consume_queue_file_that_hangs_is_tried_again(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    queue = MappedFileQueue(LOG, 4000, files=files, clock=clock)
    first = fill(queue, 2, b"\0")[0]
    assert first.hold()
    assert queue.delete_expired_by_offset(1) == 0
    clock.advance(60_000)
    assert queue.delete_expired_by_offset(1) == 1
    first.release()
    assert first.closed


def test_the_first_file_goes_unless_it_is_the_only_one(queue: MappedFileQueue) -> None:
    assert not queue.delete_first()
    fill(queue, 2)
    assert queue.delete_first()
    assert not queue.delete_first()
    assert queue.min_offset == SIZE


def test_files_are_deleted_while_others_are_made(tmp_path: Path) -> None:
    queue = MappedFileQueue(tmp_path, PAGE_SIZE, files=LocalFiles(), clock=ManualClock())
    made = threading.Event()
    deleted = 0

    def delete() -> None:
        nonlocal deleted
        while not made.is_set() or len(queue) > 1:
            deleted += queue.delete_expired_by_time(0, forced_after_ms=0, immediate=True)

    thread = threading.Thread(target=delete)
    thread.start()
    for _ in range(200):
        file = queue.last_for_append(0)
        assert file.append(b"x" * PAGE_SIZE)
    made.set()
    thread.join()
    assert deleted == 199
    assert queue.max_wrote == 200 * PAGE_SIZE
    assert [path.name for path in tmp_path.iterdir()] == [file_name(199 * PAGE_SIZE)]
    queue.close()
