"""Copies are found in any interleaving of attempts, crashes and ranges; no row is ever lost."""

import dataclasses
import itertools
import logging
import random
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.spark.live.repeat_mark import ROW_MARK, RowMark
from flintmq.spark.live.repeats import (
    CHUNK_MIN,
    QUIET_RUN,
    RepeatFilter,
    SequenceRows,
    marks_of,
)

NEVER_QUIET = 10_000


@dataclasses.dataclass
class FakeQueue:
    """A queue as a list of marks; it notes how far back somebody has looked."""

    marks_kept: list[str | None]
    first: int = 0
    lowest_asked: int | None = None

    def first_offset(self) -> int:
        return self.first

    def marks(self, start: int, end: int) -> Sequence[str | None]:
        self.lowest_asked = start if self.lowest_asked is None else min(start, self.lowest_asked)
        return self.marks_kept[max(start, self.first) : end]

    def read(
        self, cuts: Sequence[int], *, lookback_max: int = 1000, quiet_run: int = NEVER_QUIET
    ) -> list[str | None]:
        """Read the queue in ranges that end at the cuts, each by a reader of its own."""
        kept: list[str | None] = []
        bounds = [self.first, *sorted(cuts), len(self.marks_kept)]
        for start, end in itertools.pairwise(bounds):
            repeats = RepeatFilter(
                start, self, queue_name="test", lookback_max=lookback_max, quiet_run=quiet_run
            )
            # Two calls, as a reader of Arrow batches makes them.
            middle = (start + end) // 2
            for low, high in ((start, middle), (middle, end)):
                part = pa.array(self.marks_kept[low:high], pa.string())
                mask = repeats.keep(pa.array(range(low, high), pa.int64()), part)
                kept += part.filter(mask).to_pylist()
        return kept


def mark(batch: int, sequence: int, partition: int = 0, query: str = "q", **more: int) -> str:
    return RowMark(query, batch, partition, sequence, more.pop("checksum", 7), **more).text


@st.composite
def histories(draw: st.DrawFn) -> list[str | None]:
    """What a queue may hold after queries have written to it, their attempts failing anywhere.

    Every batch is attempted a few times, each attempt sending any of its rows, in any order; the
    last one sends them all.  Between its messages come those of attempts of any earlier batch
    that nobody has stopped.
    """
    lanes = []
    for query in draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True)):
        sent: list[str | None] = []
        stopped_by_nobody: list[str] = []
        for batch in range(draw(st.integers(1, 4))):
            sizes = draw(st.lists(st.integers(0, 4), min_size=1, max_size=2))
            rows = [
                mark(batch, sequence, partition, query)
                for partition, size in enumerate(sizes)
                for sequence in range(size)
            ]
            late = st.sampled_from(stopped_by_nobody) if stopped_by_nobody else st.nothing()
            for _ in range(draw(st.integers(0, 2))):
                some = st.sampled_from(rows) if rows else st.nothing()
                sent += draw(st.lists(some | late, max_size=6)) if rows else []
            whole: list[str | None] = [*draw(st.permutations(rows))]
            for text in draw(st.lists(late, max_size=3)) if stopped_by_nobody else []:
                whole.insert(draw(st.integers(0, len(whole))), text)
            sent += whole
            stopped_by_nobody += rows
        lanes.append(sent)
    lanes.append([None] * draw(st.integers(0, 3)))
    return _interleaved(draw, lanes)


def _interleaved(draw: st.DrawFn, lanes: list[list[str | None]]) -> list[str | None]:
    order = [number for number, lane in enumerate(lanes) for _ in lane]
    rests = [iter(lane) for lane in lanes]
    return [next(rests[number]) for number in draw(st.permutations(order))]


@settings(deadline=None)
@given(history=histories(), cuts=st.lists(st.integers(0, 60), max_size=4))
def test_each_row_comes_exactly_once_however_it_was_sent_and_is_read(
    history: list[str | None], cuts: list[int]
) -> None:
    queue = FakeQueue(history)
    kept = queue.read([min(cut, len(history)) for cut in cuts])
    marked = [text for text in kept if text is not None]
    assert sorted(marked) == sorted({text for text in history if text is not None})
    assert kept.count(None) == history.count(None)


@pytest.mark.parametrize("late", [1, 63, 64, 100, 256, 1000])
def test_a_late_request_of_an_older_batch_lets_no_copy_pass(
    late: int, caplog: pytest.LogCaptureFixture
) -> None:
    older = [mark(4, number) for number in range(1000)]
    rows = [mark(5, number) for number in range(1600)]
    history: list[str | None] = [*older, *rows[:400], *older[:late], *rows[400:], *rows[300:400]]
    # Ranges begin at any distance behind the late request: readers meet it when they look back.
    for cut in range(1400 + late, len(history), 31):
        kept = FakeQueue(history).read([cut], quiet_run=QUIET_RUN, lookback_max=100_000)
        assert kept == [*older, *rows]
    assert not caplog.records


