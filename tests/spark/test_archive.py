"""Archive and restore: what comes out is what went in, byte for byte where that is possible."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from flintmq.model.message import PutMessage
from flintmq.offline.errors import OutputError, StoreInUseError
from flintmq.spark.errors import ArchiveError
from flintmq.spark.jobs.archive.archive_check import check_archive
from flintmq.spark.jobs.archive.archive_manifest import ArchiveDirectory, Manifest
from flintmq.spark.jobs.archive.store_archive import archive, archived_messages
from flintmq.spark.jobs.archive.store_restore import restore
from flintmq.spark.options.store_options import OnCorrupt
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.golden.engine import assert_serves, config_of
from tests.kits.golden.golden_sets import damaged_set, golden_set
from tests.kits.processes.java_cluster import assert_java_reads
from tests.kits.spark.inline_spark import inline_spark
from tests.kits.spark.reading import read
from tests.kits.store.lock_holder import held_by_another_process
from tests.kits.store.offline_stores import (
    HOST,
    START_MS,
    check,
    flip,
    make_store,
    message,
    problems,
    put,
    small_config,
)

WHOLE_SETS = ("basic", "rolled", "kinds", "extended", "ipv6", "killed-recovered")
VIEWED_SETS = ("basic", "rolled", "kinds", "ipv6")
"""Sets whose queues and index are what a rebuild gives: no extension, no recovery in between."""

Row = dict[str, Any]


@contextmanager
def growing(root: Path) -> Iterator[tuple[MessageStore, ManualClock]]:
    clock = ManualClock(START_MS)
    with MessageStore.open(small_config(root), clock=clock, background=False) as store:
        yield store, clock


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def written_files(directory: Path) -> dict[str, bytes]:
    """Return the files of a log, without those that were only made for later."""
    return {name: data for name, data in files_of(directory).items() if any(data)}


def without_place(rows: list[Row]) -> list[Row]:
    """Return rows without what a record's place in the log decides."""
    moved = ("physicalOffset", "offsetMsgId", "fileName", "path")
    return [
        {name: value for name, value in row.items() if name not in moved}
        # Without an id of its producer, a message has the one that its place gives.
        | {"msgId": None if row["msgId"] == row["offsetMsgId"] else row["msgId"]}
        for row in rows
    ]


# -- what goes in comes out ------------------------------------------------------------------


