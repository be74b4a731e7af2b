"""The data source as its users see it: finding it, options, columns, filters, directories."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import LongType, StringType, StructType

from flintmq.format.compression import CompressionType, compress
from flintmq.model.message import PutMessage
from flintmq.model.property_names import DELIVER_AT, REAL_TOPIC
from flintmq.model.topics import WAITING_TOPIC
from flintmq.spark import ColumnError, CorruptLogError, OptionError
from flintmq.spark.options.store_options import SPLIT_SIZE, OnCorrupt, parse_options
from flintmq.spark.rows.columns import arrow_schema, table_schema
from flintmq.spark.rows.row_filter import TIME_MAX_MS
from flintmq.spark.stored.log_reader import FilteringLogReader
from flintmq.spark.stored.split_plan import store_directories
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.golden.golden_sets import golden_set
from tests.kits.spark.reading import (
    load,
    make_projection,
    make_reader,
    offsets,
    read,
    rows_of,
    split_size,
)
from tests.kits.store.offline_stores import HOST, START_MS, make_store, small_config

ROLLED = golden_set("rolled").store
BASIC = golden_set("basic").store


def filtering_reader(store: Path, filters: list[Filter]) -> tuple[FilteringLogReader, list[Filter]]:
    options = parse_options({"path": str(store), "splitSize": split_size(store, 2)})
    reader = FilteringLogReader(options, arrow_schema(table_schema(with_corrupt=False)))
    return reader, list(reader.pushFilters(filters))


# -- options ---------------------------------------------------------------------------------


def test_options_have_defaults() -> None:
    options = parse_options({"path": "a"})
    assert options.paths == ("a",)
    assert options.topics is None
    assert options.on_corrupt is OnCorrupt.FAIL
    assert options.split_size == SPLIT_SIZE == 64 << 20


def test_names_of_options_have_no_case() -> None:
    options = parse_options({"PATHS": '["a", "b"]', "TOPIC": "x, y", "splitsize": "2m"})
    assert options.paths == ("a", "b")
    assert options.topics == frozenset({"x", "y"})
    assert options.split_size == 2 << 20


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1700000000456", 1700000000456),
        ("2023-11-14T22:13:20.456Z", 1700000000456),
        ("2023-11-14T22:13:20.456", 1700000000456),
        ("2023-11-15T00:13:20.456+02:00", 1700000000456),
        ("2023-11-14", 1699920000000),
    ],
)
def test_times_are_milliseconds_or_iso(text: str, milliseconds: int) -> None:
    assert (
        parse_options({"path": "a", "startingTimestamp": text}).starting_timestamp == milliseconds
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no directory was given"),
        ({"path": "a", "topik": "x"}, "unknown option 'topik'; did you mean topic?"),
        ({"path": "a", "startTimestamp": "1"}, "did you mean startingTimestamp"),
        ({"path": "a", "zzz": "x"}, "known are path, paths, source"),
        ({"path": "a", "source": "logs"}, "source is one of commitlog, queues, index"),
        ({"path": "a", "source": "groups", "topic": "t"}, "topic says nothing about source=groups"),
        ({"path": "a", "source": "index", "tags": "t"}, "tags says nothing about source=index"),
        ({"path": "a", "queueId": "one"}, "queueId is a number"),
        ({"path": "a", "keys": " "}, "keys names no key"),
        ({"path": "a", "accessPath": "scan"}, "accessPath is one of auto, log, queue, index"),
        ({"path": "a", "accessPath": "queue"}, "accessPath=queue needs the option topic"),
        ({"path": "a", "accessPath": "index", "topic": "t"}, "needs the options topic and keys"),
        ({"path": "a", "startingOffsets": "latest"}, "leaves nothing to read in a batch"),
        ({"path": "a", "endingOffsets": "earliest"}, "leaves nothing to read in a batch"),
        ({"path": "a", "startingOffsets": "soon"}, "is earliest, latest or JSON"),
        ({"path": "a", "startingOffsets": '{"t": 1}'}, "of the topic 't' names no queue"),
        ({"path": "a", "startingOffsets": '{"t": {"b": {}}}'}, "names no queue"),
        ({"path": "a", "startingOffsets": '{"t": {"b": {"x": 1}}}'}, "no queue id: 'x'"),
        ({"path": "a", "startingOffsets": '{"t": {"0": -3}}'}, "no offset: -3"),
        ({"path": "a", "startingOffsets": '{"t": {"0": -1}}'}, "is latest, which leaves nothing"),
        ({"path": "a", "endingOffsets": '{"t": {"0": -2}}'}, "is earliest, which leaves nothing"),
        ({"path": "a", "endingOffsets": '{"t": {"0": true}}'}, "no offset: True"),
        ({"path": "a", "onCorruptRecord": "ignore"}, "one of fail, skip, row"),
        ({"path": "a", "splitSize": "0"}, "splitSize is a number of bytes"),
        ({"path": "a", "splitSize": "many"}, "splitSize is a number of bytes"),
        ({"path": "a", "endingTimestamp": "tomorrow"}, "endingTimestamp is a number"),
        ({"path": "a", "topic": " , "}, "topic names no topic"),
        ({"paths": "a"}, "paths is a JSON list"),
        ({"path": "a", "brokerName": "{1"}, "brokerName is a name"),
        ({"path": "a", "filterPushdown": "yes"}, "filterPushdown is true or false"),
    ],
)
def test_wrong_options_are_refused_in_clear_words(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options(options)
    assert words in str(caught.value)


def test_a_wrong_option_reaches_the_user(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="did you mean onCorruptRecord"):
        load(spark, BASIC, onCorruptRecords="skip").count()


# -- columns ---------------------------------------------------------------------------------


def test_a_given_schema_is_the_projection(spark: SparkSession) -> None:
    table = (
        spark.read.format("flintmq")
        .schema("queueOffset long, topic string, path string")
        .load(str(BASIC))
    )
    assert table.columns == ["queueOffset", "topic", "path"]
    found = sorted((row["topic"], row["queueOffset"]) for row in table.collect())
    assert found == sorted(
        (one["topic"], one["queueOffset"]) for one in golden_set("basic").messages()
    )


def test_only_the_columns_asked_for_are_built() -> None:
    for field in table_schema(with_corrupt=True).fields:
        reader = make_projection(BASIC, StructType([field]))
        whole = read(BASIC, onCorruptRecord="row")
        assert rows_of(reader) == [{field.name: row[field.name]} for row in whole]


def test_columns_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ColumnError, match="no column 'size'"):
        arrow_schema(StructType().add("size", LongType()))
    with pytest.raises(ColumnError, match="queueId is int, not string"):
        arrow_schema(StructType().add("queueId", StringType()))


def put_one(root: Path, **fields: Any) -> None:
    config = small_config(root)
    with MessageStore.open(config, clock=ManualClock(START_MS), background=False) as store:
        assert store.put(PutMessage(topic="t", born_host=HOST, store_host=HOST, **fields)).ok
        store.dispatch()


@pytest.mark.parametrize("kind", CompressionType)
def test_bodies_are_decompressed(tmp_path: Path, kind: CompressionType) -> None:
    put_one(tmp_path, body=compress(b"hello " * 99, kind), sys_flag=1 | kind)
    (row,) = read(tmp_path)
    assert row["body"] == b"hello " * 99
    assert row["sysFlag"] == 1 | kind


def test_a_body_that_does_not_decompress_has_a_reason(tmp_path: Path) -> None:
    put_one(tmp_path, body=b"no zlib", sys_flag=1)
    with pytest.raises(CorruptLogError, match="damaged ZLIB data"):
        read(tmp_path)
    (row,) = read(tmp_path, onCorruptRecord="row")
    assert (row["body"], row["crcOk"]) == (None, True)
    assert "damaged ZLIB data" in row["_corruptReason"]
    (row,) = read(tmp_path, onCorruptRecord="skip")
    assert (row["body"], row["topic"]) == (None, "t")


def test_a_time_beyond_all_calendars_is_null(tmp_path: Path) -> None:
    put_one(tmp_path, born_timestamp=(1 << 63) - 1)
    (row,) = read(tmp_path)
    assert row["bornTimestamp"] is None
    put_one(tmp_path, born_timestamp=TIME_MAX_MS)
    assert read(tmp_path)[1]["bornTimestamp"].year == 9999


def test_batches_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flintmq.spark.stored.split_batches.BATCH_BYTES_MAX", 1000)
    make_store(tmp_path)
    reader = make_reader(tmp_path)
    batches = [batch for split in reader.partitions() for batch in reader.read(split)]
    assert sum(batch.num_rows for batch in batches) == 100
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert max(sum(batch.column("storeSize").to_pylist()) for batch in batches) < 1000 + 500


# -- which messages --------------------------------------------------------------------------


def test_topic_and_times_select(tmp_path: Path) -> None:
    make_store(tmp_path)
    start, end = str(START_MS + 10_000), str(START_MS + 20_000)
    assert len(read(tmp_path, topic="orders")) == 100
    assert read(tmp_path, topic="others") == []
    rows = read(tmp_path, startingTimestamp=start, endingTimestamp=end)
    first = datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(seconds=10)
    assert [row["storeTimestamp"] for row in rows] == [
        first + timedelta(seconds=number) for number in range(10)
    ]


def long_store(root: Path) -> Path:
    """Write several files, each of which holds hours of messages."""
    clock = ManualClock(START_MS)
    with MessageStore.open(small_config(root), clock=clock, background=False) as store:
        for number in range(100):
            message = PutMessage(
                topic="t", body=b"%d" % number * 50, born_host=HOST, store_host=HOST
            )
            assert store.put(message).ok
            clock.advance(3_600_000)
        store.dispatch()
    return root


def test_files_are_skipped_by_time(tmp_path: Path) -> None:
    store = long_store(tmp_path)
    every = read(store)
    assert len(make_reader(store).partitions()) > 2
    for hour in (0, 1, 37, 50, 99):
        start = START_MS + hour * 3_600_000
        reader = make_reader(store, startingTimestamp=str(start), endingTimestamp=str(start + 1))
        assert len(reader.partitions()) <= 2
        assert rows_of(reader) == [every[hour]]


def test_filters_choose_rows_and_files(tmp_path: Path) -> None:
    store = long_store(tmp_path)
    every = read(store)
    time = every[40]["storeTimestamp"]
    queue_offset, store_time = ("queueOffset",), ("storeTimestamp",)
    cases: list[tuple[list[Filter], list[dict[str, Any]]]] = [
        ([EqualTo(("topic",), "t")], every),
        ([EqualTo(("topic",), "u")], []),
        ([In(("topic",), ("t", "u", None))], every),
        ([IsNotNull(("topic",)), EqualTo(("queueId",), 0)], every),
        ([EqualTo(queue_offset, 7)], every[7:8]),
        ([In(queue_offset, (3, 5))], [every[3], every[5]]),
        ([GreaterThan(queue_offset, 90), LessThan(queue_offset, 95)], every[91:95]),
        ([GreaterThanOrEqual(queue_offset, 90), LessThanOrEqual(queue_offset, 95)], every[90:96]),
        ([EqualTo(store_time, time)], every[40:41]),
        ([EqualTo(store_time, time + timedelta(microseconds=1))], []),
        ([GreaterThan(store_time, time)], every[41:]),
        ([GreaterThan(store_time, time - timedelta(microseconds=1))], every[40:]),
        ([GreaterThanOrEqual(store_time, time + timedelta(microseconds=1))], every[41:]),
        ([LessThan(store_time, time)], every[:40]),
        ([LessThan(store_time, time + timedelta(microseconds=1))], every[:41]),
        ([LessThanOrEqual(store_time, time)], every[:41]),
        ([IsNotNull(store_time)], every),
    ]
    for filters, wanted in cases:
        reader, left = filtering_reader(store, filters)
        assert left == []
        assert rows_of(reader) == wanted, filters
    reader, _ = filtering_reader(store, [LessThan(store_time, time)])
    assert len(reader.partitions()) < len(make_reader(store, splits=2).partitions())


def test_other_filters_are_left_to_spark() -> None:
    others: list[Filter] = [
        EqualTo(("flag",), 1),
        IsNull(("tags",)),
        EqualTo(("tags",), 1),
        IsNull(("topic",)),
        EqualTo(("properties", "x"), "y"),
        EqualTo(("queueId",), "0"),
    ]
    _, left = filtering_reader(BASIC, others)
    assert left == others


def test_pushed_filters_give_what_spark_would(spark: SparkSession) -> None:
    conditions = [
        "topic = 'golden_audit'",
        "topic in ('golden_audit', 'golden-orders') and queueId = 1 and queueOffset > 100",
        "topic like 'golden%' and queueOffset between 3 and 5 and tags is not null",
    ]
    for condition in conditions:
        plain = load(spark, ROLLED).where(condition)
        pushed = load(spark, ROLLED, filterPushdown="true").where(condition)
        assert offsets_in(pushed.collect()) == offsets_in(plain.collect()) != []
        plan = pushed._jdf.queryExecution().executedPlan().toString()
        assert (
            "topic#" not in plan.partition("Filter ")[2].partition("\n")[0] or "like" in condition
        )


def offsets_in(rows: list[Any]) -> list[int]:
    return sorted(row["physicalOffset"] for row in rows)


def test_a_table_can_be_used_more_than_once(spark: SparkSession) -> None:
    """Spark's own pushdown gets this wrong, hence it is off unless it is asked for."""
    table = load(spark, BASIC)
    assert table.count() == 53
    some = table.where("queueOffset = 0")
    more = table.where("queueOffset = 1")
    assert some.count() < 53
    assert table.count() == 53
    both = some.union(more)
    assert {row["queueOffset"] for row in both.collect()} == {0, 1}


