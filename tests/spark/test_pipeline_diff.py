"""What is different between two stores, and what only looks so."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.offline.layout import find_store
from flintmq.offline.verify.store_verify import verify
from flintmq.spark.jobs.diff.diff_report import DifferenceKind, DiffReport, Side
from flintmq.spark.jobs.diff.store_diff import diff
from flintmq.spark.options.store_options import OnCorrupt
from flintmq.testing import EmbeddedCluster
from tests.kits.golden.golden_sets import damaged_set, golden_set
from tests.kits.spark.pipeline_kit import copy_store, light_session, numbered, write_store
from tests.kits.store.offline_stores import log_file, make_store

COUNT = 12
LEVELS = DelayLevels.parse(DEFAULT_DELAY_LEVELS)


@pytest.fixture
def spark(spark: SparkSession) -> SparkSession:
    return light_session(spark)


def counts(report: DiffReport) -> dict[str, int]:
    found = {kind.value: getattr(report, f"{kind.value}_count") for kind in DifferenceKind}
    found |= {"same": report.same_count, "outside": report.outside_count}
    return {name: count for name, count in found.items() if count}


def test_a_copy_is_equal(spark: SparkSession, tmp_path: Path) -> None:
    left = write_store(tmp_path / "left", numbered(COUNT))
    right = copy_store(left, tmp_path / "right")
    report = diff(spark, str(left), str(right), strict=True)
    assert report.is_equal
    assert counts(report) == {"same": COUNT}
    assert report.first is None
    assert report.left.message_count == report.right.message_count == COUNT


def test_master_and_slave_are_equal_and_sound(spark: SparkSession, tmp_path: Path) -> None:
    with EmbeddedCluster(root=tmp_path, replicas=1, haSendHeartbeatInterval=50) as cluster:
        for number in range(COUNT):
            cluster.send("orders", b"body %d" % number, keys=[f"key-{number}"], tag="Paid")
        cluster.send("later", b"delayed", delay_level=1)
        cluster.wait_for_slaves()
        # The slave goes on behind a cut of the stream.
        cluster.stream.drop_connections()
        for number in range(COUNT):
            cluster.send("orders", b"more %d" % number)
        cluster.wait_for("later", 1)
        cluster.wait_for_slaves()
    master, slave = tmp_path / "store", tmp_path / "slave-1"
    report = diff(spark, str(master), str(slave), strict=True)
    assert report.is_equal
    assert report.same_count >= 2 * COUNT + 1
    for store in (master, slave):
        verified = verify(find_store(store), delay_levels=LEVELS)
        assert verified.is_sound, verified.findings


def test_changed_missing_and_extra_messages_are_found(spark: SparkSession, tmp_path: Path) -> None:
    changes: dict[str, dict[str, Any]] = {
        "n4": {"body": b"another body of another length"},
        "n7": {"properties": {"TAGS": "Other", "KEYS": "key-7"}},
        "n9": {"flag": 5},
    }
    left = write_store(tmp_path / "left", numbered(COUNT))
    right = write_store(tmp_path / "right", numbered(COUNT, **changes)[:-1] + numbered(14)[12:])
    report = diff(spark, str(left), str(right))
    assert not report.is_equal
    # Number 11 is missing, and 13 has its place in queue 1; 12 is extra in queue 0.
    assert counts(report) == {"changed": 4, "extra": 1, "moved": 4, "same": COUNT - 4}
    changed = [one for one in report.examples if one.kind is DifferenceKind.CHANGED]
    assert [(one.queue_id, one.queue_offset, one.parts) for one in changed] == [
        (0, 2, ("body", "size")),
        (1, 3, ("properties", "size")),
        (1, 4, ("flags",)),
        (1, 5, ("body", "properties", "times")),
    ]
    assert report.first == changed[0]
    assert [(one.queue_id, one.first_offset, one.extra_count) for one in report.queues] == [
        (0, 2, 1),
        (1, 2, 0),
    ]


def test_messages_at_other_offsets_are_equal_unless_it_is_strict(
    spark: SparkSession, tmp_path: Path
) -> None:
    left = write_store(tmp_path / "left", numbered(COUNT))
    right = write_store(tmp_path / "right", numbered(COUNT), commit_log_file_size=1000)
    report = diff(spark, str(left), str(right))
    assert report.is_equal
    assert report.moved_count > 0
    assert report.first is None
    strict = diff(spark, str(left), str(right), strict=True)
    assert not strict.is_equal
    assert strict.first is not None
    assert strict.first.kind is DifferenceKind.MOVED


def test_what_retention_has_deleted_is_a_note_unless_it_is_strict(
    spark: SparkSession, tmp_path: Path
) -> None:
    left = make_store(tmp_path / "left", 50)
    right = copy_store(left, tmp_path / "right")
    log_file(right, 0).unlink()
    report = diff(spark, str(left), str(right))
    assert report.is_equal
    assert (report.right.log_start, report.missing_count) == (8192, 0)
    assert report.outside_count + report.same_count == 50
    assert {(one.side, one.first_offset) for one in report.outside} == {(Side.LEFT, 0)}
    mirrored = diff(spark, str(right), str(left))
    assert mirrored.is_equal
    assert {one.side for one in mirrored.outside} == {Side.RIGHT}
    strict = diff(spark, str(left), str(right), strict=True)
    assert (strict.missing_count, strict.outside_count) == (report.outside_count, 0)
    assert not strict.is_equal


def test_a_tail_that_is_lost_is_missing(spark: SparkSession) -> None:
    left = str(golden_set("rolled").store)
    right = str(damaged_set("last-commitlog-file-lost").store)
    report = diff(spark, left, right, details=2)
    assert counts(report) == {"missing": 31, "same": 354}
    assert report.first is not None
    assert report.first.left_physical_offset == 229376
    assert len(report.examples) == 2
    assert [(one.topic, one.queue_id, one.first_offset) for one in report.queues] == [
        ("golden-orders", 0, 130),
        ("golden-orders", 1, 130),
        ("golden_audit", 0, 94),
    ]


def test_a_damaged_record_is_missing_where_damage_is_left_out(spark: SparkSession) -> None:
    left = str(golden_set("rolled").store)
    right = str(damaged_set("body-byte-flipped-first-file").store)
    report = diff(spark, left, right, on_corrupt=OnCorrupt.SKIP)
    assert counts(report) == {"missing": 1, "same": 384}
    assert report.right.damages.count == 1
    assert report.left.damages.count == 0
