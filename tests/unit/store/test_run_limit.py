"""A run of a dispatcher whose owner has others to serve does a bounded amount of work."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import pytest

from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.model.message import MessageBatch, PutMessage
from flintmq.store import run_limit
from flintmq.store.append_group.sends import AppendGroup, Sends, SendTarget
from flintmq.store.config import StoreConfig
from flintmq.store.message_store import MessageStore
from flintmq.store.read_cursor import ReadCursor
from flintmq.store.views import key_index

HOST: Final = bytes((127, 0, 0, 1, 0, 0, 0, 1))
TIME_MAX: Final = (1 << 63) - 1


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root=root,
        commit_log_file_size=8 << 20,
        hash_slot_count=1000,
        index_entry_count=200_000,
        machine_code=False,
    )


class Inserts:
    """Counts the keys that are entered into an index in one run."""

    def __init__(self, store: MessageStore, patch: pytest.MonkeyPatch) -> None:
        self.in_a_run: list[int] = []
        insert, insert_group = key_index.KeyIndex.insert, key_index.KeyIndex.insert_group

        def counted(index: key_index.KeyIndex, entries: Any) -> int:
            self.in_a_run[-1] += sum(len(one.keys) for one in entries)
            return insert(index, entries)

        def counted_group(index: key_index.KeyIndex, keys: Any, timestamp: int) -> None:
            self.in_a_run[-1] += keys.count
            insert_group(index, keys, timestamp)

        patch.setattr(key_index.KeyIndex, "insert", counted)
        patch.setattr(key_index.KeyIndex, "insert_group", counted_group)
        self._store = store

    def next_run(self) -> int:
        self.in_a_run.append(0)
        return self._store.dispatch()


@contextmanager
def stepwise(root: Path, patch: pytest.MonkeyPatch) -> Iterator[tuple[MessageStore, Inserts]]:
    with MessageStore.open(config(root), background=False) as store:
        store.put(message("first", "a"))
        store.dispatch()
        store.dispatcher.run_limit.is_stepwise = True
        inserts = Inserts(store, patch)
        inserts.in_a_run.append(0)
        yield store, inserts


def message(key: str, body: str = "x") -> PutMessage:
    return PutMessage(
        topic="T",
        queue_id=0,
        body=body.encode(),
        properties={"KEYS": key},
        born_timestamp=1,
        born_host=HOST,
        store_host=HOST,
    )


def keyed(count: int, key_count: int) -> bytes:
    """Return the body of a batch whose messages have so many keys each, all of them different."""
    texts = [" ".join(f"k{n}x{k}" for k in range(key_count)) for n in range(count)]
    return encode_batch([BatchItem(0, b"", f"KEYS\x01{text}\x02".encode()) for text in texts])


def as_batch(body: bytes) -> MessageBatch:
    return MessageBatch(
        topic="T",
        queue_id=0,
        body=body,
        properties={},
        born_timestamp=1,
        born_host=HOST,
        store_host=HOST,
    )


def append(store: MessageStore, body: bytes, *, as_group: bool) -> None:
    """Append a batch, as the broker does: as a group, or by itself if it is special."""
    if as_group:
        target = SendTarget("T", 0, is_batch=True)
        sends = Sends([target], [1], [body], [b""], [HOST], b"")
        if isinstance(store.append_group(sends, HOST), AppendGroup):
            return
    assert store.put_batch(as_batch(body)).ok


def found(store: MessageStore, key: str) -> int:
    result = store.query("T", key, 10, 0, TIME_MAX)
    result.release()
    return len(result.slices)


@pytest.mark.parametrize("as_group", [False, True], ids=["alone", "group"])
@pytest.mark.parametrize(
    ("count", "key_count"), [(40, 1000), (6000, 2), (20, 3000)], ids=["keys", "messages", "many"]
)
def test_the_keys_of_a_batch_are_entered_run_by_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_group: bool, count: int, key_count: int
) -> None:
    with stepwise(tmp_path, monkeypatch) as (store, inserts):
        append(store, keyed(count, key_count), as_group=as_group)
        records = []
        while store.dispatcher.waiting:
            records.append(inserts.next_run())
            assert len(records) < 1000
        assert sum(inserts.in_a_run) == count * key_count
        # A record that is begun is entered whole.
        assert max(inserts.in_a_run) < run_limit.RUN_KEY_COUNT_MAX + key_count
        assert max(records) < run_limit.RUN_COUNT_MAX + 256
        assert not store.dispatcher.is_cut_short
        assert store.max_offset_in_queue("T", 0) == count + 1
        assert found(store, f"k{count - 1}x{key_count - 1}") == 1


def test_what_comes_behind_a_batch_that_waits_is_dispatched_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stepwise(tmp_path, monkeypatch) as (store, inserts):
        append(store, keyed(30, 1000), as_group=True)
        for number in range(10):
            assert store.put(message(f"after{number}")).queue_offset == 31 + number
        inserts.next_run()
        assert store.dispatcher.is_cut_short
        while store.dispatcher.waiting:
            inserts.next_run()
        assert store.max_offset_in_queue("T", 0) == 41
        assert found(store, "after9") == 1
        # Groups are appended again when the views are where the log is.
        target = SendTarget("T", 0)
        sends = Sends([target], [1], [b"x"], [b"KEYS\x01one\x02"], [HOST], b"")
        assert isinstance(store.append_group(sends, HOST), AppendGroup)


def test_reads_do_not_run_a_dispatcher_that_goes_on_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 256 pulls in one read each dispatched 512 records."""
    with stepwise(tmp_path, monkeypatch) as (store, inserts):
        append(store, keyed(30, 1000), as_group=True)
        inserts.next_run()
        end = store.max_offset_in_queue("T", 0)
        for _ in range(10):
            result = store.get_messages("T", 0, 0, 32)
            assert result is not None
            with result:
                assert len(result) == end == store.max_offset_in_queue("T", 0)
            # Without machine code nothing is copied, and no room for it looked at.
            store.copy_messages(ReadCursor("T", 0), 0, 32, cast(Any, None))
            assert found(store, "first") == 1
        while store.dispatcher.waiting:
            inserts.next_run()
        assert store.max_offset_in_queue("T", 0) == 31


