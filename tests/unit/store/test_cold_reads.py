"""What is known to be in memory, and for how long."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flintmq.kernels.background_load import LoadOnDemand
from flintmq.store.files.mapped_file import MappedFile
from flintmq.store.read_cursor import NOTHING_KNOWN, ReadCursor, ResidentRange
from flintmq.store.reading import cold_reads
from flintmq.store.reading.cold_reads import (
    CHUNK_SIZE,
    KNOWN_S,
    SPAN_SIZE_MAX,
    TOGETHER_COUNT_MAX,
    ColdReads,
)
from flintmq.testing.simulated_region import SimulatedRegion
from tests.kits.store.store_kit import message, open_store

CHUNK_COUNT = TOGETHER_COUNT_MAX + 2


class Time:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def asked(patch: pytest.MonkeyPatch) -> Iterator[tuple[ColdReads, MappedFile, Time]]:
    """Yield what asks about a log of some chunks, all in memory, about which nothing is known."""
    patch.setattr(cold_reads, "RECENT_SIZE", 0)
    with open_store(commit_log_file_size=16 << 20, max_message_size=CHUNK_SIZE) as store:
        for _ in range(2 * CHUNK_COUNT):
            store.put(message(bytes(CHUNK_SIZE // 2)))
        file = store.log.files.find(0)
        assert file is not None
        assert file.readable > CHUNK_COUNT * CHUNK_SIZE
        reads, time = store.reader.cold_reads, Time()
        reads.now = time
        yield reads, file, time


def ask(reads: ColdReads, *chunks: int) -> None:
    assert reads.of_records([chunk * CHUNK_SIZE for chunk in chunks]) == []


def around(reads: ColdReads, file: MappedFile, position: int) -> ResidentRange:
    """Return what is known around one byte."""
    return reads.ready_around(file, position, position + 1)


def test_chunks_side_by_side_are_known_as_one_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of a queue that lie in two chunks were looked for anew each time."""
    with asked(monkeypatch) as (reads, file, time):
        ask(reads, 0, 1, 3)
        until = time.now + KNOWN_S
        assert around(reads, file, 17) == (0, 2 * CHUNK_SIZE, until)
        assert around(reads, file, CHUNK_SIZE) == (CHUNK_SIZE, 2 * CHUNK_SIZE, until)
        last = 4 * CHUNK_SIZE - 1
        assert around(reads, file, last) == (3 * CHUNK_SIZE, 4 * CHUNK_SIZE, until)


def test_a_range_is_known_for_as_long_as_all_of_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with asked(monkeypatch) as (reads, file, time):
        ask(reads, 1)
        first_until = time.now + KNOWN_S
        time.now += KNOWN_S / 2
        ask(reads, 0)
        assert around(reads, file, 0) == (0, 2 * CHUNK_SIZE, first_until)
        time.now = first_until
        assert around(reads, file, 0) == (0, CHUNK_SIZE, first_until + KNOWN_S / 2)


def test_a_range_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    with asked(monkeypatch) as (reads, file, _):
        ask(reads, *range(CHUNK_COUNT))
        assert around(reads, file, 0).end == TOGETHER_COUNT_MAX * CHUNK_SIZE
        assert reads.ready_around(file, 0, SPAN_SIZE_MAX).end == TOGETHER_COUNT_MAX * CHUNK_SIZE
        assert reads.ready_around(file, 0, SPAN_SIZE_MAX + 1) is NOTHING_KNOWN


def test_a_part_is_asked_about_by_itself_if_not_all_of_its_chunk_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with asked(monkeypatch) as (reads, file, time):
        cold_from = CHUNK_SIZE // 2
        monkeypatch.setattr(
            SimulatedRegion, "is_resident", lambda _, start, size: start + size <= cold_from
        )
        ready = reads.ready_around(file, 10, cold_from)
        assert ready is not NOTHING_KNOWN
        assert ready.until < time.now, "the rest of the chunk was not asked about"
        assert reads.ready_around(file, 10, cold_from + 1) is NOTHING_KNOWN


@pytest.mark.parametrize("is_known", [True, False])
def test_units_and_records_are_not_looked_at_before_they_are_in_memory(
    monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """Whoever looks at a page that is not there stops the loop until the disk has brought it."""
    compiled_copies = pytest.importorskip("flintmq.store.reading.compiled_copies")
    compiled_read = pytest.importorskip("flintmq.store.reading.compiled_read")
    numpy = pytest.importorskip("numpy")
    monkeypatch.setattr(cold_reads, "RECENT_SIZE", 0)
    monkeypatch.setattr(compiled_copies, "RECENT_UNIT_COUNT", -1)
    target, cursor = numpy.zeros(4096, numpy.uint8), ReadCursor("T", 0)
    with open_store() as store:
        store.reader._engine = LoadOnDemand(compiled_read.CompiledRead, ask_count=0)
        store.reader._engine._loaded = compiled_read.CompiledRead()
        store.put(message())
        store.put(message())
        store.dispatch()
        time = store.reader.cold_reads.now = Time()
        if is_known:
            assert store.copy_messages(cursor, 0, 2, target) is not None
            time.now += KNOWN_S
        cold = "consumequeue"
        monkeypatch.setattr(
            SimulatedRegion, "is_resident", lambda region, *_: cold not in str(region.path)
        )
        with monkeypatch.context() as patch:
            patch.setattr(compiled_copies, "_unit_at", None)
            assert store.copy_messages(cursor, 0, 2, target) is None
        cold = "commitlog"
        with monkeypatch.context() as patch:
            patch.setattr(compiled_copies, "copy_records", None)
            assert store.copy_messages(cursor, 0, 2, target) is None
        cold = "nothing"
        assert store.copy_messages(cursor, 0, 2, target) is not None
