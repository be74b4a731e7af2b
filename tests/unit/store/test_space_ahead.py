"""Queues and index files that grow find their next space reserved and its pages ready."""

from pathlib import Path

import pytest

from flintmq.format.stored.consume_queue import UNIT, UNIT_SIZE
from flintmq.format.stored.index_file import ENTRY_SIZE
from flintmq.store.files.interface import MappedRegion
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.views.consume_queue import RESERVE_STEP, ConsumeQueue
from flintmq.store.views.key_index import IndexedMessage, KeyIndex
from flintmq.store.views.key_index_file import GROWING_COUNT, KeyIndexFile
from flintmq.store.views.space_ahead import WAITING_COUNT_MAX, SpaceAhead
from flintmq.testing import ROOT, Fault, SimulatedFiles
from flintmq.testing.clock import ManualClock
from flintmq.testing.simulated_region import SimulatedRegion

RECORD_SIZE = 100
FILE_SIZE = 6 * RECORD_SIZE * 1000
UNITS = FILE_SIZE // UNIT_SIZE
SLOTS, ENTRIES = 1000, 40_000


class Space(SpaceAhead):
    """Counts how often the thread would be woken, and does its work at once."""

    def __init__(self) -> None:
        super().__init__()
        self.woken = 0

    def work(self) -> None:
        """Do what the thread does."""
        if self.wanted.is_set():
            self.wanted.wait(0)
            self.woken += 1
            self.step()


def is_ready(region: MappedRegion, position: int) -> bool:
    assert isinstance(region, SimulatedRegion)
    return any(start <= position < start + size for start, size in region.prepared)


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


@pytest.fixture
def space() -> Space:
    return Space()


def queue_of(files: SimulatedFiles, space: Space) -> ConsumeQueue:
    directory = ROOT / "consumequeue" / "T" / "0"
    return ConsumeQueue(
        "T", 0, directory, file_size=FILE_SIZE, files=files, clock=files.clock, ahead=space
    )


def index_of(files: SimulatedFiles, space: Space) -> KeyIndex:
    return KeyIndex(
        ROOT / "index", slots=SLOTS, entries=ENTRIES, files=files, clock=files.clock, ahead=space
    )


def add_unit(queue: ConsumeQueue, number: int) -> None:
    queue.append(number * RECORD_SIZE, RECORD_SIZE, 0, number)


def add_key(index: KeyIndex, number: int) -> KeyIndexFile:
    index.insert([IndexedMessage("T", [b"k%d" % number], number, 1000)])
    return index.files[-1]


def test_a_queue_that_has_used_up_a_step_finds_the_next_ones_ready(
    files: SimulatedFiles, space: Space
) -> None:
    queue = queue_of(files, space)
    for number in range(2 * UNITS):
        add_unit(queue, number)
        space.work()
        if number == 0:
            assert space.woken == 0, "a queue of a few units takes no more than it needs"
    first, second = (file.region for file in queue.files.snapshot())
    # The second step tells that the queue grows; what follows is ready before it is written.
    assert all(is_ready(first, at) for at in range(2 * RESERVE_STEP, FILE_SIZE, UNIT_SIZE))
    assert all(is_ready(second, at) for at in range(RESERVE_STEP, FILE_SIZE, UNIT_SIZE))
    assert space.woken <= 2 * FILE_SIZE // RESERVE_STEP + 2


