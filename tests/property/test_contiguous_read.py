"""A read that is taken at once brings what a read record by record brings."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, Final, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.format.stored.consume_queue import PRE_BLANK_SIZE, UNIT, UNIT_SIZE
from flintmq.kernels.background_load import LoadOnDemand
from flintmq.kernels.checked_access import checked_bytes_at, checked_copy, checked_loader
from flintmq.kernels.queue_reads import NOT_CONTIGUOUS, copy_records, find_pieces
from flintmq.store.message_store import MessageStore
from flintmq.store.read_cursor import ReadCursor
from flintmq.store.reading import cold_reads
from flintmq.store.reading import store_reader as reading
from flintmq.store.reading.cold_reads import KNOWN_S
from flintmq.store.reading.compiled_read import CompiledRead
from flintmq.store.reading.contiguous_read import read_contiguous
from flintmq.store.results import CopiedMessages, GetResult
from flintmq.store.views.queue_table import QueueTable
from tests.kits.store.store_kit import batch, message, open_store, turn

ENGINES: Final = [None, CompiledRead()]
"""Python, and machine code."""
COUNTS: Final = st.sampled_from([-1, 0, 1, 2, 5, 8, 32, 32, 32])


@contextmanager
def counted_stretches(taken: list[bool]) -> Iterator[None]:
    """Note which reads are taken at once."""

    by_machine_code = CompiledRead.read

    def counted(*args: Any, **options: Any) -> bool:
        taken.append(read_contiguous(*args, **options))
        return taken[-1]

    def counted_engine(*args: Any, **options: Any) -> GetResult | None:
        found = by_machine_code(*args, **options)
        if found is not None:
            taken.append(True)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "read_contiguous", counted)
        patch.setattr(CompiledRead, "read", counted_engine)
        yield


def use_engine(store: MessageStore, engine: CompiledRead | None) -> None:
    store.reader._engine = LoadOnDemand(CompiledRead, ask_count=0)
    store.reader._engine._loaded = engine


class Copied(NamedTuple):
    """A copy of messages, and what is told of it."""

    told: CopiedMessages
    data: bytes


def copy_of(
    store: MessageStore, cursor: ReadCursor, offset: int, count: int, *, room: int = 1 << 16
) -> Copied | None:
    """Return a copy of messages, by machine code alone."""
    target = np.zeros(room + 8, np.uint8)
    told = store.copy_messages(cursor, offset, count, target[:room])
    assert not target[room:].any()
    return None if told is None else Copied(told, target[: told.total_size].tobytes())


def facts(result: GetResult | None) -> dict[str, Any]:
    """Return all that a result says, and release it."""
    assert result is not None
    with result:
        messages = [bytes(one) for one in result.messages]
        assert b"".join(result.pieces) == b"".join(messages)
        assert len(result) == len(messages)
        return {
            "status": result.status,
            "messages": messages,
            "offsets": result.queue_offsets,
            "next": result.next_begin_offset,
            "bounds": (result.min_offset, result.max_offset),
            "size": result.total_size,
            "slave": result.suggest_slave,
        }


def one_by_one(store: MessageStore, queue_id: int, offset: int, count: int) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "read_contiguous", lambda *args, **options: False)
        patch.setattr(CompiledRead, "read", lambda *args, **options: None)
        return facts(store.get_messages("T", queue_id, offset, count))


def fill(store: MessageStore, puts: list[tuple[int, int, int]]) -> None:
    for queue_id, size, count in puts:
        if count == 1:
            store.put(message(b"m" * size, queue_id=queue_id))
        else:
            store.put_batch(batch(*[b"m" * size] * count, queue_id=queue_id))
    store.dispatch()


puts = st.tuples(
    st.sampled_from([0, 0, 0, 1]), st.sampled_from([0, 7, 7, 300]), st.sampled_from([1, 1, 4])
)
limits = st.fixed_dictionaries(
    {
        "transfer_count_in_memory_max": st.sampled_from([3, 8, 32, 32]),
        "transfer_bytes_in_memory_max": st.sampled_from([1, 1000, 1 << 18, 1 << 18]),
        "transfer_count_on_disk_max": st.just(2),
    }
)
damages = st.tuples(
    st.integers(0, 12),
    st.sampled_from([0, 1, -1, 40, 4096, -(1 << 40), 1 << 40]),
    st.sampled_from([None, None, None, 0, 1, -5, 90, 100, PRE_BLANK_SIZE]),
)
"""Which unit, how far its offset is moved, and the size that it gets."""
reads_of_a_queue = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 1]), st.integers(0, 12), COUNTS), min_size=1, max_size=12
)


def damage(store: MessageStore, number: int, moved_by: int, size: int | None) -> None:
    queue = store.queues.get("T", 0)
    found = None if queue is None or number >= queue.max_offset else queue.units_from(number)
    if found is None:
        return
    file, position, _ = found
    offset, true_size, code = UNIT.unpack_from(file.view, position)
    size = true_size if size is None else size
    UNIT.pack_into(file.view, position, offset + moved_by, size, code)
    file.release()


def spoil(store: MessageStore, number: int, at: int) -> None:
    """Change a byte of the record that a unit of the first queue leads to."""
    queue = store.queues.get("T", 0)
    unit = None if queue is None else queue.unit_at(number)
    file = None if unit is None else store.log.files.find(unit[0])
    if unit is not None and file is not None:
        file.view[unit[0] - file.first_offset + at] ^= 1


@given(
    filled=st.lists(puts, min_size=3, max_size=25),
    settings=limits,
    reads=reads_of_a_queue,
    damaged=st.none() | damages,
    spoiled=st.none() | st.tuples(st.integers(0, 12), st.sampled_from([3, 2, 35, 28, 40])),
    hot_size=st.sampled_from([500, 3000] + [1 << 40] * 4),
    engine=st.sampled_from(ENGINES),
)
def test_a_stretch_is_what_a_read_record_by_record_brings(
    filled: list[tuple[int, int, int]],
    settings: dict[str, Any],
    reads: list[tuple[int, int, int]],
    damaged: tuple[int, int, int | None] | None,
    spoiled: tuple[int, int] | None,
    hot_size: int,
    engine: CompiledRead | None,
) -> None:
    with open_store(**settings) as store:
        use_engine(store, engine)
        store.reader._hot_size = hot_size
        store.reader._copy_sources = store.reader._copy_sources._replace(hot_size=hot_size)
        fill(store, filled)
        if spoiled is not None:
            spoil(store, *spoiled)
        if damaged is not None:
            damage(store, *damaged)
        for queue_id, offset, count in reads:
            at_once = facts(store.get_messages("T", queue_id, offset, count))
            assert at_once == one_by_one(store, queue_id, offset, count)
            inside = store.get_messages("T", queue_id, offset, count, only_ready=True)
            low, high = at_once["bounds"]
            assert (inside is not None) == (low <= offset < high)
            assert inside is None or facts(inside) == at_once
            copied = copy_of(store, ReadCursor("T", queue_id), offset, count)
            if copied is not None:
                assert engine is not None
                assert not at_once["slave"]
                check_copy(copied, at_once)


def check_copy(copied: Copied, at_once: dict[str, Any]) -> None:
    """Check that a copy is what a read has brought."""
    told, data = copied
    assert data == b"".join(at_once["messages"])
    assert told.message_count == len(at_once["messages"])
    assert told.next_begin_offset == at_once["next"]
    assert (told.min_offset, told.max_offset) == at_once["bounds"]
    assert told.total_size == at_once["size"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("at", [0, 3, 28, 35])
@pytest.mark.parametrize("sizes", [[7, 7, 7, 7], [7, 8, 9, 10]])
def test_a_record_that_denies_its_place_is_passed_over(
    sizes: list[int], at: int, engine: CompiledRead | None
) -> None:
    taken: list[bool] = []
    with open_store() as store, counted_stretches(taken):
        use_engine(store, engine)
        fill(store, [(0, size, 1) for size in sizes])
        spoil(store, 2, at)
        found = facts(store.get_messages("T", 0, 0, 32))
        assert found["offsets"] == [0, 1, 3]
        assert found == one_by_one(store, 0, 0, 32)
    assert taken == [False]


def test_plain_messages_are_copied_by_machine_code_alone() -> None:
    with open_store() as store:
        fill(store, [(number % 2, 7, 1) for number in range(20)])
        use_engine(store, None)
        assert copy_of(store, ReadCursor("T", 0), 2, 32) is None
        use_engine(store, CompiledRead())
        assert copy_of(store, ReadCursor("T", 0), 10, 32) is None
        copied, again = (copy_of(store, ReadCursor("T", 0), 2, 32) for _ in range(2))
        assert copied is not None
        assert again is not None
        told = copied.told
        assert (told.message_count, told.next_begin_offset, told.max_offset) == (8, 10, 10)
        assert copied == again


def test_what_is_copied_has_room_where_it_is_wanted() -> None:
    with open_store(commit_log_file_size=1 << 20, max_message_size=1 << 16) as store:
        use_engine(store, CompiledRead())
        fill(store, [(1, 15000, 1)] * 20)
        assert copy_of(store, ReadCursor("T", 1), 0, 5) is None
        fitting = copy_of(store, ReadCursor("T", 1), 0, 4)
        assert fitting is not None
        size = fitting.told.total_size
        assert copy_of(store, ReadCursor("T", 1), 0, 4, room=size) == fitting
        assert copy_of(store, ReadCursor("T", 1), 0, 4, room=size - 1) is None


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("room", "count"), [(0.5, 1), (1, 1), (1.99, 1), (2, 2), (3.5, 3), (7.99, 7), (8, 8), (99, 8)]
)
def test_of_large_messages_as_many_are_read_at_once_as_fit(
    engine: CompiledRead | None, room: float, count: int
) -> None:
    """They were read one by one as soon as not all that a pull asks for did."""
    record_size, taken = 1292, list[bool]()
    room_size = int(room * record_size)
    with open_store(transfer_bytes_in_memory_max=room_size, commit_log_file_size=1 << 20) as store:
        use_engine(store, engine)
        fill(store, [(number % 2, 1200, 1) for number in range(16)])
        with counted_stretches(taken):
            found = facts(store.get_messages("T", 0, 0, 32))
        assert found == one_by_one(store, 0, 0, 32)
        assert (len(found["messages"]), found["size"]) == (count, count * record_size)
    # One that is larger than all may be is looked at by itself.
    assert taken[-1] is (room >= 1)


@pytest.mark.parametrize("room", [0.5, 1, 1.99, 2, 3.5, 7.99, 8, 99])
@pytest.mark.parametrize("recent_size", [0, 1 << 40])
def test_of_large_messages_as_many_are_copied_as_fit(
    room: float, recent_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was copied as soon as not all that a pull asks for did fit."""
    room_size = int(room * 1292)
    monkeypatch.setattr(cold_reads, "RECENT_SIZE", recent_size)
    monkeypatch.setattr(cold_reads, "CHUNK_SIZE", 4096)
    with open_store(transfer_bytes_in_memory_max=room_size, commit_log_file_size=1 << 20) as store:
        use_engine(store, CompiledRead())
        fill(store, [(number % 2, 1200, 1) for number in range(32)])
        cursor, offset = ReadCursor("T", 0), 0
        while offset < 16:
            # Whoever goes on gets what one gets who looks anew.
            for reader in (cursor, ReadCursor("T", 0)):
                copied = copy_of(store, reader, offset, 32)
                assert (copied is not None) is (room >= 1)
                if copied is not None:
                    check_copy(copied, one_by_one(store, 0, offset, 32))
            offset += max(int(room), 1)


