"""Scanning a log over damage, gaps and unfinished ends."""

import itertools
from pathlib import Path

import pytest

from flintmq.format.stored.record import CheckedRecord
from flintmq.format.stored.record_encoding import encode_record
from flintmq.format.stored.record_search import CHUNK_SIZE, candidates, written_bounds
from flintmq.offline import Kind, find_store
from flintmq.offline.log_files import LogFiles
from flintmq.offline.regions import Regions
from flintmq.offline.scan import LogScan, Tail
from tests.kits.store.offline_stores import (
    HOST,
    LOG_FILE_SIZE,
    flip,
    log_file,
    make_store,
    overwrite,
)


def scan_of(
    root: Path, *, check_crc: bool = True, start: int | None = None
) -> tuple[LogScan, list[CheckedRecord]]:
    layout = find_store(root)
    with Regions(layout.files) as regions:
        scan = LogScan(LogFiles(layout, regions), check_crc=check_crc, start=start)
        return scan, [record for batch in scan.batches() for record in batch]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


@pytest.fixture
def whole(root: Path) -> list[CheckedRecord]:
    scan, records = scan_of(root)
    assert scan.damages == []
    assert scan.tail is Tail.CLEAN
    assert len(records) == scan.record_count == 100
    assert scan.end == records[-1].physical_offset + records[-1].size
    return records


