import threading
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from flintmq.store.config import StoreConfig
from flintmq.store.errors import StoreError, StoreIOError, StoreLoadError, StoreLockedError
from flintmq.store.message_store import MessageStore
from flintmq.store.results import GetStatus, PutStatus
from flintmq.store.running_flags import RunningFlag
from flintmq.testing import ROOT, Fault, SimulatedFiles
from tests.kits.store.expiring_store import delete_oldest, fill_log
from tests.kits.store.spec_vectors import put_vectors
from tests.kits.store.store_kit import (
    LOG,
    SMALL,
    STORE_MS,
    batch,
    bodies,
    message,
    new_files,
    open_store,
    read,
    records,
    sync_store,
    turn,
)
from tests.kits.store.waiting_puts import put_durably, wait_flushed

ABORT = ROOT / "abort"


@pytest.fixture
def files() -> SimulatedFiles:
    return new_files()


@pytest.fixture
def store(files: SimulatedFiles) -> MessageStore:
    return open_store(files)


# -- opening and closing ---------------------------------------------------------------------


def test_a_new_store_has_a_lock_a_checkpoint_and_the_mark_of_a_running_broker(
    files: SimulatedFiles,
) -> None:
    open_store(files)
    assert {entry.name for entry in files.list(ROOT)} >= {"lock", "checkpoint", "abort"}
    assert files.read(ROOT / "lock") == b"lock"
    assert files.read(ABORT) == b"boot simulated-1"
    assert files.size(ROOT / "checkpoint") == 4096


def test_a_clean_stop_removes_the_mark_of_a_running_broker(files: SimulatedFiles) -> None:
    store = open_store(files)
    store.put(message())
    store.close()
    store.close()
    assert not files.exists(ABORT)
    assert open_store(files).recovery_report.clean_exit


def test_a_store_is_a_context_manager(files: SimulatedFiles) -> None:
    with open_store(files) as store:
        store.put(message())
    assert not files.exists(ABORT)
    assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE


def test_a_store_belongs_to_one_broker_at_a_time(files: SimulatedFiles) -> None:
    store = open_store(files)
    with pytest.raises(StoreLockedError):
        open_store(files)
    assert store.put(message()).ok, "the first one is not disturbed"
    store.close()
    assert len(bodies(open_store(files))) == 1


def test_a_second_store_is_refused_on_real_files_too(tmp_path: Path) -> None:
    config = replace(SMALL, root=tmp_path / "store")
    with MessageStore.open(config, background=False), pytest.raises(StoreLockedError):
        MessageStore.open(config, background=False)
    MessageStore.open(config, background=False).close()


def test_two_stores_cannot_write_into_one_log_directory(tmp_path: Path) -> None:
    shared = tmp_path / "log"
    first, second = (
        replace(SMALL, root=tmp_path / name, commit_log_paths=(shared,)) for name in "ab"
    )
    with (
        MessageStore.open(first, background=False),
        pytest.raises(StoreLockedError, match=str(shared)),
    ):
        MessageStore.open(second, background=False)
    MessageStore.open(second, background=False).close()
    assert not [entry for entry in shared.iterdir() if not entry.name.isdigit()]


def test_a_start_that_fails_gives_the_directory_back(files: SimulatedFiles) -> None:
    open_store(files).close()
    files.write(LOG.parent / "stray", b"")
    files.make_directory(LOG)
    files.write(LOG / "stray", b"")
    with pytest.raises(StoreLoadError):
        open_store(files)
    files.remove(LOG / "stray")
    open_store(files).close()


@pytest.mark.parametrize("operation", ["remove", "sync_directory", "remove_directory"])
def test_a_stop_that_fails_half_way_gives_the_directory_back(
    files: SimulatedFiles, operation: str
) -> None:
    store = open_store(files)
    store.put(message(b"kept"))
    store.flush()
    store.dispatch()
    store.checkpoint()
    files.fail_next(operation, Fault.EIO, name={"remove": "abort"}.get(operation))
    with pytest.raises(StoreIOError):
        store.close()
    again = open_store(files)
    assert bodies(again) == [b"kept"]


def test_a_store_that_is_not_writable_stops_as_if_it_had_crashed(files: SimulatedFiles) -> None:
    store = open_store(files)
    store.flags.set(RunningFlag.DISK_FULL, "for a test")
    store.close()
    assert files.exists(ABORT)


