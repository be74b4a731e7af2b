"""The messages of a golden set, put by us with the same clock and hosts, give Java's bytes."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.stored.record import Record, decode_record
from flintmq.model.message import MessageBatch, PutMessage
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.golden.engine import config_of
from tests.kits.golden.golden_sets import GoldenSet, golden_set

WRITTEN_SETS = ["basic", "rolled", "kinds", "extended", "ipv6"]


def _records(golden: GoldenSet) -> list[Record]:
    logs = dict(golden.log_files())
    size = len(next(iter(logs.values())))
    return [
        decode_record(logs[offset - offset % size], offset % size)
        for offset in (message["physicalOffset"] for message in golden.messages())
    ]


def _groups(records: list[Record]) -> Iterator[list[Record]]:
    """Yield runs of records that came in one batch: they share their times and their queue."""

    def batch_key(record: Record) -> tuple[object, ...]:
        return (
            record.topic,
            record.queue_id,
            record.store_timestamp,
            record.born_timestamp,
            record.born_host,
        )

    group: list[Record] = []
    for record in records:
        if group and batch_key(group[0]) != batch_key(record):
            yield group
            group = []
        group.append(record)
    yield group


def _put(store: MessageStore, group: list[Record]) -> None:
    first = group[0]
    common: dict[str, Any] = {
        "topic": first.topic,
        "queue_id": first.queue_id,
        "sys_flag": first.sys_flag,
        "born_timestamp": first.born_timestamp,
        "born_host": first.born_host,
        "store_host": first.store_host,
        "reconsume_times": first.reconsume_times,
    }
    if len(group) > 1:
        items = [
            BatchItem(record.flag, bytes(record.body), record.properties_text) for record in group
        ]
        result = store.put_batch(
            MessageBatch(body=encode_batch(items), properties_text=b"", **common)
        )
    else:
        properties = first.properties
        if first.topic != "SCHEDULE_TOPIC_XXXX":
            # What a delivery stores still names its level, but the message is not delayed again.
            properties.pop("DELAY", None)
        result = store.put(
            PutMessage(
                body=bytes(first.body),
                flag=first.flag,
                properties=properties,
                properties_text=first.properties_text,
                prepared_transaction_offset=first.prepared_transaction_offset,
                **common,
            )
        )
    assert result.ok, result
    assert result.physical_offset == first.physical_offset
    assert result.queue_offset == first.queue_offset


@pytest.mark.parametrize("name", WRITTEN_SETS)
def test_log_queues_and_index_are_byte_identical(name: str, tmp_path: Path) -> None:
    golden = golden_set(name)
    bitmaps = [
        bytes.fromhex(message["ext"]["filterBitMap"] or "")
        for message in golden.messages()
        if message.get("ext")
    ]
    queue_of_bitmaps = iter(bitmaps)

    def filter_bitmap(topic: str, properties: Mapping[str, str]) -> bytes | None:
        del topic, properties
        return next(queue_of_bitmaps) or None

    clock = ManualClock()
    store = MessageStore.open(
        config_of(golden.expected(), tmp_path),
        clock=clock,
        background=False,
        filter_bitmap=filter_bitmap if bitmaps else None,
    )
    with store:
        for group in _groups(_records(golden)):
            clock.set(group[0].store_timestamp)
            _put(store, group)
    for folder in ("commitlog", "consumequeue", "consumequeue_ext"):
        assert _files(tmp_path, folder) == _files(golden.store, folder), folder
    ours, javas = _files(tmp_path, "index"), _files(golden.store, "index")
    assert list(ours.values()) == list(javas.values())


def _files(root: Path, folder: str) -> dict[Path, bytes]:
    paths = sorted(path for path in (root / folder).rglob("*") if path.is_file())
    return {path.relative_to(root): path.read_bytes() for path in paths}
