import threading
from random import Random

import pytest

from flintmq.store.errors import FlushFailedError
from flintmq.store.message_store import MessageStore
from flintmq.store.results import PutResult, PutStatus
from flintmq.store.running_flags import RunningFlag
from flintmq.store.upkeep import durability
from flintmq.testing import Fault, SimulatedFiles
from tests.kits.store.store_kit import bodies, message, new_files, open_store, sync_store, turn
from tests.kits.store.waiting_puts import put_durably, wait_flushed

OK = (PutStatus.PUT_OK, "")


class Answers:
    """Collects what waiters are told."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.given: dict[int, tuple[PutStatus, str]] = {}

    def wait_for(self, offset: int) -> None:
        def done(status: PutStatus, reason: str) -> None:
            assert offset not in self.given, "answered twice"
            self.given[offset] = (status, reason)

        self._store.when_flushed(offset, done)


@pytest.fixture
def files() -> SimulatedFiles:
    return new_files()


@pytest.fixture
def store(files: SimulatedFiles) -> MessageStore:
    return sync_store(files)


# -- waiting ---------------------------------------------------------------------------------


def test_a_waiter_is_told_when_the_disk_has_its_bytes(store: MessageStore) -> None:
    answers = Answers(store)
    end = store.put(message()).end_offset
    answers.wait_for(end)
    assert answers.given == {}
    assert store.flusher.wanted.is_set()
    store.flush()
    assert answers.given == {end: OK}


def test_what_is_flushed_already_is_answered_at_once(store: MessageStore) -> None:
    end = store.put(message()).end_offset
    store.flush()
    answers = Answers(store)
    answers.wait_for(end)
    assert answers.given == {end: OK}


def test_one_sync_serves_every_waiter(store: MessageStore, files: SimulatedFiles) -> None:
    answers = Answers(store)
    ends = [store.put(message()).end_offset for _ in range(5)]
    for end in ends:
        answers.wait_for(end)
    before = files.count("region_sync")
    store.flush()
    assert files.count("region_sync") == before + 1
    assert answers.given == dict.fromkeys(ends, OK)


def test_waiters_need_not_come_in_the_order_of_their_offsets(store: MessageStore) -> None:
    answers = Answers(store)
    first = store.put(message()).end_offset
    answers.wait_for(first + 1000)
    answers.wait_for(first)
    store.flush()
    assert answers.given == {first: OK}


def test_a_flush_goes_over_several_files(store: MessageStore, files: SimulatedFiles) -> None:
    ends = [store.put(message(bytes(2900))).end_offset for _ in range(3)]
    before = files.count("region_sync")
    store.flush()
    assert files.count("region_sync") == before + 3
    assert store.flusher.flushed_offset == ends[-1] == store.log.end_offset
    assert store.flusher.unflushed_bytes == 0


def test_a_waiter_whose_time_is_up_learns_that_its_message_is_only_stored(
    store: MessageStore,
) -> None:
    answers = Answers(store)
    answers.wait_for(store.put(message()).end_offset)
    turn(store, 4999)
    assert store.flusher.expire() == 0
    late = store.put(message()).end_offset
    answers.wait_for(late)
    turn(store, 1)
    assert store.flusher.expire() == 1
    ((status, reason),) = answers.given.values()
    assert status is PutStatus.FLUSH_DISK_TIMEOUT
    assert status.stored
    assert "syncFlushTimeout" in reason
    store.flush()
    assert answers.given[late] == OK


def test_waiting_without_threads_flushes_by_itself(store: MessageStore) -> None:
    end = store.put(message()).end_offset
    assert wait_flushed(store, end) == OK
    assert store.flusher.flushed_offset == end


def test_nothing_to_flush_is_no_flush(store: MessageStore, files: SimulatedFiles) -> None:
    assert store.flusher.flush() is False
    store.put(message())
    assert store.flusher.flush() is True
    before = len(files.calls)
    assert store.flusher.flush() is False
    assert len(files.calls) == before


def test_least_pages_put_a_flush_off(store: MessageStore) -> None:
    store.put(message())
    assert store.flusher.flush(least_pages=4) is False
    assert store.flusher.unflushed_bytes > 0
    assert store.flusher.flush(least_pages=0) is True


def test_the_time_of_the_last_flushed_message_is_known(store: MessageStore) -> None:
    assert store.flusher.flushed_timestamp == 0
    turn(store, 7)
    result = store.put(message())
    store.flush()
    assert store.flusher.flushed_timestamp == result.store_timestamp


# -- a sync that fails -----------------------------------------------------------------------


def test_after_a_failed_sync_those_who_wait_are_told(
    store: MessageStore, files: SimulatedFiles
) -> None:
    answers = Answers(store)
    end = store.put(message()).end_offset
    answers.wait_for(end)
    files.fail_next("region_sync", Fault.EIO)
    with pytest.raises(FlushFailedError, match="Input/output error"):
        store.flush()
    status, reason = answers.given[end]
    assert status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "Input/output error" in reason


def test_after_a_failed_sync_the_store_is_read_only_and_says_why(
    store: MessageStore, files: SimulatedFiles
) -> None:
    store.put(message(b"durable"))
    store.flush()
    store.put(message(b"lost"))
    files.fail_next("region_sync", Fault.EIO)
    with pytest.raises(FlushFailedError):
        store.flush()
    assert store.flags.bits == RunningFlag.SYNC_FAILED
    (reason,) = store.flags.reasons()
    assert reason.startswith("sync failed: ")
    refusal = store.put(message())
    assert refusal.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert refusal.reason == reason
    assert bodies(store) == [b"durable"]


def test_after_a_failed_sync_nothing_is_tried_again_as_if_it_were_clean(
    store: MessageStore, files: SimulatedFiles
) -> None:
    store.put(message())
    files.fail_next("region_sync", Fault.EIO)
    with pytest.raises(FlushFailedError):
        store.flush()
    before = files.count("region_sync")
    answers = Answers(store)
    answers.wait_for(store.log.end_offset)
    assert answers.given[store.log.end_offset][0] is PutStatus.SERVICE_NOT_AVAILABLE
    for call in (store.flush, store.checkpoint, store.flusher.flush):
        with pytest.raises(FlushFailedError):
            call()
    assert files.count("region_sync") == before
    assert store.flusher.flushed_offset == 0


def test_files_before_the_one_that_failed_are_durable(
    store: MessageStore, files: SimulatedFiles
) -> None:
    answers = Answers(store)
    first = store.put(message(bytes(2900))).end_offset
    second = store.put(message(bytes(2900))).end_offset
    answers.wait_for(first)
    answers.wait_for(second)
    files.fail_next("region_sync", Fault.EIO, name=f"{4096:020d}")
    with pytest.raises(FlushFailedError):
        store.flush()
    assert answers.given[first] == OK
    assert answers.given[second][0] is PutStatus.SERVICE_NOT_AVAILABLE


def test_a_durable_put_is_told_when_the_disk_refuses(
    store: MessageStore, files: SimulatedFiles
) -> None:
    store.put(message())
    files.fail_next("region_sync", Fault.EIO)
    result = put_durably(store, message())
    assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "Input/output error" in result.reason
    assert bodies(store) == []


def test_what_was_refused_after_a_failed_sync_is_not_found_after_a_power_failure(
    store: MessageStore, files: SimulatedFiles
) -> None:
    assert put_durably(store, message(b"acknowledged")).ok
    files.fail_next("region_sync", Fault.EIO)
    assert not put_durably(store, message(b"refused")).ok
    store.close()
    dark = next(files.crash_images(Random(0), 0))
    assert bodies(sync_store(dark)) == [b"acknowledged"]


def test_a_restart_after_a_failed_sync_writes_again_what_the_kernel_has_dropped(
    store: MessageStore, files: SimulatedFiles
) -> None:
    """The pages are still seen, and count as clean: a sync alone would succeed without them."""
    store.put(message(b"seen but not on the disk"))
    files.fail_next("region_sync", Fault.EIO)
    with pytest.raises(FlushFailedError):
        store.flush()
    restarted = files.process_crash_image()
    assert bodies(sync_store(restarted)) == [b"seen but not on the disk"]
    dark = next(restarted.crash_images(Random(0), 0))
    assert bodies(sync_store(dark)) == [b"seen but not on the disk"]


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_an_index_that_cannot_be_synced_makes_the_store_read_only(
    files: SimulatedFiles, fault: Fault
) -> None:
    store = open_store(files)
    store.put(message(properties={"KEYS": "k"}))
    store.dispatch()
    assert store.index is not None
    files.fail_next("region_sync", fault, name=str(store.index.files[-1].name))
    with pytest.raises(FlushFailedError):
        store.checkpoint()
    assert store.flags.bits == RunningFlag.SYNC_FAILED


# -- with threads ----------------------------------------------------------------------------


def test_durable_puts_of_many_threads_are_all_flushed() -> None:
    files = new_files()
    store = MessageStore.open(
        sync_store(new_files()).config, files=files, clock=files.clock, background=True
    )
    results: list[PutResult] = []

    def put_some() -> None:
        results.extend(put_durably(store, message()) for _ in range(20))

    threads = [threading.Thread(target=put_some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [result.status for result in results] == [PutStatus.PUT_OK] * 80
    assert store.flusher.flushed_offset == store.log.end_offset
    store.close()


# -- marks ---------------------------------------------------------------------------------------


def test_marks_follow_the_bytes_of_the_log_as_well_as_the_clock(
    files: SimulatedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durability, "CHECKPOINT_SIZE_MAX", 1000)
    store = open_store(files)
    step = store.durability.queue_flush_step
    marks = store.durability.durably_dispatched
    store.put(message(b"x" * 400))
    store.dispatch()
    step()
    assert store.durability.durably_dispatched == marks
    store.put(message(b"x" * 800))
    store.dispatch()
    step()
    assert store.durability.durably_dispatched == store.log.end_offset
    store.put(message(b"later"))
    store.dispatch()
    step()
    assert store.durability.durably_dispatched < store.log.end_offset
    turn(store, store.config.flush_queue_thorough_interval_ms)
    step()
    assert store.durability.durably_dispatched == store.log.end_offset
