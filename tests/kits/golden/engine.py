"""Opening golden stores with our engine, and what their messages demand of the views."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flintmq.format.java import index_hash
from flintmq.format.stored.index_file import key_text_hash
from flintmq.store.config import StoreConfig
from flintmq.store.message_store import MessageStore
from tests.kits.golden.golden_sets import GoldenSet

Json = Mapping[str, Any]


def config_of(expected: Json, root: Path) -> StoreConfig:
    """Return the settings under which the Java broker wrote a set."""
    properties = {
        key: str(value)
        for key, value in expected["config"].items()
        if key.startswith(("mapped", "max", "enableConsume", "flush"))
    }
    return StoreConfig.from_properties(properties, root=root)


def copy_store(golden: GoldenSet, target: Path, *, abort: bool) -> Path:
    """Copy a golden store to where it may be written, as left by a crash or by a clean stop."""
    root = target / "store"
    shutil.copytree(golden.store, root)
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    (root / "abort").unlink(missing_ok=True)
    if abort:
        (root / "abort").touch()
    return root


def queues_of(messages: Sequence[Json]) -> dict[tuple[str, int], list[Json]]:
    """Return the messages of each queue, in order; these records have units."""
    queues: dict[tuple[str, int], list[Json]] = {}
    for message in messages:
        if message["sysFlag"] & 0xC in (0, 8):
            queues.setdefault((message["topic"], message["queueId"]), []).append(message)
    return queues


def index_entries_of(messages: Sequence[Json]) -> list[tuple[int, int]]:
    """Return (hash, physical offset) of every index entry that a fresh build would make."""
    entries = []
    for message in messages:
        properties = message["properties"]
        keys = [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
        entries += [
            (index_hash(key_text_hash(message["topic"], key)), message["physicalOffset"])
            for key in keys
            if key and message["sysFlag"] & 0xC != 0xC
        ]
    return entries


def index_entries_in(store: MessageStore) -> list[tuple[int, int]]:
    """Return (hash, physical offset) of every entry of the store's index, oldest first."""
    assert store.index is not None
    return [
        (file.entry(number)[0], file.entry(number)[1])
        for file in store.index.files
        for number in range(1, file.count)
    ]


def assert_serves(store: MessageStore, messages: Sequence[Json]) -> None:
    """Assert that log, queues and index hold exactly ``messages``, whatever was on the disk."""
    queues = queues_of(messages)
    on_disk = {(q.topic, q.queue_id) for q in store.queues if not q.is_empty}
    assert on_disk == set(queues)
    for (topic, queue_id), expected in queues.items():
        first = expected[0]["queueOffset"]
        assert store.min_offset_in_queue(topic, queue_id) == first
        assert store.max_offset_in_queue(topic, queue_id) == first + len(expected)
        served = []
        offset = first
        while offset < first + len(expected):
            result = store.get_messages(topic, queue_id, offset, 32)
            assert result is not None
            with result:
                assert len(result) > 0, (topic, queue_id, offset, result.status)
                for queue_offset, view in zip(result.queue_offsets, result, strict=True):
                    record = int.from_bytes(view[28:36], "big")
                    served.append((queue_offset, record, len(view)))
                offset = result.next_begin_offset
        assert served == [
            (message["queueOffset"], message["physicalOffset"], message["size"])
            for message in expected
        ]
    assert index_entries_in(store) == index_entries_of(messages)


def served_offsets(store: MessageStore) -> list[int]:
    """Return the physical offsets of all messages that are served, in the order of the log."""
    served = []
    for queue in store.queues:
        offset = queue.min_offset
        while offset < queue.max_offset:
            result = store.get_messages(queue.topic, queue.queue_id, offset, 32)
            assert result is not None
            with result:
                served += [int.from_bytes(view[28:36], "big") for view in result]
                assert result.next_begin_offset > offset
                offset = result.next_begin_offset
    return sorted(served)
