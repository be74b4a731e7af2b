"""A store that Java stopped cleanly answers every question as Java does."""

from pathlib import Path
from typing import Any

import pytest

from flintmq.store.message_store import MessageStore
from tests.kits.golden.engine import config_of, copy_store
from tests.kits.golden.golden_sets import LOADED_SET_NAMES, golden_set

# The stores that a Java broker recovered hold duplicated or shifted index entries; they are
# compared as recoveries, not as clean stores.
CLEAN_SETS = [name for name in LOADED_SET_NAMES if not name.endswith("recovered")]


def _store(name: str, target: Path) -> tuple[MessageStore, dict[str, Any]]:
    golden = golden_set(name)
    expected = golden.expected()
    root = copy_store(golden, target, abort=False)
    return MessageStore.open(config_of(expected, root), background=False), expected


@pytest.mark.parametrize("name", LOADED_SET_NAMES)
def test_queues_have_javas_bounds(name: str, tmp_path: Path) -> None:
    store, expected = _store(name, tmp_path)
    with store:
        for topic, queues in expected["queues"].items():
            for queue_id, bounds in queues.items():
                number = int(queue_id)
                assert store.min_offset_in_queue(topic, number) == bounds["min"]
                assert store.max_offset_in_queue(topic, number) == bounds["max"]
                assert store.earliest_time(topic, number) == bounds["earliestMessageTime"]
                queue = store.queues.get_or_make(topic, number)
                assert queue.max_physical_offset == bounds["maxPhysicOffset"]
        assert store.log.min_offset == expected["minPhyOffset"]
        assert store.log.readable_end == expected["maxPhyOffset"]


@pytest.mark.parametrize("name", LOADED_SET_NAMES)
def test_next_offsets_are_javas_topic_queue_table(name: str, tmp_path: Path) -> None:
    store, expected = _store(name, tmp_path)
    with store:
        ours = {
            f"{topic}-{queue_id}": offset
            for (topic, queue_id), offset in store.appender.next_offsets.items()
        }
    assert ours == expected["topicQueueTable"]


@pytest.mark.parametrize("name", LOADED_SET_NAMES)
def test_reads_answer_like_java(name: str, tmp_path: Path) -> None:
    store, expected = _store(name, tmp_path)
    with store:
        for read in expected["reads"]:
            result = store.get_messages(
                read["topic"], read["queueId"], read["offset"], read["maxMsgNums"]
            )
            assert result is not None
            with result:
                answer = {
                    "status": result.status.name,
                    "nextBeginOffset": result.next_begin_offset,
                    "minOffset": result.min_offset,
                    "maxOffset": result.max_offset,
                    "bufferTotalSize": result.total_size,
                    "physicalOffsets": [int.from_bytes(view[28:36], "big") for view in result],
                }
            assert answer == {key: read[key] for key in answer}, read


@pytest.mark.parametrize("name", CLEAN_SETS)
def test_key_queries_answer_like_java(name: str, tmp_path: Path) -> None:
    store, expected = _store(name, tmp_path)
    with store:
        assert store.index is not None
        for query in expected["indexQueries"]:
            offsets = store.index.query(
                query["topic"], query["key"], query["maxNum"], query["begin"], query["end"]
            )
            assert offsets == query["offsets"], query
            assert store.index.last_update() == (
                query["indexLastUpdateTimestamp"],
                query["indexLastUpdatePhyoffset"],
            )


@pytest.mark.parametrize("name", CLEAN_SETS)
def test_opening_and_closing_a_clean_store_changes_no_message_file(
    name: str, tmp_path: Path
) -> None:
    golden = golden_set(name)
    root = copy_store(golden, tmp_path, abort=False)
    with MessageStore.open(config_of(golden.expected(), root), background=False):
        pass
    for folder in ("commitlog", "consumequeue", "consumequeue_ext", "index"):
        before = {p.relative_to(golden.store): p.read_bytes() for p in _files(golden.store, folder)}
        after = {p.relative_to(root): p.read_bytes() for p in _files(root, folder)}
        assert after == before, folder


def _files(root: Path, folder: str) -> list[Path]:
    return [path for path in (root / folder).rglob("*") if path.is_file()]
