from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from flintmq.format.stored.queue_claims import QueueSlot, multi_slots
from flintmq.store import dispatch, pending_dispatch
from flintmq.store.appending import store_writer
from flintmq.store.errors import DiskFullError, StoreIOError
from flintmq.store.message_store import MessageStore
from flintmq.store.results import PutStatus
from flintmq.store.running_flags import RunningFlag
from flintmq.testing import ROOT, Fault, SimulatedFiles
from tests.kits.store.store_kit import (
    SMALL,
    STORE_MS,
    batch,
    bodies,
    message,
    new_files,
    open_store,
    records,
    sync_store,
)

KEYED = {"KEYS": "a b", "UNIQ_KEY": "u", "TAGS": "TagA"}


def put_of_every_kind(store: MessageStore, count: int = 1) -> None:
    """Put messages of all kinds, enough for rolls of log, queues and index."""
    for number in range(count):
        store.put(message(bytes(number), properties=KEYED))
        store.put_batch(batch(b"x", b"y", properties={"KEYS": f"c{number}"}, queue_id=1))
        store.put(message(properties={"DELAY": "2", **KEYED}))
        store.put(message(sys_flag=0x4, properties=KEYED))
        store.put(message(sys_flag=0xC, properties=KEYED))
        store.put(message(properties={"INNER_MULTI_DISPATCH": "%LMQ%x,plain", **KEYED}))


def views_of(store: MessageStore) -> dict[str, Any]:
    """Return all units and all index files of a store."""
    assert store.index is not None
    return {
        "queues": {
            (queue.topic, queue.queue_id): list(queue.units())
            for queue in store.queues
            if not queue.is_empty
        },
        "index": [bytes(file.view) for file in store.index.files],
    }


# -- when ------------------------------------------------------------------------------------


def test_a_put_is_in_the_views_after_dispatch() -> None:
    store = open_store()
    end = store.put(message()).end_offset
    assert (store.dispatcher.waiting, store.dispatcher.behind) == (1, end)
    assert store.queues.get("T", 0) is None
    assert store.dispatch() == 1
    assert (store.dispatcher.waiting, store.dispatcher.behind) == (0, 0)
    assert store.dispatcher.offset == end
    queue = store.queues.get("T", 0)
    assert queue is not None
    assert list(queue.units()) == [(0, 0, end, 0)]
    assert store.dispatch() == 0


def test_a_read_dispatches_first() -> None:
    store = open_store()
    store.put(message(b"fresh", properties={"KEYS": "k"}))
    assert bodies(store) == [b"fresh"]
    store.put(message())
    assert store.max_offset_in_queue("T", 0) == 2
    store.put(message(properties={"KEYS": "k"}))
    result = store.query("T", "k", 10, 0, STORE_MS)
    assert len(result.slices) == 2
    result.release()


