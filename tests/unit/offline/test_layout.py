"""Finding the files of a store and their sizes."""

import shutil
from pathlib import Path

import pytest

from flintmq.offline import NotAStoreError, SizeOptions, find_store
from flintmq.offline.layout import DEFAULT_QUEUE_FILE_SIZE
from tests.kits.store.offline_stores import (
    LOG_FILE_SIZE,
    QUEUE_FILE_SIZE,
    log_file,
    make_store,
    notes,
    problems,
    queue_file,
)


def test_sizes_are_read_off_the_files(tmp_path: Path) -> None:
    layout = find_store(make_store(tmp_path / "store"))
    assert layout.log_file_size == LOG_FILE_SIZE
    assert layout.queue_file_size == QUEUE_FILE_SIZE
    assert len(layout.log_files) > 2
    assert set(layout.queues) == {("orders", 0), ("orders", 1)}
    assert not layout.has_abort
    assert not len(layout.findings)


def test_given_sizes_win(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    layout = find_store(root, sizes=SizeOptions(log_file_size=4096, queue_file_size=111))
    assert layout.log_file_size == 4096
    assert layout.queue_file_size == 120
    assert problems(layout.findings).keys() == {"wrong-size"}


def test_a_file_of_another_size_does_not_change_what_is_detected(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    with queue_file(root, 1, 1).open("ab") as file:
        file.truncate(QUEUE_FILE_SIZE - 20)
    with log_file(root, -1).open("ab") as file:
        file.truncate(LOG_FILE_SIZE + 1)
    layout = find_store(root)
    assert layout.log_file_size == LOG_FILE_SIZE
    assert layout.queue_file_size == QUEUE_FILE_SIZE
    assert problems(layout.findings) == {"wrong-size": 2}


def test_between_two_sizes_the_names_decide(tmp_path: Path) -> None:
    log = tmp_path / "commitlog"
    log.mkdir()
    (log / f"{0:020d}").write_bytes(bytes(4096))
    (log / f"{4096:020d}").write_bytes(bytes(8192))
    assert find_store(tmp_path).log_file_size == 4096


def test_a_store_without_queues_has_the_default_size(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    shutil.rmtree(root / "consumequeue")
    layout = find_store(root)
    assert layout.queue_file_size == DEFAULT_QUEUE_FILE_SIZE
    assert not layout.has_queue_directory


def test_stray_entries_that_stop_a_broker_are_problems_and_others_are_notes(
    tmp_path: Path,
) -> None:
    root = make_store(tmp_path / "store")
    (root / "commitlog" / "notes.txt").write_text("mine")
    (root / "commitlog" / f"{LOG_FILE_SIZE + 1:020d}").write_bytes(bytes(LOG_FILE_SIZE))
    (root / "commitlog" / f"{10**20 - 1:020d}").write_bytes(bytes(LOG_FILE_SIZE))
    (root / "consumequeue" / "orders" / "0" / "sub").mkdir()
    (root / "consumequeue" / "readme").touch()
    (root / "consumequeue" / "orders" / "seven").mkdir()
    (root / "index" / "lost+found").mkdir()
    layout = find_store(root)
    assert problems(layout.findings) == {"stray-entry": 4}
    assert notes(layout.findings) == {"stray-entry": 3}


def test_a_log_may_be_spread_over_directories(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    second = tmp_path / "second"
    second.mkdir()
    moved = log_file(root, 1)
    moved.rename(second / moved.name)
    layout = find_store(root, log_directories=[root / "commitlog", second])
    offsets = [file.first_offset for file in layout.log_files]
    assert offsets == [number * LOG_FILE_SIZE for number in range(len(offsets))]
    shutil.copy(log_file(root, 0), second)
    twice = find_store(root, log_directories=[root / "commitlog", second])
    assert problems(twice.findings) == {"stray-entry": 1}


@pytest.mark.parametrize("name", ["missing", "file", "empty"])
def test_what_is_no_store_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotAStoreError, match="not a store"):
        find_store(tmp_path / name)


def test_a_store_that_never_got_a_message_is_one(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", 0)
    assert (root / "checkpoint").exists()
    shutil.rmtree(root / "commitlog", ignore_errors=True)
    assert find_store(root).log_files == []


def test_a_missing_log_directory_that_was_named_is_refused(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    with pytest.raises(NotAStoreError, match="elsewhere"):
        find_store(root, log_directories=[tmp_path / "elsewhere"])


def test_light_queues_with_other_ids_tell_that_the_feature_was_off(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    assert find_store(root).lmq
    (root / "consumequeue" / "%LMQ%a" / "3").mkdir(parents=True)
    assert not find_store(root).lmq
    (root / "config").mkdir()
    (root / "config" / "lmqConsumerOffset.json").write_text("{}")
    assert find_store(root).lmq
