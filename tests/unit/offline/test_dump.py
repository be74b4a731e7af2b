"""Selecting messages by queue, time and key."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flintmq.format.compression import CompressionType, compress
from flintmq.format.sys_flag import COMPRESSED
from flintmq.offline import Dump, RequestError, Selection, find_store
from flintmq.offline.dump import TIME_SLACK_MS
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.store.offline_stores import (
    LEVELS,
    LOG_FILE_SIZE,
    START_MS,
    check,
    fingerprint,
    flip,
    log_file,
    make_store,
    message,
    overwrite,
    problems,
    put,
    queue_file,
    small_config,
)

COUNT = 100


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store nobody harms."""
    return make_store(tmp_path_factory.mktemp("dump") / "store", COUNT)


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Path]:
    """A running store whose last ten messages are not dispatched."""
    clock = ManualClock(START_MS)
    config = small_config(tmp_path / "running")
    with MessageStore.open(config, clock=clock, background=False) as store:
        put(store, clock, 60)
        for number in range(60, 70):
            store.put(message(number))
        yield config.root


def numbers(root: Path, **selection: Any) -> list[int]:
    """Return the numbers of the selected messages; nothing may be wrong with them."""
    dump = Dump(find_store(root), Selection(**selection), delay_levels=LEVELS)
    found = [int(one["properties"]["KEYS"].removeprefix("key-")) for one in dump.messages()]
    assert not len(dump.findings), list(dump.findings)
    return found


def test_without_restriction_all_messages_come_in_log_order(shared: Path) -> None:
    before = fingerprint(shared)
    assert numbers(shared) == list(range(COUNT))
    assert numbers(shared, limit=7) == list(range(7))
    assert numbers(shared, limit=0) == []
    assert fingerprint(shared) == before


def test_a_topic_and_a_queue_restrict(shared: Path) -> None:
    assert numbers(shared, topic="orders") == list(range(COUNT))
    assert numbers(shared, topic="others") == []
    assert numbers(shared, topic="orders", queue_id=1) == list(range(1, COUNT, 2))
    assert numbers(shared, topic="orders", queue_id=7) == []


@pytest.mark.parametrize("scan", [False, True])
def test_bounds_of_a_queue_are_queue_offsets(shared: Path, scan: bool) -> None:
    found = numbers(shared, topic="orders", queue_id=1, start=10, end=25, scan=scan)
    assert found == list(range(21, 51, 2))
    assert numbers(shared, topic="orders", queue_id=1, start=49, scan=scan) == [99]
    assert numbers(shared, topic="orders", queue_id=1, start=50, scan=scan) == []
    assert numbers(shared, topic="orders", queue_id=1, start=9, end=3, scan=scan) == []


def test_bounds_without_a_queue_are_store_times(shared: Path) -> None:
    found = numbers(shared, start=START_MS + 20_000, end=START_MS + 30_000)
    assert found == list(range(20, 30))
    assert numbers(shared, start=START_MS + 99_001) == []
    assert numbers(shared, end=START_MS + 1) == [0]


def test_times_far_apart_are_found_by_file(tmp_path: Path) -> None:
    root = tmp_path / "store"
    clock = ManualClock(START_MS)
    with MessageStore.open(small_config(root), clock=clock, background=False) as store:
        for number in range(COUNT):
            store.put(message(number))
            clock.advance(TIME_SLACK_MS)
        store.dispatch()
    start = START_MS + 70 * TIME_SLACK_MS
    assert numbers(root, start=start, end=start + 3 * TIME_SLACK_MS) == [70, 71, 72]
    flip(log_file(root, 0), 4, 0x10)
    # The damage at the beginning is not even met.
    assert numbers(root, start=start) == list(range(70, COUNT))


@pytest.mark.parametrize("scan", [False, True])
def test_a_key_or_a_unique_key_finds_its_message(shared: Path, scan: bool) -> None:
    assert numbers(shared, key="key-42", scan=scan) == [42]
    assert numbers(shared, topic="orders", key="key-42", scan=scan) == [42]
    assert numbers(shared, topic="other", key="key-42", scan=scan) == []
    unique = f"AC11000218B400000000{77:012X}"
    assert numbers(shared, key=unique, scan=scan) == [77]
    assert numbers(shared, key="key-1000", scan=scan) == []
    assert numbers(shared, topic="orders", queue_id=0, key="key-42", scan=scan) == [42]
    assert numbers(shared, topic="orders", queue_id=1, key="key-42", scan=scan) == []


