import datetime
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.format.java import key_prefix_hash
from flintmq.format.stored.index_file import HEADER_SIZE, SLOT_SIZE, file_size, key_text_hash
from flintmq.store.append_group.group_keys import GroupKeys
from flintmq.store.errors import DiskFullError, FlushFailedError
from flintmq.store.views.key_index import IndexedMessage, KeyIndex
from flintmq.store.views.key_index_file import STEP_ENTRIES, KeyIndexFile
from flintmq.testing import ROOT, Fault, ManualClock, SimulatedFiles
from tests.kits.store.spec_vectors import put_vectors
from tests.kits.store.store_kit import STORE_MS, new_files, open_store

if TYPE_CHECKING:
    from flintmq.store.recovery.bulk_records import SortedKeys

DIRECTORY = ROOT / "index"
FOREVER = (0, 1 << 62)


@pytest.fixture
def files() -> SimulatedFiles:
    return new_files()


def make(files: SimulatedFiles, slots: int = 13, entries: int = 5) -> KeyIndex:
    return KeyIndex(DIRECTORY, slots=slots, entries=entries, files=files, clock=files.clock)


def load(files: SimulatedFiles, slots: int = 13, entries: int = 5) -> KeyIndex:
    index = make(files, slots, entries)
    assert index.load() == []
    return index


@pytest.fixture
def index(files: SimulatedFiles) -> KeyIndex:
    return make(files)


def one(offset: int, *keys: str, time: int = STORE_MS, topic: str = "T") -> IndexedMessage:
    return IndexedMessage(topic, [key.encode() for key in keys], offset, time)


def header(file: KeyIndexFile) -> tuple[int, int, int, int, int, int]:
    file.write_header()
    return (
        file.begin_time,
        file.end_time,
        file.begin_offset,
        file.end_offset,
        file.slot_count,
        file.count,
    )


def entries_of(index: KeyIndex) -> list[int]:
    """Return the offset of every entry, oldest first."""
    return [file.entry(number)[1] for file in index.files for number in range(1, file.count)]


# -- the vectors of the specification --------------------------------------------------------


def test_the_index_of_the_reference_store() -> None:
    store = open_store(hash_slot_count=5_000_000, index_entry_count=10)
    put_vectors(store)
    store.dispatch()
    assert store.index is not None
    (file,) = store.index.files
    assert file.name == int(
        datetime.datetime.fromtimestamp(STORE_MS / 1000, tz=datetime.UTC)
        .astimezone()
        .strftime("%Y%m%d%H%M%S456")
    )
    assert bytes(file.view[:40]).hex() == (
        "0000018bcfe569c80000018bcfe569c8000000000000000000000000000000000000000300000004"
    )
    for position, number in ((17355600, 1), (10984136, 2), (10984140, 3)):
        assert int.from_bytes(file.view[position : position + 4], "big") == number
    entries = [bytes(file.view[20_000_040 + 20 * e :][:20]).hex() for e in range(1, 5)]
    tail = "00000000000000000000000000000000"
    assert entries == ["2071f3ca" + tail, "0029e6a8" + tail, "0029e6a9" + tail, "00" * 20]


def test_a_roll_as_the_reference_store_does_it() -> None:
    """The first entry of a new file is measured from the end of the file before."""
    clock = ManualClock(STORE_MS)
    index = make(SimulatedFiles(clock=clock), slots=8, entries=4)
    for number in range(6):
        assert index.insert([one(number * 100, f"k{number}", time=clock.now_ms())]) == 1
        clock.advance(5000)
    first, second = index.files
    assert header(first) == (STORE_MS, STORE_MS + 10_000, 0, 200, 3, 4)
    assert [first.entry(number) for number in (1, 2, 3)] == [
        (2539444, 0, 0, 0),
        (2539445, 100, 5, 0),
        (2539446, 200, 10, 0),
    ]
    assert [int.from_bytes(first.view[40 + 4 * slot :][:4], "big") for slot in (4, 5, 6)] == [
        1,
        2,
        3,
    ]
    assert header(second) == (STORE_MS + 15_000, STORE_MS + 25_000, 300, 500, 3, 4)
    assert [second.entry(number) for number in (1, 2, 3)] == [
        (2539447, 300, 5, 0),
        (2539448, 400, 5, 0),
        (2539449, 500, 10, 0),
    ]


