"""A store of more than one GiB, in several files: however it is cut, the answers are the same."""

import filecmp
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from bench.generate_store import StoreShape, generate
from flintmq.offline.layout import find_store
from flintmq.spark.columns import table_schema
from flintmq.spark.jobs.rebuild import rebuild
from flintmq.spark.jobs.verify import verify_stores
from tests.spark.reading import SPLITS, make_projection, split_size

# What a broker would have derived is generated too, and not from the log.
SHAPE = StoreShape(
    messages=3_500_000,
    log_file_size=256 << 20,
    queue_file_size=600_000,
    slots=500_000,
    entries=2_000_000,
)
NAMES = ("topic", "physicalOffset")

pytestmark = pytest.mark.slow
in_splits = pytest.mark.parametrize("splits", SPLITS)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("large") / "store"
    generate(root, SHAPE)
    assert len(find_store(root).log_files) == 5
    assert SHAPE.messages * len(SHAPE.template) > 1 << 30
    yield root
    shutil.rmtree(root)


def files_of(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def part_count(splits: int) -> int:
    """Return how many parts the written bytes of five files are, the last of which ends early."""
    last = SHAPE.messages % SHAPE.per_file * len(SHAPE.template)
    return 4 * splits + -(-last * splits // SHAPE.log_file_size)


@in_splits
def test_the_reader_gives_every_message_once(store: Path, splits: int) -> None:
    columns = StructType(
        [field for field in table_schema(with_corrupt=False) if field.name in NAMES]
    )
    reader = make_projection(store, columns, splits=splits)
    parts = reader.partitions()
    assert len(parts) == part_count(splits)
    offsets = [
        batch.column("physicalOffset").to_numpy() for part in parts for batch in reader.read(part)
    ]
    assert np.array_equal(np.concatenate(offsets), SHAPE.offsets(np.arange(SHAPE.messages)))


def test_a_query_gives_every_message_once(spark: SparkSession, store: Path) -> None:
    reader = spark.read.format("flintmq").option("splitSize", split_size(store, 2))
    table = reader.schema("topic string, queueId int, queueOffset long").load(str(store))
    queues = table.groupBy("topic", "queueId").agg(
        F.count("*").alias("count"), F.sum("queueOffset").alias("sum")
    )
    rows = queues.collect()
    assert len(rows) == SHAPE.topic_count * SHAPE.queue_count
    assert sum(row["count"] for row in rows) == SHAPE.messages
    # The offsets of a queue are the numbers from zero on.
    assert all(row["sum"] == row["count"] * (row["count"] - 1) // 2 for row in rows)


@in_splits
def test_a_rebuild_gives_the_views_byte_for_byte(
    spark: SparkSession, store: Path, tmp_path: Path, splits: int
) -> None:
    size = int(split_size(store, splits))
    report = rebuild(spark, store, out=tmp_path / "out", split_size=size)
    assert not list(report.findings)
    assert report.part_count == part_count(splits)
    for kind in ("consumequeue", "index"):
        made, known = files_of(tmp_path / "out" / kind), files_of(store / kind)
        assert len(known) > 1
        # An index file is named after the moment at which it was made.
        for ours, theirs in zip(made, known, strict=True):
            assert filecmp.cmp(ours, theirs, shallow=False), theirs
    shutil.rmtree(tmp_path / "out")


@in_splits
def test_the_store_is_sound(spark: SparkSession, store: Path, splits: int) -> None:
    (report,) = verify_stores(spark, [store], split_size=int(split_size(store, splits)))
    assert report.is_sound
    assert not list(report.findings)
    assert report.record_count == report.unit_count == SHAPE.messages
    assert report.index_entry_count == 2 * SHAPE.messages
