"""Many topics in one store: few files, and every row to be found again."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flintmq.spark.jobs.archive.archive_check import check_archive
from flintmq.spark.jobs.archive.archive_manifest import SHARED_VERSION, ArchiveDirectory
from flintmq.spark.jobs.archive.archive_writer import OWN_FILES_MAX
from flintmq.spark.jobs.archive.store_archive import archive, archived_messages
from flintmq.spark.jobs.archive.store_restore import restore
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.spark.inline_spark import inline_spark
from tests.kits.spark.reading import read
from tests.kits.store.offline_stores import START_MS, make_store, message, small_config

TOPICS = 400
EACH = 3


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store whose messages take turns between many topics, some days apart."""
    root = tmp_path_factory.mktemp("many") / "store"
    clock = ManualClock(START_MS)
    config = small_config(root, commit_log_file_size=1 << 20)
    with MessageStore.open(config, clock=clock, background=False) as store:
        for number in range(TOPICS * EACH):
            assert store.put(message(number, topic=f"topic-{number % TOPICS}")).ok
            clock.advance(100_000)
        store.dispatch()
    return root


def keys_of(store: Path) -> list[tuple[str, str]]:
    return [(row["topic"], row["keys"]) for row in read(store)]


def test_small_topics_are_archived_in_few_files_and_restored(many: Path, tmp_path: Path) -> None:
    spark, to = inline_spark(), tmp_path / "archive"
    report = archive(spark, [str(many)], to)
    assert report.record_count == TOPICS * EACH
    assert report.file_count <= OWN_FILES_MAX + 1
    (manifest,) = ArchiveDirectory(to).manifests()
    assert manifest.version == SHARED_VERSION
    checked = check_archive(spark, to)
    assert (checked.problems, checked.record_count) == ((), TOPICS * EACH)
    assert restore(spark, to, tmp_path / "out").is_exact
    assert keys_of(tmp_path / "out") == keys_of(many)


def test_rows_of_shared_files_and_of_own_ones_are_one_table(
    spark: SparkSession, many: Path, tmp_path: Path
) -> None:
    to = tmp_path / "archive"
    few = make_store(tmp_path / "few", 20)
    archive(spark, [str(few)], to)
    archive(spark, [str(few), str(many)], to)
    rows = archived_messages(spark, to)
    assert rows.count() == 20 + TOPICS * EACH
    found = {row["topic"]: row["count"] for row in rows.groupBy("topic").count().collect()}
    assert found == {"orders": 20} | {f"topic-{number}": EACH for number in range(TOPICS)}
    (one, *_) = rows.where("topic = 'topic-7'").orderBy("queueOffset", "physicalOffset").collect()
    assert (one["keys"], one["run"]) == ("key-7", "000002")
    assert one["day"] == one["storeTimestamp"].strftime("%Y-%m-%d")
    assert "several" not in {row["day"] for row in rows.select("day").distinct().collect()}
