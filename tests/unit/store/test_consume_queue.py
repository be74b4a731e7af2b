from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.format.stored.consume_queue import PRE_BLANK, PRE_BLANK_SIZE, UNIT, UNIT_SIZE
from flintmq.store.errors import CorruptStoreError, DiskFullError
from flintmq.store.views.consume_queue import WRITTEN_SIZE_MIN, ConsumeQueue
from flintmq.testing import ROOT, Fault, SimulatedFiles
from tests.kits.store.spec_vectors import put_vectors
from tests.kits.store.store_kit import open_store

DIRECTORY = ROOT / "consumequeue" / "T" / "0"
FILE_SIZE = 400
RECORD_SIZE = 100


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


@pytest.fixture
def queue(files: SimulatedFiles) -> ConsumeQueue:
    return make(files)


def make(files: SimulatedFiles, file_size: int = FILE_SIZE) -> ConsumeQueue:
    return ConsumeQueue("T", 0, DIRECTORY, file_size=file_size, files=files, clock=files.clock)


def load(files: SimulatedFiles) -> ConsumeQueue:
    queue = make(files)
    queue.files.load()
    queue.refresh()
    return queue


def fill(queue: ConsumeQueue, count: int, first: int = 0) -> None:
    """Append units that lead to records of RECORD_SIZE bytes, one after the other."""
    for number in range(first, first + count):
        queue.append(number * RECORD_SIZE, RECORD_SIZE, number, number)


def believe(below: int = 1 << 60) -> Callable[[int, int, int], bool]:
    """Return a test that takes the units of ``fill`` for true, up to a queue offset."""
    return lambda number, offset, size: (
        number < below and offset == number * RECORD_SIZE and size == RECORD_SIZE
    )


# -- appending -------------------------------------------------------------------------------


def test_a_queue_has_no_file_before_its_first_unit(
    queue: ConsumeQueue, files: SimulatedFiles
) -> None:
    assert queue.is_empty
    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == (0, 0, -1)
    assert queue.unit_at(0) is None
    assert queue.units_from(0) is None
    assert list(queue.units()) == []
    assert files.list(DIRECTORY) == []


def test_units_are_those_of_the_reference_store() -> None:
    store = open_store()
    put_vectors(store)
    store.dispatch()
    units = {
        (queue.topic, queue.queue_id): [
            bytes(queue.files.snapshot()[0].view[at : at + UNIT_SIZE]).hex()
            for at in range(0, queue.max_offset * UNIT_SIZE, UNIT_SIZE)
        ]
        for queue in store.queues
    }
    assert units == {
        ("TopicTest", 3): [
            "0000000000000000000000b0000000000027a807",
            "00000000000000b000000087000000000027a808",
            "000000000000013700000086000000000027a807",
            "00000000000001bd0000007c0000000000000000",
        ],
        ("SCHEDULE_TOPIC_XXXX", 2): ["0000000000000239000000a60000018bcfe590d8"],
    }


def test_a_unit_goes_where_its_offset_says(queue: ConsumeQueue) -> None:
    fill(queue, 45)
    assert queue.max_offset == 45
    assert queue.max_physical_offset == 4500
    assert [file.path.name for file in queue.files.snapshot()] == [
        f"{start:020d}" for start in (0, 400, 800)
    ]
    for number in range(45):
        assert queue.unit_at(number) == (number * 100, 100, number)
    assert queue.unit_at(45) is None
    assert queue.unit_at(-1) is None


@pytest.mark.parametrize("count", [3, 20])
def test_a_unit_that_is_there_already_is_left_alone(queue: ConsumeQueue, count: int) -> None:
    fill(queue, count)
    queue.append(77, 77, 777, 0)
    queue.append(777, 777, 777, count - 1)
    assert (queue.unit_at(0), queue.max_offset) == ((0, 100, 0), count)
    assert queue.unit_at(count - 1) == ((count - 1) * 100, 100, count - 1)


@pytest.mark.parametrize("count", [3, 20])
def test_a_unit_that_does_not_follow_is_refused(queue: ConsumeQueue, count: int) -> None:
    """Java appends it where the queue ends, and every later offset is off by one."""
    fill(queue, count)
    with pytest.raises(CorruptStoreError, match="does not follow"):
        queue.append(777, 777, 777, count + 1)
    assert queue.max_offset == count


