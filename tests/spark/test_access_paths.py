"""Messages found through queues and index are those that a scan and a filter would give."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In, IsNotNull, LessThan

from flintmq.model.message import PutMessage
from flintmq.spark.options.store_options import parse_options
from flintmq.spark.rows.columns import arrow_schema, table_schema
from flintmq.spark.rows.row_filter import Bounds, RowFilter
from flintmq.spark.stored.key_guide import KeyGuide
from flintmq.spark.stored.log_ranges import MERGE_GAP, Guide, merge
from flintmq.spark.stored.log_reader import FilteringLogReader, LogReader
from flintmq.spark.stored.log_split import LogSplit
from flintmq.spark.stored.queue_guide import QueueGuide
from flintmq.spark.stored.split_plan import plan_splits
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.golden.golden_sets import (
    DAMAGED_SET_NAMES,
    STORE_SET_NAMES,
    damaged_set,
    golden_set,
)
from tests.kits.spark.reading import make_reader, offsets, read, rows_of, split_size
from tests.kits.store.offline_stores import (
    HOST,
    START_MS,
    flip,
    index_file,
    overwrite,
    queue_file,
    small_config,
)

Row = dict[str, Any]
Harm = Callable[[Path], None]
LOG_FILE_SIZE = 1 << 20


@pytest.fixture(autouse=True)
def small_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ranges begin anew behind few bytes, as they would in large files."""
    monkeypatch.setattr("flintmq.spark.stored.log_ranges.MERGE_GAP", 64)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a store of several files in which one topic is rare."""
    root = tmp_path_factory.mktemp("paths") / "store"
    clock = ManualClock(START_MS)
    chance = random.Random(7)
    config = small_config(
        root, commit_log_file_size=LOG_FILE_SIZE, hash_slot_count=500, index_entry_count=2000
    )
    with MessageStore.open(config, clock=clock, background=False) as store:
        for number in range(3000):
            rare = chance.random() < 0.02
            properties = {"UNIQ_KEY": f"U{number}", "KEYS": f"k{number % 500} all", "TAGS": "even"}
            if number % 2:
                properties = {"TAGS": "odd"}
            message = PutMessage(
                topic="rare" if rare else "plenty",
                queue_id=number % 4,
                body=bytes([number % 251]) * 1200,
                properties=properties,
                born_host=HOST,
                store_host=HOST,
            )
            assert store.put(message).ok
            clock.advance(1000)
        store.dispatch()
    return root


def splits_of(store: Path) -> list[LogSplit]:
    options = parse_options({"path": str(store), "splitSize": split_size(store, 2)})
    return plan_splits(options, Bounds())


def sizes_read(guide: Guide, store: Path) -> list[int | None]:
    """Return how many bytes a guide leads to in each split, None for all."""
    found: list[int | None] = []
    for split in splits_of(store):
        ranges = guide.ranges(split)
        found.append(None if ranges is None else sum(end - start for start, end in ranges))
    return found


def queue_guide(topic: str, **queues: Any) -> QueueGuide:
    row_filter = RowFilter(topics=frozenset({topic.encode()}))
    if "queue_id" in queues:
        row_filter.queue_id.only([queues["queue_id"]])
    return QueueGuide(row_filter)


CASES: list[tuple[dict[str, str], Callable[[Row], bool]]] = [
    ({"topic": "rare"}, lambda row: row["topic"] == "rare"),
    (
        {"topic": "rare", "queueId": "1,3"},
        lambda row: row["topic"] == "rare" and row["queueId"] in (1, 3),
    ),
    (
        {"topic": "rare,plenty", "keys": "U40 k7 nothing"},
        lambda row: row["msgId"] == "U40" or "k7" in (row["keys"] or "").split(),
    ),
    (
        {"topic": "rare", "keys": "all"},
        lambda row: row["topic"] == "rare" and row["keys"] is not None,
    ),
    (
        {"topic": "rare", "tags": "odd || none"},
        lambda row: row["topic"] == "rare" and row["tags"] == "odd",
    ),
    (
        {
            "topic": "plenty",
            "queueId": "2",
            "startingOffsets": '{"plenty": {"2": 600}}',
            "endingOffsets": '{"plenty": {"2": 650}}',
        },
        lambda row: (
            (row["topic"], row["queueId"]) == ("plenty", 2) and 600 <= row["queueOffset"] < 650
        ),
    ),
]

HARMS: dict[str, Harm] = {
    "none": lambda store: None,
    "no queues": lambda store: shutil.rmtree(store / "consumequeue"),
    "no index": lambda store: shutil.rmtree(store / "index"),
    "a queue is lost": lambda store: shutil.rmtree(store / "consumequeue" / "rare" / "1"),
    "a file of a queue is lost": lambda store: queue_file(store, 2, 1, topic="plenty").unlink(),
    "units are zero": lambda store: overwrite(
        queue_file(store, 1, 0, topic="rare"), 20, bytes(100)
    ),
    "a unit leads elsewhere": lambda store: flip(queue_file(store, 1, 0, topic="rare"), 7, 0x10),
    "a unit has another size": lambda store: flip(queue_file(store, 0, 3, topic="plenty"), 51),
    "an index file is lost": lambda store: index_file(store, 1).unlink(),
    "a header is zero": lambda store: overwrite(index_file(store, 1), 0, bytes(40)),
    "chains are broken": lambda store: overwrite(
        index_file(store, 0), 40 + 500 * 4, b"\x7f" * 1999 * 20
    ),
    "slots lead astray": lambda store: overwrite(index_file(store, 0), 40, b"\0\0\7\xcf" * 500),
}


@pytest.mark.parametrize("harm", HARMS)
def test_options_choose_the_same_rows_on_every_path(
    original: Path, tmp_path: Path, harm: str
) -> None:
    store = tmp_path / "store"
    shutil.copytree(original, store)
    HARMS[harm](store)
    every = read(store, splits=2)
    assert len(every) == 3000
    for options, wants in CASES:
        wanted = [row for row in every if wants(row)]
        assert wanted
        for path in ("log", "queue", "index") if "keys" in options else ("log", "queue"):
            assert read(store, splits=2, accessPath=path, **options) == wanted, (options, path)


def test_a_rare_topic_costs_few_bytes(original: Path) -> None:
    found = sizes_read(queue_guide("rare", queue_id=1), original)
    whole = [size for size in found if size is not None]
    # In the last file only the log itself is believed.
    assert len(whole) >= 6
    assert found[-1] is None
    assert sum(whole) < len(whole) * LOG_FILE_SIZE / 2 * 0.02
    found = sizes_read(KeyGuide(frozenset({"rare"}), frozenset({"k8"})), original)
    whole = [size for size in found if size is not None]
    assert len(whole) >= 6
    assert sum(whole) < len(whole) * LOG_FILE_SIZE / 2 * 0.02


def test_near_ranges_are_read_in_one_go(original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert merge([(500, 600), (0, 100), (164, 200), (520, 550)]) == [(0, 200), (500, 600)]
    split = splits_of(original)[0]
    assert queue_guide("rare").ranges(split) is not None
    # Where hardly anything could be passed over, there is nothing to be led to.
    monkeypatch.setattr("flintmq.spark.stored.log_ranges.MERGE_GAP", MERGE_GAP)
    assert queue_guide("plenty").ranges(split) is None
    every = read(original)
    assert read(original, topic="rare") == [row for row in every if row["topic"] == "rare"]


def test_offsets_skip_whole_files(original: Path) -> None:
    queue = '{"plenty": {"2": %d}}'
    every = len(make_reader(original, topic="plenty").partitions())

    def reader_of(**bounds: str) -> LogReader:
        return make_reader(original, splits=1, topic="plenty", queueId="2", **bounds)

    late = reader_of(startingOffsets=queue % 600)
    assert 0 < len(late.partitions()) < every
    early = reader_of(endingOffsets=queue % 100)
    assert 0 < len(early.partitions()) < every
    none = reader_of(startingOffsets=queue % 10_000)
    assert rows_of(none) == []
    assert len(none.partitions()) <= 1
    # Of other queues nobody has said where to stop.
    both = make_reader(original, topic="plenty", endingOffsets=queue % 100)
    assert len(both.partitions()) == every


@pytest.mark.parametrize("name", STORE_SET_NAMES)
def test_golden_stores_give_the_same_on_every_path(name: str) -> None:
    store = golden_set(name).store
    every = read(store)
    for topic in {row["topic"] for row in every}:
        mine = [row for row in every if row["topic"] == topic]
        for splits in (1, 7):
            assert read(store, splits=splits, topic=topic) == mine
        keys = [word for row in mine for word in (row["keys"] or "").split(" ") if word]
        for key in sorted(set(keys))[:5]:
            assert read(store, topic=topic, keys=key, accessPath="index") == [
                row for row in mine if key in (row["keys"] or "").split(" ")
            ]


@pytest.mark.parametrize("name", DAMAGED_SET_NAMES)
def test_damaged_stores_give_the_same_on_every_path(name: str) -> None:
    store = damaged_set(name).store
    every = read(store, onCorruptRecord="skip")
    for queue_id in (0, 1):
        options = {"topic": "golden-orders", "queueId": str(queue_id), "onCorruptRecord": "skip"}
        wanted = [
            row for row in every if (row["topic"], row["queueId"]) == ("golden-orders", queue_id)
        ]
        assert read(store, splits=2, **options) == wanted
    keyed = read(
        store, topic="golden-orders", keys="dup-ten", accessPath="index", onCorruptRecord="skip"
    )
    assert keyed == [row for row in every if "dup-ten" in (row["keys"] or "").split(" ")]


def test_damage_rows_need_the_whole_log() -> None:
    store = damaged_set("body-byte-flipped-first-file").store
    rows = read(store, topic="golden_audit", tags="none", onCorruptRecord="row")
    # The damaged record is of another topic, so the option leaves it out; see the next.
    assert rows == []
    store = damaged_set("record-length-wrong").store
    rows = read(store, topic="golden_audit", tags="none", keys="none", onCorruptRecord="row")
    assert offsets(rows) == [242602]


def test_pushed_filters_on_tags_and_keys_are_those_of_sql(original: Path) -> None:
    every = read(original)
    cases: list[tuple[list[Filter], Callable[[Row], bool]]] = [
        ([EqualTo(("tags",), "odd")], lambda row: row["tags"] == "odd"),
        ([In(("tags",), ("odd", "other", None))], lambda row: row["tags"] == "odd"),
        ([EqualTo(("keys",), "all")], lambda row: False),
        ([EqualTo(("keys",), "k8 all")], lambda row: row["keys"] == "k8 all"),
        (
            [EqualTo(("topic",), "rare"), In(("keys",), ("k8 all", "k10 all", " "))],
            lambda row: row["topic"] == "rare" and row["keys"] in ("k8 all", "k10 all"),
        ),
        ([IsNotNull(("keys",))], lambda row: row["keys"] is not None),
        (
            [
                EqualTo(("topic",), "plenty"),
                EqualTo(("queueId",), 3),
                GreaterThanOrEqual(("queueOffset",), 100),
                LessThan(("queueOffset",), 103),
            ],
            lambda row: (
                row["topic"] == "plenty" and row["queueId"] == 3 and 100 <= row["queueOffset"] < 103
            ),
        ),
    ]
    options = parse_options({"path": str(original), "splitSize": split_size(original, 2)})
    for filters, wants in cases:
        reader = FilteringLogReader(options, arrow_schema(table_schema(with_corrupt=False)))
        assert list(reader.pushFilters(filters)) == []
        assert rows_of(reader) == [row for row in every if wants(row)], filters
    assert len(reader.partitions()) < len(splits_of(original))


def test_offsets_may_name_the_broker(original: Path) -> None:
    rows = read(
        original,
        brokerName="a",
        topic="rare",
        queueId="1",
        startingOffsets='{"rare": {"a": {"1": 3, "2": -2}}}',
        endingOffsets='{"rare": {"1": 5, "2": -1}}',
    )
    assert [row["queueOffset"] for row in rows] == [3, 4]
