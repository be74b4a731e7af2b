from dataclasses import replace
from typing import Any

import pytest

from flintmq.format.stored.consume_queue_ext import ExtUnit, is_address
from flintmq.store.errors import StoreError
from flintmq.store.views.queue_table import QueueTable, StoredQueue
from flintmq.testing import ROOT, SimulatedFiles
from tests.kits.store.store_kit import SMALL, STORE_MS

QUEUES = ROOT / "consumequeue"
EXTENSIONS = ROOT / "consumequeue_ext"


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def make(files: SimulatedFiles, **settings: Any) -> QueueTable:
    return QueueTable(replace(SMALL, **settings), files=files, clock=files.clock)


def fill(queue: StoredQueue, count: int) -> None:
    for number in range(queue.max_offset, queue.max_offset + count):
        queue.append_with_ext(number * 100, 100, number, number, STORE_MS, b"\1")


def test_asking_for_a_queue_makes_nothing_on_disk(files: SimulatedFiles) -> None:
    table = make(files)
    assert table.get("T", 0) is None
    queue = table.get_or_make("T", 0)
    assert table.get("T", 0) is queue
    assert table.get_or_make("T", 0) is queue
    assert len(table) == 1
    assert files.list(QUEUES) == []


@pytest.mark.parametrize("topic", ["", "..", "a/b"])
def test_a_queue_cannot_leave_its_directory(files: SimulatedFiles, topic: str) -> None:
    with pytest.raises(StoreError):
        make(files).get_or_make(topic, 0)


def test_queues_are_found_again(files: SimulatedFiles) -> None:
    table = make(files)
    fill(table.get_or_make("T", 0), 3)
    fill(table.get_or_make("T", 11), 3)
    fill(table.get_or_make("%RETRY%g", 2), 3)
    table.close()
    again = make(files)
    assert again.load() == []
    assert {(queue.topic, queue.queue_id) for queue in again} == {
        ("T", 0),
        ("T", 11),
        ("%RETRY%g", 2),
    }
    assert again.topics == ["%RETRY%g", "T"]
    assert len([one for one in again if one.topic == "T"]) == 2


@pytest.mark.parametrize("name", ["x", "1.5", "007", "\uff11", "99999999999"])
def test_directories_that_are_no_queue_ids_are_skipped(files: SimulatedFiles, name: str) -> None:
    files.make_directory(QUEUES / "T" / name)
    files.write(QUEUES / "stray", b"x")
    table = make(files)
    assert table.load() == []
    assert list(table) == []
    assert files.exists(QUEUES / "stray")


def test_a_damaged_queue_is_emptied_and_told(files: SimulatedFiles) -> None:
    table = make(files)
    fill(table.get_or_make("T", 0), 3)
    fill(table.get_or_make("T", 1), 3)
    table.close()
    path = QUEUES / "T" / "0" / f"{0:020d}"
    files.write(path, b"short")
    again = make(files)
    (problem,) = again.load()
    assert (problem.path, "5 bytes" in problem.reason) == (path, True)
    assert [(queue.queue_id, queue.is_empty) for queue in again] == [(0, True), (1, False)]
    assert [queue.queue_id for queue in again.damaged] == [0]
    assert not files.exists(path)
    fill(again.get_or_make("T", 0), 1)


def test_a_reader_deletes_nothing(files: SimulatedFiles) -> None:
    table = make(files)
    fill(table.get_or_make("T", 0), 3)
    table.close()
    path = QUEUES / "T" / "0" / f"{0:020d}"
    files.write(path, b"short")
    assert len(make(files).load(read_only=True)) == 1
    assert files.read(path) == b"short"


# -- counting --------------------------------------------------------------------------------


def test_the_census_counts_queues_that_have_units(files: SimulatedFiles) -> None:
    table = make(files)
    table.get_or_make("empty", 0)
    fill(table.get_or_make("T", 0), 25)
    fill(table.get_or_make("T", 1), 3)
    assert table.census == (2, 28)