# -- inserting -------------------------------------------------------------------------------


def test_an_index_has_no_file_before_its_first_key(index: KeyIndex, files: SimulatedFiles) -> None:
    assert index.insert([]) == 0
    assert (index.end_offset, index.position, index.last_update()) == (-1, (0, 0, 0), (0, 0))
    assert index.query("T", "k", 9, *FOREVER) == []
    assert files.list(DIRECTORY) == []
    assert index.sync() == 0


def test_a_message_below_the_end_is_already_in(index: KeyIndex) -> None:
    assert index.insert([one(100, "a"), one(200, "b")]) == 2
    assert index.insert([one(100, "a"), one(200, "b"), one(300, "c")]) == 3
    assert entries_of(index) == [100, 200, 300]


def test_the_keys_of_a_message_may_go_on_in_the_next_file(index: KeyIndex) -> None:
    index.insert([one(0, "a", "b", "c"), one(100, "d", "e", "f")])
    assert [file.count for file in index.files] == [5, 3]
    assert entries_of(index) == [0, 0, 0, 100, 100, 100]
    assert index.query("T", "f", 9, *FOREVER) == [100]


def test_two_files_of_one_millisecond_have_ascending_names(index: KeyIndex) -> None:
    for number in range(20):
        index.insert([one(number, f"k{number}")])
    names = [file.name for file in index.files]
    assert names == list(range(names[0], names[0] + 5))


def test_a_clock_that_was_set_back_keeps_the_names_ascending() -> None:
    clock = ManualClock(STORE_MS)
    index = make(SimulatedFiles(clock=clock))
    index.insert([one(number, "k") for number in range(4)])
    clock.set(STORE_MS - 3_600_000)
    index.insert([one(9, "k", time=STORE_MS - 3_600_000)])
    first, second = index.files
    assert second.name == first.name + 1
    assert second.entry(1)[2] == 0, "no negative seconds"


@pytest.mark.parametrize("operation", ["create", "reserve"])
def test_a_full_disk_at_a_roll_is_told_and_can_be_tried_again(
    index: KeyIndex, files: SimulatedFiles, operation: str
) -> None:
    index.insert([one(0, "a", "b", "c")])
    files.fail_next(operation, Fault.ENOSPC)
    with pytest.raises(DiskFullError):
        index.insert([one(100, "d", "e")])
    assert len(index.files) == 1
    assert len(files.list(DIRECTORY)) == 1
    assert index.insert([one(100, "d", "e"), one(200, "f")]) == 2
    assert entries_of(index) == [0, 0, 0, 100, 100, 200]


def test_messages_before_the_one_that_found_no_space_are_in(
    index: KeyIndex, files: SimulatedFiles
) -> None:
    index.insert([one(0, "a", "b")])
    files.fail_next("create", Fault.ENOSPC)
    batch = [one(100, "c"), one(200, "d", "e"), one(300, "f")]
    assert index.insert(batch) == 1
    assert index.insert(batch[1:]) == 2
    assert entries_of(index) == [0, 0, 100, 200, 200, 300]


def logged(first: int, *hashes: int) -> "SortedKeys":
    """Return one key for each of some records that follow each other."""
    import numpy as np

    from flintmq.store.recovery.bulk_records import SortedKeys

    offsets = np.arange(first, first + len(hashes), dtype=np.int64)
    return SortedKeys(np.array(hashes, np.int32), offsets, STORE_MS + 1000 * offsets)


