import contextlib
import gc
import logging
import re
import threading
from pathlib import Path

import pytest

from flintmq.store.errors import DiskFullError, FlushFailedError, StoreIOError
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.mapped_file import DETACHED_SIZE_MIN, PAGE_SIZE, MappedFile
from flintmq.store.files.transient_pool import TransientPool
from flintmq.testing import ROOT, Fault, SimulatedFiles
from flintmq.testing.simulated_region import SimulatedRegion

SIZE = 8 * PAGE_SIZE
FIRST_OFFSET = 5 * SIZE
PATH = ROOT / f"{FIRST_OFFSET:020d}"


def make(files: SimulatedFiles, pool: TransientPool | None = None) -> MappedFile:
    return MappedFile(files.create(PATH, SIZE), FIRST_OFFSET, files=files, pool=pool)


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


@pytest.fixture
def file(files: SimulatedFiles) -> MappedFile:
    return make(files)


def test_a_new_file_is_empty_and_a_loaded_one_counts_as_full(files: SimulatedFiles) -> None:
    new = make(files)
    assert (new.wrote, new.committed, new.flushed, new.readable, new.is_full) == (0, 0, 0, 0, False)
    assert (new.first_offset, new.size, new.end_offset) == (FIRST_OFFSET, SIZE, FIRST_OFFSET + SIZE)
    assert new.path == PATH
    loaded = MappedFile(files.open(PATH), FIRST_OFFSET, files=files, loaded=True)
    assert (loaded.wrote, loaded.committed, loaded.flushed) == (SIZE, SIZE, SIZE)
    assert loaded.is_full


def test_bytes_are_appended_until_they_do_not_fit(file: MappedFile) -> None:
    assert file.append(b"a" * 100)
    assert file.append(memoryview(b"b" * (SIZE - 101)))
    assert not file.append(b"cc")
    assert file.wrote == SIZE - 1
    assert file.append(bytearray(b"c"))
    assert file.is_full
    assert not file.append(b"d")
    assert file.append(b"")
    assert bytes(file.view[98:102]) == b"aabb"
    assert bytes(file.view[-2:]) == b"bc"


def test_only_readable_bytes_are_selected(file: MappedFile) -> None:
    assert file.select(0) is None
    file.append(b"0123456789")
    with contextlib.ExitStack() as slices:
        for position, size, expected in [
            (0, None, b"0123456789"),
            (7, None, b"789"),
            (2, 3, b"234"),
            (10, 0, b""),
        ]:
            found = file.select(position, size)
            assert found is not None
            slices.enter_context(found)
            assert bytes(found.view) == expected
            assert (found.start, found.size) == (FIRST_OFFSET + position, len(expected))
    for position, size in [(10, None), (11, None), (-1, None), (-1, 2), (8, 3), (0, -1)]:
        assert file.select(position, size) is None


def test_a_slice_is_released_once(file: MappedFile) -> None:
    file.append(b"abc")
    found = file.select(0)
    assert found is not None
    found.release()
    found.release()
    with pytest.raises(ValueError, match="released"):
        bytes(found.view)
    file.shutdown(0)
    assert file.closed


@pytest.mark.parametrize(
    ("flushed", "wrote", "least_pages", "able"),
    [
        (0, 0, 0, False),
        (0, 1, 0, True),
        (0, 1, 1, False),
        (0, PAGE_SIZE - 1, 1, False),
        (PAGE_SIZE - 1, PAGE_SIZE, 1, True),
        (0, 4 * PAGE_SIZE - 1, 4, False),
        (0, 4 * PAGE_SIZE, 4, True),
        (1, 4 * PAGE_SIZE, 4, True),
        (SIZE - 1, SIZE, 4, True),
        (SIZE, SIZE, 0, False),
        (SIZE, SIZE, 4, False),
    ],
)
def test_a_flush_waits_for_enough_pages_unless_the_file_is_full(
    files: SimulatedFiles, flushed: int, wrote: int, least_pages: int, able: bool
) -> None:
    file = make(files)
    file.set_positions(flushed)
    file.wrote = wrote
    assert file.able_to_flush(least_pages) is able
    assert file.able_to_commit(least_pages) is able
    assert file.flush(least_pages) == (wrote if able else flushed)
    assert files.count("region_sync") == int(able)


