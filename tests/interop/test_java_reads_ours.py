"""Stores that FlintMQ wrote are loaded by the real Java broker, which serves every message."""

import hashlib
import random
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flintmq.format.host import host_text, pack_host
from flintmq.format.properties import encode_properties
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.stored.record import Record
from flintmq.model.message import MessageBatch, PutMessage
from flintmq.store.config import FlushMode, StoreConfig
from flintmq.store.message_store import MessageStore
from flintmq.testing import ManualClock
from tests.kits.processes.java_cluster import (
    JavaCluster,
    KeyQuery,
    add_topics,
    assert_java_reads,
    copy_store,
)
from tests.kits.processes.java_toolchain import JavaToolchain
from tests.kits.store.waiting_puts import put_durably

pytestmark = pytest.mark.interop

STORE_HOST = pack_host("127.0.0.1", 10911)
TOPICS = ("ours-orders", "ours_audit", "Ours%Retry")
WAITED_FOR = "waited-for"
HOUR_MS = 3_600_000


def _config(root: Path, **settings: Any) -> StoreConfig:
    return StoreConfig(
        root=root,
        commit_log_file_size=32768,
        consume_queue_file_size=400,
        hash_slot_count=53,
        index_entry_count=204,
        **settings,
    )


def _message(rng: random.Random, number: int) -> PutMessage:
    properties = {
        "UNIQ_KEY": f"7F000001000018B4AAC2{number:012X}",
        "KEYS": f"key-{number} shared-{number % 7}",
        "CLUSTER": "Ours",
        "城市": f"value {number}",
    }
    if number % 3:
        properties["TAGS"] = f"Tag{number % 5}"
    address = "2001:db8::1" if number % 11 == 0 else "192.0.2.1"
    return PutMessage(
        topic=rng.choice(TOPICS),
        queue_id=rng.randrange(3),
        body=rng.randbytes(rng.randrange(0, 900)),
        properties=properties,
        flag=number - 50,
        born_timestamp=1_700_000_000_000 + number,
        born_host=pack_host(address, 40000),
        store_host=STORE_HOST,
        reconsume_times=number % 4,
    )


def _batch(rng: random.Random, number: int) -> MessageBatch:
    items = [
        BatchItem(item, rng.randbytes(60), encode_properties({"KEYS": f"batch-{number}-{item}"}))
        for item in range(10)
    ]
    return MessageBatch(
        topic=TOPICS[0],
        queue_id=1,
        body=encode_batch(items),
        properties={"CLUSTER": "Ours"},
        born_timestamp=1_700_000_000_000,
        born_host=pack_host("192.0.2.1", 40000),
        store_host=STORE_HOST,
    )


def _fill(store: MessageStore, count: int) -> None:
    rng = random.Random(7)
    for number in range(count):
        assert put_durably(store, _message(rng, number)).ok
        if number % 50 == 25:
            assert put_durably(store, _batch(rng, number)).ok


def _expected(record: Record) -> dict[str, Any]:
    """Return a record in the words of the golden expectations."""
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_timestamp,
        "storeTimestamp": record.store_timestamp,
        "storeHost": host_text(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "bodySha256": hashlib.sha256(record.body).hexdigest(),
        "properties": record.properties,
    }


def _stored(store: MessageStore) -> list[dict[str, Any]]:
    messages = []
    for queue in store.queues:
        for _, physical_offset, size, _ in queue.units():
            record = store.reader.look(physical_offset, size)
            assert record is not None
            messages.append(_expected(record))
    return sorted(messages, key=lambda message: message["physicalOffset"])


def _queries(messages: list[dict[str, Any]]) -> Mapping[KeyQuery, list[int]]:
    found: dict[KeyQuery, list[int]] = {}
    for message in messages:
        for key in message["properties"].get("KEYS", "").split():
            query = KeyQuery(message["topic"], key)
            found.setdefault(query, []).append(message["physicalOffset"])
    return dict(sorted(found.items(), key=str)[::9])


@pytest.mark.parametrize("flush_mode", [FlushMode.ASYNC, FlushMode.SYNC])
def test_java_serves_a_store_that_we_stopped(flush_mode: FlushMode, tmp_path: Path) -> None:
    config = _config(tmp_path / "store", flush_mode=flush_mode)
    with MessageStore.open(config) as store:
        _fill(store, 300)
        messages = _stored(store)
    assert len(messages) == 300 + 6 * 10
    assert_java_reads(config.root, config, messages, queries=_queries(messages))


def test_java_recovers_a_store_that_we_left_running(tmp_path: Path) -> None:
    config = _config(tmp_path / "store")
    with MessageStore.open(config) as store:
        _fill(store, 150)
        messages = _stored(store)
        # The next log file is made meanwhile, and moves when it is ready.
        ahead = shutil.ignore_patterns("commitlog.new")
        shutil.copytree(config.root, tmp_path / "copy", ignore=ahead)
    assert (tmp_path / "copy" / "abort").exists()
    assert_java_reads(tmp_path / "copy", config, messages)


def test_we_go_on_after_java_has_run_on_our_store(tmp_path: Path, toolchain: JavaToolchain) -> None:
    config = _config(tmp_path / "ours")
    clock = ManualClock(time.time_ns() // 1_000_000)
    with MessageStore.open(config, clock=clock) as store:
        _fill(store, 100)
        before = _stored(store)
        for number in range(10):
            # Java's recovery knows nothing of due times: it makes units with hashes of tags.
            properties = {"FLINT_DELIVER_AT": str(clock.now_ms() + HOUR_MS), "TAGS": "T"}
            waiting = replace(_message(random.Random(number), number), topic=WAITED_FOR)
            assert store.put(replace(waiting, properties=properties, queue_id=0)).ok
    root = tmp_path / "javas"
    copy_store(config.root, root)
    add_topics(root, before)
    with JavaCluster(
        root, config.to_properties(), work_directory=tmp_path, toolchain=toolchain
    ) as cluster:
        cluster.read_all({TOPICS[0]})
    with MessageStore.open(_config(root)) as store:
        assert [m for m in _stored(store) if m["topic"] in TOPICS] == before
        _fill(store, 20)
        assert len([m for m in _stored(store) if m["topic"] in TOPICS]) == len(before) + 20
    clock.advance(2 * HOUR_MS)
    with MessageStore.open(_config(root), clock=clock, background=False) as store:
        while store.waiting.step():
            pass
        assert store.max_offset_in_queue(WAITED_FOR, 0) == 10
