"""Topics deleted and made anew: recovery, both rebuilds and both verifications agree about them."""

import random
import shutil
from pathlib import Path

import pytest

from flintmq.offline import find_store
from flintmq.offline.layout import SizeOptions
from flintmq.offline.rebuild import rebuild as rebuild_serially
from flintmq.spark.jobs.rebuild.parallel_rebuild import rebuild
from flintmq.spark.jobs.verify.parallel_verify import verify_stores
from flintmq.store.config import FlushMode
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.spark.inline_spark import inline_spark
from tests.kits.spark.reading import read
from tests.kits.spark.rebuild_reports import assert_equal_reports
from tests.kits.spark.verify_reports import assert_equal_reports as assert_equal_verified
from tests.kits.store.offline_stores import (
    ENTRIES,
    LEVELS,
    LOG_FILE_SIZE,
    QUEUE_FILE_SIZE,
    SLOTS,
    START_MS,
    check,
    content,
    message,
    overwrite,
    small_config,
)

SEEDS = range(40)
TOPICS = ("alpha", "beta", "gamma")
SHAPE = SizeOptions(hash_slots=SLOTS, index_entries=ENTRIES, queue_file_size=QUEUE_FILE_SIZE)


@pytest.fixture(autouse=True)
def many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deal small stores out to as many tasks as large ones, so that no task sees all queues."""
    monkeypatch.setattr("flintmq.spark.parallel_log.range_planning.TASK_SIZE_MIN", 1)


def written_at_random(root: Path, choice: random.Random) -> Path:
    """Write a store whose topics come and go, in some cases with records that wait meanwhile."""
    clock = ManualClock(START_MS)
    mode = choice.choice([FlushMode.ASYNC, FlushMode.SYNC])
    number = 0
    for _ in range(choice.randint(1, 3)):
        config = small_config(root, flush_mode=mode)
        with MessageStore.open(config, clock=clock, background=False) as store:
            for _ in range(choice.randint(5, 25)):
                match choice.choice(["put", "put", "put", "dispatch", "delete"]):
                    case "put":
                        topic = choice.choice(TOPICS)
                        for _ in range(choice.randint(1, 9)):
                            number += 1
                            store.put(message(number, topic=topic, queues=4))
                            clock.advance(1000)
                    case "dispatch":
                        store.flush()
                        store.dispatch()
                    case "delete":
                        store.clean_unused_topics(choice.sample(TOPICS, choice.randint(1, 2)))
            store.flush()
            store.dispatch()
    return root


def without_views(store: Path, target: Path) -> Path:
    """Return a copy of which only the log is left, as after a kill."""
    shutil.copytree(store / "commitlog", target / "commitlog")
    (target / "abort").touch()
    return target


def destroy_one(store: Path, choice: random.Random) -> None:
    """Write over a record: it may be the first of a topic that was made anew."""
    rows = read(store)
    first = [row for row in rows if row["queueOffset"] == 0]
    row = choice.choice(choice.choice([rows[:-1], first[:-1] or rows[:-1]]))
    path = store / "commitlog" / row["fileName"]
    overwrite(path, row["physicalOffset"] - int(path.name), b"\xff" * row["storeSize"])


@pytest.mark.parametrize("seed", SEEDS)
def test_both_rebuilds_make_what_recovery_makes(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    store = written_at_random(tmp_path / "store", choice)
    alone = without_views(store, tmp_path / "alone")
    if choice.random() < 0.6:
        destroy_one(alone, choice)
    # Recovery comes first: what it cuts off the log, no rebuild shall make queues of.
    with MessageStore.open(
        small_config(alone), clock=ManualClock(START_MS + 10**9), background=False
    ):
        pass
    serial = rebuild_serially(
        find_store(alone, sizes=SHAPE),
        tmp_path / "serial",
        queues=True,
        index=True,
        delay_levels=LEVELS,
    )
    for split_size in (700, LOG_FILE_SIZE):
        shutil.rmtree(tmp_path / "parallel", ignore_errors=True)
        parallel = rebuild(
            inline_spark(),
            alone,
            out=tmp_path / "parallel",
            sizes=SHAPE,
            split_size=split_size,
        )
        assert_equal_reports(parallel, serial)
        for view in ("consumequeue", "index"):
            assert content(tmp_path / "parallel" / view) == content(tmp_path / "serial" / view)
    assert content(alone / "consumequeue") == content(tmp_path / "serial" / "consumequeue")
    rebuild(inline_spark(), alone, in_place=True, sizes=SHAPE)
    assert content(alone / "consumequeue") == content(tmp_path / "serial" / "consumequeue")
    with MessageStore.open(
        small_config(alone), clock=ManualClock(START_MS + 10**9), background=False
    ) as again:
        assert again.recovery_report.units_rebuilt == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_both_verifications_find_the_same(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    store = written_at_random(tmp_path / "store", choice)
    if choice.random() < 0.7:
        (store / "abort").touch()
    if choice.random() < 0.5:
        (store / "checkpoint").unlink()
    for topic in choice.sample(TOPICS, 2):
        for queue in (store / "consumequeue" / topic).glob("*"):
            files = sorted(queue.iterdir())
            match choice.choice(["keep", "remove", "last", "zero"]):
                case "remove":
                    shutil.rmtree(queue)
                case "last":
                    files[-1].unlink()
                case "zero":
                    size = files[-1].stat().st_size
                    kept = choice.randrange(0, size, 20)
                    files[-1].write_bytes(files[-1].read_bytes()[:kept].ljust(size, b"\0"))
    serial = check(store)
    for split_size in (700, LOG_FILE_SIZE):
        (parallel,) = verify_stores(inline_spark(), [store], split_size=split_size)
        assert_equal_verified(parallel, serial)