def test_many_puts_dispatch_by_themselves() -> None:
    store = open_store()
    for _ in range(store_writer.DISPATCH_EVERY - 1):
        store.put(message())
    assert store.dispatcher.waiting == store_writer.DISPATCH_EVERY - 1
    store.put(message())
    assert store.dispatcher.waiting == 0
    for _ in range(store_writer.DISPATCH_EVERY // 2):
        store.put_batch(batch(b"x", b"y", queue_id=1))
    assert store.dispatcher.waiting == 0


def test_with_synchronous_flush_nothing_is_dispatched_before_the_disk_has_it() -> None:
    store = sync_store()
    store.put(message(b"one"))
    assert store.dispatch() == 0
    assert bodies(store) == []
    assert store.max_offset_in_queue("T", 0) == 0
    store.flush()
    assert bodies(store) == [b"one"]


def test_a_record_that_is_flushed_in_part_is_not_dispatched() -> None:
    store = sync_store()
    first = store.put(message(b"one")).end_offset
    store.flush()
    store.put(message(b"two"))
    # As if a sync had begun in the middle of the append.
    store.log.files.flushed_where = first + 20
    assert store.dispatch() == 1
    assert store.dispatcher.offset == first


# -- a log that is read again ----------------------------------------------------------------


@pytest.mark.parametrize("pending_max", [0, 1, 3, 7])
@pytest.mark.parametrize("batch_max", [1, 2, 256])
def test_a_long_lag_is_read_from_the_log_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch, pending_max: int, batch_max: int
) -> None:
    multi: dict[str, Any] = {"enable_multi_dispatch": True, "enable_lmq": True}
    expected = open_store(**multi)
    for count in (5, 7):
        put_of_every_kind(expected, count)
        expected.dispatch()
    monkeypatch.setattr(pending_dispatch, "PENDING_MAX", pending_max)
    monkeypatch.setattr(dispatch, "BATCH_COUNT_MAX", batch_max)
    monkeypatch.setattr(store_writer, "DISPATCH_EVERY", 1 << 30)
    store = open_store(**multi)
    put_of_every_kind(store, 5)
    assert store.dispatcher.waiting <= pending_max + 1
    store.dispatch()
    assert store.dispatcher.waiting == 0
    put_of_every_kind(store, 7)
    store.dispatch()
    assert store.dispatcher.behind == 0
    assert views_of(store) == views_of(expected)


def test_what_is_put_while_the_log_is_read_again_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pending_dispatch, "PENDING_MAX", 2)
    store = sync_store()
    for number in range(4):
        store.put(message(b"%d" % number))
    store.flush()
    store.put(message(b"4"))  # not flushed: the log cannot be read up to here yet
    assert bodies(store) == [b"0", b"1", b"2", b"3"]
    assert store.dispatcher.waiting == 1
    store.put(message(b"5"))
    store.flush()
    assert bodies(store) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert store.dispatcher.waiting == 0
    store.put(message(b"6"))
    assert store.dispatcher.waiting == 1


# -- announcing ------------------------------------------------------------------------------