# -- directories -----------------------------------------------------------------------------


def test_several_directories_are_one_table(spark: SparkSession) -> None:
    names = f'{{"{BASIC}": "broker-a", "{ROLLED}": "broker-b"}}'
    table = spark.read.format("flintmq").option("brokerName", names).load([str(BASIC), str(ROLLED)])
    found = {
        (row["path"], row["brokerName"]): row["count"]
        for row in table.groupBy("path", "brokerName").count().collect()
    }
    assert found == {(str(BASIC), "broker-a"): 53, (str(ROLLED), "broker-b"): 385}


def test_patterns_name_directories(tmp_path: Path) -> None:
    for name in ("a-1", "a-2", "b"):
        (tmp_path / name / "store").mkdir(parents=True)
    (tmp_path / "a-3").write_text("a file")
    first, second = tmp_path / "a-1" / "store", tmp_path / "a-2" / "store"
    assert store_directories([f"{tmp_path}/a-*/store"]) == [first, second]
    assert store_directories([f"file://{tmp_path}/a-[2]/store", str(second)]) == [second]
    with pytest.raises(OptionError, match="no directory matches"):
        store_directories([f"{tmp_path}/c*"])


def test_one_broker_name_serves_all() -> None:
    rows = read(BASIC, brokerName="broker-a")
    assert {(row["brokerName"], row["path"]) for row in rows} == {("broker-a", str(BASIC))}
    assert {row["brokerName"] for row in read(BASIC)} == {None}
    assert {row["fileName"] for row in rows} == {f"{0:020}"}