@pytest.mark.parametrize("fault", [Fault.ENOSPC, Fault.SHORT_WRITE])
def test_many_keys_that_a_full_disk_stops_leave_the_chains_as_they_were(
    files: SimulatedFiles, fault: Fault
) -> None:
    index = make(files, slots=3, entries=100)
    index.insert_logged(logged(0, 1, 2, 3, 4, 5))
    (file,) = index.files
    before = bytes(file.view)
    files.fail_next("region_write", fault)
    with pytest.raises(DiskFullError):
        index.insert_logged(logged(5, 7, 7, 9, 10, 12, 13))
    assert bytes(file.view) == before
    assert (file.count, file.slot_count, file.end_offset) == (6, 3, 4)
    index.insert_logged(logged(5, 7, 7, 9))
    assert [file.entry(number)[3] for number in range(1, 9)] == [0, 0, 0, 1, 2, 4, 6, 3]


# -- querying --------------------------------------------------------------------------------


def test_the_newest_come_first(index: KeyIndex) -> None:
    index.insert([one(number, "k") for number in range(12)])
    assert index.query("T", "k", 5, *FOREVER) == [11, 10, 9, 8, 7]
    assert index.query("T", "k", 99, *FOREVER) == list(range(11, -1, -1))
    assert index.query("other", "k", 99, *FOREVER) == []


def test_only_hashes_are_compared(index: KeyIndex) -> None:
    index.insert([one(0, "Aa"), one(100, "BB")])
    assert key_text_hash("T", "Aa") == key_text_hash("T", "BB")
    assert index.query("T", "Aa", 9, *FOREVER) == [100, 0]


def test_other_keys_of_a_slot_are_passed_over(files: SimulatedFiles) -> None:
    index = make(files, slots=1, entries=10)
    index.insert([one(number, f"k{number}") for number in range(9)])
    assert header(index.files[0])[4] == 1
    for number in range(9):
        assert index.query("T", f"k{number}", 9, *FOREVER) == [number]


def test_times_are_kept_in_seconds_from_the_start_of_a_file(index: KeyIndex) -> None:
    for number in range(4):
        index.insert([one(number, "k", time=STORE_MS + 1500 * number)])
    times = [index.files[0].entry(number)[2] for number in (1, 2, 3, 4)]
    assert times == [0, 1, 3, 4]
    assert index.query("T", "k", 9, STORE_MS + 1000, STORE_MS + 3000) == [2, 1]


def test_a_damaged_chain_comes_to_an_end(index: KeyIndex) -> None:
    index.insert([one(number, "k") for number in range(4)])
    file = index.files[0]
    at = file.entry_base + 3 * 20 + 16
    for previous in (3, 4, 400, -1):
        file.view[at : at + 4] = previous.to_bytes(4, "big", signed=True)
        assert index.query("T", "k", 99, *FOREVER)[:2] == [3, 2]


# -- loading and cutting ---------------------------------------------------------------------


def saved(files: SimulatedFiles, count: int) -> None:
    index = make(files)
    index.insert([one(number * 100, f"k{number}") for number in range(count)])
    index.close()


def test_an_index_is_found_again(files: SimulatedFiles) -> None:
    saved(files, 6)
    index = load(files)
    assert entries_of(index) == [number * 100 for number in range(6)]
    assert index.end_offset == 500
    assert index.query("T", "k5", 9, *FOREVER) == [500]


def test_a_file_of_another_size_is_removed_with_those_after_it(files: SimulatedFiles) -> None:
    saved(files, 12)
    paths = [DIRECTORY / entry.name for entry in files.list(DIRECTORY)]
    assert len(paths) == 3
    files.write(paths[1], b"")
    index = make(files)
    (problem,) = index.load()
    assert problem.path == paths[1]
    assert "0 bytes instead of" in problem.reason
    assert index.lacks_files
    assert [entry.name for entry in files.list(DIRECTORY)] == [paths[0].name]
    index.insert([one(number * 100, f"k{number}") for number in range(4, 12)])
    assert entries_of(index) == [number * 100 for number in range(12)]


