"""Batches hold what plain Python reads from the same records; odd ones among plain ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.format.compression import CompressionType, compress
from flintmq.format.stored.record_encoding import encode_record
from flintmq.kernels.compiled import as_bytes
from flintmq.kernels.records import walk_records
from flintmq.spark import CorruptLogError
from flintmq.spark.options.store_options import OnCorrupt
from flintmq.spark.rows.bodies import stored_bodies
from flintmq.spark.rows.columns import arrow_schema, table_schema
from flintmq.spark.rows.row_batches import Faults, RowBuilder
from flintmq.spark.rows.row_filter import Bounds, RowFilter
from flintmq.spark.stored.log_split import LogSplit
from flintmq.spark.stored.split_batches import BatchReader
from tests.kits.spark.reading import make_reader, offsets, read, rows_of
from tests.kits.store.log_bytes import LONG_MAX, RecordMaker, chain, join, longs, records, row_of
from tests.kits.store.offline_stores import HOST, START_MS, make_store

PATIENT = settings(deadline=None)
SCHEMA = arrow_schema(table_schema(with_corrupt=False))
FILE_SIZE = 1 << 16


@PATIENT
@given(makers=st.lists(records(compressed=False), min_size=1, max_size=8))
def test_rows_are_those_of_plain_python(makers: list[RecordMaker]) -> None:
    log = join(0, makers)
    data = as_bytes(log)
    table = walk_records(data, 0, len(log), len(log), 0, rows_max=99, bytes_max=1 << 30).table
    builder = RowBuilder(SCHEMA, {"brokerName": None, "fileName": "0", "path": "p"})
    batch = builder.build(data, table, stored_bodies(table).pieces, Faults())
    batch.validate(full=True)
    constants = {"brokerName": None, "fileName": "0", "path": "p"}
    expected = [row_of(log, position) | constants for position, _ in chain(log, 0, len(log), 0)]
    assert batch.to_pylist() == [{name: row[name] for name in SCHEMA.names} for row in expected]


@st.composite
def bounds(draw: st.DrawFn) -> Bounds:
    made = Bounds()
    near = st.one_of(longs, st.integers(-3, 3), st.sampled_from([LONG_MAX + 1, -LONG_MAX - 2]))
    if draw(st.booleans()):
        made.at_least(draw(near))
    if draw(st.booleans()):
        made.at_most(draw(near))
    if draw(st.booleans()):
        made.only(draw(st.lists(near)))
    return made


@PATIENT
@given(made=bounds(), values=st.lists(st.one_of(longs, st.integers(-3, 3))))
def test_bounds_of_many_numbers(made: Bounds, values: list[int]) -> None:
    found = made.mask(np.array(values, np.int64))
    assert found.tolist() == [value in made for value in values]


@PATIENT
@given(
    makers=st.lists(records(), min_size=1, max_size=6),
    queue_offset=bounds(),
    topics=st.one_of(st.none(), st.just(frozenset({b"orders", b""}))),
)
def test_a_filter_of_many_rows_is_that_of_each(
    makers: list[RecordMaker], queue_offset: Bounds, topics: frozenset[bytes] | None
) -> None:
    log = join(0, makers)
    data = as_bytes(log)
    table = walk_records(data, 0, len(log), len(log), 0, rows_max=99, bytes_max=1 << 30).table
    wanted = RowFilter(topics=topics, queue_offset=queue_offset)
    mask = wanted.mask(data, table)
    expected = [wanted.wants(record) for _, record in chain(log, 0, len(log), 0)]
    assert ([True] * len(table) if mask is None else mask.tolist()) == expected
    assert (mask is None) == wanted.is_open


def write_log(root: Path, messages: list[dict[str, Any]]) -> list[int]:
    """Write a store that is only a log; return where its records are."""
    log, found = b"", []
    for number, message in enumerate(messages):
        found.append(len(log))
        topic, sys_flag = message.get("topic", b"t"), message.get("sys_flag", 0)
        body, properties = message.get("body", b"x"), message.get("properties", b"")
        log += encode_record(
            topic,
            0,
            0,
            number,
            len(log),
            sys_flag,
            START_MS,
            HOST,
            START_MS,
            HOST,
            0,
            0,
            body,
            properties,
        )
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020}").write_bytes(log.ljust(FILE_SIZE, b"\0"))
    return found


def test_a_topic_that_is_no_text_is_damage_in_its_place(tmp_path: Path) -> None:
    topics = [b"a", b"\xff", b"b", "é".encode(), b"\xc3", b"\xc3", b"c"]
    found = write_log(tmp_path, [{"topic": topic} for topic in topics])
    rows = read(tmp_path, onCorruptRecord="row")
    assert offsets(rows) == found
    assert [row["topic"] for row in rows] == ["a", None, "b", "é", None, None, "c"]
    assert [row["_corruptSize"] for row in rows] == [None, 93, None, None, 93, 93, None]
    assert {row["_corruptReason"] for row in rows} == {None, "the topic is not UTF-8"}
    assert offsets(read(tmp_path, onCorruptRecord="skip", topic="b,c")) == [found[2], found[6]]
    with pytest.raises(CorruptLogError, match="the topic is not UTF-8"):
        read(tmp_path)


BODIES = [b"plain", compress(b"packed " * 300, CompressionType.ZLIB), b"", b"no zlib"]
SHOWN = [b"plain", b"packed " * 300, b"", None]
FLAGS = [0, 1, 1, 1]


@pytest.mark.parametrize("bytes_max", [1, 3000, 1 << 20])
def test_bodies_grow_and_batches_stay_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    monkeypatch.setattr("flintmq.spark.stored.split_batches.BATCH_BYTES_MAX", bytes_max)
    kinds = [0, 1, 1, 0, 2, 3, 1, 0, 1]
    found = write_log(tmp_path, [{"body": BODIES[n], "sys_flag": FLAGS[n]} for n in kinds])
    reader = make_reader(tmp_path, onCorruptRecord="row")
    batches = [batch for split in reader.partitions() for batch in reader.read(split)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert offsets(rows) == found
    assert [row["body"] for row in rows] == [SHOWN[n] for n in kinds]
    faults = [row["_corruptReason"] for row in rows]
    assert [fault is not None for fault in faults] == [n == 3 for n in kinds]
    assert [row["_corruptSize"] for row in rows if row["_corruptReason"]] == [99]
    # A batch ends behind the body that makes it too large.
    for batch in batches:
        sizes = [len(body or b"") for body in batch.column("body").to_pylist()]
        assert sum(sizes[:-1]) < max(bytes_max, 1)
    with pytest.raises(CorruptLogError, match="damaged ZLIB data"):
        read(tmp_path)


def test_small_parts_make_one_batch(tmp_path: Path) -> None:
    """Rows between damage do not become batches of their own."""
    found = write_log(tmp_path, [{"topic": b"\xff" if n % 2 else b"a"} for n in range(50)])
    reader = make_reader(tmp_path, onCorruptRecord="row")
    (split,) = reader.partitions()
    (batch,) = reader.read(split)
    assert batch.column("physicalOffset").to_pylist() == found
    batch.validate(full=True)


def test_a_reader_that_is_left_early_closes_its_file(tmp_path: Path) -> None:
    make_store(tmp_path)
    reader = make_reader(tmp_path)
    split = reader.partitions()[0]
    assert isinstance(split, LogSplit)
    batches = BatchReader(split, SCHEMA, RowFilter(), OnCorrupt.FAIL).batches()
    first = next(batches)
    batches.close()  # type: ignore[attr-defined]
    # What was given stays, although the file is no longer mapped.
    rows = first.to_pylist()
    assert rows == rows_of(make_reader(tmp_path))[: len(rows)]