def place(root: Path, record: CheckedRecord) -> tuple[Path, int]:
    """Return the file of a record, and its position there."""
    offset = record.physical_offset
    return log_file(root, offset // LOG_FILE_SIZE), offset % LOG_FILE_SIZE


def test_a_wrong_checksum_is_damage_but_the_record_is_given(
    root: Path, whole: list[CheckedRecord]
) -> None:
    path, at = place(root, whole[30])
    flip(path, at + 100)
    scan, records = scan_of(root)
    assert records == whole
    (damage,) = scan.damages
    start = whole[30].physical_offset
    assert (damage.start, damage.end) == (start, start + whole[30].size)
    assert damage.kind is Kind.CHECKSUM
    assert scan_of(root, check_crc=False)[0].damages == []


@pytest.mark.parametrize("field_at", [0, 4, 28])
def test_size_magic_and_own_offset_are_checked_and_the_next_record_is_found(
    root: Path, whole: list[CheckedRecord], field_at: int
) -> None:
    path, at = place(root, whole[30])
    flip(path, at + field_at + 2, 0x10)
    scan, records = scan_of(root)
    assert records == whole[:30] + whole[31:]
    (damage,) = scan.damages
    assert (damage.start, damage.end) == (whole[30].physical_offset, whole[31].physical_offset)
    assert damage.kind is Kind.DAMAGED_RECORD
    assert scan.damaged_between(damage.start, damage.start + 1)
    assert scan.damaged_between(damage.end - 1, damage.end)
    assert not scan.damaged_between(damage.end, damage.end + 100)
    assert not scan.damaged_between(0, damage.start)


def test_the_blank_behind_a_damaged_record_is_found(root: Path, whole: list[CheckedRecord]) -> None:
    last = next(
        one
        for one, following in itertools.pairwise(whole)
        if following.physical_offset == LOG_FILE_SIZE
    )
    path, at = place(root, last)
    overwrite(path, at, bytes(8))
    scan, records = scan_of(root)
    assert len(records) == 99
    assert [damage.end for damage in scan.damages] == [last.physical_offset + last.size]


def test_a_file_that_is_zero_from_somewhere_on_is_skipped_to_its_end(
    root: Path, whole: list[CheckedRecord]
) -> None:
    path, at = place(root, whole[30])
    overwrite(path, at, bytes(LOG_FILE_SIZE - at))
    scan, records = scan_of(root)
    (damage,) = scan.damages
    following = whole[30].physical_offset // LOG_FILE_SIZE * LOG_FILE_SIZE + LOG_FILE_SIZE
    assert (damage.start, damage.end) == (whole[30].physical_offset, following)
    assert records == [
        record for record in whole if not damage.start <= record.physical_offset < damage.end
    ]


def test_a_missing_file_is_damage(root: Path, whole: list[CheckedRecord]) -> None:
    log_file(root, 1).unlink()
    scan, records = scan_of(root)
    (damage,) = scan.damages
    assert (damage.start, damage.end) == (LOG_FILE_SIZE, 2 * LOG_FILE_SIZE)
    assert damage.kind is Kind.LOG_GAP
    assert len(records) < len(whole)


def test_an_unfinished_record_at_the_end_is_the_tail(
    root: Path, whole: list[CheckedRecord]
) -> None:
    last = whole[-1]
    path, at = place(root, last)
    overwrite(path, at + 60, bytes(LOG_FILE_SIZE - at - 60))
    scan, records = scan_of(root)
    assert records == whole[:-1]
    assert scan.damages == []
    assert scan.tail is Tail.TORN
    assert (scan.end, scan.tail_start) == (last.physical_offset, last.physical_offset)


@pytest.mark.parametrize("gap", [0, 64])
def test_garbage_behind_the_end_is_the_tail(
    root: Path, whole: list[CheckedRecord], gap: int
) -> None:
    path, at = place(root, whole[-1])
    at += whole[-1].size + gap
    overwrite(path, at, b"garbage, 18 bytes.")
    scan, records = scan_of(root)
    assert records == whole
    assert scan.tail is Tail.GARBAGE
    assert scan.tail_start == scan.end + gap
    assert scan.tail_end == scan.end + gap + 18


def test_records_from_before_the_log_was_cut_back_are_not_taken_for_new_ones(
    root: Path, whole: list[CheckedRecord]
) -> None:
    # As a Java broker does: cut at a record, leave the rest, write a smaller record over it.
    cut = whole[-3]
    path, at = place(root, cut)
    newer = encode_record(
        b"orders",
        0,
        0,
        cut.queue_offset,
        cut.physical_offset,
        0,
        0,
        HOST,
        whole[-1].store_timestamp + 5,
        HOST,
        0,
        0,
        b"new",
        b"",
    )
    overwrite(path, at, newer)
    scan, records = scan_of(root)
    assert len(records) == len(whole) - 2
    assert scan.tail is Tail.LEFTOVER
    assert scan.end == cut.physical_offset + len(newer)
    assert scan.damages == []


def test_a_scan_may_start_at_any_record(root: Path, whole: list[CheckedRecord]) -> None:
    assert scan_of(root, start=whole[57].physical_offset)[1] == whole[57:]
    scan, records = scan_of(root, start=whole[-1].physical_offset + whole[-1].size)
    assert records == []
    assert scan.tail is Tail.CLEAN


def test_files_nothing_was_written_to_are_named(root: Path, whole: list[CheckedRecord]) -> None:
    count = len(list((root / "commitlog").iterdir()))
    unused = root / "commitlog" / f"{count * LOG_FILE_SIZE:020d}"
    unused.write_bytes(bytes(LOG_FILE_SIZE))
    scan, records = scan_of(root)
    assert records == whole
    assert [file.path for file in scan.unused_files] == [unused]
    assert scan.tail is Tail.CLEAN


def test_a_last_file_that_ends_with_a_blank_misses_its_next_one(root: Path) -> None:
    for path in sorted((root / "commitlog").iterdir())[2:]:
        path.unlink()
    scan, _ = scan_of(root)
    assert scan.tail is Tail.BLANK
    assert scan.tail_end == 2 * LOG_FILE_SIZE


def test_progress_reaches_the_end(root: Path) -> None:
    layout = find_store(root)
    told: list[tuple[int, int]] = []
    with Regions(layout.files) as regions:
        log = LogFiles(layout, regions)
        scan = LogScan(log, check_crc=False, progress=lambda *at: told.append(at))
        for _ in scan.batches():
            pass
        total = log.size
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert {of for _, of in told} == {total}
    assert told[-1][0] <= total


def test_what_is_deleted_while_it_is_read_is_named(root: Path) -> None:
    layout = find_store(root)
    with Regions(layout.files) as regions:
        scan = LogScan(LogFiles(layout, regions), check_crc=False)
        batches = scan.batches()
        next(batches)
        log_file(root, 1).unlink()
        records = [record for batch in batches for record in batch]
    assert [file.first_offset for file in scan.deleted_files] == [LOG_FILE_SIZE]
    assert records
    assert scan.damages == []


def test_a_record_across_two_chunks_is_found() -> None:
    for at in (CHUNK_SIZE - 5, CHUNK_SIZE - 1, CHUNK_SIZE, 2 * CHUNK_SIZE - 4):
        record = encode_record(b"t", 0, 0, 0, at, 0, 0, HOST, 1, HOST, 0, 0, b"b", b"")
        view = memoryview(bytes(at) + record + bytes(1000))
        assert [*candidates(view, [(0, len(view))], len(view), 0)] == [at]
        assert written_bounds(view, [(0, len(view))], len(view)) == (at + 3, at + len(record) - 2)
    assert written_bounds(memoryview(bytes(10)), [(0, 10)], 10) is None