def test_a_reader_removes_nothing(files: SimulatedFiles) -> None:
    saved(files, 12)
    paths = [DIRECTORY / entry.name for entry in files.list(DIRECTORY)]
    files.write(paths[1], b"")
    index = make(files)
    assert len(index.load(read_only=True)) == 1
    assert len(files.list(DIRECTORY)) == 3
    assert len(index.files) == 1


def test_strange_names_are_left_alone_and_told(files: SimulatedFiles) -> None:
    saved(files, 3)
    files.write(DIRECTORY / "notes.txt", b"x")
    files.make_directory(DIRECTORY / "123")
    index = make(files)
    assert {problem.path.name for problem in index.load()} == {"notes.txt", "123"}
    assert entries_of(index) == [0, 100, 200]
    assert files.exists(DIRECTORY / "notes.txt")


@pytest.mark.parametrize("count", range(1, 6))
def test_a_cut_file_is_as_if_the_rest_had_never_been_added(
    files: SimulatedFiles, count: int
) -> None:
    keys = ["k0", "Aa", "BB", "k0"]
    times = {number * 100: STORE_MS + number * 1000 for number in range(4)}
    messages = [
        one(offset, key, time=times[offset]) for offset, key in zip(times, keys, strict=True)
    ]
    index = make(files, slots=2)
    index.insert(messages)
    index.files[0].cut(count, times.__getitem__)
    expected = make(SimulatedFiles(clock=files.clock), slots=2)
    expected.insert(messages[: count - 1])
    if count > 1:
        assert header(index.files[0]) == header(expected.files[0])
        assert bytes(index.files[0].view) == bytes(expected.files[0].view)
    assert index.files[0].count == count
    assert entries_of(index) == [number * 100 for number in range(count - 1)]


@pytest.mark.parametrize("written", range(0, HEADER_SIZE, 4))
@pytest.mark.parametrize("torn_slot", [None, 0, 1])
def test_a_cut_mends_a_header_and_a_slot_that_were_being_written(
    files: SimulatedFiles, written: int, torn_slot: int | None
) -> None:
    times = {number * 100 + 100: STORE_MS + number * 1000 for number in range(4)}
    index = make(files, slots=2)
    index.insert([one(at, f"k{at}", time=time) for at, time in times.items()])
    expected, expected_header = bytes(index.files[0].view), header(index.files[0])
    index.close()
    (entry,) = files.list(DIRECTORY)
    data = bytearray(files.read(DIRECTORY / entry.name))
    # So it is amid `struct.pack_into`: all bytes are zero, then one field follows the other.
    data[written:HEADER_SIZE] = bytes(HEADER_SIZE - written)
    if torn_slot is not None:
        at = HEADER_SIZE + torn_slot * SLOT_SIZE
        data[at : at + SLOT_SIZE] = bytes(SLOT_SIZE)
    files.write(DIRECTORY / entry.name, bytes(data))
    index = make(files, slots=2)
    assert index.load() == []
    index.files[0].cut(len(times) + 1, times.__getitem__)
    assert header(index.files[0]) == expected_header
    assert bytes(index.files[0].view)[HEADER_SIZE:] == expected[HEADER_SIZE:]


def test_a_cut_keeps_the_begin_of_a_file_whose_first_record_has_expired(
    files: SimulatedFiles,
) -> None:
    times = {100: 0, 200: STORE_MS + 1000}
    index = make(files, slots=2)
    index.insert([one(100, "a", time=STORE_MS), one(200, "b", time=times[200])])
    before = header(index.files[0])
    index.files[0].cut(3, times.__getitem__)
    assert header(index.files[0]) == before


def test_entries_below_an_offset_are_counted(index: KeyIndex) -> None:
    index.insert([one(0, "a"), one(100, "b", "c"), one(200, "d")])
    file = index.files[0]
    assert [file.count_below(offset) for offset in (0, 1, 100, 101, 200, 201)] == [
        1,
        2,
        2,
        4,
        4,
        5,
    ]