def test_copies_go_over_the_edge_of_log_files() -> None:
    """A reader goes on in the next file; a read that lies in two is read one by one."""
    with open_store(commit_log_file_size=4096) as store:
        use_engine(store, CompiledRead())
        fill(store, [(0, 300, 1)] * 40)
        for cursors in ([ReadCursor("T", 0)] * 38, [ReadCursor("T", 0) for _ in range(38)]):
            copies = [copy_of(store, one, offset, 2) for offset, one in enumerate(cursors)]
            assert 0 < sum(copied is None for copied in copies) < 10
            for offset, copied in enumerate(copies):
                if copied is not None:
                    check_copy(copied, one_by_one(store, 0, offset, 2))


changes = st.one_of(
    st.tuples(st.just("put"), st.lists(puts, min_size=1, max_size=6)),
    st.tuples(st.just("read"), reads_of_a_queue),
    st.tuples(st.just("read"), reads_of_a_queue),
    st.tuples(st.sampled_from(["delete the topic", "lose the oldest log file", "wait"]), st.none()),
)


@given(
    steps=st.lists(changes, min_size=2, max_size=14), transfer_count_max=st.sampled_from([3, 32])
)
def test_a_reader_who_goes_on_gets_what_one_gets_who_looks_anew(
    steps: list[tuple[str, Any]], transfer_count_max: int
) -> None:
    """Queues are deleted and made anew, and files roll and expire, between two reads."""
    with open_store(
        commit_log_file_size=4096,
        consume_queue_file_size=10 * UNIT_SIZE,
        transfer_count_in_memory_max=transfer_count_max,
    ) as store:
        use_engine(store, CompiledRead())
        cursors = [ReadCursor("T", queue_id) for queue_id in (0, 1, 2)]
        fill(store, [(0, 7, 4), (1, 7, 4)])
        for what, of_what in steps:
            if what == "put":
                fill(store, of_what)
            elif what == "delete the topic":
                store.clean_unused_topics([])
            elif what == "lose the oldest log file":
                store.retention._delete_oldest(unexpired=True)
                store.delete_expired_views()
            elif what == "wait":
                turn(store, int(KNOWN_S * 1000) + 1)
            else:
                for queue_id, offset, count in of_what:
                    anew = copy_of(store, ReadCursor("T", queue_id), offset, count)
                    for _ in range(2):
                        assert copy_of(store, cursors[queue_id], offset, count) == anew