def test_a_topic_that_is_removed_in_between_is_gone_with_all_its_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were not dispatched yet came into a queue that began with them."""
    with stepwise(tmp_path, monkeypatch) as (store, inserts):
        append(store, keyed(30, 1000), as_group=True)
        inserts.next_run()
        assert store.dispatcher.is_cut_short
        steps = store.forget_unused_topics(lambda topic: False)
        assert sum(1 for _ in steps) > 3  # Run by run, too.
        assert store.max_offset_in_queue("T", 0) == 0
        assert store.put(message("new")).queue_offset == 0
        assert store.max_offset_in_queue("T", 0) == 1


def test_a_stop_in_between_dispatches_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stepwise(tmp_path, monkeypatch) as (store, inserts):
        append(store, keyed(30, 1000), as_group=True)
        inserts.next_run()
        assert store.dispatcher.behind
    with MessageStore.open(config(tmp_path), background=False) as store:
        assert store.max_offset_in_queue("T", 0) == 31
        assert found(store, "k29x999") == 1


def test_a_script_has_all_it_put_in_its_queues_at_once(tmp_path: Path) -> None:
    with MessageStore.open(config(tmp_path), background=False) as store:
        append(store, keyed(30, 1000), as_group=True)
        assert store.max_offset_in_queue("T", 0) == 30
        assert found(store, "k29x999") == 1


def test_a_group_of_more_messages_than_a_step_of_space_is_appended_as_one(tmp_path: Path) -> None:
    with MessageStore.open(config(tmp_path), background=False) as store:
        store.put(message("first"))
        store.dispatch()
        body = encode_batch([BatchItem(0, b"x", b"")] * 10_000)
        target = SendTarget("T", 0, is_batch=True)
        sends = Sends([target], [1], [body], [b""], [HOST], b"")
        assert isinstance(store.append_group(sends, HOST), AppendGroup)
        assert store.max_offset_in_queue("T", 0) == 10_001
