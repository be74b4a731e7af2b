"""Stores with hundreds of queues: their files are synced by one call, and just as durable."""

from pathlib import Path
from random import Random

import pytest

from flintmq.store.errors import StoreError
from flintmq.store.files import file_system_sync
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.unsynced import SYNC_EACH_MAX
from flintmq.store.message_store import MessageStore
from flintmq.testing import Fault, SimulatedFiles
from tests.kits.store.store_kit import message, new_files, open_store

LOG_FILE_SIZE = 1 << 20
SYNCS = ("sync", "sync_directory", "sync_below")


def started(files: SimulatedFiles) -> MessageStore:
    return open_store(files, commit_log_file_size=LOG_FILE_SIZE)


def killed_with(queue_count: int) -> SimulatedFiles:
    """Return the files of a store that was killed when so many queues were new."""
    files = new_files()
    store = started(files)
    for number in range(queue_count):
        assert store.put(message(b"%d" % number, topic=f"T{number}")).ok
    store.dispatch()
    return files.process_crash_image()


def sync_counts(files: SimulatedFiles) -> dict[str, int]:
    return {name: files.count(name) for name in SYNCS}


def test_a_start_with_many_new_queues_syncs_them_at_once() -> None:
    files = killed_with(SYNC_EACH_MAX + 1)
    store = started(files)
    assert len(store.queues) == SYNC_EACH_MAX + 1
    counts = sync_counts(files)
    assert counts["sync_below"] == 2  # What was cut off, and what is there anew.
    assert counts["sync"] + counts["sync_directory"] < 20


def test_a_start_with_a_few_new_queues_syncs_each() -> None:
    files = killed_with(10)
    started(files)
    counts = sync_counts(files)
    assert counts["sync_below"] == 0
    assert counts["sync_directory"] > 10


def test_what_was_synced_at_once_survives_a_power_failure() -> None:
    files = killed_with(SYNC_EACH_MAX + 1)
    started(files)
    for image in files.crash_images(Random(0), 2):
        report = started(image).recovery_report
        assert report.problems == []
        assert (report.units_rebuilt, report.queues_filled) == (0, [])


def test_a_checkpoint_syncs_nothing_that_was_synced_at_once() -> None:
    files = new_files()
    store = started(files)
    for number in range(SYNC_EACH_MAX + 1):
        assert store.put(message(topic=f"T{number}")).ok
    store.dispatch()
    store.checkpoint()
    before = sync_counts(files)
    assert before["sync_below"] == 1
    assert store.put(message(topic="T7")).ok
    store.dispatch()
    store.checkpoint()
    after = sync_counts(files)
    assert after["sync_below"] == 1
    assert after["sync_directory"] == before["sync_directory"]


def test_a_queue_made_anew_while_all_are_synced_is_named_again() -> None:
    files = new_files()
    store = started(files)
    for number in range(SYNC_EACH_MAX + 1):
        assert store.put(message(topic=f"T{number}")).ok
    store.dispatch()
    store.checkpoint()
    list(store.forget_unused_topics(lambda topic: topic != "T7"))
    assert store.put(message(b"anew", topic="T7")).ok
    store.dispatch()
    store.checkpoint()
    for image in files.crash_images(Random(0), 2):
        report = started(image).recovery_report
        assert (report.problems, report.queues_filled) == ([], [])


def test_a_start_fails_when_the_one_call_does() -> None:
    files = killed_with(SYNC_EACH_MAX + 1)
    files.fail_next("sync_below", Fault.EIO)
    with pytest.raises(StoreError):
        started(files)
    assert len(started(files.process_crash_image()).queues) == SYNC_EACH_MAX + 1


@pytest.mark.parametrize(
    ("release", "is_told"),
    [("5.7.19-generic", False), ("4.19", False), ("5.8.0", True), ("6.1-rc3", True), ("?", False)],
)
def test_old_kernels_are_not_asked(release: str, is_told: bool) -> None:
    assert file_system_sync.tells_failures(release) == is_told


class _RemovedMeanwhile(LocalFiles):
    """Loses each file before it is synced."""

    def sync(self, path: Path) -> None:
        path.unlink()
        super().sync(path)


def test_a_file_that_is_removed_while_all_are_synced_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flintmq.store.files.local_files.sync_file_system", lambda _: False)
    (tmp_path / "file").write_bytes(b"units")
    _RemovedMeanwhile().sync_below(tmp_path)
    with pytest.raises(StoreError):
        LocalFiles().sync_below(tmp_path / "nothing")