def test_a_closed_or_unreadable_store_answers_no_read(files: SimulatedFiles) -> None:
    store = open_store(files)
    store.put(message())
    store.flags.set(RunningFlag.NOT_READABLE, "for a test")
    assert store.get_messages("T", 0, 0, 1) is None
    store.flags.clear(RunningFlag.NOT_READABLE)
    read(store).release()
    store.close()
    assert store.get_messages("T", 0, 0, 1) is None


def test_the_threads_of_a_store_end_with_it(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with MessageStore.open(replace(SMALL, root=tmp_path / "store")) as store:
        names = {thread.name for thread in set(threading.enumerate()) - before}
        assert {"flintmq-flush", "flintmq-queue-flush"} <= names
        assert store.put(message()).ok
    assert set(threading.enumerate()) - before == set()


# -- the checkpoint --------------------------------------------------------------------------


def test_the_checkpoint_of_the_reference_store(files: SimulatedFiles) -> None:
    """Java's three times after the six records of the specification and a clean stop."""
    store = open_store(files)
    put_vectors(store)
    store.put(message(b"delayed", topic="TopicTest", queue_id=1, properties={"TAGS": "TagD"}))
    store.close()
    page = files.read(ROOT / "checkpoint")
    assert page[:16].hex() == "0000018bcfe569c80000018bcfe569c8"
    assert page[24:64] == bytes(40)


def test_a_checkpoint_speaks_only_of_what_is_on_the_disk(files: SimulatedFiles) -> None:
    store = open_store(files)
    store.put(message(b"one", properties={"KEYS": "k"}))
    store.dispatch()
    store.checkpoint()
    dark = next(files.crash_images(Random(0), 0))
    report = open_store(dark).recovery_report
    assert (report.records_scanned, report.units_rebuilt, report.problems) == (0, 0, [])


def test_a_checkpoint_brings_the_log_to_the_disk(files: SimulatedFiles) -> None:
    store = open_store(files)
    store.put(message(b"one"))
    store.checkpoint()
    dark = next(files.crash_images(Random(0), 0))
    assert bodies(open_store(dark)) == [b"one"]


# -- what is seen when -----------------------------------------------------------------------


def test_with_synchronous_flush_nobody_sees_what_a_power_failure_could_take() -> None:
    store = sync_store()
    result = store.put(message(b"unflushed", properties={"KEYS": "k"}))
    assert read(store).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert store.look(0) is None
    assert store.select(0) is None
    assert store.log.read_range(0, 100) is None
    assert store.query("T", "k", 10, 0, STORE_MS).slices == []
    assert wait_flushed(store, result.end_offset) == (PutStatus.PUT_OK, "")
    assert bodies(store) == [b"unflushed"]
    assert store.look(0) is not None
    found = store.query("T", "k", 10, 0, STORE_MS)
    assert len(found.slices) == 1
    found.release()


def test_a_durable_put_is_seen_when_it_returns() -> None:
    store = sync_store()
    assert put_durably(store, message(b"one")).ok
    assert put_durably(store, batch(b"two", b"three")).ok
    assert bodies(store) == [b"one", b"two", b"three"]


def test_a_durable_put_that_need_not_wait_does_not() -> None:
    store = sync_store()
    result = put_durably(store, message(properties={"WAIT": "false"}))
    assert result.ok
    assert store.flusher.flushed_offset == 0


def test_what_waits_in_a_pool_buffer_is_seen_after_its_commit(files: SimulatedFiles) -> None:
    store = open_store(files, transient_pool_enabled=True, transient_pool_size=2)
    store.put(message(b"in the buffer"))
    assert bodies(store) == []
    assert store.look(0) is None
    assert files.read(LOG / f"{0:020d}")[:8] == bytes(8)
    store.commit()
    assert bodies(store) == [b"in the buffer"]
    assert files.read(LOG / f"{0:020d}")[4:8].hex() == "daa320a7"


def test_a_flush_commits_first(files: SimulatedFiles) -> None:
    store = open_store(files, transient_pool_enabled=True, transient_pool_size=2)
    for number in range(40):
        store.put(message(b"%d" % number + bytes(200)))
    store.flush()
    dark = next(files.crash_images(Random(0), 0))
    assert len(bodies(open_store(dark))) == 40


def test_a_pool_makes_no_sense_with_synchronous_flush() -> None:
    store = sync_store(transient_pool_enabled=True)
    store.put(message())
    assert store.log.files.last is not None
    assert store.log.files.last.write_buffer is None


def test_without_a_free_buffer_a_file_is_written_directly(files: SimulatedFiles) -> None:
    store = open_store(files, transient_pool_enabled=True, transient_pool_size=1)
    for number in range(4):
        store.put(message(b"%d" % number + bytes(2900)))
    store.commit()
    assert [body[:1] for body in bodies(store)] == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("buffers", [1, 2, 4])
def test_a_buffer_that_is_full_and_not_committed_hides_what_comes_after_it(buffers: int) -> None:
    """A consumer that saw the later messages would pass over the earlier ones for good."""
    store = open_store(transient_pool_enabled=True, transient_pool_size=buffers)
    for number in range(4):
        store.put(message(b"%d" % number + bytes(2900)))
    assert read(store).status is GetStatus.NO_MESSAGE_IN_QUEUE
    store.commit()
    assert [body[:1] for body in bodies(store)] == [b"0", b"1", b"2", b"3"]


def test_while_the_pool_cannot_be_committed_no_more_is_taken_in(files: SimulatedFiles) -> None:
    store = open_store(files, transient_pool_enabled=True, commit_thorough_interval_ms=0)
    store.put(message(b"one"))
    files.fail_next("region_write", Fault.EIO)
    store.durability.commit_step()
    refusal = store.put(message())
    assert refusal.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "Input/output error" in refusal.reason
    store.durability.commit_step()
    assert store.put(message(b"two")).ok
    store.commit()
    assert bodies(store) == [b"one", b"two"]


def test_a_stop_tries_again_to_write_what_is_left_in_the_pool(files: SimulatedFiles) -> None:
    store = open_store(files, transient_pool_enabled=True)
    store.put(message(b"kept"))
    for _ in range(9):
        files.fail_next("region_write", Fault.EIO)
    store.close()
    assert not files.exists(ABORT)
    assert bodies(open_store(files)) == [b"kept"]


# -- looking ---------------------------------------------------------------------------------


def test_a_record_is_found_by_its_physical_offset(store: MessageStore) -> None:
    second = [store.put(message(b"%d" % number)) for number in range(3)][1]
    record = store.look(second.physical_offset)
    assert record is not None
    assert bytes(record.body) == b"1"
    piece = store.select(second.physical_offset)
    assert piece is not None
    with piece:
        assert piece.size == second.size


@pytest.mark.parametrize("offset", [-1, 1, 28, 92, 1 << 40])
def test_no_record_is_found_where_none_begins(store: MessageStore, offset: int) -> None:
    store.put(message(bytes(200)))
    assert store.look(offset) is None
    assert store.select(offset) is None


def test_a_blank_is_no_record(store: MessageStore) -> None:
    end = store.put(message(bytes(2900))).end_offset
    store.put(message(bytes(2900)))
    assert store.look(end) is None
    assert store.select(end) is None


def test_an_unknown_queue_begins_and_ends_at_zero(store: MessageStore) -> None:
    assert (store.min_offset_in_queue("T", 9), store.max_offset_in_queue("T", 9)) == (0, 0)
    assert store.offset_by_time("T", 9, STORE_MS) == 0
    assert store.earliest_time("T", 9) == -1
    assert store.earliest_time() == -1


def test_the_oldest_times_are_known_at_once(store: MessageStore) -> None:
    """Java answers -1 for the log until it holds twice the largest message."""
    turn(store, 10)
    store.put(message())
    turn(store, 10)
    store.put(message(queue_id=1))
    assert store.earliest_time() == STORE_MS + 10
    assert store.earliest_time("T", 1) == STORE_MS + 20


def test_runtime_info_tells_where_the_log_stands(store: MessageStore) -> None:
    end = store.put(message()).end_offset
    info = store.runtime_info()
    assert info["commitLogMinOffset"] == "0"
    assert info["commitLogMaxOffset"] == str(end)
    assert info["dispatchBehindBytes"] == str(end)
    assert info["remainHowManyDataToFlush"] == str(end)


# -- maintenance -----------------------------------------------------------------------------


def test_topics_that_nobody_needs_are_cleaned(files: SimulatedFiles) -> None:
    store = open_store(files, enable_lmq=True, enable_multi_dispatch=True)
    store.put(message(b"kept", topic="live"))
    store.put(message(topic="dead"))
    store.put(message(topic="dead", queue_id=1))
    store.put(message(properties={"DELAY": "1"}))
    store.put(message(topic="live", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}))
    store.dispatch()
    assert store.clean_unused_topics({"live"}) == 1
    assert store.queues.topics == ["%LMQ%a", "SCHEDULE_TOPIC_XXXX", "live"]
    assert not files.list(ROOT / "consumequeue" / "dead")
    assert store.put(message(topic="dead")).queue_offset == 0


