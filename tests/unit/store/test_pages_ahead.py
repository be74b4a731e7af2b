"""Pages of a log that grows fast are ready before records get there."""

import itertools
from pathlib import Path

import pytest

from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.mapped_file import MappedFile
from flintmq.store.files.mapped_file_queue import MappedFileQueue
from flintmq.store.log.commit_log import CommitLog
from flintmq.store.log.pages_ahead import AHEAD_SIZE, FAST_STEP_S, STEP_SIZE
from flintmq.testing import SimulatedFiles
from flintmq.testing.clock import ManualClock
from flintmq.testing.simulated_region import SimulatedRegion
from tests.kits.store.store_kit import LOG

SIZE = 8 << 20
RECORD = 64 << 10


class GrowingLog:
    """A log, what wakes the thread of its pages, and what was made ready by it."""

    def __init__(self, *, durable_reads: bool = False) -> None:
        self.clock = ManualClock()
        files = SimulatedFiles(clock=self.clock)
        mapped = MappedFileQueue(LOG, SIZE, files=files, clock=self.clock)
        self.log = CommitLog(mapped, durable_reads=durable_reads, clock=self.clock)
        self.woken = 0

    def append(self) -> MappedFile:
        """Append a record, and do the work of the thread if it is woken."""
        file = self.log.room_for(RECORD)
        file.wrote += RECORD
        if self.log.pages.wanted.is_set():
            self.log.pages.wanted.wait(0)
            self.woken += 1
            self.log.pages.step()
        return file

    def prepared(self, file: MappedFile) -> list[tuple[int, int]]:
        assert isinstance(file.region, SimulatedRegion)
        return file.region.prepared

    def fast_from(self, file: MappedFile) -> list[int]:
        assert isinstance(file.region, SimulatedRegion)
        return file.region.fast_from


def test_a_log_that_grows_fast_finds_its_pages_ready() -> None:
    growing = GrowingLog()
    file = growing.append()
    for _ in range((SIZE - STEP_SIZE) // RECORD - 1):
        growing.clock.advance(int(FAST_STEP_S * 1000) * RECORD // STEP_SIZE // 2)
        assert growing.append() is file
        ready_end = max((start + size for start, size in growing.prepared(file)), default=0)
        if file.wrote >= 2 * STEP_SIZE:
            assert file.wrote <= ready_end <= min(file.wrote + AHEAD_SIZE, SIZE)
    # Each page once, in few calls.
    ranges = growing.prepared(file)
    assert all(first + size <= second for (first, size), (second, _) in itertools.pairwise(ranges))
    assert growing.woken <= SIZE // STEP_SIZE + 1
    assert len(growing.fast_from(file)) == 1
    assert growing.fast_from(file)[0] <= ranges[0][0]


def test_the_next_file_is_made_ready_too() -> None:
    growing = GrowingLog()
    first = growing.append()
    while (file := growing.append()) is first:
        pass
    while file.wrote < 2 * STEP_SIZE:
        growing.append()
    assert growing.prepared(file)[0][0] <= 2 * STEP_SIZE


def test_a_log_that_grows_slowly_is_left_alone() -> None:
    growing = GrowingLog()
    file = growing.append()
    for _ in range(SIZE // RECORD // 2):
        growing.clock.advance(int(FAST_STEP_S * 1000) * RECORD // STEP_SIZE * 2)
        growing.append()
    assert growing.woken > 2
    assert (growing.prepared(file), growing.fast_from(file)) == ([], [])


def test_where_every_record_is_synced_nothing_is_written_ahead() -> None:
    growing = GrowingLog(durable_reads=True)
    file = growing.append()
    for _ in range(SIZE // RECORD // 2):
        growing.append()
    assert (growing.prepared(file), growing.fast_from(file)) == ([], [])


def test_a_file_that_is_being_deleted_is_not_touched() -> None:
    growing = GrowingLog()
    file = growing.append()
    growing.log.pages.step()
    file.shutdown(0)
    file.wrote = STEP_SIZE
    assert growing.log.pages.step() == 0


@pytest.mark.parametrize(("start", "size"), [(0, 1), (5000, 100_000), (0, 1 << 30), (7, 0)])
def test_pages_that_are_made_ready_keep_what_they_hold(
    tmp_path: Path, start: int, size: int
) -> None:
    region = LocalFiles().create(tmp_path / "file", 1 << 20)
    content = bytes(range(256)) * 4096
    region.view[:] = content
    region.prepare_pages(start, size)
    assert region.view == content
    region.close()
    region.prepare_pages(start, size)