def test_a_header_that_claims_too_much_is_not_believed(files: SimulatedFiles) -> None:
    saved(files, 3)
    (entry,) = files.list(DIRECTORY)
    data = bytearray(files.read(DIRECTORY / entry.name))
    for claimed, count in ((0x7FFFFFFF, 5), (-1, 1), (0, 1)):
        data[36:40] = claimed.to_bytes(4, "big", signed=True)
        files.write(DIRECTORY / entry.name, bytes(data))
        index = load(files)
        assert index.files[0].count == count
        index.query("T", "k1", 9, *FOREVER)
        index.files[0].close()


def test_files_whose_records_are_gone_are_deleted_but_never_the_last(
    index: KeyIndex, files: SimulatedFiles
) -> None:
    index.insert([one(number * 100, "k") for number in range(12)])
    assert index.delete_expired(300) == 0
    assert index.delete_expired(301) == 1
    assert index.delete_expired(1 << 60) == 1
    assert len(index.files) == len(files.list(DIRECTORY)) == 1
    assert index.query("T", "k", 99, *FOREVER) == [1100, 1000, 900, 800]


def test_destroy_leaves_nothing(index: KeyIndex, files: SimulatedFiles) -> None:
    index.insert([one(number, "k") for number in range(12)])
    index.destroy()
    assert (files.list(DIRECTORY), index.files, index.end_offset) == ([], [], -1)
    assert index.insert([one(0, "k")]) == 1


# -- syncing ---------------------------------------------------------------------------------


def test_a_full_file_is_synced_once_more_and_then_no_more(
    index: KeyIndex, files: SimulatedFiles
) -> None:
    index.insert([one(number, "k", time=STORE_MS + number) for number in range(6)])
    assert index.sync() == STORE_MS + 5
    assert files.count("region_sync") == 2
    index.sync()
    assert files.count("region_sync") == 3


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_a_sync_that_fails_is_told_as_such(
    index: KeyIndex, files: SimulatedFiles, fault: Fault
) -> None:
    index.insert([one(0, "k")])
    files.fail_next("region_sync", fault)
    with pytest.raises(FlushFailedError):
        index.sync()


def test_names_are_synced_when_there_are_new_ones(index: KeyIndex, files: SimulatedFiles) -> None:
    index.insert([one(0, "k")])
    index.sync_names()
    before = files.count("sync_directory")
    index.sync_names()
    assert files.count("sync_directory") == before
    index.insert([one(number, "k") for number in range(1, 6)])
    index.sync_names()
    assert files.count("sync_directory") > before


def test_the_size_of_a_file_follows_from_slots_and_entries(
    index: KeyIndex, files: SimulatedFiles
) -> None:
    index.insert([one(0, "k")])
    (entry,) = files.list(DIRECTORY)
    assert entry.size == file_size(13, 5) == 40 + 13 * 4 + 5 * 20


# -- runs ------------------------------------------------------------------------------------


@given(
    runs=st.lists(
        st.lists(
            st.one_of(st.sampled_from(["k1", "k2", "k3"]), st.text(max_size=70)).filter(bool),
            min_size=1,
            max_size=80,
        ),
        min_size=1,
        max_size=4,
    ),
    slots=st.sampled_from([1, 7, 1000]),
)
@settings(max_examples=80, deadline=None)
def test_a_run_leaves_what_its_keys_leave_one_by_one(runs: list[list[str]], slots: int) -> None:
    single_files, run_files = new_files(), new_files()
    single, together = make(single_files, slots, 1000), make(run_files, slots, 1000)
    for index in (single, together):
        index.insert([one(100, "first")])
    for number, keys in enumerate(runs, 2):
        time = STORE_MS + number * 900
        keyed = [key.encode() for key in keys]
        offsets = [number * 1000 + at for at in range(len(keys))]
        single.insert([one(at, key, time=time) for at, key in zip(offsets, keys, strict=True)])
        assert together.make_room(len(keys))
        run = GroupKeys()
        run.keys, run.physical_offsets = keyed, offsets
        run.prefixes = [(key_prefix_hash("T"), len(keys))]
        together.insert_group(run, time)
    for index in (single, together):
        index.write_headers()
    assert bytes(together.files[0].view) == bytes(single.files[0].view)
    assert header(together.files[0]) == header(single.files[0])


