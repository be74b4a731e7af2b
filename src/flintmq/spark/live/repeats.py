"""Leaving out what the sink has sent more than once: the reader option ``dropRepeats``.

A replayed micro-batch, a task that is run again and a send whose answer was lost put a row into
its queue a second time.  The sink always sends a row to the same queue, so one queue can be
judged alone, by two rules:

* A micro-batch begins only after all rows of the one before were acknowledged.  So a message of
  a lower batch than the highest before it, of the same query, is a copy that came late.
* Within the highest batch, a row that was there before is a copy.  Rows may come in any order:
  a set decides, not a maximum.

A range of a queue may begin inside a batch.  Then the messages before it are looked at, as far
back as needed and as allowed.  If that is not far enough a copy may pass, and a warning says so;
a row never gets lost.

How a reader uses it, for one range of one queue and one pass from its start to its end:

    repeats = RepeatFilter(start, history, queue_name="orders broker-a 0", lookback_max=100_000)
    for batch in …:
        kept = batch.filter(repeats.keep(offsets, marks_of(properties)))

``history`` gives marks of earlier messages of the same queue, chosen by the same tags.
"""

import itertools
import logging
from collections.abc import Sequence
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from flintmq.spark.live.repeat_mark import ROW_MARK, BatchSequence, RowMark

logger = logging.getLogger(__name__)

LOOKBACK_MAX: Final = 100_000
"""Messages before a range that are looked at, unless ``repeatLookback`` says otherwise."""

ROWS_MAX: Final = 2_000_000
"""Rows of one batch in one queue that are remembered."""

QUIET_RUN: Final = 4096
"""So many messages of lower batches, and none else of the query between them, are taken for the
end of the batch before; fewer may be copies that came late: a request has up to 256 of them, and a
task that nobody has stopped sends several."""

DESCENT_RUN: Final = 64
DESCENT_BATCHES: Final = 3
"""Fewer messages are enough where they are of so many batches that follow each other: what comes
late is of one batch, that of its task."""

SEQUENCES_MAX: Final = 10_000
"""Queries and delay levels that are told apart in one range."""

CHUNK_MIN: Final = 1024
CHUNK_MAX: Final = 16_384


class QueueHistory(Protocol):
    """The messages of a queue before a range."""

    def first_offset(self) -> int:
        """Return the offset of the oldest message that the queue still has."""
        ...

    def marks(self, start: int, end: int) -> Sequence[str | None]:
        """Return the property ROW_MARK of the messages from ``start`` to before ``end``.

        They come in the order of the queue; messages that are gone, or that the reader's own
        subscription leaves out, are not among them.
        """
        ...


def marks_of(properties: pa.MapArray) -> pa.StringArray:
    """Return the property ROW_MARK of each message, null where there is none."""
    return pc.map_lookup(properties, pa.scalar(ROW_MARK), "first")


