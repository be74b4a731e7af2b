"""Parallel verification beside a running broker, its limits, and its sections."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flintmq.offline.errors import NotAStoreError
from flintmq.spark.jobs.verify.parallel_verify import verify_stores
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.spark.inline_spark import inline_spark
from tests.kits.spark.verify_reports import assert_equal_reports
from tests.kits.store.offline_stores import (
    START_MS,
    check,
    fingerprint,
    flip,
    log_file,
    make_store,
    message,
    overwrite,
    put,
    queue_file,
    small_config,
)


def test_a_store_that_a_broker_runs_in_is_verified_as_it_stands(tmp_path: Path) -> None:
    root, clock = tmp_path / "store", ManualClock(START_MS)
    with MessageStore.open(small_config(root), clock=clock, background=False) as store:
        put(store, clock, 50)
        for number in range(50, 60):
            assert store.put(message(number)).ok
        (report,) = verify_stores(inline_spark(), [root], split_size=2000)
        assert report.unclean
        assert_equal_reports(report, check(root))


def test_nothing_is_written_into_the_store(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    before = fingerprint(root)
    verify_stores(inline_spark(), [root], split_size=1000)
    assert fingerprint(root) == before


@pytest.mark.parametrize("details_max", [1, 3])
def test_counts_are_exact_where_details_are_left_out(tmp_path: Path, details_max: int) -> None:
    root = make_store(tmp_path / "store")
    for position in range(20, 400, 40):
        flip(queue_file(root, 0), position)
        flip(queue_file(root, 1), position + 10)
    serial = check(root, details_max=details_max)
    (report,) = verify_stores(inline_spark(), [root], details_max=details_max, split_size=1000)
    assert report.findings.counts == serial.findings.counts
    assert len(list(report.findings)) == len(list(serial.findings))


def test_sections_tell_which_file_and_topic_is_harmed(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    overwrite(log_file(root, 1), 2000, b"\xff" * 100)
    flip(queue_file(root, 1), 5)
    (report,) = verify_stores(inline_spark(), [root], split_size=1000)
    harmed = [section for section in report.files if section.damage_count]
    assert [section.name for section in harmed] == [f"commitlog/{log_file(root, 1).name}"]
    assert harmed[0].damage_bytes == report.damage_bytes > 0
    assert [damage.start for damage in report.damages] == [
        damage.start for damage in check(root).damages
    ]
    (topic,) = report.topics
    assert (topic.topic, topic.record_count) == ("orders", report.record_count)
    assert topic.problem_count > 0


def test_spark_sends_what_is_odd_through_its_shuffle(spark: SparkSession, tmp_path: Path) -> None:
    whole, harmed = make_store(tmp_path / "whole"), make_store(tmp_path / "harmed")
    flip(log_file(harmed, 0), 3000)
    queue_file(harmed, 1, 1).unlink()
    shutil.rmtree(harmed / "index")
    reports = verify_stores(spark, [whole, str(harmed)], split_size=1000)
    for report, root in zip(reports, (whole, harmed), strict=True):
        assert_equal_reports(report, check(root))
    assert [report.is_sound for report in reports] == [True, False]


def test_what_is_no_store_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        verify_stores(inline_spark(), [tmp_path])
    assert verify_stores(inline_spark(), []) == []