def test_a_cleaned_topic_stays_cleaned_after_a_crash(files: SimulatedFiles) -> None:
    store = open_store(files)
    store.put(message(topic="dead"))
    store.put(message(topic="live"))
    store.dispatch()
    store.checkpoint()
    store.clean_unused_topics({"live"})
    store.put(message(b"new", topic="dead"))
    for image in (files.process_crash_image(), *files.crash_images(Random(1), 5)):
        again = open_store(image)
        assert bodies(again, "dead") in ([], [b"new"])
        assert bodies(again, "live") == [b"body"]


def test_queues_follow_the_log_when_its_oldest_file_is_deleted(store: MessageStore) -> None:
    fill_log(store, 10)
    delete_oldest(store)
    first = store.min_offset_in_queue("T", 0)
    assert first > 0
    assert [record.queue_offset for record in records(store)] == list(range(first, 10))
    assert read(store).status is GetStatus.OFFSET_TOO_SMALL


def test_a_queue_whose_records_are_gone_keeps_its_offsets(files: SimulatedFiles) -> None:
    store = open_store(files)
    store.put(message(queue_id=7))
    fill_log(store, 10)
    delete_oldest(store)
    for image in (files.process_crash_image(), *files.crash_images(Random(1), 3)):
        assert open_store(image).put(message(queue_id=7)).queue_offset == 1
    assert store.put(message(queue_id=7)).queue_offset == 1


