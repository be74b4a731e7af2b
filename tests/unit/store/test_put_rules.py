"""Facts about puts that were untrue once."""

from pathlib import Path

import pytest

from flintmq.format.host import pack_host
from flintmq.model.message import PutMessage
from flintmq.store.config import StoreConfig
from flintmq.store.errors import DiskFullError
from flintmq.store.message_store import MessageStore
from flintmq.store.results import PutStatus
from flintmq.testing import ROOT, Fault, ManualClock, SimulatedFiles
from tests.kits.golden.engine import index_entries_in

HOST = pack_host("10.0.0.1", 10911)


def _config(root: Path = ROOT, **settings: object) -> StoreConfig:
    return StoreConfig(
        root=root,
        commit_log_file_size=8192,
        consume_queue_file_size=400,
        hash_slot_count=13,
        index_entry_count=40,
        **settings,  # type: ignore[arg-type]
    )


def _message(number: int, **properties: str) -> PutMessage:
    return PutMessage(
        topic="T",
        queue_id=number % 2,
        body=f"body {number}".encode(),
        properties={"KEYS": f"k{number}"} | properties,
        born_host=HOST,
        store_host=HOST,
    )


def _open(files: SimulatedFiles, config: StoreConfig | None = None) -> MessageStore:
    return MessageStore.open(config or _config(), files=files, clock=files.clock, background=False)


def test_a_level_above_the_highest_is_stored_as_the_highest() -> None:
    with _open(SimulatedFiles(clock=ManualClock())) as store:
        result = store.put(_message(0, DELAY="99"))
        record = store.look(result.physical_offset)
        assert record is not None
        assert record.properties["DELAY"] == "18"
        assert (record.topic, record.queue_id) == ("SCHEDULE_TOPIC_XXXX", 17)


@pytest.mark.parametrize("level", [" 1", "1_0", "one", "", "12345678901"])
def test_a_delay_level_that_is_no_number_is_refused(level: str) -> None:
    with _open(SimulatedFiles(clock=ManualClock())) as store:
        result = store.put(_message(0, DELAY=level)) if level else None
        if result is not None:
            assert result.status is PutStatus.MESSAGE_ILLEGAL
            assert "delay level" in result.reason
            assert store.log.end_offset == 0


def test_a_negative_queue_id_is_refused() -> None:
    with _open(SimulatedFiles(clock=ManualClock())) as store:
        message = _message(0)
        message.queue_id = -1
        result = store.put(message)
        assert result.status is PutStatus.MESSAGE_ILLEGAL
        assert "queue id -1" in result.reason


def test_a_delayed_message_enters_its_further_queues_when_it_is_delivered() -> None:
    files = SimulatedFiles(clock=ManualClock())
    config = _config(enable_multi_dispatch=True, enable_lmq=True)
    with _open(files, config) as store:
        assert store.put(_message(0, DELAY="1", INNER_MULTI_DISPATCH="%LMQ%a")).ok
        store.dispatch()
        assert store.max_offset_in_queue("%LMQ%a", 0) == 0
        assert isinstance(files.clock, ManualClock)
        files.clock.advance(1000)
        assert store.schedule.deliver_due() == 1
        store.dispatch()
        assert store.max_offset_in_queue("%LMQ%a", 0) == 1
        assert store.max_offset_in_queue("T", 0) == 1


def test_a_light_queue_can_be_cleaned_and_starts_again_at_zero() -> None:
    files = SimulatedFiles(clock=ManualClock())
    config = _config(enable_multi_dispatch=True, enable_lmq=True)
    with _open(files, config) as store:
        assert store.put(_message(0, INNER_MULTI_DISPATCH="%LMQ%a")).ok
        assert store.max_offset_in_queue("%LMQ%a", 0) == 1
        assert store.queues.lmq_count == 1
        assert store.clean_unused_light_queue("%LMQ%a")
        assert not store.clean_unused_light_queue("%LMQ%a")
        assert not store.clean_unused_light_queue("T")
        assert store.queues.lmq_count == 0
        assert store.put(_message(2, INNER_MULTI_DISPATCH="%LMQ%a")).ok
        assert store.max_offset_in_queue("%LMQ%a", 0) == 1


def test_dispatch_from_the_log_loses_no_index_entry_when_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flintmq.store.pending_dispatch.PENDING_MAX", 4)
    files = SimulatedFiles(clock=ManualClock())
    with _open(files) as store:
        for number in range(20):
            assert store.put(_message(number)).ok
        files.fail_next("create", Fault.ENOSPC, name="index")
        for number in range(20, 45):
            assert store.put(_message(number)).ok
        store.dispatch()
        for _ in range(3):
            store.dispatch()
        assert store.dispatcher.blocked is None
        assert len(index_entries_in(store)) == 45
        assert len({offset for _, offset in index_entries_in(store)}) == 45


def test_a_killed_store_opens_on_a_full_disk_and_catches_up_later() -> None:
    files = SimulatedFiles(clock=ManualClock())
    store = _open(files)
    for number in range(60):
        assert store.put(_message(number)).ok
    crashed = files.process_crash_image()
    for name in ("consumequeue", "index"):
        _remove_tree(crashed, ROOT / name)
    usage = crashed.usage(ROOT)
    assert usage is not None
    crashed.capacity = usage.total - usage.free
    with _open(crashed) as store:
        assert any("dispatch waits" in problem for problem in store.recovery_report.problems)
        assert store.max_offset_in_queue("T", 0) < 30
        crashed.capacity = None
        result = store.put(_message(60))
        assert result.ok
        assert result.queue_offset == 30
        store.dispatch()
        assert store.max_offset_in_queue("T", 0) == 31
        assert store.max_offset_in_queue("T", 1) == 30
        assert len(index_entries_in(store)) == 61


def _remove_tree(files: SimulatedFiles, directory: Path) -> None:
    for entry in files.list(directory):
        path = directory / entry.name
        if entry.is_directory:
            _remove_tree(files, path)
        else:
            files.remove(path)
    files.remove_directory(directory)


def test_a_disk_full_error_names_path_and_size() -> None:
    error = DiskFullError(Path("store/commitlog/0"), 4096)
    assert "store/commitlog/0" in str(error)
    assert "4096" in str(error)
