"""Jobs on a store while its broker works, and jobs beside each other."""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from flintmq.format.delay_levels import DelayLevels
from flintmq.model.topics import SCHEDULE_TOPIC
from flintmq.offline.errors import StoreInUseError
from flintmq.spark.errors import CorruptLogError
from flintmq.spark.jobs.archive.archive_check import check_archive
from flintmq.spark.jobs.archive.archive_manifest import ArchiveDirectory
from flintmq.spark.jobs.archive.store_archive import archive
from flintmq.spark.jobs.rebuild.parallel_rebuild import rebuild
from flintmq.spark.runtime.spark_session import TaskSession
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.spark.inline_spark import (
    InlineContext,
    InlineRdd,
    InlineSession,
    inline_spark,
)
from tests.kits.spark.reading import make_reader, read
from tests.kits.store.lock_holder import held_by_another_process
from tests.kits.store.offline_stores import (
    LEVELS,
    START_MS,
    check,
    log_file,
    make_store,
    message,
    problems,
    put,
    small_config,
)


@contextmanager
def working(root: Path) -> Iterator[tuple[MessageStore, ManualClock]]:
    clock = ManualClock(START_MS)
    with MessageStore.open(small_config(root), clock=clock, background=False) as store:
        yield store, clock


def test_a_log_that_rolls_while_it_is_read_gives_what_was_there_when_it_was_planned(
    tmp_path: Path,
) -> None:
    with working(tmp_path) as (store, clock):
        put(store, clock, 70)
        before = read(tmp_path)
        reader = make_reader(tmp_path, splits=3)
        splits = reader.partitions()
        found = []
        for number, split in enumerate(splits):
            put(store, clock, 40, first=70 + 40 * number)
            found += [row for batch in reader.read(split) for row in batch.to_pylist()]
        # What was appended to the last file since is a part of it; what came in later files not.
        assert found[:70] == before
        assert found == read(tmp_path)[: len(found)]


def test_a_file_that_expires_while_it_is_read_is_read_whole(tmp_path: Path) -> None:
    root = make_store(tmp_path)
    first = [row for row in read(root) if row["physicalOffset"] < 8192]
    reader = make_reader(root)
    rows = reader.read(reader.partitions()[0])
    begun = next(rows).to_pylist()
    log_file(root, 0).unlink()
    assert begun + [row for batch in rows for row in batch.to_pylist()] == first


def test_a_file_that_expires_before_it_is_read_is_an_error(tmp_path: Path) -> None:
    root = make_store(tmp_path)
    reader = make_reader(root)
    splits = reader.partitions()
    log_file(root, 0).unlink()
    with pytest.raises(CorruptLogError, match="the file was deleted meanwhile"):
        list(reader.read(splits[0]))
    with pytest.raises(CorruptLogError, match="the file was deleted meanwhile"):
        archive_after_plan(root, tmp_path / "archive")


def archive_after_plan(root: Path, to: Path) -> None:
    """Archive a store whose first file goes away when its splits are planned."""

    class Expiring(InlineContext):
        def parallelize(self, items: Iterable[Any], count: int) -> InlineRdd:
            log_file(root, 0).unlink()
            return super().parallelize(items, count)

    session = InlineSession()
    session.sparkContext = Expiring()
    archive(cast(TaskSession, session), [str(root)], to)


def test_a_topic_that_is_deleted_while_it_is_read_loses_no_row(tmp_path: Path) -> None:
    root = make_store(tmp_path)
    whole = read(root)
    reader = make_reader(root, topic="orders", accessPath="queue")
    splits = reader.partitions()
    shutil.rmtree(root / "consumequeue" / "orders")
    found = [row for split in splits for batch in reader.read(split) for row in batch.to_pylist()]
    assert found == whole


def test_two_runs_do_not_add_to_one_archive_together(tmp_path: Path) -> None:
    spark, root, to = inline_spark(), make_store(tmp_path / "store", 20), tmp_path / "archive"
    archive(spark, [str(root)], to)
    own = ArchiveDirectory(to).own
    with held_by_another_process(own):
        with pytest.raises(StoreInUseError):
            archive(spark, [str(root)], to)
        with pytest.raises(StoreInUseError):
            check_archive(spark, to, recover=True)
        # A reader needs no lock.
        assert check_archive(spark, to).ok
    assert archive(spark, [str(root)], to).run is None


def test_a_rebuild_with_wrong_delay_levels_is_told_by_a_verification_with_the_right_ones(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    with working(root) as (store, clock):
        for number in range(12):
            delayed = message(number, properties={"DELAY": str(1 + number % 4), "KEYS": "k"})
            assert store.put(delayed).ok
            clock.advance(1000)
        store.dispatch()
    assert (root / "consumequeue" / SCHEDULE_TOPIC).is_dir()
    assert not problems(check(root))
    wrong = DelayLevels.parse("2s 7s 11s 31s")
    rebuild(inline_spark(), root, in_place=True, delay_levels=wrong)
    assert problems(check(root)) == {"tags-code": 12}
    rebuild(inline_spark(), root, in_place=True, delay_levels=LEVELS)
    assert not problems(check(root))