def test_a_queue_that_begins_late_is_filled_with_blanks(queue: ConsumeQueue) -> None:
    """The vector of the specification: first offset 105, files of 2000 bytes."""
    late = make(SimulatedFiles(), 2000)
    late.append(5000, 100, 7, 105)
    (file,) = late.files.snapshot()
    assert file.path.name == "00000000000000002000"
    assert bytes(file.view[:100]) == PRE_BLANK * 5
    assert PRE_BLANK.hex() == "00000000000000007fffffff0000000000000000"
    assert late.unit_at(105) == (5000, 100, 7)
    assert (late.min_offset, late.max_offset) == (105, 106)
    assert queue.is_empty


def test_a_full_disk_changes_nothing(queue: ConsumeQueue, files: SimulatedFiles) -> None:
    fill(queue, 20)
    for operation in ("create", "reserve"):
        files.fail_next(operation, Fault.ENOSPC)
        with pytest.raises(DiskFullError):
            fill(queue, 1, first=20)
        assert queue.max_offset == 20
    fill(queue, 5, first=20)
    assert queue.max_offset == 25


@pytest.mark.parametrize("count", [1 + WRITTEN_SIZE_MIN // UNIT_SIZE, 1500])
@pytest.mark.parametrize("fault", [Fault.ENOSPC, Fault.SHORT_WRITE])
def test_many_units_at_once_are_all_in_or_none(
    files: SimulatedFiles, count: int, fault: Fault
) -> None:
    queue = make(files, file_size=2 * WRITTEN_SIZE_MIN // UNIT_SIZE * UNIT_SIZE)
    fill(queue, 1)
    units = b"".join(
        UNIT.pack(number * RECORD_SIZE, RECORD_SIZE, number) for number in range(1, count + 1)
    )
    files.fail_next("region_write", fault)
    with pytest.raises(DiskFullError):
        queue.append_many(1, memoryview(units))
    assert (queue.max_offset, queue.max_physical_offset) == (1, RECORD_SIZE)
    (file,) = queue.files.snapshot()
    assert not any(file.view[UNIT_SIZE:])
    assert queue.append_many(1, memoryview(units)) == count
    assert file.view[UNIT_SIZE : UNIT_SIZE + len(units)] == units
    assert (queue.max_offset, queue.max_physical_offset) == (count + 1, (count + 1) * RECORD_SIZE)


def test_a_queue_that_begins_late_begins_late_after_a_full_disk_too(
    queue: ConsumeQueue, files: SimulatedFiles
) -> None:
    for operation in ("create", "reserve"):
        files.fail_next(operation, Fault.ENOSPC)
        with pytest.raises(DiskFullError):
            queue.append(0, 100, 0, 7)
    queue.append(0, 100, 0, 7)
    assert (queue.min_offset, queue.max_offset) == (7, 8)
    assert queue.unit_at(6) == (0, PRE_BLANK_SIZE, 0)


def test_lost_records_leave_blank_units(queue: ConsumeQueue) -> None:
    fill(queue, 3)
    queue.fill_blank(25)
    fill(queue, 1, first=25)
    assert [unit[2] for unit in queue.units()] == [100] * 3 + [PRE_BLANK_SIZE] * 22 + [100]


# -- bounds ----------------------------------------------------------------------------------


def test_the_next_file_begins_at_a_multiple(queue: ConsumeQueue) -> None:
    assert [queue.roll_next_file(offset) for offset in (0, 19, 20, 25)] == [20, 20, 40, 40]


@pytest.mark.parametrize(
    ("log_min", "least"), [(0, 0), (100, 1), (150, 2), (1900, 19), (2000, 20), (2500, 25)]
)
def test_the_least_offset_is_the_first_whose_record_is_kept(
    queue: ConsumeQueue, log_min: int, least: int
) -> None:
    fill(queue, 30)
    queue.correct_min_offset(log_min)
    assert queue.min_offset == least


def test_without_any_record_left_the_least_offset_stays(queue: ConsumeQueue) -> None:
    fill(queue, 5)
    queue.correct_min_offset(300)
    queue.correct_min_offset(1 << 40)
    assert (queue.min_offset, queue.max_offset) == (3, 5)


def test_blank_units_are_never_the_least(queue: ConsumeQueue) -> None:
    queue.append(700, 100, 0, 7)
    queue.correct_min_offset(0)
    assert queue.min_offset == 7


@given(
    kept=st.lists(st.booleans(), min_size=1, max_size=70),
    log_min=st.integers(-50, 71 * RECORD_SIZE),
)
def test_holes_within_a_queue_do_not_hide_what_is_before_them(
    kept: list[bool], log_min: int
) -> None:
    queue = make(SimulatedFiles())
    units = [number for number, is_kept in enumerate(kept) if is_kept]
    for number in units:
        queue.fill_blank(number)
        fill(queue, 1, number)
    queue.fill_blank(len(kept))
    expected = [number for number in units if number * RECORD_SIZE >= log_min]
    queue.correct_min_offset(log_min)
    if expected:
        assert queue.min_offset == expected[0]


def test_expired_files_are_deleted_but_never_the_last(queue: ConsumeQueue) -> None:
    fill(queue, 50)
    assert queue.delete_expired(2100) == 1
    assert queue.delete_expired(1 << 40) == 1
    assert [file.first_offset for file in queue.files.snapshot()] == [800]
    assert queue.max_offset == 50
    assert queue.unit_at(10) is None


def test_units_are_read_from_one_file_at_a_time(queue: ConsumeQueue) -> None:
    fill(queue, 25)
    found = queue.units_from(15)
    assert found is not None
    file, position, end = found
    assert (position, end) == (300, 400)
    file.release()
    assert queue.units_from(25) is None
    queue.correct_min_offset(500)
    assert queue.units_from(4) is None


# -- cutting ---------------------------------------------------------------------------------


def test_the_end_is_found_behind_the_last_true_unit(files: SimulatedFiles) -> None:
    fill(make(files), 25)
    queue = load(files)
    assert queue.max_offset == 40, "a file that was just loaded counts as full"
    assert queue.find_end(1 << 40, believe()) == 25
    assert queue.find_end(1000, believe()) == 10
    assert queue.find_end(1 << 40, believe(below=22)) == 22
    assert queue.find_end(1 << 40, believe(below=20)) == 20
    assert queue.find_end(1 << 40, believe(below=0)) == 0
    assert queue.find_end(0, believe()) == 0


def test_a_torn_unit_is_no_end(files: SimulatedFiles) -> None:
    """Its offset is zero, and zero may lie below all that the log still has."""
    fill(make(files), 10)
    queue = load(files)
    file = queue.files.first
    assert file is not None
    file.view[10 * UNIT_SIZE + 8 : 10 * UNIT_SIZE + 12] = b"\0\0\0\x64"
    assert queue.find_end(1 << 40, lambda number, offset, size: offset < 500) == 5
    assert queue.find_end(1 << 40, lambda number, offset, size: True) == 10


def test_blank_units_at_the_end_keep_their_offsets(files: SimulatedFiles) -> None:
    made = make(files)
    fill(made, 5)
    made.fill_blank(9)
    assert load(files).find_end(1 << 40, believe()) == 9
    assert load(files).find_end(1 << 40, believe(below=4)) == 4


def test_a_file_that_ends_with_blank_units_is_kept_while_a_record_of_it_is(
    files: SimulatedFiles,
) -> None:
    made = make(files)
    fill(made, 5)
    made.fill_blank(50)
    assert made.delete_expired(4 * RECORD_SIZE) == 0
    assert made.delete_expired(5 * RECORD_SIZE) > 0


def test_blank_units_may_go_on_in_the_next_file(files: SimulatedFiles) -> None:
    made = make(files)
    fill(made, 5)
    made.fill_blank(50)
    assert len(made.files.snapshot()) > 1
    assert load(files).find_end(1 << 40, believe()) == 50


def test_a_queue_of_nothing_but_blanks_has_no_end(files: SimulatedFiles) -> None:
    made = make(files)
    made.append(0, 100, 0, 7)
    assert load(files).find_end(1 << 40, believe(below=0)) == 0


@pytest.mark.parametrize("end", [1, 19, 20, 21, 40])
def test_what_is_cut_off_is_zero(files: SimulatedFiles, end: int) -> None:
    fill(make(files), 45)
    queue = load(files)
    assert queue.cut(end) == 45 - end
    assert queue.max_offset == end
    assert queue.max_physical_offset == end * 100
    for file in queue.files.snapshot():
        used = min(max(end * UNIT_SIZE - file.first_offset, 0), FILE_SIZE)
        assert not any(file.view[used:])
    fill(queue, 5, first=end)
    assert [unit[0] for unit in queue.units()] == list(range(end + 5))


def test_a_queue_cut_at_its_start_is_gone(files: SimulatedFiles) -> None:
    fill(make(files), 45)
    queue = load(files)
    assert queue.cut(0) == 45
    assert queue.is_empty
    assert not files.exists(DIRECTORY)
    fill(queue, 1)
    assert queue.max_offset == 1


def test_cutting_an_empty_queue_does_nothing(queue: ConsumeQueue) -> None:
    assert queue.cut(5) == 0


def test_a_closed_queue_is_found_again_on_disk(queue: ConsumeQueue, files: SimulatedFiles) -> None:
    fill(queue, 3)
    queue.close()
    again = load(files)
    assert again.find_end(1 << 40, believe()) == 3