def test_light_queues_are_counted(files: SimulatedFiles) -> None:
    table = make(files)
    queue = table.get_or_make("%LMQ%a", 0)
    fill(queue, 1)
    table.get_or_make("T", 0)
    assert table.lmq_count == 1
    table.forget(queue)
    table.forget(queue)
    assert table.lmq_count == 0
    assert not files.list(QUEUES / "%LMQ%a")


# -- names -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ext", [False, True])
def test_only_new_names_are_synced(files: SimulatedFiles, ext: bool) -> None:
    table = make(files, enable_consume_queue_ext=ext)
    fill(table.get_or_make("T", 0), 1)
    table.sync_names()
    before = files.count("sync_directory")
    table.sync_names()
    fill(table.get_or_make("T", 0), 1)
    table.sync_names()
    assert files.count("sync_directory") == before
    fill(table.get_or_make("T", 0), 20)
    table.sync_names()
    assert files.count("sync_directory") > before


# -- the extension ---------------------------------------------------------------------------


def test_a_unit_leads_to_its_extension(files: SimulatedFiles) -> None:
    table = make(files, enable_consume_queue_ext=True)
    queue = table.get_or_make("T", 0)
    fill(queue, 2)
    unit = queue.unit_at(1)
    assert unit is not None
    assert is_address(unit[2])
    assert queue.resolve(unit[2]) == ExtUnit(1, STORE_MS, b"\1")
    assert queue.resolve(1) is None


def test_a_unit_that_is_there_already_makes_no_second_extension(files: SimulatedFiles) -> None:
    table = make(files, enable_consume_queue_ext=True)
    queue = table.get_or_make("T", 0)
    fill(queue, 2)
    assert queue.ext is not None
    end = queue.ext.files.max_wrote
    queue.append_with_ext(0, 100, 0, 0, STORE_MS, b"\1")
    assert queue.ext.files.max_wrote == end


def test_a_bitmap_that_fits_nowhere_leaves_the_plain_code(files: SimulatedFiles) -> None:
    table = make(files, enable_consume_queue_ext=True)
    queue = table.get_or_make("T", 0)
    queue.append_with_ext(0, 100, 97, 0, STORE_MS, bytes(500))
    assert queue.unit_at(0) == (0, 100, 97)


def test_the_extension_is_cut_with_its_queue(files: SimulatedFiles) -> None:
    table = make(files, enable_consume_queue_ext=True)
    queue = table.get_or_make("T", 0)
    fill(queue, 30)
    assert queue.ext is not None
    queue.cut(10)
    fill(queue, 20)
    for number in range(30):
        unit = queue.unit_at(number)
        assert unit is not None
        assert queue.resolve(unit[2]) == ExtUnit(number, STORE_MS, b"\1")
    queue.cut(0)
    assert files.list(EXTENSIONS / "T" / "0") == []


def test_the_extension_loses_its_files_with_the_queue(files: SimulatedFiles) -> None:
    table = make(files, enable_consume_queue_ext=True)
    queue = table.get_or_make("T", 0)
    fill(queue, 50)
    before = len(files.list(EXTENSIONS / "T" / "0"))
    assert queue.delete_expired(4100) == 2
    assert len(files.list(EXTENSIONS / "T" / "0")) < before
    unit = queue.unit_at(45)
    assert unit is not None
    assert queue.resolve(unit[2]) == ExtUnit(45, STORE_MS, b"\1")
    queue.destroy()
    assert files.list(EXTENSIONS / "T" / "0") == []


def test_an_extension_without_its_queue_is_removed(files: SimulatedFiles) -> None:
    """So a crash between the first unit there and the first unit of the queue leaves it."""
    table = make(files, enable_consume_queue_ext=True)
    queue = table.get_or_make("T", 0)
    assert queue.ext is not None
    queue.ext.put(ExtUnit(1, 2, None))
    table.close()
    again = make(files, enable_consume_queue_ext=True)
    assert again.load() == []
    assert files.list(EXTENSIONS / "T" / "0") == []
    fill(again.get_or_make("T", 0), 1)