class Listener:
    """Notes every arrival."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.store: MessageStore | None = None

    def __call__(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        tags_code: int,
        store_timestamp: int,
        bitmap: bytes | None,
        read_properties: Callable[[], Mapping[str, str]],
    ) -> None:
        properties = dict(read_properties())
        self.heard.append((topic, queue_id, queue_offset, tags_code, bitmap, properties))
        assert store_timestamp == STORE_MS
        if self.store is not None:
            # A held pull is answered from here: what it was woken for can be read.
            assert len(records(self.store, topic, queue_id)) >= queue_offset


def listening_store(**settings: Any) -> tuple[MessageStore, Listener]:
    files = new_files()
    listener = Listener()
    store = MessageStore.open(
        replace(SMALL, **settings),
        files=files,
        clock=files.clock,
        background=False,
        on_arrival=listener,
        filter_bitmap=lambda topic, properties: b"\1" if properties.get("TAGS") else None,
    )
    return store, listener


def test_every_record_is_announced_with_the_new_end_of_its_queue() -> None:
    store, listener = listening_store()
    store.put(message(properties={"TAGS": "TagA"}))
    store.put(message())
    store.put_batch(batch(b"x", properties={"A": "b"}))
    store.put(message(sys_flag=0x4))
    store.dispatch()
    assert listener.heard == [
        ("T", 0, 1, 2598919, b"\1", {"TAGS": "TagA"}),
        ("T", 0, 2, 0, None, {}),
        ("T", 0, 3, 0, None, {"A": "b"}),
        ("T", 0, 1, 0, None, {}),
    ]


def test_further_queues_are_announced_too() -> None:
    store, listener = listening_store(enable_multi_dispatch=True, enable_lmq=True)
    store.put(message(queue_id=2, properties={"INNER_MULTI_DISPATCH": "%LMQ%a,plain"}))
    store.dispatch()
    assert [heard[:3] for heard in listener.heard] == [
        ("T", 2, 1),
        ("%LMQ%a", 0, 1),
        ("plain", 2, 1),
    ]


def test_a_listener_may_read_at_once() -> None:
    store, listener = listening_store()
    listener.store = store
    for _ in range(3):
        store.put(message())
    assert store.dispatch() == 3
    assert len(listener.heard) == 3


def test_recovery_announces_nothing() -> None:
    files = new_files()
    store = open_store(files)
    store.put(message())
    listener = Listener()
    image = files.process_crash_image()
    MessageStore.open(SMALL, files=image, clock=image.clock, background=False, on_arrival=listener)
    assert listener.heard == []


# -- when the views cannot take it -----------------------------------------------------------


@pytest.fixture
def files() -> SimulatedFiles:
    return new_files()


def test_a_full_disk_stops_dispatch_and_loses_nothing(files: SimulatedFiles) -> None:
    store = open_store(files)
    store.put(message(b"one", properties=KEYED))
    store.dispatch()
    store.put(message(b"two", queue_id=1, properties=KEYED))
    store.put(message(b"three", properties=KEYED))
    files.fail_next("create", Fault.ENOSPC)
    assert store.dispatch() == 0
    assert isinstance(store.dispatcher.blocked, DiskFullError)
    assert store.flags.writable, "a full disk is not the end of the store"
    assert store.dispatch() == 2
    assert store.dispatcher.blocked is None
    assert (bodies(store), bodies(store, "T", 1)) == ([b"one", b"three"], [b"two"])


@pytest.mark.parametrize("operation", ["create", "reserve"])
def test_a_message_whose_keys_were_half_in_the_index_is_not_entered_twice(
    files: SimulatedFiles, operation: str
) -> None:
    expected = open_store()
    store = open_store(files)
    for one in (expected, store):
        for number in range(19):
            one.put(message(properties={"KEYS": f"a{number} b{number}"}))
        one.dispatch()
        one.put(message(properties={"KEYS": "x y z"}))  # one fits, two do not
    files.fail_next(operation, Fault.ENOSPC, name=None)
    assert store.dispatch() == 0
    assert store.dispatcher.blocked is not None
    store.checkpoint()
    image = files.process_crash_image()
    expected.dispatch()
    for one in (store, open_store(image)):
        one.dispatch()
        assert views_of(one) == views_of(expected)


def test_a_failing_disk_makes_the_store_read_only(files: SimulatedFiles) -> None:
    store = open_store(files)
    store.put(message())
    files.fail_next("create", Fault.EIO)
    assert store.dispatch() == 0
    assert isinstance(store.dispatcher.blocked, StoreIOError)
    assert store.flags.bits == RunningFlag.QUEUE_WRITE_FAILED
    assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE


def test_a_stop_that_could_not_dispatch_is_no_clean_stop(files: SimulatedFiles) -> None:
    store = open_store(files)
    store.put(message(b"one"))
    files.fail_next("create", Fault.EIO)
    store.dispatch()
    store.close()
    assert files.exists(ROOT / "abort")
    again = open_store(files)
    assert not again.recovery_report.clean_exit
    assert bodies(again) == [b"one"]


# -- further queues of a stored message ------------------------------------------------------


def test_the_further_queues_of_a_stored_message_come_from_its_properties() -> None:
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a,b", "INNER_MULTI_QUEUE_OFFSET": "4,5"}
    assert multi_slots(properties, 3, lmq=True) == [QueueSlot("%LMQ%a", 0, 4), QueueSlot("b", 3, 5)]
    assert multi_slots(properties, 3, lmq=False)[0] == QueueSlot("%LMQ%a", 3, 4)


@pytest.mark.parametrize("offsets", ["", "1", "1,2,3", "1,x", "1,-2"])
def test_offsets_that_do_not_belong_to_the_names_lead_nowhere(offsets: str) -> None:
    properties = {"INNER_MULTI_DISPATCH": "a,b", "INNER_MULTI_QUEUE_OFFSET": offsets}
    assert multi_slots(properties, 0, lmq=False) == []