@pytest.fixture(scope="module")
def golden_archive(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("archive") / "all"
    stores = [str(golden_set(name).store) for name in WHOLE_SETS]
    names = {store: name for store, name in zip(stores, WHOLE_SETS, strict=True)}
    report = archive(spark, stores, to, broker_names=names)
    assert [store.name for store in report.stores] == list(WHOLE_SETS)
    assert [store.record_count for store in report.stores] == [
        len(golden_set(name).messages()) for name in WHOLE_SETS
    ]
    return to


@pytest.mark.parametrize("name", WHOLE_SETS)
def test_a_restored_store_is_the_old_one(
    spark: SparkSession, golden_archive: Path, tmp_path: Path, name: str
) -> None:
    golden = golden_set(name)
    out = tmp_path / "out"
    # Small chunks: several tasks write one file.
    report = restore(spark, golden_archive, out, store=name, chunk_size=20_000)
    assert report.is_exact
    assert report.record_count == len(golden.messages())
    assert files_of(out / "commitlog") == written_files(golden.store / "commitlog")
    assert files_of(out / "config") == files_of(golden.store / "config")
    if name in VIEWED_SETS:
        assert files_of(out / "consumequeue") == files_of(golden.store / "consumequeue")
        # Index files are named after the hour they were made in.
        assert list(files_of(out / "index").values()) == list(
            files_of(golden.store / "index").values()
        )
    assert not problems(check(out))
    config = config_of(golden.expected(), out)
    with MessageStore.open(config, clock=ManualClock(START_MS), background=False) as store:
        assert_serves(store, golden.messages())


def test_the_archive_is_as_its_manifest_says(spark: SparkSession, golden_archive: Path) -> None:
    result = check_archive(spark, golden_archive)
    assert result.problems == ()
    assert result.record_count == sum(len(golden_set(name).messages()) for name in WHOLE_SETS)


def test_rows_keep_topics_that_no_path_can_have(spark: SparkSession, golden_archive: Path) -> None:
    wanted = {
        (name, row["topic"], row["queueId"], row["queueOffset"], row["body"])
        for name in WHOLE_SETS
        for row in read(golden_set(name).store)
    }
    found = {
        (row["brokerName"], row["topic"], row["queueId"], row["queueOffset"], bytes(row["body"]))
        for row in archived_messages(spark, golden_archive).collect()
    }
    assert found == wanted
    assert any(topic.startswith("%RETRY%") for _, topic, *_ in found)


@pytest.mark.interop
def test_java_serves_a_restored_store(
    spark: SparkSession, golden_archive: Path, tmp_path: Path
) -> None:
    golden = golden_set("rolled")
    restore(spark, golden_archive, tmp_path / "out", store="rolled")
    assert_java_reads(tmp_path / "out", golden.expected()["config"], golden.messages())


# -- run after run ---------------------------------------------------------------------------


def test_each_run_adds_what_is_new(spark: SparkSession, tmp_path: Path) -> None:
    root, to = tmp_path / "store", tmp_path / "archive"
    with growing(root) as (store, clock):
        put(store, clock, 60)
        first = archive(spark, [str(root)], to, split_size=3000)
        assert archive(spark, [str(root)], to).run is None
        odd = PutMessage(
            topic="123", body=b"x", born_timestamp=(1 << 63) - 1, born_host=HOST, store_host=HOST
        )
        assert store.put(odd).ok
        put(store, clock, 60, first=60)
        second = archive(spark, [str(root)], to)
    assert (first.run, first.record_count, second.run, second.record_count) == (1, 60, 2, 61)
    assert second.stores[0].start == first.stores[0].end
    rows = archived_messages(spark, to)
    assert rows.count() == 121
    (number,) = rows.where("topic = '123'").collect()
    assert (number["bornTimestamp"], number["rawRecord"] is not None) == (None, True)
    day = datetime.fromtimestamp(START_MS / 1000, UTC).strftime("%Y-%m-%d")
    assert {row["day"] for row in rows.select("day").distinct().collect()} == {day}
    # What a run has left that nobody has finished is not there for readers.
    target = ArchiveDirectory(to)
    leftover = target.run_directory(3)
    shutil.copytree(target.run_directory(1), leftover)
    shutil.copytree(target.run_directory(1), target.pending)
    (stray,) = check_archive(spark, to).problems
    assert stray == "messages/run=000003: no manifest names it"
    assert archived_messages(spark, to).count() == 121
    report = restore(spark, to, tmp_path / "out")
    assert report.is_exact
    assert files_of(tmp_path / "out" / "commitlog") == written_files(root / "commitlog")
    assert archive(spark, [str(root)], to).run is None
    assert leftover.exists()
    assert not target.pending.exists()
    with pytest.raises(OutputError, match="is not empty"):
        restore(spark, to, tmp_path / "out")


def test_a_run_that_fails_leaves_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, to = make_store(tmp_path / "store", 20), tmp_path / "archive"

    def fail(self: ArchiveDirectory, manifest: Manifest) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ArchiveDirectory, "publish", fail)
        with pytest.raises(OSError, match="No space"):
            archive(spark, [str(root)], to)
    assert not ArchiveDirectory(to).pending.exists()
    with pytest.raises(ArchiveError, match="first run was not finished"):
        check_archive(spark, to)
    report = archive(spark, [str(root)], to)
    assert (report.run, report.record_count) == (1, 20)
    assert check_archive(spark, to).ok


def test_another_store_or_a_lost_part_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    root, to = make_store(tmp_path / "store"), tmp_path / "archive"
    names = {"": "broker-a"}
    archive(spark, [str(root)], to, broker_names=names)
    with pytest.raises(ArchiveError, match="was made of all topics, and this run is of orders"):
        archive(spark, [str(root)], to, broker_names=names, topics=["orders"])
    other = tmp_path / "other"
    with growing(other) as (store, clock):
        clock.advance(1)
        put(store, clock, 200)
    with pytest.raises(ArchiveError, match="is another store of this name"):
        archive(spark, [str(other)], to, broker_names=names)
    short = make_store(tmp_path / "short", 50)
    with pytest.raises(ArchiveError, match="is another store of this name"):
        archive(spark, [str(short)], to, broker_names=names)
    with pytest.raises(ArchiveError, match="two directories have this name"):
        archive(spark, [str(root), str(other)], tmp_path / "both", broker_names=names)
    with pytest.raises(ArchiveError, match="damage has no row in an archive"):
        archive(spark, [str(root)], to, on_corrupt=OnCorrupt.ROW)
    # A store that goes on, and has lost what follows the last run.
    with growing(root) as (store, clock):
        put(store, clock, 100, first=100)
    for path in sorted((root / "commitlog").iterdir())[:-1]:
        path.unlink()
    with pytest.raises(ArchiveError, match="was deleted before it was archived"):
        archive(spark, [str(root)], to, broker_names=names)
    report = archive(spark, [str(root)], to, broker_names=names, allow_gap=True)
    assert report.record_count > 0
    restored = restore(spark, to, tmp_path / "out")
    assert not restored.is_exact
    assert restored.record_count == 100 + report.record_count
    assert [problem.partition(":")[0] for problem in restored.problems] == [
        f"consumequeue/orders/{queue_id}" for queue_id in (0, 1)
    ]
    keys = [row["keys"] for row in read(tmp_path / "out")]
    assert keys == [f"key-{n}" for n in (*range(100), *range(200 - report.record_count, 200))]


