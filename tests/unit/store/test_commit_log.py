import pytest

from flintmq.format.stored.record import decode_record
from flintmq.store.errors import DiskFullError
from flintmq.store.files.mapped_file_queue import MappedFileQueue
from flintmq.store.log.commit_log import CommitLog
from flintmq.testing import Fault, SimulatedFiles
from flintmq.testing.simulated_region import SimulatedRegion
from tests.kits.store.store_kit import LOG, message, new_files, open_store, sync_store

SIZE = 4096
BLANK_MAGIC = bytes.fromhex("cbd43194")


@pytest.fixture
def files() -> SimulatedFiles:
    return new_files()


def make_log(files: SimulatedFiles, *, durable_reads: bool = False) -> CommitLog:
    mapped = MappedFileQueue(LOG, SIZE, files=files, clock=files.clock)
    return CommitLog(mapped, durable_reads=durable_reads, clock=files.clock)


def append(log: CommitLog, size: int) -> int:
    """Append so many bytes; return where they begin."""
    file = log.room_for(size)
    start = file.first_offset + file.wrote
    file.view[file.wrote : file.wrote + size] = b"x" * size
    file.wrote += size
    return start


def test_an_empty_log_begins_and_ends_at_zero(files: SimulatedFiles) -> None:
    log = make_log(files)
    assert (log.min_offset, log.end_offset, log.readable_end) == (0, 0, 0)
    assert log.select(0, 1) is None
    assert log.read_range(0, 100) is None
    assert list(log.files_from(0)) == []


def test_eight_bytes_are_always_left_for_the_blank(files: SimulatedFiles) -> None:
    log = make_log(files)
    assert log.fits(SIZE - 8)
    assert not log.fits(SIZE - 7)
    assert append(log, SIZE - 8) == 0
    assert append(log, 1) == SIZE
    first = log.files.first
    assert first is not None
    assert bytes(first.view[-8:]).hex() == "00000008cbd43194"


def test_the_blank_reaches_to_the_end_of_its_file(files: SimulatedFiles) -> None:
    log = make_log(files)
    append(log, 100)
    assert append(log, SIZE - 100) == SIZE
    first = log.files.first
    assert first is not None
    assert bytes(first.view[100:108]).hex() == f"{SIZE - 100:08x}cbd43194"
    assert first.is_full


def test_without_room_for_the_next_file_nothing_has_changed(files: SimulatedFiles) -> None:
    log = make_log(files)
    append(log, 3000)
    files.fail_next("create", Fault.ENOSPC)
    with pytest.raises(DiskFullError):
        log.room_for(2000)
    assert (log.end_offset, len(log.files)) == (3000, 1)
    assert append(log, 500) == 3000


def test_only_readable_bytes_can_be_selected(files: SimulatedFiles) -> None:
    log = make_log(files)
    append(log, 100)
    piece = log.select(90, 10)
    assert piece is not None
    with piece:
        assert (piece.start, bytes(piece.view)) == (90, b"x" * 10)
    assert log.select(90, 11) is None
    assert log.select(0, 0) is None
    assert log.select(0, -5) is None
    assert log.select(-1, 1) is None


def test_with_durable_reads_the_readable_end_is_the_flushed_end(files: SimulatedFiles) -> None:
    log = make_log(files, durable_reads=True)
    append(log, 100)
    assert (log.end_offset, log.readable_end) == (100, 0)
    assert log.select(0, 100) is None
    assert log.read_range(0, 100) is None
    log.files.flush()
    assert log.readable_end == 100
    piece = log.select(0, 100)
    assert piece is not None
    piece.release()


def test_a_range_for_replication_never_spans_two_files(files: SimulatedFiles) -> None:
    log = make_log(files)
    append(log, 4000)
    append(log, 500)
    piece = log.read_range(3990, 1000)
    assert piece is not None
    with piece:
        # The blank goes over too, so that a replica's files are the same.
        assert (piece.start, piece.size) == (3990, SIZE - 3990)
    following = log.read_range(SIZE, 1000)
    assert following is not None
    with following:
        assert (following.start, following.size) == (SIZE, 500)
    assert log.read_range(SIZE + 500, 10) is None
    assert log.read_range(10 * SIZE, 10) is None


def test_the_files_from_an_offset_begin_with_the_one_that_holds_it(files: SimulatedFiles) -> None:
    log = make_log(files)
    for _ in range(3):
        append(log, 4000)
    assert [file.first_offset for file in log.files_from(SIZE + 1)] == [SIZE, 2 * SIZE]
    assert [file.first_offset for file in log.files_from(0)] == [0, SIZE, 2 * SIZE]


def test_a_file_that_is_being_deleted_does_not_count_any_more(files: SimulatedFiles) -> None:
    log = make_log(files)
    append(log, 4000)
    append(log, 4000)
    piece = log.select(0, 10)
    assert piece is not None
    log.files.delete_expired_by_time(0, forced_after_ms=1000, immediate=True)
    assert (log.min_offset, len(log.files)) == (SIZE, 2)
    piece.release()
    assert log.files.retry_delete_first(forced_after_ms=1000)
    assert (log.min_offset, len(log.files)) == (SIZE, 1)


def test_a_sparse_file_of_a_java_broker_is_reserved_before_it_is_written() -> None:
    """Writing into a hole of a mapping kills the process when the disk is full."""
    files = new_files()
    region = files.create(LOG / f"{0:020d}", SIZE, reserve=False)
    region.close()
    store = open_store(files)
    files.fail_next("reserve", Fault.ENOSPC)
    refused = store.put(message())
    assert "no room" in refused.reason
    assert store.put(message()).physical_offset == 0
    store.flush()  # SimulatedFiles checks here that every written page was reserved.


def test_records_are_readable_in_the_order_of_the_log() -> None:
    store = sync_store()
    for number in range(30):
        store.put(message(bytes(number * 10)))
    store.flush()
    offset = 0
    sizes = []
    while offset < store.log.readable_end:
        piece = store.log.read_range(offset, 1 << 20)
        assert piece is not None
        with piece:
            position = 0
            while position < piece.size and bytes(piece.view[position + 4 :][:4]) != BLANK_MAGIC:
                record = decode_record(piece.view, position)
                assert record.physical_offset == offset + position
                sizes.append(len(record.body))
                position += record.size
            offset = piece.start + piece.size
    assert sizes == [number * 10 for number in range(30)]


def test_a_full_file_is_only_read_from_then_on(files: SimulatedFiles) -> None:
    log = make_log(files)
    for count in range(1, 4):
        append(log, SIZE - 8)
        regions = [file.region for file in log.files.snapshot()]
        expected = [
            region.expects_reads for region in regions if isinstance(region, SimulatedRegion)
        ]
        assert expected == [True] * (count - 1) + [False]