class SequenceRows:
    """Which rows of the highest batch of one batch sequence were there already.  It does no I/O."""

    def __init__(self, rows_max: int = ROWS_MAX) -> None:
        self._rows_max = rows_max
        self._batch = -1
        # A dict keeps the order in which rows came: the oldest are forgotten first.
        self._rows: dict[int, None] = {}
        self.has_forgotten = False

    def take(self, mark: RowMark) -> bool:
        """Note a row; return whether it is the first copy."""
        if mark.batch < self._batch:
            return False
        if mark.batch > self._batch:
            self._batch = mark.batch
            self._rows = {}
        row = ((mark.partition << 64 | mark.sequence) << 32) | mark.checksum
        if row in self._rows:
            return False
        if len(self._rows) >= self._rows_max:
            for old in list(itertools.islice(self._rows, -(-self._rows_max // 2))):
                del self._rows[old]
            self.has_forgotten = True
        self._rows[row] = None
        return True


class LookBack:
    """The messages before a range, read backwards chunk by chunk, only as far as needed."""

    def __init__(
        self, start: int, history: QueueHistory, *, lookback_max: int, quiet_run: int
    ) -> None:
        self._start = self._low = start
        self._limit = max(0, start - lookback_max)
        self._history = history
        self._first: int | None = None
        self._quiet_run = quiet_run
        self._chunk = CHUNK_MIN
        # The marks of each batch sequence, the newest first.
        self._marks: dict[BatchSequence, list[RowMark]] = {}

    def before(self, mark: RowMark, offset: int) -> tuple[list[RowMark], bool]:
        """Return the marks of a sequence before the range, and whether any are missing.

        ``mark`` is the first one of its sequence inside the range, ``offset`` its queue offset.
        """
        # A topic that was deleted and made again has offsets below what the mark remembers.
        floor = mark.floor if mark.floor <= offset else 0
        while True:
            found = self._marks.get(mark.batch_sequence, [])
            is_complete = self._low <= max(floor, self._first_offset()) or self._is_quiet(
                found, mark.batch
            )
            if is_complete or self._low <= self._limit:
                return found[::-1], is_complete
            self._read_more()

    def _first_offset(self) -> int:
        if self._first is None:
            self._first = self._history.first_offset()
        return self._first

    def _is_quiet(self, found: Sequence[RowMark], batch: int) -> bool:
        """Whether the oldest messages show that the batch began behind them."""
        run = list(itertools.takewhile(lambda one: one.batch < batch, reversed(found)))
        if len(run) >= self._quiet_run:
            return True
        # From the oldest on: the batches of a run that is no late copy ascend.
        batches = [one.batch for one in run]
        return (
            len(run) >= DESCENT_RUN
            and len(set(batches)) >= DESCENT_BATCHES
            and batches == sorted(batches)
        )

    def _read_more(self) -> None:
        low = max(self._limit, self._first_offset(), self._low - self._chunk)
        for text in reversed(self._history.marks(low, self._low)):
            mark = RowMark.parse(text)
            if mark is not None:
                self._marks.setdefault(mark.batch_sequence, []).append(mark)
        self._low = low
        self._chunk = min(CHUNK_MAX, self._chunk * 2)


class RepeatFilter:
    """Tells the first copies in a range of a queue from the others."""

    def __init__(
        self,
        start: int,
        history: QueueHistory,
        *,
        queue_name: str,
        lookback_max: int = LOOKBACK_MAX,
        rows_max: int = ROWS_MAX,
        quiet_run: int = QUIET_RUN,
    ) -> None:
        self._queue_name = queue_name
        self._lookback_max = lookback_max
        self._rows_max = rows_max
        self._before = LookBack(start, history, lookback_max=lookback_max, quiet_run=quiet_run)
        self._sequences: dict[BatchSequence, SequenceRows] = {}
        self._is_warned = False

    def keep(self, offsets: pa.Array, marks: pa.Array) -> pa.BooleanArray:
        """Return which of the next messages are first copies; those without a mark are.

        ``offsets`` are queue offsets, ``marks`` the property ROW_MARK or null, in the order of
        the queue.
        """
        if marks.null_count == len(marks):
            return pa.array([True] * len(marks), pa.bool_())
        kept = [
            self._is_first(RowMark.parse(text), offset)
            for offset, text in zip(offsets.to_pylist(), marks.to_pylist(), strict=True)
        ]
        return pa.array(kept, pa.bool_())

    def _is_first(self, mark: RowMark | None, offset: int) -> bool:
        if mark is None:
            return True
        rows = self._sequences.get(mark.batch_sequence)
        if rows is None:
            self._make_room()
            rows = self._sequences[mark.batch_sequence] = self._rows_before(mark, offset)
        is_first = rows.take(mark)
        if rows.has_forgotten:
            self._warn(f"more than {self._rows_max} rows of one batch in one queue")
        return is_first

    def _make_room(self) -> None:
        if len(self._sequences) >= SEQUENCES_MAX:
            del self._sequences[next(iter(self._sequences))]
            self._warn(f"more than {SEQUENCES_MAX} queries in one range")

    def _rows_before(self, mark: RowMark, offset: int) -> SequenceRows:
        rows = SequenceRows(self._rows_max)
        found, is_complete = self._before.before(mark, offset)
        for one in found:
            rows.take(one)
        if not is_complete:
            self._warn(f"the batch began more than {self._lookback_max} messages before")
        return rows

    def _warn(self, reason: str) -> None:
        """Say once that a copy may pass."""
        if not self._is_warned:
            self._is_warned = True
            logger.warning("repeats may pass: place=%s reason=%s", self._queue_name, reason)