def test_a_log_that_was_cut_back_and_has_regrown_is_refused_whatever_was_chosen(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, before, to = tmp_path / "store", tmp_path / "before", tmp_path / "archive"

    def grow(numbers: range, topic: str, after: int) -> None:
        clock = ManualClock(START_MS + after)
        with MessageStore.open(small_config(root), clock=clock, background=False) as store:
            for number in numbers:
                assert store.put(message(number, topic=topic)).ok
                clock.advance(1)

    grow(range(15), "orders", 0)
    shutil.copytree(root, before)
    grow(range(15, 35), "others", 1000)
    report = archive(spark, [str(root)], to, topics=["orders"])
    assert report.record_count == 15
    # Power is lost: the last 20 were not synced, and as many of the chosen topic come.
    shutil.rmtree(root)
    shutil.copytree(before, root)
    grow(range(15, 35), "orders", 2000)
    with pytest.raises(ArchiveError, match="the log was cut back and written anew"):
        archive(spark, [str(root)], to, topics=["orders"])
    assert check_archive(spark, to).record_count == 15


def test_a_name_that_is_given_later_does_not_make_another_store(tmp_path: Path) -> None:
    spark, root, to = inline_spark(), tmp_path / "store", tmp_path / "archive"
    with growing(root) as (store, clock):
        put(store, clock, 30)
        archive(spark, [str(root)], to)
        put(store, clock, 10, first=30)
        later = archive(spark, [str(root)], to, broker_names={"": "broker-a"})
        assert (later.record_count, later.stores[0].name) == (10, str(root))
        assert later.stores[0].broker_name == "broker-a"
        assert archive(spark, [str(root)], to, broker_names={"": "broker-a"}).run is None
    report = restore(spark, to, tmp_path / "out", store="broker-a")
    assert (report.record_count, report.is_exact) == (40, True)


def test_a_lost_list_of_runs_is_an_error_and_made_again_from_the_manifests(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, to = tmp_path / "store", tmp_path / "archive"
    with growing(root) as (store, clock):
        for first in (0, 30):
            put(store, clock, 30, first=first)
            archive(spark, [str(root)], to)
        current = to / "_flintmq" / "current.json"
        whole = files_of(to)
        current.unlink()
        put(store, clock, 30, first=60)
        for act in (
            lambda: archive(spark, [str(root)], to),
            lambda: check_archive(spark, to),
            lambda: restore(spark, to, tmp_path / "out"),
            lambda: archived_messages(spark, to),
        ):
            with pytest.raises(ArchiveError, match=r"is lost, .* check-archive --recover"):
                act()
        assert {"_flintmq/current.json": whole["_flintmq/current.json"], **files_of(to)} == whole
        checked = check_archive(spark, to, recover=True)
        assert (checked.problems, checked.run_count, checked.record_count) == ((), 2, 60)
        assert files_of(to) == whole
        report = archive(spark, [str(root)], to)
    assert (report.run, report.record_count) == (3, 30)
    assert restore(spark, to, tmp_path / "out").is_exact


# -- less than everything --------------------------------------------------------------------


def test_an_archive_of_some_topics_is_restored_together(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = golden_set("rolled").store
    to, out = tmp_path / "archive", tmp_path / "out"
    report = archive(spark, [str(store)], to, topics=["golden_audit"])
    assert report.record_count == 95
    restored = restore(spark, to, out, chunk_size=9000)
    assert not restored.is_exact
    wanted = [row for row in read(store) if row["topic"] == "golden_audit"]
    assert without_place(read(out)) == without_place(wanted)
    assert read(out)[0]["physicalOffset"] == restored.log_start > 0
    assert not problems(check(out))
    config = config_of(golden_set("rolled").expected(), out)
    with MessageStore.open(config, clock=ManualClock(START_MS), background=False) as opened:
        assert opened.max_offset_in_queue("golden_audit", 0) == 95


def test_damage_fails_a_run_or_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    store = damaged_set("body-byte-flipped-first-file").store
    to = tmp_path / "archive"
    with pytest.raises(PySparkException, match="damaged from 15178 to 15768"):
        archive(spark, [str(store)], to)
    with pytest.raises(ArchiveError, match="first run was not finished"):
        archived_messages(spark, to)
    report = archive(spark, [str(store)], to, on_corrupt=OnCorrupt.SKIP)
    assert report.record_count == 384
    restored = restore(spark, to, tmp_path / "out")
    assert not restored.is_exact
    wanted = read(store, onCorruptRecord="skip")
    assert without_place(read(tmp_path / "out")) == without_place(wanted)


# -- checks ----------------------------------------------------------------------------------


def test_a_check_finds_what_has_changed(spark: SparkSession, tmp_path: Path) -> None:
    root, to = make_store(tmp_path / "store", 20), tmp_path / "archive"
    archive(spark, [str(root)], to)
    (path,) = (to / "messages").rglob("*.parquet")
    name = str(path.relative_to(to))
    whole = path.read_bytes()
    flip(path, len(whole) // 2)
    assert check_archive(spark, to).problems == (f"{name}: other bytes than when it was written",)
    path.write_bytes(whole)
    manifest_path = to / "_flintmq" / "run-000001.json"
    manifest = json.loads(manifest_path.read_text())
    manifest["stores"][0]["checksum"] += 1
    manifest_path.write_text(json.dumps(manifest))
    (problem,) = check_archive(spark, to).problems
    assert "are not the records that the manifest counts" in problem
    with pytest.raises(ArchiveError, match="gives 20 records with the checksum"):
        restore(spark, to, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.restoring").exists()
    manifest["stores"][0]["checksum"] -= 1
    manifest_path.write_text(json.dumps(manifest))
    shutil.copy(path, path.with_name("more.parquet"))
    path.unlink()
    problems_found = check_archive(spark, to).problems
    assert [problem.rpartition(": ")[2] for problem in problems_found] == [
        "No such file or directory",
        "no manifest names it",
    ]


def test_what_is_no_archive_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="there is no archive"):
        restore(spark, tmp_path / "none", tmp_path / "out")
    with pytest.raises(ArchiveError, match="there is no archive"):
        check_archive(spark, tmp_path)
    own = tmp_path / "_flintmq"
    own.mkdir()
    for text, words in (
        ("{", "cannot be read"),
        ("[]", "is no JSON object"),
        ('{"runs": 1}', "does not tell the runs"),
        ('{"runs": [1]}', "cannot be read"),
    ):
        (own / "current.json").write_text(text)
        with pytest.raises(ArchiveError, match=words):
            ArchiveDirectory(tmp_path).manifests()
    for text, words in (('{"version": 9}', "version 9"), ('{"version": 1}', "is no manifest")):
        (own / "run-000001.json").write_text(text)
        with pytest.raises(ArchiveError, match=words):
            ArchiveDirectory(tmp_path).manifests()


@pytest.mark.parametrize("name", ["../escaped.json", "/escaped.json", "a/b.json", "..", ""])
def test_a_manifest_names_no_file_outside_the_archive(
    name: str, golden_archive: Path, tmp_path: Path
) -> None:
    to = tmp_path / "archive"
    shutil.copytree(golden_archive, to)
    path = to / "_flintmq" / "run-000001.json"
    whole = path.read_text()
    manifest = json.loads(whole)
    manifest["stores"][0]["state_files"][name] = "0" * 64
    path.write_text(json.dumps(manifest))
    with pytest.raises(ArchiveError, match="outside the archive"):
        ArchiveDirectory(to).manifests()
    manifest = json.loads(whole)
    manifest["files"][0]["path"] = f"../{manifest['files'][0]['path']}"
    path.write_text(json.dumps(manifest))
    with pytest.raises(ArchiveError, match="outside the archive"):
        ArchiveDirectory(to).manifests()


def test_a_manifest_that_does_not_speak_of_queues_is_one_of_a_store(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, to = make_store(tmp_path / "store", 20), tmp_path / "archive"
    archive(spark, [str(root)], to)
    path = to / "_flintmq" / "run-000001.json"
    manifest = json.loads(path.read_text())
    for name in ("queues", "cluster"):
        assert manifest["stores"][0].pop(name) is None
    path.write_text(json.dumps(manifest))
    assert not ArchiveDirectory(to).manifests()[0].stores[0].is_live
    assert archive(spark, [str(root)], to).run is None
    assert restore(spark, to, tmp_path / "out").is_exact


def test_two_restores_to_one_place_do_not_meet(
    spark: SparkSession, golden_archive: Path, tmp_path: Path
) -> None:
    at_work = tmp_path / "out.restoring"
    at_work.mkdir()
    with held_by_another_process(at_work):
        (at_work / "half-done").mkdir()
        with pytest.raises(StoreInUseError):
            restore(spark, golden_archive, tmp_path / "out", store="basic")
        assert (at_work / "half-done").is_dir()
    restore(spark, golden_archive, tmp_path / "out", store="basic")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_store_must_be_named_where_there_are_several(
    spark: SparkSession, golden_archive: Path, tmp_path: Path
) -> None:
    with pytest.raises(ArchiveError, match="name the store to restore; there is: basic, rolled"):
        restore(spark, golden_archive, tmp_path / "out")
    with pytest.raises(ArchiveError, match="there is no store 'x'"):
        restore(spark, golden_archive, tmp_path / "out", store="x")