def test_queues_whose_every_record_is_gone_can_be_cleaned(files: SimulatedFiles) -> None:
    store = open_store(files)
    store.put(message(queue_id=7))
    store.put(message(queue_id=1, properties={"DELAY": "1"}))
    fill_log(store, 10)
    delete_oldest(store)
    assert store.clean_expired_queues() == 1
    assert store.queues.get("T", 7) is None
    assert store.put(message(queue_id=7)).queue_offset == 0
    assert store.max_offset_in_queue("SCHEDULE_TOPIC_XXXX", 0) == 1


def test_a_log_file_is_kept_until_its_units_are_on_the_disk(files: SimulatedFiles) -> None:
    """A record deleted before would take its queue offset with it in a power failure."""
    store = open_store(files, file_reserved_hours=0, delete_when=tuple(range(24)))
    store.put(message(queue_id=7))
    fill_log(store, 10)
    store.dispatch()
    turn(store, 61_000)
    store.retention.step(store.clock.now_ms())
    assert store.log.min_offset == 0
    store.checkpoint()
    turn(store, 10_000)
    store.retention.step(store.clock.now_ms())
    assert store.log.min_offset > 0
    dark = next(files.crash_images(Random(0), 0))
    assert open_store(dark).put(message(queue_id=7)).queue_offset == 1


# -- settings --------------------------------------------------------------------------------


def test_without_an_index_keys_find_nothing(files: SimulatedFiles) -> None:
    store = open_store(files, index_enabled=False)
    store.put(message(b"one", properties={"KEYS": "k"}))
    assert store.query("T", "k", 10, 0, STORE_MS).slices == []
    store.close()
    assert not files.exists(ROOT / "index")
    assert bodies(open_store(files, index_enabled=False)) == [b"one"]


def test_an_index_that_is_switched_on_later_knows_the_whole_log(files: SimulatedFiles) -> None:
    with open_store(files, index_enabled=False) as store:
        for _ in range(30):
            store.put(message(properties={"KEYS": "k"}))
    store = open_store(files)
    found = store.query("T", "k", 64, 0, STORE_MS)
    assert len(found.slices) == 30
    found.release()


@pytest.mark.parametrize("cleanly", [True, False])
def test_an_index_that_was_off_for_a_while_has_no_gap(files: SimulatedFiles, cleanly: bool) -> None:
    for enabled in (True, False, True):
        store = open_store(files, index_enabled=enabled)
        for _ in range(12):
            store.put(message(properties={"KEYS": "k"}))
        if cleanly:
            store.close()
        else:
            store.checkpoint()
            files = files.process_crash_image()
    store = open_store(files)
    found = store.query("T", "k", 64, 0, STORE_MS)
    starts = [piece.start for piece in found.slices]
    found.release()
    assert len(starts) == len(set(starts)) == 36


def test_the_defaults_of_a_store_are_those_of_rocketmq() -> None:
    config = StoreConfig(root=ROOT)
    assert (config.commit_log_file_size, config.consume_queue_file_size) == (1 << 30, 6_000_000)


def test_errors_of_the_store_are_of_one_kind() -> None:
    assert issubclass(StoreLockedError, StoreError)
    assert issubclass(StoreLoadError, StoreError)