def test_much_that_was_written_is_let_go_before_it_is_synced(files: SimulatedFiles) -> None:
    size = 4 * DETACHED_SIZE_MIN
    file = MappedFile(files.create(PATH, size), FIRST_OFFSET, files=files)
    assert isinstance(file.region, SimulatedRegion)
    for count in (1, DETACHED_SIZE_MIN, DETACHED_SIZE_MIN - 1, 2 * DETACHED_SIZE_MIN):
        file.append(b"a" * count)
        file.flush()
    assert file.is_full
    assert file.region.detached == [
        (1, DETACHED_SIZE_MIN),
        (2 * DETACHED_SIZE_MIN, 2 * DETACHED_SIZE_MIN),
    ]


def test_what_is_appended_during_a_sync_is_not_taken_for_flushed(
    file: MappedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.append(b"before")

    def sync() -> None:
        file.append(b"meanwhile")

    monkeypatch.setattr(file.region, "sync", sync)
    assert file.flush() == 6
    assert (file.flushed, file.wrote) == (6, 15)


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_a_failed_sync_flushes_nothing(
    files: SimulatedFiles, file: MappedFile, fault: Fault
) -> None:
    file.append(b"lost")
    files.fail_next("region_sync", fault)
    with pytest.raises(FlushFailedError) as caught:
        file.flush()
    assert caught.value.path == PATH
    assert isinstance(caught.value.cause, StoreIOError | DiskFullError)
    assert file.flushed == 0
    file.shutdown(0)
    assert file.closed


def test_a_file_being_deleted_does_not_hold_the_flush_up(
    files: SimulatedFiles, file: MappedFile
) -> None:
    file.append(b"gone")
    file.shutdown(0)
    assert file.flush() == 4
    assert files.count("region_sync") == 0


# -- write buffers ---------------------------------------------------------------------------


def test_bytes_in_a_write_buffer_become_readable_when_they_are_committed(
    files: SimulatedFiles,
) -> None:
    pool = TransientPool(1, SIZE)
    file = make(files, pool)
    assert file.write_buffer is not None
    file.write_buffer[:5] = b"hello"
    file.wrote = 5
    assert (file.readable, file.select(0), file.flush()) == (0, None, 0)
    assert file.commit(least_pages=1) == 0
    assert file.commit() == 5
    assert bytes(file.view[:6]) == b"hello\0"
    assert (file.readable, file.flush()) == (5, 5)
    assert pool.free_count == 0


def test_a_full_file_returns_its_buffer(files: SimulatedFiles) -> None:
    pool = TransientPool(1, SIZE)
    file = make(files, pool)
    assert file.write_buffer is not None
    file.write_buffer[:] = b"x" * SIZE
    file.wrote = SIZE
    assert file.commit(least_pages=4) == SIZE
    assert file.write_buffer is None
    assert (pool.free_count, file.readable) == (1, SIZE)
    assert bytes(file.view) == b"x" * SIZE
    assert file.commit() == SIZE


def test_without_a_free_buffer_a_file_is_written_directly(files: SimulatedFiles) -> None:
    pool = TransientPool(1, SIZE)
    assert pool.borrow() is not None
    file = make(files, pool)
    assert file.write_buffer is None
    file.append(b"abc")
    assert (file.readable, file.commit()) == (3, 3)


def test_a_write_that_stops_half_way_commits_nothing(files: SimulatedFiles) -> None:
    file = make(files, TransientPool(1, SIZE))
    assert file.write_buffer is not None
    file.write_buffer[:4] = b"abcd"
    file.wrote = 4
    files.fail_next("region_write", Fault.SHORT_WRITE)
    with pytest.raises(DiskFullError):
        file.commit()
    assert (file.committed, file.readable) == (0, 0)
    assert file.commit() == 4
    assert bytes(file.view[:4]) == b"abcd"


def test_a_closed_file_returns_its_buffer(files: SimulatedFiles) -> None:
    pool = TransientPool(1, SIZE)
    file = make(files, pool)
    file.shutdown(0)
    assert (pool.free_count, file.write_buffer) == (1, None)


# -- lifetime --------------------------------------------------------------------------------


def test_the_last_holder_closes_the_mapping(file: MappedFile) -> None:
    assert file.hold()
    file.shutdown(0)
    assert not file.available
    assert not file.closed
    assert not file.hold()
    assert file.select(0, 0) is None
    file.shutdown(1)
    file.release()
    assert file.closed


def test_a_file_nobody_reads_is_destroyed_at_once(files: SimulatedFiles, file: MappedFile) -> None:
    assert file.destroy(0, forced_after_ms=1000)
    assert file.closed
    assert not files.exists(PATH)
    assert file.destroy(0, forced_after_ms=1000)


def test_a_file_that_is_read_stays_until_its_reader_is_done(
    files: SimulatedFiles, file: MappedFile
) -> None:
    file.append(b"abc")
    found = file.select(0)
    assert found is not None
    assert not file.destroy(5000, forced_after_ms=1000)
    assert not file.destroy(5999, forced_after_ms=1000)
    assert files.exists(PATH)
    found.release()
    assert file.destroy(5999, forced_after_ms=1000)
    assert not files.exists(PATH)


def test_a_reader_who_takes_too_long_keeps_the_bytes_but_not_the_name(
    files: SimulatedFiles, file: MappedFile, caplog: pytest.LogCaptureFixture
) -> None:
    file.append(b"abc")
    found = file.select(0)
    assert found is not None
    assert not file.destroy(5000, forced_after_ms=1000)
    assert file.destroy(6000, forced_after_ms=1000)
    assert "while it is read" in caplog.text
    assert not files.exists(PATH)
    assert not file.closed
    assert bytes(found.view) == b"abc"
    found.release()
    assert file.closed


def test_a_removal_that_fails_can_be_tried_again(files: SimulatedFiles, file: MappedFile) -> None:
    files.fail_next("remove", Fault.EIO)
    with pytest.raises(StoreIOError):
        file.destroy(0)
    assert files.exists(PATH)
    assert file.destroy(0)
    assert not files.exists(PATH)


def test_a_view_that_outlives_its_slice_is_reported_not_torn_down(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = LocalFiles()
    file = MappedFile(files.create(tmp_path / "file", SIZE), 0, files=files)
    file.append(b"abc")
    with file.select(0) or contextlib.nullcontext() as found:
        assert found is not None
        stolen = found.view[1:]
    with caplog.at_level(logging.WARNING):
        assert file.destroy(0)
    assert "closed while it is still read" in caplog.text
    assert bytes(stolen) == b"bc"
    stolen.release()
    gc.collect()
    maps = Path("/proc/self/maps").read_text()
    assert str(tmp_path / "file") not in maps


def test_a_slice_released_under_a_reader_is_reported(
    file: MappedFile, caplog: pytest.LogCaptureFixture
) -> None:
    file.append(b"abc")
    found = file.select(0)
    assert found is not None
    reading = re.finditer(b".", found.view)
    next(reading)
    found.release()
    assert "slice released while it is read" in caplog.text
    assert [match.group() for match in reading] == [b"b", b"c"]


def test_holds_and_releases_of_many_threads_add_up(tmp_path: Path) -> None:
    files = LocalFiles()
    file = MappedFile(files.create(tmp_path / "file", SIZE), 0, files=files)
    file.append(b"x" * 1000)
    together = threading.Barrier(5)
    wrong: list[bytes] = []

    def read() -> None:
        together.wait()
        while (found := file.select(500, 10)) is not None:
            with found:
                content = bytes(found.view)
            if content != b"x" * 10:
                wrong.append(content)

    def flush() -> None:
        together.wait()
        while file.available:
            file.flush()

    threads = [threading.Thread(target=target) for target in (read, read, read, flush)]
    for thread in threads:
        thread.start()
    together.wait()
    for _ in range(2000):
        file.append(b"y")
    file.shutdown(0)
    for thread in threads:
        thread.join()
    assert file.closed
    assert not wrong
    assert files.size(tmp_path / "file") == SIZE
