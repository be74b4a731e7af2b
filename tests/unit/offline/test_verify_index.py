"""What verify says about the key index."""

import shutil
import struct
from pathlib import Path

import pytest

from flintmq.format.stored.index_file import ENTRY, entry_position, slot_position
from tests.kits.store.offline_stores import (
    ENTRIES,
    SLOTS,
    check,
    flip,
    index_file,
    log_file,
    make_store,
    notes,
    overwrite,
    problems,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def entry_at(path: Path, number: int) -> tuple[int, int, int, int]:
    found: tuple[int, int, int, int] = ENTRY.unpack_from(
        path.read_bytes(), entry_position(SLOTS, number)
    )
    return found


def set_entry(path: Path, number: int, *fields: int) -> None:
    overwrite(path, entry_position(SLOTS, number), ENTRY.pack(*fields))


def test_an_entry_with_another_hash_is_wrong_and_its_key_missing(root: Path) -> None:
    path = index_file(root, 1)
    key_hash, offset, elapsed, previous = entry_at(path, 20)
    set_entry(path, 20, key_hash + SLOTS, offset, elapsed, previous)
    report = check(root)
    assert problems(report) == {"key-missing": 1, "index-entry-wrong": 1}
    assert {finding.offset for finding in report.findings} == {20, offset}


def test_an_entry_that_leads_elsewhere_is_wrong_and_its_key_missing(root: Path) -> None:
    path = index_file(root, 1)
    key_hash, offset, elapsed, previous = entry_at(path, 20)
    for elsewhere in (offset + 4, offset - 4, 1 << 50):
        set_entry(path, 20, key_hash, elsewhere, elapsed, previous)
        assert problems(check(root)) == {"key-missing": 1, "index-entry-wrong": 1}


def test_a_wrong_time_is_found(root: Path) -> None:
    path = index_file(root, 2)
    key_hash, offset, elapsed, previous = entry_at(path, 30)
    set_entry(path, 30, key_hash, offset, elapsed + 1, previous)
    report = check(root)
    assert problems(report) == {"index-entry-time": 1}
    assert [finding.offset for finding in report.findings] == [30]


def test_the_first_entry_of_a_file_counts_from_the_file_before(root: Path) -> None:
    path = index_file(root, 1)
    key_hash, offset, elapsed, previous = entry_at(path, 1)
    assert elapsed <= 1
    set_entry(path, 1, key_hash, offset, elapsed + 5, previous)
    assert problems(check(root)) == {"index-entry-time": 1}
    # Without the file before it, nobody knows.
    index_file(root, 0).unlink()
    assert problems(check(root)).keys() == {"key-missing"}


def test_a_broken_chain_is_found(root: Path) -> None:
    path = index_file(root, 0)
    number = next(number for number in range(2, ENTRIES) if entry_at(path, number)[3])
    key_hash, offset, elapsed, previous = entry_at(path, number)
    set_entry(path, number, key_hash, offset, elapsed, previous - 1)
    report = check(root)
    assert problems(report) == {"index-chain": 1}
    assert [finding.offset for finding in report.findings] == [number]


def test_a_slot_that_leads_to_an_older_entry_hides_the_newer_ones(root: Path) -> None:
    path = index_file(root, 0)
    content = path.read_bytes()
    slot = next(
        slot
        for slot in range(SLOTS)
        if struct.unpack_from(">i", content, slot_position(slot))[0] > 5
    )
    overwrite(path, slot_position(slot), struct.pack(">i", 2))
    assert problems(check(root)) == {"index-chain": 1}


@pytest.mark.parametrize("position", [7, 15, 23, 31, 35])
def test_a_header_that_contradicts_the_entries_is_found(root: Path, position: int) -> None:
    flip(index_file(root, 1), position, 0x40)
    assert "index-header" in problems(check(root))


def test_a_header_with_too_many_entries_is_found(root: Path) -> None:
    overwrite(index_file(root, 1), 36, struct.pack(">i", ENTRIES + 1))
    found = problems(check(root))
    assert found.keys() == {"index-header", "key-missing"}
    assert found["key-missing"] == ENTRIES - 1


def test_keys_in_another_order_are_accepted(root: Path) -> None:
    # Nobody writes it so; a reader finds them all the same.
    path = index_file(root, 0)
    number = next(
        number
        for number in range(3, ENTRIES - 1)
        if entry_at(path, number)[1] == entry_at(path, number + 1)[1]
        and entry_at(path, number)[3] == entry_at(path, number + 1)[3] == 0
    )
    one, other = entry_at(path, number), entry_at(path, number + 1)
    set_entry(path, number, *other)
    set_entry(path, number + 1, *one)
    report = check(root)
    assert problems(report).keys() <= {"index-chain"}


def test_a_file_lost_in_the_middle_leaves_keys_without_an_entry(root: Path) -> None:
    index_file(root, 1).unlink()
    assert problems(check(root)) == {"key-missing": ENTRIES - 1}


def test_a_lost_last_file_is_a_note_after_a_kill(root: Path) -> None:
    lost = struct.unpack_from(">i", index_file(root, 2).read_bytes(), 36)[0] - 1
    index_file(root, 2).unlink()
    assert problems(check(root)) == {"key-missing": lost}
    (root / "abort").touch()
    report = check(root)
    assert report.is_sound
    assert notes(report) == {"index-behind": lost}


def test_a_lost_index_is_a_problem_unless_there_should_be_none(root: Path) -> None:
    shutil.rmtree(root / "index")
    assert problems(check(root)) == {"key-missing": 200}
    (root / "abort").touch()
    assert problems(check(root)) == {"key-missing": 200}
    report = check(root, check_index=False)
    assert report.is_sound


def test_a_file_twice_has_duplicates(root: Path) -> None:
    last = index_file(root, -1)
    shutil.copy(index_file(root, 0), last.with_name(str(int(last.name) + 1)))
    report = check(root)
    assert report.is_sound
    assert notes(report) == {"index-duplicate": ENTRIES - 1}


def test_entries_of_expired_records_are_fine(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    for path in sorted((root / "commitlog").iterdir())[:2]:
        path.unlink()
    assert check(root).is_sound


def test_a_file_of_another_size_is_named(root: Path) -> None:
    path = index_file(root, 2)
    with path.open("ab") as file:
        file.write(b"x")
    found = problems(check(root))
    assert found.keys() == {"wrong-size", "key-missing"}


def test_an_index_of_unknown_shape_is_one_problem(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", 20)
    path = index_file(root, 0)
    overwrite(path, 40, bytes(number * 37 % 251 for number in range(path.stat().st_size - 40)))
    assert problems(check(root)) == {"index-unreadable": 1}


def test_a_store_time_that_no_entry_can_hold_is_survived(root: Path) -> None:
    path = log_file(root, 1)
    overwrite(path, 56, (1 << 62).to_bytes(8, "big"))
    found = problems(check(root))
    assert found == {"index-entry-time": 2}