def test_an_index_file_with_many_keys_finds_its_slots_and_next_entries_ready(
    files: SimulatedFiles, space: Space
) -> None:
    index = index_of(files, space)
    for number in range(GROWING_COUNT - 2):
        file = add_key(index, number)
        space.work()
    assert space.woken == 0
    for number in range(GROWING_COUNT, ENTRIES // 2):
        file = add_key(index, number)
        space.work()
    assert len(index.files) == 1
    end = file.entry_base + file.count * ENTRY_SIZE
    assert all(is_ready(file.region, at) for at in range(file.entry_base))
    first = file.entry_base + (GROWING_COUNT + 1) * ENTRY_SIZE
    assert all(is_ready(file.region, at) for at in range(first, end))
    assert space.woken <= 4


def test_entries_that_were_there_before_a_start_are_not_written_to(
    files: SimulatedFiles, space: Space
) -> None:
    """All pages of the file were, and were synced again."""
    index = index_of(files, space)
    for number in range(ENTRIES // 2):
        file = add_key(index, number)
    index.close()
    index = index_of(files, space)
    index.load()
    file = add_key(index, ENTRIES)
    space.work()
    first = file.entry_base + file.count * ENTRY_SIZE
    assert is_ready(file.region, 0)
    assert is_ready(file.region, first)
    assert not any(is_ready(file.region, at) for at in range(file.entry_base, first))


def test_what_is_written_by_system_calls_asks_for_no_pages(
    files: SimulatedFiles, space: Space
) -> None:
    """A thread wrote to the pages behind each table of a rebuild, and all was synced again."""
    import numpy as np

    from flintmq.store.recovery.bulk_records import SortedKeys

    queue, index = queue_of(files, space), index_of(files, space)
    add_unit(queue, 0)
    add_key(index, 0)
    for first in range(1, UNITS, 1000):
        numbers = range(first, min(first + 1000, UNITS))
        units = b"".join(UNIT.pack(number * RECORD_SIZE, RECORD_SIZE, 0) for number in numbers)
        assert queue.append_many(first, memoryview(units)) == len(numbers)
        offsets = np.array(numbers, np.int64)
        index.insert_logged(SortedKeys(offsets.astype(np.int32), offsets, offsets))
    space.work()
    assert space.woken == 0


def test_what_is_closed_meanwhile_is_passed_over(files: SimulatedFiles, space: Space) -> None:
    index, queue = index_of(files, space), queue_of(files, space)
    file = add_key(index, 1)
    add_unit(queue, 0)
    tail = queue.files.last
    assert tail is not None
    space.ask(file, 0, 100)
    space.ask(tail, 0, 100)
    index.close()
    queue.close()
    assert space.step() == 0


def test_a_full_disk_is_left_to_whoever_grows(files: SimulatedFiles, space: Space) -> None:
    queue = queue_of(files, space)
    add_unit(queue, 0)
    tail = queue.files.last
    assert tail is not None
    space.ask(tail, FILE_SIZE // 2, FILE_SIZE)
    space.ask(tail, 0, UNIT_SIZE)
    files.fail_next("reserve", Fault.ENOSPC)
    assert space.step() == UNIT_SIZE
    assert not is_ready(tail.region, FILE_SIZE // 2)
    queue.close()


def test_no_more_is_kept_waiting_than_allowed(files: SimulatedFiles, space: Space) -> None:
    queue = queue_of(files, space)
    add_unit(queue, 0)
    tail = queue.files.last
    assert tail is not None
    space.ask(tail, FILE_SIZE, FILE_SIZE + 1)
    assert space.step() == 0, "nothing lies behind the end"
    for _ in range(WAITING_COUNT_MAX + 10):
        space.ask(tail, 0, UNIT_SIZE)
    assert space.step() == WAITING_COUNT_MAX * UNIT_SIZE


def test_a_real_file_is_reserved_once_by_whichever_thread(tmp_path: Path) -> None:
    queue = ConsumeQueue(
        "T", 0, tmp_path / "q", file_size=FILE_SIZE, files=LocalFiles(), clock=ManualClock()
    )
    add_unit(queue, 0)
    tail = queue.files.last
    assert tail is not None
    space = SpaceAhead()
    space.ask(tail, RESERVE_STEP, 4 * RESERVE_STEP)
    assert space.step() == 3 * RESERVE_STEP
    used = tail.path.stat().st_blocks
    tail.region.reserve(RESERVE_STEP, 4 * RESERVE_STEP)
    assert tail.path.stat().st_blocks == used > 0
    assert bytes(tail.view[UNIT_SIZE : 4 * RESERVE_STEP]).count(0) == 4 * RESERVE_STEP - UNIT_SIZE
    queue.close()