def test_without_an_index_a_key_is_searched_in_the_log(tmp_path: Path, shared: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(shared, root)
    shutil.rmtree(root / "index")
    assert numbers(root, key="key-42") == [42]


def test_keys_before_the_first_file_of_the_index_are_found(tmp_path: Path, shared: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(shared, root)
    min((root / "index").iterdir()).unlink()
    assert numbers(root, key="key-3") == [3]
    assert numbers(root, key="key-90") == [90]


def test_keys_that_share_a_hash_are_told_apart(tmp_path: Path) -> None:
    root = tmp_path / "store"
    clock = ManualClock(START_MS)
    with MessageStore.open(small_config(root), clock=clock, background=False) as store:
        for key in ("Aa", "BB", "Aa x"):
            assert store.put(message(0, properties={"KEYS": key})).ok
        store.dispatch()
    dump = Dump(find_store(root), Selection(key="Aa"), delay_levels=LEVELS)
    assert [one["properties"]["KEYS"] for one in dump.messages()] == ["Aa", "Aa x"]


def test_messages_that_are_not_dispatched_are_found_all_the_same(behind: Path) -> None:
    assert numbers(behind) == list(range(70))
    assert numbers(behind, topic="orders", queue_id=0) == list(range(0, 70, 2))
    assert numbers(behind, topic="orders", queue_id=0, start=31) == [62, 64, 66, 68]
    assert numbers(behind, topic="orders", queue_id=0, start=28, end=31) == [56, 58, 60]
    assert numbers(behind, key="key-68") == [68]
    tags = [
        one["tagsCode"]
        for one in Dump(find_store(behind), Selection(), delay_levels=LEVELS).messages()
    ]
    assert None not in tags[:60]
    assert tags[60:] == [None] * 10


def test_damage_is_told_and_what_follows_is_given(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    overwrite(log_file(root, 1), 0, bytes(40))
    flip(log_file(root, 2), 120)
    dump = Dump(find_store(root), Selection(), delay_levels=LEVELS)
    found = list(dump.messages())
    assert len(found) == COUNT - 1
    assert problems(dump.findings) == {"damaged-record": 1, "checksum": 1}
    bad = [one["physicalOffset"] for one in found if one.get("crcOk") is False]
    assert bad == [2 * LOG_FILE_SIZE]


def test_a_unit_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    flip(queue_file(root, 0, 1), 7)
    dump = Dump(find_store(root), Selection(topic="orders", queue_id=0), delay_levels=LEVELS)
    assert len(list(dump.messages())) == 49
    assert problems(dump.findings) == {"unit-wrong": 1}


def test_expired_units_are_passed_over(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    log_file(root, 0).unlink()
    first = check(root).record_count
    assert numbers(root, topic="orders", queue_id=0)[0] == COUNT - first


def test_bodies_are_measured_after_decompression(tmp_path: Path) -> None:
    root = tmp_path / "store"
    clock = ManualClock(START_MS)
    with MessageStore.open(small_config(root), clock=clock, background=False) as store:
        one = message(0)
        one.body = compress(b"x" * 5000, CompressionType.ZSTD)
        one.sys_flag = COMPRESSED | CompressionType.ZSTD
        other = message(1)
        other.sys_flag = COMPRESSED | CompressionType.LZ4
        assert store.put(one).ok
        assert store.put(other).ok
    whole, broken = Dump(find_store(root), Selection(), delay_levels=LEVELS).messages()
    assert (whole["storedBodyLength"], whole["bodyLength"]) == (len(one.body), 5000)
    assert "bodyError" not in whole
    assert (broken["bodyLength"], broken["bodySha256"]) == (None, None)
    assert "LZ4" in broken["bodyError"]


def test_a_queue_without_its_topic_is_refused() -> None:
    with pytest.raises(RequestError):
        Selection(queue_id=1)
