"""A parallel verification reports what the serial one reports."""

from dataclasses import fields
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flintmq.offline import VerifyReport
from flintmq.spark.jobs.verify import StoreReport, verify_stores
from tests.golden.golden_sets import (
    DAMAGED_SET_NAMES,
    STORE_SET_NAMES,
    GoldenSet,
    damaged_set,
    golden_set,
)
from tests.spark.inline_spark import inline_spark
from tests.spark.reading import SPLITS, split_size
from tests.unit.offline.stores import check

SETS = [golden_set(name) for name in STORE_SET_NAMES]
SETS += [damaged_set(name) for name in DAMAGED_SET_NAMES]


def assert_equal_reports(ours: StoreReport, serial: VerifyReport) -> None:
    for field in fields(serial):
        if field.name != "findings":
            assert getattr(ours, field.name) == getattr(serial, field.name), field.name
    assert ours.findings.counts == serial.findings.counts
    assert ours.findings.shown == serial.findings.shown
    assert sorted(map(str, ours.findings)) == sorted(map(str, serial.findings))


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
