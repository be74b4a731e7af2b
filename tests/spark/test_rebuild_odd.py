"""What is out of the ordinary in a log gives the views and findings of the serial rebuild."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flintmq.format.stored.record_encoding import encode_record
from flintmq.offline import find_store
from flintmq.offline.layout import SizeOptions
from flintmq.offline.rebuild import rebuild as rebuild_serially
from flintmq.spark.jobs.rebuild.parallel_rebuild import rebuild
from flintmq.spark.jobs.verify.parallel_verify import verify_stores
from tests.kits.spark.inline_spark import inline_spark
from tests.kits.spark.rebuild_reports import assert_equal_reports, serially
from tests.kits.spark.verify_reports import assert_equal_reports as assert_equal_verified
from tests.kits.store.odd_stores import make_odd_store
from tests.kits.store.offline_stores import (
    ENTRIES,
    HOST,
    LEVELS,
    LOG_FILE_SIZE,
    QUEUE_FILE_SIZE,
    SLOTS,
    START_MS,
    check,
    content,
    flip,
    index_file,
    log_file,
    make_store,
    overwrite,
    queue_file,
)

SPLITS = (700, 1171, LOG_FILE_SIZE)


@pytest.fixture(scope="module")
def odd_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_odd_store(tmp_path_factory.mktemp("odd") / "store")


SHAPE = SizeOptions(hash_slots=SLOTS, index_entries=ENTRIES, queue_file_size=QUEUE_FILE_SIZE)


def assert_as_serial(store: Path, tmp_path: Path, sizes: tuple[int, ...] = SPLITS) -> None:
    """Rebuild and verify a store in parts of several sizes."""
    serial = rebuild_serially(
        find_store(store, sizes=SHAPE),
        tmp_path / "serial",
        queues=True,
        index=True,
        delay_levels=LEVELS,
    )
    verified = check(store)
    for size in sizes:
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        report = rebuild(inline_spark(), store, out=tmp_path / "out", split_size=size, sizes=SHAPE)
        assert content(tmp_path / "out") == content(tmp_path / "serial")
        assert_equal_reports(report, serial)
        (ours,) = verify_stores(inline_spark(), [store], split_size=size)
        assert_equal_verified(ours, verified)


def test_odd_messages_become_what_the_engine_made_of_them(odd_store: Path, tmp_path: Path) -> None:
    assert_as_serial(odd_store, tmp_path)
    made = content(tmp_path / "out")
    engine = content(odd_store)
    for path, data in made.items():
        if path.startswith("consumequeue/"):
            assert engine[path] == data
    indexes = [data for path, data in engine.items() if path.startswith("index/")]
    assert indexes == [data for path, data in made.items() if path.startswith("index/")]


def test_the_same_through_spark(spark: SparkSession, odd_store: Path, tmp_path: Path) -> None:
    serial = serially(odd_store, tmp_path / "serial")
    report = rebuild(spark, odd_store, out=tmp_path / "out", split_size=1171)
    assert content(tmp_path / "out") == content(tmp_path / "serial")
    assert_equal_reports(report, serial)


def damaged_log(root: Path) -> None:
    flip(log_file(root, 1), 4000)
    overwrite(log_file(root, 2), 3000, b"\xff" * 1500)
    log_file(root, 4).unlink()
    overwrite(log_file(root, -1), 6000, b"garbage behind the end")


def damaged_first_record(root: Path) -> None:
    for number in (0, 3, -1):
        overwrite(log_file(root, number), 0, b"\0" * 40)


def damaged_queues(root: Path) -> None:
    flip(queue_file(root, 0), 45)
    queue_file(root, 1, 1).unlink()
    overwrite(queue_file(root, 1), 60, b"\0" * 40)


def damaged_index(root: Path) -> None:
    flip(index_file(root, 0), 300)
    flip(index_file(root, 1), 2)
    index_file(root, 2).unlink()


def index_cut_short(root: Path) -> None:
    index_file(root, -1).unlink()


def queues_gone(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")


@pytest.mark.parametrize(
    "damage",
    [
        damaged_log,
        damaged_first_record,
        damaged_queues,
        damaged_index,
        index_cut_short,
        queues_gone,
    ],
)
def test_damage_in_each_place_is_met_as_by_the_serial_tools(
    odd_store: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    root = tmp_path / "store"
    shutil.copytree(odd_store, root)
    damage(root)
    assert_as_serial(root, tmp_path)


def test_every_flipped_byte_of_a_record_gives_the_serial_findings(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", 40)
    whole = log_file(root, 0).read_bytes()
    size = int.from_bytes(whole[:4], "big")
    for position in range(2 * size, 3 * size, 7):
        flip(log_file(root, 0), position, 0x40)
        (ours,) = verify_stores(inline_spark(), [root], split_size=size // 2)
        assert_equal_verified(ours, check(root))
        log_file(root, 0).write_bytes(whole)


def jumping_log(root: Path, claims: list[tuple[str, int]]) -> Path:
    """Write a log whose records claim these queue offsets."""
    (root / "commitlog").mkdir(parents=True)
    data = b""
    for topic, queue_offset in claims:
        data += encode_record(
            topic.encode(),
            0,
            0,
            queue_offset,
            len(data),
            0,
            START_MS,
            HOST,
            START_MS + len(data),
            HOST,
            0,
            0,
            b"body",
            b"KEYS\x01k",
        )
    (root / "commitlog" / f"{0:020d}").write_bytes(data.ljust(LOG_FILE_SIZE, b"\0"))
    return root


@pytest.mark.parametrize(
    "offsets",
    [
        (5, 6, 7, 9, 10),
        (0, 1, 2, 0, 1),
        (3, 4, 3, 5, 2, 6, 7),
        (0, 1, 5_000_000_000, 5_000_000_001, 2, 3),
        (-1, 0, -7, 1, 2),
        (0, 0, 0, 1, 1),
        ((1 << 63) - 1, (1 << 63) - 1, 0),
    ],
)
def test_offsets_that_jump_are_judged_as_by_the_serial_tools(
    tmp_path: Path, offsets: tuple[int, ...]
) -> None:
    claims = [(topic, offset) for offset in offsets for topic in ("a", "b/../c", "..", "größe")]
    root = jumping_log(tmp_path / "store", claims)
    (root / "checkpoint").write_bytes(bytes(4096))
    assert_as_serial(root, tmp_path, sizes=(120, 500, LOG_FILE_SIZE))


def test_a_body_that_looks_like_records_makes_no_unit(tmp_path: Path) -> None:
    outer: list[bytes] = []
    at = 0
    for number in range(12):
        body = b""
        for claim in range(3):
            offset = at + 88 + len(body)
            body += encode_record(
                b"false", 0, 0, claim, offset, 0, 1, HOST, 2, HOST, 0, 0, b"x" * 40, b"KEYS\x01f"
            )
        outer.append(
            encode_record(
                b"true", 0, 0, number, at, 0, 1, HOST, START_MS, HOST, 0, 0, body, b"KEYS\x01t"
            )
        )
        at += len(outer[-1])
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(b"".join(outer).ljust(LOG_FILE_SIZE, b"\0"))
    (root / "checkpoint").write_bytes(bytes(4096))
    assert_as_serial(root, tmp_path, sizes=(100, 333, 1000))
    assert [path.name for path in (tmp_path / "out" / "consumequeue").iterdir()] == ["true"]
