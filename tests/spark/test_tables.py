"""The other tables of a store hold what the Java classes and the serial tools say of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructType

from flintmq.format.stored.index_file import key_text_hash
from flintmq.offline.layout import find_store
from flintmq.offline.stat import stat
from flintmq.spark import ColumnError, OptionError
from flintmq.spark.errors import StateError
from flintmq.spark.options.store_options import parse_options
from flintmq.spark.source import FlintSource
from flintmq.spark.stored.tables import TableReader
from tests.kits.golden.engine import copy_store
from tests.kits.golden.golden_sets import STORE_SET_NAMES, damaged_set, golden_set
from tests.kits.store.offline_stores import make_store

Rows = list[dict[str, Any]]
BASIC, ROLLED = golden_set("basic").store, golden_set("rolled").store


def rows_of(source: str, *stores: Path, **options: str) -> Rows:
    """Return all rows of a table, read without Spark."""
    paths = json.dumps([str(store) for store in stores])
    made = FlintSource({"paths": paths, "source": source, **options})
    reader = made.reader(made.schema())
    assert isinstance(reader, TableReader)
    splits = reader.partitions()
    return [row for split in splits for batch in reader.read(split) for row in batch.to_pylist()]


@pytest.mark.parametrize("name", STORE_SET_NAMES)
def test_queues_hold_the_units_of_each_message(name: str) -> None:
    golden = golden_set(name)
    rows = rows_of("queues", golden.store)
    found = {
        row["physicalOffset"]: (
            row["topic"], row["queueId"], row["queueOffset"], row["recordSize"], row["tagsCode"]
        )
        for row in rows
    }  # fmt: skip
    assert len(found) == len(rows)
    assert found == {
        one["physicalOffset"]: (
            one["topic"],
            one["queueId"],
            one["queueOffset"],
            one["size"],
            one["ext"]["tagsCode"] if "ext" in one else one["tagsCode"],
        )
        for one in golden.messages()
        if one["tagsCode"] is not None
    }
    counts = golden.expected()["consumeQueueFiles"]
    for topic, queues in counts.items():
        for queue_id, units in queues.items():
            mine = [row for row in rows if (row["topic"], row["queueId"]) == (topic, int(queue_id))]
            assert len(mine) == units["unitsOnDisk"]


def test_extensions_are_resolved() -> None:
    rows = {row["physicalOffset"]: row for row in rows_of("queues", golden_set("extended").store)}
    extended = [one for one in golden_set("extended").messages() if "ext" in one]
    assert extended
    for one in extended:
        row = rows[one["physicalOffset"]]
        assert row["hasExtension"] is True
        bitmap = one["ext"]["filterBitMap"]
        assert row["filterBitMap"] == (None if bitmap is None else bytes.fromhex(bitmap))
    assert any(not row["hasExtension"] for row in rows_of("queues", BASIC))


def test_queues_are_chosen_by_topic_queue_and_offset() -> None:
    every = rows_of("queues", ROLLED)
    some = rows_of(
        "queues",
        ROLLED,
        topic="golden-orders",
        queueId="1",
        startingOffsets='{"golden-orders": {"1": 70}}',
        endingOffsets='{"golden-orders": {"1": 130}}',
    )
    assert some == [
        row
        for row in every
        if (row["topic"], row["queueId"]) == ("golden-orders", 1) and 70 <= row["queueOffset"] < 130
    ]
    assert len(some) == 60


def test_small_queue_files_share_a_split() -> None:
    options = {"path": str(ROLLED), "source": "queues"}
    one, many = (
        len(FlintSource({**options, **more}).reader(FlintSource(options).schema()).partitions())
        for more in ({}, {"splitSize": "1280"})
    )
    assert one == 1
    assert many == sum(len(found) for found in find_store(ROLLED).queues.values())


@pytest.mark.parametrize("name", ["basic", "rolled", "kinds", "ipv6"])
def test_index_holds_the_keys_of_each_message(name: str) -> None:
    golden = golden_set(name)
    rows = rows_of("index", golden.store)
    wanted = [
        (key_text_hash(one["topic"], key), one["physicalOffset"])
        for one in golden.messages()
        for key in [
            one["properties"].get("UNIQ_KEY", ""),
            *one["properties"].get("KEYS", "").split(" "),
        ]
        if key and one["sysFlag"] & 0xC != 0xC
    ]
    assert [(row["keyHash"], row["physicalOffset"]) for row in rows] == wanted
    headers = {header["name"]: header for header in golden.expected()["indexFiles"]}
    entries = {(row["indexFile"], row["entry"]): row for row in rows}
    for row in rows:
        header = headers[row["indexFile"]]
        assert 1 <= row["entry"] < header["indexCount"]
        time = row["storeTimestamp"].timestamp() * 1000
        assert header["beginTimestamp"] <= time <= header["endTimestamp"]
        if row["previousEntry"]:
            assert entries[row["indexFile"], row["previousEntry"]]["slot"] == row["slot"]


@pytest.mark.parametrize("name", ["basic", "kinds", "extended"])
def test_state_files_are_tables(name: str) -> None:
    golden = golden_set(name)
    files = golden.expected()["configFiles"]
    topics = {row["topic"]: row for row in rows_of("topics", golden.store)}
    table = files["topics.json"]["topicConfigTable"]
    assert topics.keys() == table.keys()
    for topic, config in table.items():
        assert {field: topics[topic][field] for field in config if field != "topicName"} == {
            field: value for field, value in config.items() if field != "topicName"
        }
    groups = {row["group"]: row for row in rows_of("groups", golden.store)}
    table = files.get("subscriptionGroup.json", {}).get("subscriptionGroupTable", {})
    assert groups.keys() == table.keys()
    for group, config in table.items():
        assert {field: groups[group][field] for field in config if field != "groupName"} == {
            field: value for field, value in config.items() if field != "groupName"
        }


@pytest.mark.parametrize("name", ["basic", "kinds"])
def test_offsets_tell_the_lag(name: str) -> None:
    golden = golden_set(name)
    rows = rows_of("offsets", golden.store)
    found = {(row["group"], row["topic"], row["queueId"]): row["offset"] for row in rows}
    assert found == {
        (key.partition("@")[2], key.partition("@")[0], int(queue_id)): offset
        for key, queues in golden.expected()["configFiles"]["consumerOffset.json"][
            "offsetTable"
        ].items()
        for queue_id, offset in queues.items()
    }
    ends = {
        (queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset)
        for queue in stat(find_store(golden.store)).queues
    }
    for row in rows:
        key = (row["topic"], row["queueId"])
        assert (row["minOffset"], row["maxOffset"]) == ends.get(key, (None, None))


def test_a_torn_state_file_gives_way_to_its_backup(tmp_path: Path) -> None:
    store = copy_store(golden_set("kinds"), tmp_path, abort=False)
    path = store / "config" / "topics.json"
    whole = rows_of("topics", store)
    backup = path.with_name("topics.json.bak")
    backup.write_bytes(path.read_bytes())
    path.write_text('{"topicConfigTable":{"a"')
    assert rows_of("topics", store) == whole
    backup.write_text("[1]")
    with pytest.raises(StateError, match=r"topics\.json: cannot be decoded"):
        rows_of("topics", store)
    backup.unlink()
    path.unlink()
    assert rows_of("topics", store) == []


def test_a_state_file_may_say_anything(tmp_path: Path) -> None:
    make_store(tmp_path)
    config = tmp_path / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json").write_text(
        '{"topicConfigTable":{"a":{"perm":"six","readQueueNums":99999999999,"order":1},"b":2}}'
    )
    (row,) = rows_of("topics", tmp_path)
    assert (row["topic"], row["perm"], row["readQueueNums"], row["order"]) == ("a",) + (None,) * 3
    (config / "consumerOffset.json").write_text(
        '{"offsetTable":{"no group":{0:1},"orders@g":{0:5,"1":6,"x":7},"gone@g":{3:4}}}'
    )
    found = [
        (row["topic"], row["queueId"], row["offset"], row["minOffset"], row["maxOffset"])
        for row in rows_of("offsets", tmp_path)
    ]
    assert found == [("orders", 0, 5, 0, 50), ("orders", 1, 6, 0, 50), ("gone", 3, 4, None, None)]
    assert [row["topic"] for row in rows_of("offsets", tmp_path, topic="gone")] == ["gone"]


def test_tables_reach_spark(spark: SparkSession) -> None:
    stores = [str(BASIC), str(ROLLED)]
    reader = spark.read.format("flintmq").option("brokerName", f'{{"{BASIC}": "a"}}')
    for source in ("queues", "index", "offsets", "topics", "groups"):
        reader = reader.option("source", source)
        found = sorted(map(str, (row.asDict() for row in reader.load(stores).collect())))
        wanted = rows_of(source, BASIC, ROLLED, brokerName=f'{{"{BASIC}": "a"}}')
        assert len(found) == len(wanted) > 0
        assert {row["brokerName"] for row in wanted} <= {"a", None}
    queues = reader.option("source", "queues").schema("physicalOffset long").load(stores)
    assert queues.columns == ["physicalOffset"]
    assert queues.count() == len(rows_of("queues", BASIC, ROLLED))


def test_wrong_columns_and_brokers_are_refused() -> None:
    made = FlintSource({"path": str(BASIC), "source": "topics"})
    with pytest.raises(ColumnError, match="no column 'group'; there are topic, readQueueNums"):
        made.reader(StructType().add("group", LongType()))
    with pytest.raises(OptionError, match="name the broker 'b', while the option brokerName"):
        rows_of("queues", BASIC, startingOffsets='{"t": {"b": {"0": 1}}}', brokerName="a")


def test_an_index_of_unknown_shape_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    store = copy_store(golden_set("rolled"), tmp_path, abort=False)
    for path in (store / "index").iterdir():
        path.write_bytes(b"\1" * path.stat().st_size)
    with pytest.raises(StateError, match="number of slots"):
        rows_of("index", store)
    table = spark.read.format("flintmq").option("source", "index").load(str(store))
    with pytest.raises(PySparkException, match="number of slots"):
        table.count()


def test_queues_of_a_damaged_store_are_read_as_they_are() -> None:
    ahead = rows_of("queues", damaged_set("consumequeue-ahead").store)
    behind = rows_of("queues", damaged_set("consumequeue-behind").store)
    assert (len(ahead), len(behind)) == (385, 370)
    assert rows_of("queues", damaged_set("no-consumequeue").store) == []
    assert rows_of("index", damaged_set("no-index").store) == []
    assert parse_options({"path": "a", "source": "INDEX"}).source.value == "index"
