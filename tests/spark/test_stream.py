"""A store directory as a stream: every record once, whatever happens in between."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from flintmq.spark import CorruptLogError, OptionError
from flintmq.spark.errors import DataLossError
from flintmq.spark.options.store_options import parse_options, parse_stream_options
from flintmq.spark.rows.columns import arrow_schema, table_schema
from flintmq.spark.stored.log_follower import Allowance, LogFollower
from flintmq.spark.stored.log_stream import LogStreamReader, StreamOffset
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.golden.engine import copy_store
from tests.kits.golden.golden_sets import STORE_SET_NAMES, damaged_set, golden_set
from tests.kits.spark.log_writer import LogWriter
from tests.kits.spark.reading import offsets, read
from tests.kits.store.offline_stores import (
    START_MS,
    log_file,
    make_store,
    overwrite,
    put,
    small_config,
)

Row = dict[str, Any]
ALL = ReadAllAvailable()


def make_stream(*stores: Path, **options: str) -> LogStreamReader:
    parsed = parse_stream_options({"paths": json.dumps(list(map(str, stores))), **options})
    return LogStreamReader(parsed, arrow_schema(table_schema(with_corrupt=False)))


def rows_between(stream: LogStreamReader, start: StreamOffset, end: StreamOffset) -> list[Row]:
    return [
        row
        for split in stream.partitions(start, end)
        for batch in stream.read(split)
        for row in batch.to_pylist()
    ]


def batches_of(stream: LogStreamReader) -> list[list[Row]]:
    """Run a stream until nothing is new; return the rows of each micro-batch."""
    place = stream.initialOffset()
    found = []
    while (following := stream.latestOffset(place, stream.getDefaultReadLimit())) != place:
        found.append(rows_between(stream, place, following))
        place = following
    return found


@contextmanager
def growing(root: Path, *, after: int = 0) -> Iterator[tuple[MessageStore, ManualClock]]:
    """Open a store so many seconds after the first one."""
    clock = ManualClock(START_MS + after * 1000)
    with MessageStore.open(small_config(root), clock=clock, background=False) as store:
        yield store, clock


@pytest.mark.parametrize("name", STORE_SET_NAMES)
def test_a_stream_gives_what_a_batch_gives(name: str) -> None:
    store = golden_set(name).store
    wanted = read(store)
    (whole,) = batches_of(make_stream(store, splitSize="9000"))
    assert whole == wanted
    few = batches_of(make_stream(store, maxOffsetsPerTrigger="50"))
    assert [row for batch in few for row in batch] == wanted
    assert {len(batch) for batch in few[:-1]} == {50}


def test_bytes_are_limited_and_a_large_record_is_one_batch(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    found = batches_of(make_stream(store, maxBytesPerTrigger="1000"))
    assert [row for batch in found for row in batch] == read(store)
    assert max(sum(row["storeSize"] for row in batch) for batch in found) <= 1000
    assert len(found) > 20
    # A limit below every record gives them one by one, rather than nothing for ever.
    assert [len(batch) for batch in batches_of(make_stream(store, maxBytesPerTrigger="1"))] == [
        1
    ] * 100
    both = make_stream(store, maxBytesPerTrigger="1m", maxOffsetsPerTrigger="7")
    assert {len(batch) for batch in batches_of(both)[:-1]} == {7}
    assert both.getDefaultReadLimit() == ReadMaxBytes(1 << 20)
    assert make_stream(store, maxOffsetsPerTrigger="7").getDefaultReadLimit() == ReadMaxRows(7)


def test_a_growing_log_is_followed_across_files(tmp_path: Path) -> None:
    stream = make_stream(tmp_path, splitSize="2000")
    found: list[Row] = []
    with growing(tmp_path) as (store, clock):
        put(store, clock, 1)
        place = stream.initialOffset()
        for first in range(1, 120, 17):
            following = stream.latestOffset(place, ALL)
            # A restart knows nothing but the two offsets, and gives the same rows.
            rows = rows_between(stream, place, following)
            assert rows_between(make_stream(tmp_path), place, following) == rows
            found += rows
            place = following
            put(store, clock, 17, first=first)
            latest = stream.reportLatestOffset()[str(tmp_path)]
            assert latest["offset"] > place[str(tmp_path)]["offset"]
    found += rows_between(stream, place, stream.latestOffset(place, ALL))
    assert found == read(tmp_path)
    assert len(found) == 120
    assert len(list((tmp_path / "commitlog").iterdir())) > 2


def test_latest_begins_at_the_end(tmp_path: Path) -> None:
    with growing(tmp_path) as (store, clock):
        put(store, clock, 30)
        stream = make_stream(tmp_path, startingOffsets="latest")
        place = stream.initialOffset()
        assert stream.latestOffset(place, ALL) == place
        assert rows_between(stream, place, place) == []
        # A repeat of the first batch asks where it began once more, at another time.
        repeated = make_stream(tmp_path, startingOffsets="latest")
        put(store, clock, 3, first=30)
        following = stream.latestOffset(place, ALL)
        rows = rows_between(stream, place, following)
        assert rows_between(repeated, repeated.initialOffset(), following) == rows
    assert [row["keys"] for row in rows] == ["key-30", "key-31", "key-32"]


def test_available_now_reads_no_further(tmp_path: Path) -> None:
    with growing(tmp_path) as (store, clock):
        put(store, clock, 30)
        stream = make_stream(tmp_path, maxOffsetsPerTrigger="20")
        stream.prepareForTriggerAvailableNow()
        put(store, clock, 30, first=30)
        assert [len(batch) for batch in batches_of(stream)] == [20, 10]


def test_a_deleted_start_is_an_error_unless_told_otherwise(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    every = read(store)
    stream = make_stream(store)
    place = stream.initialOffset()
    log_file(store, 0).unlink()
    with pytest.raises(DataLossError, match="the log starts at 8192, while the stream has come to"):
        stream.latestOffset(place, ALL)
    end = {str(store): offsets(every)[-1]}
    with pytest.raises(DataLossError):
        stream.partitions(place, end)
    stream = make_stream(store, failOnDataLoss="false")
    rows = rows_between(stream, place, stream.latestOffset(place, ALL))
    assert rows == [row for row in every if row["physicalOffset"] >= 8192]
    with pytest.raises(DataLossError, match="the log ends at"):
        make_stream(store).latestOffset({str(store): 1 << 40}, ALL)
    with pytest.raises(DataLossError, match="the directory is gone"):
        make_stream(store).latestOffset({str(store): 8192, "/gone": 0}, ALL)


def test_a_new_directory_joins_the_stream(tmp_path: Path) -> None:
    first = make_store(tmp_path / "a")
    stream = make_stream(tmp_path / "*")
    place = stream.latestOffset(stream.initialOffset(), ALL)
    second = make_store(tmp_path / "b", 5)
    following = stream.latestOffset(place, ALL)
    rows = rows_between(stream, place, following)
    assert rows == read(second)
    assert following[str(first)] == place[str(first)]


def test_a_log_that_was_cut_back_and_has_regrown_is_not_the_same(tmp_path: Path) -> None:
    root, before = tmp_path / "store", tmp_path / "before"
    with growing(root) as (store, clock):
        put(store, clock, 50)
    shutil.copytree(root, before)
    with growing(root, after=100) as (store, clock):
        put(store, clock, 30, first=50)
    stream = make_stream(root)
    start = stream.initialOffset()
    place = stream.latestOffset(start, ALL)
    assert len(rows_between(stream, start, place)) == 80
    # Power is lost: the last 30 messages were not synced.  Others come.
    shutil.rmtree(root)
    shutil.copytree(before, root)
    with growing(root, after=1000) as (store, clock):
        put(store, clock, 60, first=100)
    for reader in (stream, make_stream(root)):
        with pytest.raises(DataLossError, match="is not the one that was read"):
            reader.latestOffset(place, ALL)
        with pytest.raises(DataLossError, match="is not the one that was read"):
            reader.partitions(start, place)
    lossy = make_stream(root, failOnDataLoss="false")
    following = lossy.latestOffset(place, ALL)
    keys = [row["keys"] for row in rows_between(lossy, place, following)]
    assert keys == [f"key-{number}" for number in range(100, 160)]
    assert lossy.latestOffset(following, ALL) == following


@pytest.mark.parametrize("count", [0, 2, 9])
def test_a_log_that_is_cut_back_behind_the_stream_goes_on_where_it_ends_now(
    tmp_path: Path, count: int
) -> None:
    log = LogWriter(tmp_path)
    for _ in range(3):
        log.append("orders", 100)
    stream = make_stream(tmp_path)
    start = stream.initialOffset()
    place = stream.latestOffset(start, ALL)
    for _ in range(4):
        log.append("orders", 100)
    # The reader has seen where the log ends, and has read nothing of it.
    stream.reportLatestOffset()
    log.cut_back(4)
    for _ in range(count):
        log.append("orders", 120)
    following = stream.latestOffset(place, ALL)
    assert (following == place) is (count == 0)
    keys = [record.key for record in log.records]
    assert [row["keys"] for row in rows_between(stream, start, place)] == keys[:3]
    assert [row["keys"] for row in rows_between(stream, place, following)] == keys[3:]


def test_a_log_that_is_cut_back_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    root = make_store(tmp_path, 30)
    stream = make_stream(root)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    (split,) = stream.partitions(start, end)
    rows = stream.read(split)
    assert next(rows).num_rows == 30
    overwrite(log_file(root, 0), end[str(root)]["last"][0] + 60, b"\1" * 4)
    with pytest.raises(DataLossError, match="is not the one that was read"):
        list(rows)


def test_a_repeated_batch_has_the_same_rows_or_fails(tmp_path: Path) -> None:
    first, second = make_store(tmp_path / "a"), tmp_path / "b"
    stream = make_stream(tmp_path / "*")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    rows = rows_between(stream, start, end)
    make_store(second)
    later = stream.latestOffset(end, ALL)
    joined = rows_between(stream, end, later)
    assert (rows, joined) == (read(first), read(second))
    # A restart asks for the first offset again, and a new log for its start.
    again = make_stream(tmp_path / "*")
    assert rows_between(again, again.initialOffset(), end) == rows
    assert rows_between(again, end, later) == joined
    for store in (first, second):
        log_file(store, 0).unlink()
    with pytest.raises(DataLossError, match="the log starts at 8192"):
        again.partitions(again.initialOffset(), end)
    with pytest.raises(DataLossError, match="the log starts at 8192"):
        again.partitions(end, later)


def test_a_file_that_is_deleted_between_plan_and_reading_is_an_error(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    for option in ("fail", "skip", "row"):
        stream = make_stream(store, onCorruptRecord=option)
        start = stream.initialOffset()
        splits = stream.partitions(start, stream.latestOffset(start, ALL))
        path = log_file(store, 0)
        whole = path.read_bytes()
        path.unlink()
        with pytest.raises(DataLossError, match="deleted meanwhile: from 0 to 8192"):
            list(stream.read(splits[0]))
        path.write_bytes(whole)


@pytest.mark.parametrize("how", ["directory", "content", "log"])
def test_a_directory_that_is_away_for_a_moment_goes_on_where_it_was(
    tmp_path: Path, how: str
) -> None:
    kept, root, aside = make_store(tmp_path / "a", 3), tmp_path / "b", tmp_path.parent / "aside"
    make_store(root)
    options = {"failOnDataLoss": "false"}
    stream = make_stream(tmp_path / "?", **options)
    place = stream.latestOffset(stream.initialOffset(), ALL)
    if how == "log":
        shutil.move(root / "commitlog", aside)
        (root / "commitlog").mkdir()
    else:
        shutil.move(root, aside)
        if how == "content":
            root.mkdir()
    for reader in (stream, make_stream(tmp_path / "?", **options)):
        assert reader.latestOffset(place, ALL) == place
    with pytest.raises(DataLossError, match=f"{root}: the (directory is gone|log has no file)"):
        make_stream(kept, root).latestOffset(place, ALL)
    if how == "log":
        (root / "commitlog").rmdir()
        shutil.move(aside, root / "commitlog")
    else:
        shutil.rmtree(root, ignore_errors=True)
        shutil.move(aside, root)
    for reader in (stream, make_stream(tmp_path / "?")):
        assert reader.latestOffset(place, ALL) == place
    with growing(root, after=1000) as (store, clock):
        put(store, clock, 7, first=100)
    following = stream.latestOffset(place, ALL)
    rows = rows_between(stream, place, following)
    assert [row["keys"] for row in rows] == [f"key-{number}" for number in range(100, 107)]


def test_a_checkpoint_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    root = make_store(tmp_path)
    stream = make_stream(root)
    every = read(root)
    place = {str(root): every[60]["physicalOffset"]}
    following = stream.latestOffset(place, ALL)
    assert rows_between(stream, place, following) == every[60:]
    old = {str(root): following[str(root)]["offset"]}
    assert rows_between(stream, place, old) == every[60:]
    assert rows_between(stream, {}, old) == every


def test_no_log_waits_for_ever(tmp_path: Path) -> None:
    busy, quiet = tmp_path / "busy", make_store(tmp_path / "quiet", 40)
    with growing(busy) as (store, clock):
        put(store, clock, 40)
        stream = make_stream(busy, quiet, maxOffsetsPerTrigger="20")
        place = stream.initialOffset()
        seen: list[Row] = []
        for first in range(40, 200, 20):
            following = stream.latestOffset(place, stream.getDefaultReadLimit())
            rows = rows_between(stream, place, following)
            assert len(rows) <= 20
            seen += rows
            place = following
            put(store, clock, 20, first=first)
    # The busy log has grown as fast as rows were read, and yet the other one has come to its end.
    assert [row for row in seen if row["path"] == str(quiet)] == read(quiet)


@pytest.mark.parametrize(
    "name", ["garbage-after-end", "garbage-after-gap", "tail-record-half-zero", "preallocated-file"]
)
def test_what_a_crash_has_left_is_never_read(name: str) -> None:
    store = damaged_set(name).store
    assert [row for batch in batches_of(make_stream(store)) for row in batch] == read(store)


def test_a_stream_goes_on_behind_damage_in_the_last_file_or_fails(tmp_path: Path) -> None:
    store = copy_store(golden_set("rolled"), tmp_path, abort=False)
    whole = read(store)
    overwrite(log_file(store, 7), 13_226 + 300, b"\xff" * 4)  # In the record at 242602.
    with pytest.raises(CorruptLogError, match="242602"):
        batches_of(make_stream(store))
    overwrite(log_file(store, 3), 20_000, b"\xff" * 4000)
    skipped = [
        row for batch in batches_of(make_stream(store, onCorruptRecord="skip")) for row in batch
    ]
    assert skipped == read(store, onCorruptRecord="skip")
    assert skipped[-1] == whole[-1]
    limited = batches_of(make_stream(store, onCorruptRecord="skip", maxOffsetsPerTrigger="40"))
    assert [row for batch in limited for row in batch] == skipped


def test_a_record_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    store = make_store(tmp_path, 3)
    path = log_file(store, 0)
    whole = path.read_bytes()
    ends = [row["physicalOffset"] + row["storeSize"] for row in read(store)]
    log = LogFollower(store, parse_options({"path": str(store)}))
    for cut in range(ends[1] + 1, ends[2] - 1, 7):
        path.write_bytes(whole[:cut].ljust(len(whole), b"\0"))
        assert LogFollower(store, parse_options({"path": str(store)})).look().end == ends[1]
        assert log.advance(0, Allowance()) == ends[1]
    path.write_bytes(whole)
    assert log.look().end == ends[2]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": '{"t": {"0": 1}}'}, "of a stream over directories is earliest or"),
        ({"endingOffsets": "latest"}, "has no place in a stream"),
        ({"source": "topics"}, "source=topics is no stream"),
        ({"accessPath": "queue", "topic": "t"}, "accessPath has no place in a stream"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is a number above zero"),
        ({"maxBytesPerTrigger": "much"}, "maxBytesPerTrigger is a number of bytes"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_stream_options({"path": "a", **options})
    assert words in str(caught.value)


def run_once(table: DataFrame, out: Path, checkpoint: Path) -> None:
    """Run a query with everything that is there, and stop."""
    query = (
        table.writeStream.format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(out))
    )
    query.awaitTermination()


def test_a_query_gives_each_record_once_through_restarts(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, out, checkpoint = tmp_path / "store", tmp_path / "out", tmp_path / "checkpoint"
    columns = "physicalOffset long, keys string"
    with growing(root) as (store, clock):
        for first in (0, 40):
            put(store, clock, 40, first=first)
            table = (
                spark.readStream.format("flintmq")
                .schema(columns)
                .option("maxOffsetsPerTrigger", "25")
                .load(str(root))
            )
            run_once(table, out, checkpoint)
            found = sorted(row[0] for row in spark.read.parquet(str(out)).collect())
            assert found == offsets(read(root))
    assert len(found) == 80
