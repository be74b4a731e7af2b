"""What verify says about the log, the checkpoint and the state files."""

from pathlib import Path

import pytest

from flintmq.format.stored.record_layout import MESSAGE_MAGIC
from flintmq.offline import Severity
from flintmq.store.config import StoreConfig
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.store.offline_stores import (
    LOG_FILE_SIZE,
    START_MS,
    check,
    fingerprint,
    flip,
    log_file,
    make_store,
    message,
    notes,
    overwrite,
    problems,
    put,
    small_config,
)

MAGIC = MESSAGE_MAGIC.to_bytes(4, "big", signed=True)


def test_a_store_of_the_engine_is_sound_and_left_as_it_was(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    before = fingerprint(root)
    report = check(root)
    assert report.is_sound
    assert not len(report.findings)
    assert (report.record_count, report.unit_count, report.index_entry_count) == (100, 100, 200)
    assert (report.log_start, report.queue_count, report.unclean) == (0, 2, False)
    assert report.index_file_count == 3
    assert report.record_bytes + LOG_FILE_SIZE > report.log_end
    assert fingerprint(root) == before


def test_an_empty_store_is_sound(tmp_path: Path) -> None:
    report = check(make_store(tmp_path / "store", 0))
    assert report.is_sound
    assert report.record_count == 0


def test_a_flipped_bit_in_a_body_is_one_problem(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    flip(log_file(root, 1), 120)
    report = check(root)
    assert problems(report) == {"checksum": 1}
    (damage,) = report.damages
    assert damage.start == LOG_FILE_SIZE
    assert report.damage_bytes == damage.end - damage.start


def test_a_destroyed_record_names_the_unit_and_the_entries_that_led_to_it(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    overwrite(log_file(root, 1), 0, bytes(40))
    report = check(root)
    assert problems(report) == {"damaged-record": 1, "unit-to-damage": 1, "index-to-damage": 2}
    assert not report.is_sound


def test_a_lost_file_in_the_middle_is_a_gap(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    log_file(root, 1).unlink()
    found = problems(check(root))
    assert found["log-gap"] == 1
    assert found["index-to-damage"] == 2 * found["unit-to-damage"]


def test_a_torn_end_is_a_problem_only_after_a_clean_stop(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    path = log_file(root, -1)
    at = path.read_bytes().rindex(MAGIC) - 4
    overwrite(path, at + 60, bytes(LOG_FILE_SIZE - at - 60))
    assert problems(check(root)).keys() == {
        "torn-tail",
        "unit-to-damage",
        "index-to-damage",
        "checkpoint",
    }
    (root / "abort").touch()
    report = check(root)
    assert notes(report).keys() == {"torn-tail", "unit-to-damage", "index-to-damage"}
    # The checkpoint says that these bytes were flushed: no crash explains that they are gone.
    assert problems(report).keys() == {"checkpoint"}


def test_garbage_behind_the_end_is_a_problem_only_after_a_clean_stop(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    end = check(root).log_end
    overwrite(log_file(root, -1), end % LOG_FILE_SIZE, b"garbage")
    assert problems(check(root)) == {"garbage-after-end": 1}
    (root / "abort").touch()
    assert problems(check(root)) == {}
    assert notes(check(root)) == {"garbage-after-end": 1}


def test_a_file_made_ahead_is_a_note(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    count = len(list((root / "commitlog").iterdir()))
    (root / "commitlog" / f"{count * LOG_FILE_SIZE:020d}").write_bytes(bytes(LOG_FILE_SIZE))
    report = check(root)
    assert report.is_sound
    assert notes(report) == {"unused-file": 1}


def test_a_store_may_be_verified_while_a_broker_writes_it(tmp_path: Path) -> None:
    clock = ManualClock(START_MS)
    config: StoreConfig = small_config(tmp_path / "store")
    with MessageStore.open(config, clock=clock, background=False) as store:
        put(store, clock, 60)
        for number in range(60, 70):
            store.put(message(number))
        report = check(config.root)
        assert report.unclean
        assert report.is_sound
        assert report.record_count == 70
        assert notes(report).keys() <= {"queue-behind", "index-behind", "unused-file"}
        store.dispatch()
        report = check(config.root)
        assert report.is_sound
        assert notes(report).keys() <= {"unused-file"}


def test_records_that_are_written_while_we_read_are_no_problem(tmp_path: Path) -> None:
    clock = ManualClock(START_MS)
    config = small_config(tmp_path / "store")
    with MessageStore.open(config, clock=clock, background=False) as store:
        put(store, clock, 60)
        told = 0

        def write_more(done: int, total: int) -> None:
            nonlocal told
            if told < 5:
                put(store, clock, 10, first=60 + 10 * told)
            told += 1

        report = check(config.root, progress=write_more)
        assert told
        assert report.is_sound, list(report.findings)


def test_files_that_are_deleted_while_we_read_are_notes(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", 200)
    (root / "abort").touch()
    victims = [log_file(root, 0), log_file(root, 1), log_file(root, 2)]

    def delete(done: int, total: int) -> None:
        for path in victims:
            path.unlink(missing_ok=True)
        (root / "consumequeue" / "orders" / "0" / f"{0:020d}").unlink(missing_ok=True)

    report = check(root, progress=delete)
    assert report.is_sound, list(report.findings)
    assert notes(report)["deleted-meanwhile"] == 2


def test_a_checkpoint_may_be_missing_but_not_cut(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", 10)
    path = root / "checkpoint"
    path.write_bytes(path.read_bytes()[:100])
    assert problems(check(root)) == {"checkpoint": 1}
    path.unlink()
    report = check(root)
    assert report.is_sound
    assert notes(report) == {"checkpoint": 1}


@pytest.mark.parametrize("text", ["{", "", "\ufffd", '{"offsetTable":{0:1'])
def test_state_must_be_readable_but_backups_need_not(tmp_path: Path, text: str) -> None:
    root = make_store(tmp_path / "store", 1)
    (root / "config").mkdir()
    (root / "config" / "delayOffset.json").write_text('{\n\t"offsetTable":{3:202,4:2\n\t}\n}')
    (root / "config" / "delayOffset.json.bak").write_text(text)
    report = check(root)
    assert report.state_file_count == 2
    assert report.is_sound
    assert notes(report) == {"state-file": 1}
    (root / "config" / "delayOffset.json").write_text(text)
    assert problems(check(root)) == {"state-file": 1}


def test_details_are_limited_and_counts_are_not(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    for number in range(4):
        flip(log_file(root, number), 120)
    report = check(root, details_max=2)
    assert problems(report) == {"checksum": 4}
    assert len(list(report.findings.of(Severity.PROBLEM))) == 2
    assert report.damage_count == 4