def test_what_is_no_store_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="not a store"):
        spark.read.format("flintmq").load(str(tmp_path)).count()


def test_a_file_that_is_deleted_meanwhile_is_damage(tmp_path: Path) -> None:
    make_store(tmp_path)
    reader = make_reader(tmp_path, onCorruptRecord="row")
    splits = reader.partitions()
    first = sorted((tmp_path / "commitlog").iterdir())[0]
    first.unlink()
    (row,) = [row for batch in reader.read(splits[0]) for row in batch.to_pylist()]
    assert row["_corruptReason"] == "the file was deleted meanwhile"
    assert offsets([row]) == [0]


LAZY = """
import sys
import flintmq.spark
assert not {"numba", "pyarrow", "pyspark"} & sys.modules.keys(), "loaded too early"
assert not hasattr(flintmq.spark, "NoSuchName")
print(flintmq.spark.FlintSource.name())
"""


def test_the_package_loads_the_source_when_it_is_asked_for() -> None:
    """Every worker process imports the package; few of them need the data source."""
    done = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("flintmq\n", "")


def test_messages_that_wait_for_their_time_are_rows_with_their_topic_and_time(
    tmp_path: Path,
) -> None:
    clock = ManualClock(START_MS)
    with MessageStore.open(small_config(tmp_path), clock=clock, background=False) as store:
        message = PutMessage(
            topic="orders",
            queue_id=0,
            body=b"later",
            properties={DELIVER_AT: str(START_MS + 3_600_000)},
            born_timestamp=START_MS,
            born_host=HOST,
            store_host=HOST,
        )
        assert store.put(message).ok
    (row,) = read(tmp_path)
    assert (row["topic"], row["body"]) == (WAITING_TOPIC, b"later")
    properties = dict(row["properties"])
    assert properties[REAL_TOPIC] == "orders"
    assert properties[DELIVER_AT] == str(START_MS + 3_600_000)