def test_a_run_has_room_only_in_a_file_that_has_begun(index: KeyIndex) -> None:
    assert index.make_room(0)
    assert not index.make_room(1)
    index.insert([one(100, "first")])
    assert index.make_room(3)
    assert not index.make_room(4)


# -- long chains -----------------------------------------------------------------------------


def hot_index(files: SimulatedFiles, count: int) -> KeyIndex:
    index = make(files, entries=10 * STEP_ENTRIES)
    index.insert(
        [one(number * 100, "hot", time=STORE_MS + number * 1000) for number in range(count)]
    )
    return index


def test_no_step_of_a_query_looks_at_more_entries_than_its_limit(files: SimulatedFiles) -> None:
    index = hot_index(files, 3 * STEP_ENTRIES)
    index.insert([one(10**6, "cold", time=STORE_MS + 10**7)])
    found: list[int] = []
    # Entries of other keys in the same chain, and of other times, count as well.
    steps = index.query_steps("T", "hot", found, most=32, begin=0, end=STORE_MS)
    assert sum(1 for _ in steps) >= 3
    assert found == [0]
    assert found == index.query("T", "hot", 32, 0, STORE_MS)


def test_a_query_goes_on_while_the_index_grows(files: SimulatedFiles) -> None:
    count = 2 * STEP_ENTRIES + 1
    index = hot_index(files, count)
    found: list[int] = []
    steps = index.query_steps("T", "hot", found, most=count, begin=FOREVER[0], end=FOREVER[1])
    for offset, _ in enumerate(steps, count * 100):
        index.insert([one(offset, "hot", time=STORE_MS + count * 1000)])
    assert found == [number * 100 for number in reversed(range(count))]


def test_a_query_ends_where_its_file_is_deleted_meanwhile(files: SimulatedFiles) -> None:
    index = hot_index(files, 2 * STEP_ENTRIES)
    found: list[int] = []
    steps = index.query_steps("T", "hot", found, most=10**6, begin=FOREVER[0], end=FOREVER[1])
    next(steps)
    index.destroy()
    assert list(steps) in ([], [None])
    assert len(found) < 2 * STEP_ENTRIES


def test_a_deletion_does_not_wait_for_a_sync_and_is_finished_after_it(
    files: SimulatedFiles, index: KeyIndex
) -> None:
    index.insert([one(number * 100, f"k{number}") for number in range(12)])
    first, second = index.files[0], index.files[1]
    with index._sync_lock:  # As a checkpoint holds it while it waits for the disk.
        assert index.delete_expired(second.end_offset) == 1
        assert first not in index.files
        assert not files.exists(first.region.path)
        assert not first.is_closed
        assert index.query("T", "k0", 32, *FOREVER) == []
    index.insert([one(5000, "later")])
    assert first.is_closed


def test_a_file_made_anew_under_an_old_name_survives_a_power_failure(files: SimulatedFiles) -> None:
    """So does a slave's that drops its log: without it old entries came back under that name."""
    index = make(files)
    index.insert([one(100, "old")])
    index.sync()
    index.sync_names()
    index.destroy()
    index.insert([one(5000, "new")])
    index.write_headers()
    index.sync()
    index.sync_names()
    nothing_unsynced = next(iter(files.crash_images(Random(1), 1)))
    assert entries_of(load(nothing_unsynced)) == [5000]
