"""A parallel rebuild makes the files of the serial one, of the engine and of the Java broker."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flintmq.offline.layout import SizeOptions
from flintmq.spark.jobs.rebuild.parallel_rebuild import rebuild
from flintmq.store.message_store import MessageStore
from tests.kits.golden.engine import config_of
from tests.kits.golden.golden_sets import (
    DAMAGED_SET_NAMES,
    STORE_SET_NAMES,
    GoldenSet,
    damaged_set,
    golden_set,
)
from tests.kits.spark.inline_spark import inline_spark
from tests.kits.spark.reading import SPLITS, split_size
from tests.kits.spark.rebuild_reports import assert_equal_reports, serially
from tests.kits.store.offline_stores import content

SETS = [golden_set(name) for name in STORE_SET_NAMES]
SETS += [damaged_set(name) for name in DAMAGED_SET_NAMES]


@pytest.mark.parametrize("golden", SETS, ids=lambda golden: golden.name)
def test_every_golden_set_gives_what_the_serial_tool_gives(
    tmp_path: Path, golden: GoldenSet
) -> None:
    # Where there is no index to tell its shape, it would be one of 20 million entries.
    shape = None if golden.index_files() else SizeOptions(hash_slots=50, index_entries=200)
    serial = serially(golden.store, tmp_path / "serial", shape)
    for count in SPLITS:
        output = tmp_path / f"in {count}"
        size = int(split_size(golden.store, count))
        report = rebuild(inline_spark(), golden.store, out=output, split_size=size, sizes=shape)
        assert content(output) == content(tmp_path / "serial")
        assert_equal_reports(report, serial)
        assert sorted(path.name for path in tmp_path.iterdir() if "rebuild" in path.name) == []


@pytest.mark.parametrize("name", ["kinds", "rolled", "extended"])
def test_spark_makes_the_files_of_the_java_broker(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    store = golden_set(name).store
    size = int(split_size(store, 7))
    report = rebuild(spark, store, out=tmp_path / "out", split_size=size)
    assert report.part_count > 1
    made = content(tmp_path / "out")
    queues = {path: data for path, data in made.items() if path.startswith("consumequeue")}
    assert queues == {
        f"{folder}/{path}": data
        for folder in ("consumequeue", "consumequeue_ext")
        for path, data in content(store / folder).items()
    }
    indexes = [data for path, data in made.items() if path.startswith("index/")]
    assert indexes == list(content(store / "index").values())


def test_spark_makes_the_files_that_the_engine_makes_of_the_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    golden = golden_set("rolled")
    size = int(split_size(golden.store, 2))
    rebuild(spark, golden.store, out=tmp_path / "out", split_size=size)
    root = tmp_path / "store"
    shutil.copytree(golden.store / "commitlog", root / "commitlog")
    with MessageStore.open(config_of(golden.expected(), root), background=False):
        pass
    made = content(tmp_path / "out" / "consumequeue")
    assert made == content(root / "consumequeue")
    indexes = content(tmp_path / "out" / "index")
    assert list(indexes.values()) == list(content(root / "index").values())
