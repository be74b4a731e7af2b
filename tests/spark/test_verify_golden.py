"""A parallel verification reports what the serial one reports."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flintmq.spark.jobs.verify.parallel_verify import verify_stores
from tests.kits.golden.golden_sets import (
    DAMAGED_SET_NAMES,
    STORE_SET_NAMES,
    GoldenSet,
    damaged_set,
    golden_set,
)
from tests.kits.spark.inline_spark import inline_spark
from tests.kits.spark.reading import SPLITS, split_size
from tests.kits.spark.verify_reports import assert_equal_reports
from tests.kits.store.offline_stores import check

SETS = [golden_set(name) for name in STORE_SET_NAMES]
SETS += [damaged_set(name) for name in DAMAGED_SET_NAMES]


@pytest.mark.parametrize("golden", SETS, ids=lambda golden: golden.name)
def test_every_golden_set_gives_the_report_of_the_serial_tool(golden: GoldenSet) -> None:
    serial = check(golden.store)
    for count in SPLITS:
        size = int(split_size(golden.store, count))
        (report,) = verify_stores(inline_spark(), [golden.store], split_size=size)
        assert_equal_reports(report, serial)
        assert sum(section.record_count for section in report.files) == serial.record_count
        assert sum(section.record_bytes for section in report.topics) == serial.record_bytes
        assert sum(section.damage_count for section in report.files) <= serial.damage_count


@pytest.mark.parametrize("golden", SETS, ids=lambda golden: golden.name)
def test_without_the_index_too(golden: GoldenSet) -> None:
    (report,) = verify_stores(inline_spark(), [golden.store], check_index=False)
    assert_equal_reports(report, check(golden.store, check_index=False))


def test_spark_verifies_many_directories_in_one_job(spark: SparkSession) -> None:
    stores: list[Path | str] = [golden.store for golden in SETS]
    size = int(split_size(golden_set("rolled").store, 2))
    for report, golden in zip(verify_stores(spark, stores, split_size=size), SETS, strict=True):
        assert_equal_reports(report, check(golden.store))
