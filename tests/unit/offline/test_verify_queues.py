"""What verify says about consume queues and their extension."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flintmq.format.properties import encode_properties
from flintmq.format.stored.consume_queue import PRE_BLANK, UNIT, UNIT_SIZE
from flintmq.format.stored.record_encoding import encode_record
from flintmq.store.config import FlushMode
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.store.offline_stores import (
    HOST,
    LOG_FILE_SIZE,
    START_MS,
    check,
    flip,
    log_file,
    make_store,
    message,
    notes,
    overwrite,
    problems,
    put,
    queue_file,
    small_config,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def test_a_unit_that_leads_elsewhere_is_found(root: Path) -> None:
    flip(queue_file(root, 0, 1), 3 * UNIT_SIZE + 7)
    flip(queue_file(root, 1, 0), 5 * UNIT_SIZE + 11)
    report = check(root)
    assert problems(report) == {"unit-wrong": 2}
    assert [finding.offset for finding in report.findings] == [23, 5]


def test_a_wrong_tags_code_is_found(root: Path) -> None:
    flip(queue_file(root, 1, 2), 19)
    report = check(root)
    assert problems(report) == {"tags-code": 1}
    (finding,) = report.findings
    assert (finding.file, finding.offset) == ("consumequeue/orders/1", 40)


def test_units_missing_in_the_middle_are_a_problem_even_after_a_kill(root: Path) -> None:
    overwrite(queue_file(root, 0, 1), 4 * UNIT_SIZE, bytes(3 * UNIT_SIZE))
    overwrite(queue_file(root, 0, 1), 9 * UNIT_SIZE, PRE_BLANK)
    (root / "abort").touch()
    report = check(root)
    assert problems(report) == {"unit-missing": 4}
    assert [finding.offset for finding in report.findings] == [24, 29]


def test_units_missing_at_the_end_are_a_note_after_a_kill(root: Path) -> None:
    overwrite(queue_file(root, 0, 2), 5 * UNIT_SIZE, bytes(5 * UNIT_SIZE))
    report = check(root)
    assert problems(report) == {"queue-behind": 5}
    assert report.unit_count == 95
    (root / "abort").touch()
    # The checkpoint says that they were on the disk.
    assert problems(check(root)) == {"queue-behind": 5}
    (root / "checkpoint").unlink()
    report = check(root)
    assert report.is_sound
    assert notes(report) == {"queue-behind": 5, "checkpoint": 1}


@pytest.mark.parametrize("kill", [True, False])
def test_a_lost_queue_is_found_by_its_records(root: Path, kill: bool) -> None:
    shutil.rmtree(root / "consumequeue" / "orders" / "1")
    if kill:
        (root / "abort").touch()
    assert problems(check(root)) == {"queue-missing": 50}


@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_a_queue_that_was_deleted_is_a_problem_without_a_checkpoint_too(
    root: Path, with_checkpoint: bool
) -> None:
    shutil.rmtree(root / "consumequeue" / "orders" / "1")
    (root / "abort").touch()
    if not with_checkpoint:
        (root / "checkpoint").unlink()
    assert problems(check(root)) == {"queue-missing": 50}


@pytest.mark.parametrize("kill", [True, False])
def test_a_log_that_is_gone_is_a_problem(root: Path, kill: bool) -> None:
    shutil.rmtree(root / "commitlog")
    if kill:
        (root / "abort").touch()
    report = check(root)
    assert not report.is_sound
    assert problems(report)["log-missing"] == 1
    assert problems(report)["unit-ahead"] == 100


def test_a_last_log_file_that_is_gone_is_a_problem_after_a_kill_too(root: Path) -> None:
    log_file(root, -1).unlink()
    (root / "abort").touch()
    assert problems(check(root))["unit-ahead"] > 0


def test_records_that_were_not_dispatched_yet_are_notes(tmp_path: Path) -> None:
    clock = ManualClock(START_MS)
    store = MessageStore.open(small_config(tmp_path / "s"), clock=clock, background=False)
    put(store, clock, 30)
    store.checkpoint()
    for number in range(30, 40):
        store.put(message(number))
        store.put(message(number, topic="new"))
    # Not dispatched, and not closed: as a kill leaves it.
    shutil.copytree(tmp_path / "s", tmp_path / "killed")
    store.close()
    report = check(tmp_path / "killed", check_index=False)
    assert report.is_sound, list(report.findings)
    assert notes(report)["queue-missing"] == 10
    assert notes(report)["queue-behind"] == 10


@pytest.mark.parametrize("kill", [True, False])
def test_records_that_no_queue_leads_to_are_found(tmp_path: Path, kill: bool) -> None:
    """Records that begin at zero again while their queue has gone on at the old offset."""
    root = make_store(tmp_path / "s", 40, index_enabled=False)
    (path,) = (root / "consumequeue" / "orders" / "0").glob("0*0")
    units = list(UNIT.iter_unpack(path.read_bytes()))[:20]
    for number, (physical_offset, _, _) in enumerate(units[10:]):
        name, at = divmod(physical_offset, LOG_FILE_SIZE)
        overwrite(log_file(root, name), at + 20, number.to_bytes(8, "big"))
    overwrite(path, 10 * UNIT_SIZE, bytes(10 * UNIT_SIZE))
    if kill:
        (root / "abort").touch()
    overwrite(path, 0, PRE_BLANK * 7)
    assert not check(root, check_index=False).is_sound


def test_no_queues_at_all_are_a_problem_even_after_a_kill(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    (root / "abort").touch()
    assert problems(check(root)) == {"queue-missing": 100}


def test_a_topic_the_broker_does_not_know_any_more_may_have_no_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "orders")
    (root / "config").mkdir()
    topics = root / "config" / "topics.json"
    topics.write_text('{"topicConfigTable":{"other":{"topicName":"other"}}}')
    report = check(root)
    assert report.is_sound
    assert notes(report) == {"queue-missing": 100}
    topics.write_text('{"topicConfigTable":{"orders":{"topicName":"orders"}}}')
    assert problems(check(root)) == {"queue-missing": 100}


def test_a_lost_first_file_of_a_queue_is_found(root: Path) -> None:
    queue_file(root, 0, 0).unlink()
    assert problems(check(root)) == {"unit-missing": 20}


def test_units_behind_the_end_of_the_log_are_a_note_after_a_kill(root: Path) -> None:
    end = int(log_file(root, -1).name) + LOG_FILE_SIZE
    units = b"".join(UNIT.pack(end - 300 + 100 * number, 100, 0) for number in range(3))
    overwrite(queue_file(root, 0, 2), 10 * UNIT_SIZE, units)
    assert problems(check(root)) == {"unit-ahead": 3}
    (root / "abort").touch()
    assert notes(check(root)) == {"unit-ahead": 3}


def test_a_unit_too_many_that_leads_into_the_log_is_wrong(root: Path) -> None:
    overwrite(queue_file(root, 0, 2), 10 * UNIT_SIZE, UNIT.pack(0, 100, 0))
    (root / "abort").touch()
    assert problems(check(root)) == {"unit-wrong": 1}


def test_units_behind_a_gap_are_leftovers(root: Path) -> None:
    overwrite(queue_file(root, 0, 2), 15 * UNIT_SIZE, UNIT.pack(0, 100, 0))
    report = check(root)
    assert report.is_sound
    assert notes(report) == {"leftover": 1}


def test_units_of_expired_records_are_fine(root: Path) -> None:
    for number in (0, 0, 0):
        log_file(root, number).unlink()
    report = check(root, check_index=False)
    assert report.log_start == 3 * LOG_FILE_SIZE
    assert report.is_sound
    assert not len(report.findings)
    assert not report.index_checked


def test_a_queue_of_which_every_record_expired_is_fine(root: Path) -> None:
    expired = root / "consumequeue" / "old" / "0"
    expired.mkdir(parents=True)
    for path in sorted((root / "commitlog").iterdir())[:3]:
        path.unlink()
    units = b"".join(UNIT.pack(100 * number, 100, 0) for number in range(20))
    (expired / f"{0:020d}").write_bytes(units)
    assert check(root).is_sound


def test_a_topic_that_was_deleted_and_made_anew_is_a_note(tmp_path: Path) -> None:
    clock = ManualClock(START_MS)
    with MessageStore.open(small_config(tmp_path / "s"), clock=clock, background=False) as store:
        put(store, clock, 60)
        store.clean_unused_topics(set())
        put(store, clock, 10)
    report = check(tmp_path / "s")
    assert report.is_sound, list(report.findings)
    assert notes(report) == {"queue-restarted": 2}


@pytest.mark.parametrize(
    "flush",
    [
        {"flush_mode": FlushMode.SYNC},
        {"flush_mode": FlushMode.ASYNC, "transient_pool_enabled": True},
    ],
    ids=["synchronous", "pool"],
)
def test_a_topic_that_was_deleted_while_sends_waited_for_the_disk_is_a_note(
    tmp_path: Path, flush: dict[str, Any]
) -> None:
    config = replace(small_config(tmp_path / "s"), **flush)
    clock = ManualClock(START_MS)
    with MessageStore.open(config, clock=clock, background=False) as store:
        put(store, clock, 60)
        store.flush()
        store.dispatch()
        put(store, clock, 5)
        assert store.dispatcher.waiting
        store.clean_unused_topics(set())
        put(store, clock, 10)
    report = check(tmp_path / "s")
    assert report.is_sound, list(report.findings)
    assert notes(report) == {"queue-restarted": 2}


def append_record(root: Path, queue_offset: int) -> None:
    """Append a record for queue 0 that the engine would not have written."""
    end = check(root).log_end
    record = encode_record(
        b"orders",
        0,
        0,
        queue_offset,
        end,
        0,
        START_MS,
        HOST,
        START_MS + 10**6,
        HOST,
        0,
        0,
        b"x",
        b"",
    )
    overwrite(log_file(root, -1), end % LOG_FILE_SIZE, record)
    overwrite(
        queue_file(root, 0, queue_offset * UNIT_SIZE // 400),
        queue_offset * UNIT_SIZE % 400,
        UNIT.pack(end, len(record), 0),
    )


def test_a_gap_in_queue_offsets_without_damage_is_a_problem(root: Path) -> None:
    append_record(root, 52)
    assert problems(check(root)) == {"queue-offset-gap": 2}


def test_a_repeated_queue_offset_is_a_problem(root: Path) -> None:
    append_record(root, 47)
    found = problems(check(root))
    assert found == {"queue-offset-repeated": 1, "unit-wrong": 1}


@pytest.mark.parametrize("queue_offset", [-5, 1 << 60])
def test_an_impossible_queue_offset_is_not_followed(root: Path, queue_offset: int) -> None:
    end = check(root).log_end
    record = encode_record(
        b"orders", 0, 0, queue_offset, end, 0, 0, HOST, START_MS * 2, HOST, 0, 0, b"", b""
    )
    overwrite(log_file(root, -1), end % LOG_FILE_SIZE, record)
    assert problems(check(root)) == {"queue-offset-gap": 1}


def delayed(tmp_path: Path, level: str) -> Path:
    """Return a store with one message that waits for a delay level."""
    root = tmp_path / f"delayed-{level}"
    clock = ManualClock(START_MS)
    with MessageStore.open(small_config(root), clock=clock, background=False) as store:
        assert store.put(message(0, properties={"DELAY": level, "TAGS": "TagA"})).ok
        store.dispatch()
    return root


def test_the_unit_of_a_delayed_message_holds_its_due_time(tmp_path: Path) -> None:
    root = delayed(tmp_path, "3")
    path = queue_file(root, 2, topic="SCHEDULE_TOPIC_XXXX")
    assert UNIT.unpack_from(path.read_bytes())[2] == START_MS + 10_000
    assert check(root).is_sound
    overwrite(path, 12, (12345).to_bytes(8, "big"))
    assert problems(check(root)) == {"tags-code": 1}
    # What a Java broker's recovery writes: the hash of the tag.
    overwrite(path, 12, (2598919).to_bytes(8, "big"))
    report = check(root)
    assert report.is_sound
    assert notes(report) == {"due-time-lost": 1}


def test_a_delay_level_that_is_no_number_is_a_problem(tmp_path: Path) -> None:
    root = delayed(tmp_path, "3")
    path = log_file(root, 0)
    content = path.read_bytes()
    at = content.index(b"DELAY\x013")
    overwrite(path, at + 6, b"x")
    assert problems(check(root)).keys() == {"delay-level", "tags-code"}


def test_the_extension_is_followed(tmp_path: Path) -> None:
    root = make_store(
        tmp_path / "ext", enable_consume_queue_ext=True, consume_queue_ext_file_size=200
    )
    assert check(root).is_sound
    files = sorted((root / "consumequeue_ext" / "orders" / "0").iterdir())
    flip(files[1], 9)
    flip(files[2], 17)
    report = check(root)
    assert problems(report) == {"extension-unit": 2}
    shutil.rmtree(root / "consumequeue_ext")
    assert problems(check(root)) == {"extension-unit": 100}


def test_further_queues_of_a_message_are_checked(tmp_path: Path) -> None:
    root = tmp_path / "multi"
    clock = ManualClock(START_MS)
    config = small_config(root, enable_multi_dispatch=True, enable_lmq=True)
    with MessageStore.open(config, clock=clock, background=False) as store:
        for number in range(6):
            properties = {"INNER_MULTI_DISPATCH": "%LMQ%a,plain", "TAGS": "x"}
            assert store.put(message(number, properties=properties)).ok
        store.dispatch()
    report = check(root)
    assert report.is_sound, list(report.findings)
    assert report.unit_count == 18
    overwrite(queue_file(root, 0, topic="%LMQ%a"), 2 * UNIT_SIZE, bytes(UNIT_SIZE))
    assert problems(check(root)) == {"unit-missing": 1}


def test_a_topic_that_no_directory_can_have_is_a_missing_queue(root: Path) -> None:
    end = check(root).log_end
    record = encode_record(
        b"../../etc",
        0,
        0,
        0,
        end,
        0,
        0,
        HOST,
        START_MS * 2,
        HOST,
        0,
        0,
        b"",
        encode_properties({"TAGS": "x"}),
    )
    overwrite(log_file(root, -1), end % LOG_FILE_SIZE, record)
    assert problems(check(root)) == {"queue-missing": 1}


def test_a_due_time_that_no_unit_can_hold_is_survived(tmp_path: Path) -> None:
    root = delayed(tmp_path, "18")
    overwrite(log_file(root, 0), 56, ((1 << 63) - 1).to_bytes(8, "big"))
    assert problems(check(root)) == {"tags-code": 1}