def test_a_reader_goes_on_without_looking_up_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this the test above would hold for readers who always look anew."""
    with open_store() as store:
        use_engine(store, CompiledRead())
        cursor = ReadCursor("T", 0)
        fill(store, [(0, 7, 4), (0, 7, 4)])
        first = copy_of(store, cursor, 0, 2)
        monkeypatch.setattr(QueueTable, "get", None)
        for offset in (2, 4, 6, 0):
            copied = copy_of(store, cursor, offset, 2)
            assert copied is not None
            assert copied.told.next_begin_offset == offset + 2
        assert first is not None


@pytest.mark.parametrize("engine", ENGINES)
def test_plain_reads_are_taken_at_once_at_all(engine: CompiledRead | None) -> None:
    """Without this the test above would hold for stretches that are never taken."""
    taken: list[bool] = []
    with open_store() as store, counted_stretches(taken):
        use_engine(store, engine)
        fill(store, [(0, 7, 4), (0, 300, 1), (1, 7, 1), (0, 7, 1)])
        # The message of the other queue lies between the last one and those before it.
        for offset in (0, 1, 4, 5):
            assert len(facts(store.get_messages("T", 0, offset, 32))["messages"]) == 6 - offset
    assert taken == [True] * 4


@pytest.mark.parametrize("engine", ENGINES)
def test_records_side_by_side_are_one_part(engine: CompiledRead | None) -> None:
    with open_store() as store:
        use_engine(store, engine)
        fill(store, [(0, 7, 4), (0, 300, 1)])
        result = store.get_messages("T", 0, 0, 32)
        assert result is not None
        with result:
            assert [len(part) for part in result.pieces] == [result.total_size]
            assert len(result.messages) == 5


@pytest.mark.parametrize("engine", ENGINES)
def test_a_part_does_not_outlive_its_result(engine: CompiledRead | None) -> None:
    with open_store() as store:
        use_engine(store, engine)
        fill(store, [(0, 7, 4)])
        result = store.get_messages("T", 0, 0, 32)
        assert result is not None
        part, record = result.pieces[0], result.messages[1]
        result.release()
        for view in (part, record):
            with pytest.raises(ValueError, match="released"):
                view.tobytes()


@given(
    fuzzed=st.lists(
        st.tuples(st.integers(-200, 700), st.sampled_from([-1, 0, 90, 91, 100, 200, 1 << 30])),
        min_size=1,
        max_size=6,
    ),
    count=st.integers(0, 6),
    log_size=st.integers(1, 600),
    log_start=st.sampled_from([0, 100]),
    lowest=st.sampled_from([0, 50, 300]),
    room=st.sampled_from([1, 150, 1000]),
)
def test_machine_code_reads_nothing_outside_of_what_it_was_given(
    fuzzed: list[tuple[int, int]],
    count: int,
    log_size: int,
    log_start: int,
    lowest: int,
    room: int,
) -> None:
    """With its loads checked it gives what it gives without; a load outside would raise."""
    log = bytearray(600)
    for offset, size in fuzzed:
        at = offset - log_start
        if 0 <= at <= 560:
            log[at : at + 4] = (size & 0xFFFFFFFF).to_bytes(4)
            log[at + 28 : at + 36] = (offset % (1 << 64)).to_bytes(8)
    units = b"".join(UNIT.pack(offset, size, 0) for offset, size in fuzzed)
    count = min(count, len(fuzzed))
    arrays = [np.frombuffer(units, np.uint8), np.frombuffer(bytes(log), np.uint8)[:log_size]]
    found = []
    for find in (checked(find_pieces), find_pieces):
        pieces = np.zeros(1 + 2 * len(fuzzed), np.int64)
        options = (count, len(fuzzed), arrays[1], log_start, lowest, 1 << 20, pieces)
        number = find(arrays[0], *options)
        found.append((number, pieces[: 1 + 2 * number].tolist() if number >= 0 else []))
    assert found[0] == found[1]
    copied = []
    copies: list[Callable[..., int]] = [checked(copy_records), copy_records]
    for copy in copies:
        target = np.zeros(room, np.uint8)
        given = addressed(units, count, len(fuzzed), bytes(log), log_size, log_start)
        copied.append((int(copy(*given, lowest, 1 << 20, target)), target.tobytes()))
    assert copied[0] == copied[1]
    number, (all_size, *ranges) = found[0][0], found[0][1] or [0]
    if number >= 0 and all_size <= room:
        places = zip(ranges[::2], ranges[1::2], strict=True)
        expected = b"".join(bytes(log[start:end]) for start, end in places)
        assert copied[0][0] == all_size
        assert copied[0][1][:all_size] == expected
    else:
        assert copied[0][0] == NOT_CONTIGUOUS


KEPT: Final[dict[bytes, Any]] = {}
"""What addresses lead to; the last few."""


def addressed(
    units: bytes, count: int, seen_count: int, log: bytes, log_size: int, log_start: int
) -> tuple[int, ...]:
    """Return what a kernel is given of a read, with addresses of the bytes."""
    KEPT.clear()
    KEPT[units], KEPT[log] = (np.frombuffer(data, np.uint8) for data in (units, log))
    return (
        *(KEPT[units].ctypes.data, count, seen_count),
        *(KEPT[log].ctypes.data, log_size, log_start),
    )


def checked(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return the Python function that a kernel is written as, with loads that look at bounds."""
    python: FunctionType = kernel.py_func  # type: ignore[attr-defined]
    accesses: dict[str, Any] = {
        "load_int": checked_loader(32, "big", is_signed=True),
        "load_long": checked_loader(64, "big", is_signed=True),
        "copy_bytes": checked_copy,
        "bytes_at": checked_bytes_at,
    }
    for name in {"_find_record", "_lies_below"} & set(python.__code__.co_names):
        accesses[name] = checked(python.__globals__[name])
    return FunctionType(python.__code__, {**python.__globals__, **accesses})