@pytest.mark.parametrize("seed", range(200))
def test_copies_and_late_requests_of_large_batches_are_found_from_any_cut(seed: int) -> None:
    chance = random.Random(seed)
    history: list[str | None] = []
    batches: list[list[str]] = []
    for batch in range(chance.randint(2, 8)):
        rows = [mark(batch, number) for number in range(chance.choice([5, 70, 300, 2000]))]
        sent = [*rows]
        for _ in range(chance.randint(0, 3)):
            # A request that is repeated, of this batch or an older one.
            other = chance.choice([rows, *batches])
            first = chance.randrange(len(other))
            copies = other[first : first + chance.choice([1, 64, 256])]
            at = chance.randint(0, len(sent)) if other is not rows else len(sent)
            sent[at:at] = copies
        history += sent
        batches.append(rows)
    cuts = [chance.randint(0, len(history)) for _ in range(chance.randint(1, 4))]
    kept = FakeQueue(history).read(cuts, quiet_run=QUIET_RUN, lookback_max=100_000)
    assert kept == [row for rows in batches for row in rows]


@settings(deadline=None)
@given(
    history=histories(),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    lookback_max=st.integers(1, 5),
    quiet_run=st.integers(1, 3),
)
def test_no_row_is_lost_however_little_is_looked_back(
    history: list[str | None], cuts: list[int], lookback_max: int, quiet_run: int
) -> None:
    queue = FakeQueue(history)
    kept = queue.read(
        [min(cut, len(history)) for cut in cuts], lookback_max=lookback_max, quiet_run=quiet_run
    )
    assert set(kept) == set(history)


def test_the_first_of_two_copies_stays() -> None:
    queue = FakeQueue([mark(0, 0), mark(0, 1), mark(0, 0), mark(1, 0), mark(0, 1)])
    assert queue.read([]) == [mark(0, 0), mark(0, 1), mark(1, 0)]


def test_rows_that_differ_are_no_copies_although_they_have_one_number() -> None:
    texts = [mark(0, 0, checksum=1), mark(0, 0, checksum=2)]
    assert FakeQueue([*texts]).read([]) == texts


def test_delayed_rows_are_compared_with_those_of_their_level_only() -> None:
    late = mark(0, 1, level=3)
    queue = FakeQueue([mark(0, 0), mark(5, 0), late, late])
    assert queue.read([]) == [mark(0, 0), mark(5, 0), late]


def test_nothing_is_read_before_the_queue_was_chosen() -> None:
    queue = FakeQueue([None] * 500 + [mark(0, 0, floor=450), mark(0, 0, floor=450)])
    assert queue.read([501])[500:] == [mark(0, 0, floor=450)]
    assert queue.lowest_asked is not None
    fresh = FakeQueue([None] * 500 + [mark(0, 0, floor=500)])
    fresh.read([500])
    assert fresh.lowest_asked is None


def test_a_floor_from_before_a_topic_was_made_anew_is_not_believed() -> None:
    copies = [mark(0, 0, floor=900), mark(0, 0, floor=900)]
    assert FakeQueue([*copies]).read([1]) == copies[:1]


def test_looking_back_ends_where_the_batch_before_was_whole() -> None:
    one_batch = [mark(400, number) for number in range(10 * CHUNK_MIN)]
    batches = [mark(number // 30, number) for number in range(10 * CHUNK_MIN)]
    # Chunks double: one message of the batch itself, and QUIET_RUN of the batch before.
    for before, looked_at in ((one_batch, 7 * CHUNK_MIN), (batches, CHUNK_MIN)):
        queue = FakeQueue([*before, mark(500, 0), mark(500, 0)])
        start = len(before) + 1
        repeats = RepeatFilter(start, queue, queue_name="test")
        kept = repeats.keep(pa.array([start]), pa.array([mark(500, 0)]))
        assert kept.to_pylist() == [False]
        assert queue.lowest_asked == start - looked_at


def test_it_says_when_it_could_not_look_back_far_enough(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = FakeQueue([mark(0, number) for number in range(100)])
    with caplog.at_level(logging.WARNING):
        queue.read([50], lookback_max=10)
    assert [record.getMessage() for record in caplog.records] == [
        "repeats may pass: place=test reason=the batch began more than 10 messages before"
    ]


def test_rows_that_are_too_many_are_forgotten_oldest_first() -> None:
    rows = SequenceRows(rows_max=4)
    for number in range(5):
        assert rows.take(RowMark("q", 0, 0, number, 0))
    assert rows.has_forgotten
    assert not rows.take(RowMark("q", 0, 0, 4, 0))
    assert rows.take(RowMark("q", 0, 0, 0, 0))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "q/0/0/0",
        "q/0/0/0/00000000/0/0/0",
        "q/-1/0/0/00000000/0/0",
        "q/0/0/0/0000000g/0/0",
        "q" * 65 + "/0/0/0/00000000/0/0",
        "q/\u0660/0/0/00000000/0/0",
    ],
)
def test_what_is_no_mark_stays(text: str) -> None:
    assert RowMark.parse(text) is None
    assert FakeQueue([text, text]).read([]) == [text, text]


def test_a_mark_survives_its_text() -> None:
    one = RowMark("a-b_C9", 10**17, 10**8, 10**17, 2**32 - 1, 10**17, 1024)
    assert RowMark.parse(one.text) == one


def test_marks_are_found_among_the_properties() -> None:
    kind = pa.map_(pa.string(), pa.string())
    column = pa.array([[("a", "b"), (ROW_MARK, "x")], [("a", "b")], None], kind)
    assert marks_of(column).to_pylist() == ["x", None, None]
