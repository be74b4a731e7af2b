"""From the records that a broker has sent to Arrow batches.

The body of an answer is a run of records as they are in the log, so the kernels that read logs
read it too.  Answers are joined until there is enough for a batch.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from flintmq.format.record import RECORD_SIZE_MIN
from flintmq.kernels.compiled import Bytes, as_bytes
from flintmq.kernels.records import ANY_PLACE, RecordTable, walk_records
from flintmq.kernels.texts import is_one_of
from flintmq.model.message_queue import MessageQueue
from flintmq.model.subscription import Subscription
from flintmq.spark.bodies import sent_bodies, stored_bodies
from flintmq.spark.conditions import RowConditions
from flintmq.spark.live.errors import FalseAnswerError, queue_text
from flintmq.spark.live.fetch import Fetched
from flintmq.spark.live.ranges import Loss, QueueRange
from flintmq.spark.offset_table import OffsetTable
from flintmq.spark.rows import Faults, RowBuilder

BATCH_BYTES: Final = 4 << 20
BATCH_ROWS_MAX: Final = 16_384
BODY_BYTES_MAX: Final = 16 << 20
"""Bodies of a batch that were decompressed."""

OnLoss = Callable[[MessageQueue, Loss], None]


class RangePart(NamedTuple):
    """Some rows, and the records that they were made of: a table of ``data``."""

    data: Bytes
    table: RecordTable
    rows: pa.RecordBatch


class RangeRows:
    """Makes batches of one range of a queue; answers come in the order of their offsets."""

    def __init__(
        self, wanted: QueueRange, subscription: Subscription, schema: pa.Schema, on_loss: OnLoss
    ) -> None:
        self._queue = wanted.queue
        self._next = wanted.start
        self._end = wanted.end
        self._on_loss = on_loss
        self._damaged = 0
        self._wants_all = subscription.wants_all
        self._topic = frozenset({wanted.queue.topic.encode()})
        # Brokers compare hashes of tags only, so the tags themselves are compared here.
        self._conditions = RowConditions(OffsetTable({}, {}), tags=subscription.tags or None)
        self._schema = schema
        wide = self._conditions.widen(schema)
        self._has_body = "body" in wide.names
        # No file of the broker's is known here; only an archive has the columns for it.
        constants = {"brokerName": wanted.queue.broker_name, "fileName": None, "path": None}
        self._builder = RowBuilder(wide, constants)

    def batches(self, answers: Iterable[Fetched]) -> Iterator[pa.RecordBatch]:
        """Yield the wanted rows."""
        for part in self.parts(answers):
            kept = self._conditions.apply(part.rows, self._schema)
            if kept.num_rows:
                yield kept

    def parts(self, answers: Iterable[Fetched]) -> Iterator[RangePart]:
        """Yield all rows that the broker gave, with their records."""
        waiting: list[Fetched] = []
        size = count = 0
        for answer in answers:
            waiting.append(answer)
            size += len(answer.body)
            count += answer.end - answer.start
            if size >= BATCH_BYTES or count >= BATCH_ROWS_MAX:
                yield from self._built(waiting)
                waiting, size, count = [], 0, 0
        yield from self._built(waiting)

    def _built(self, answers: list[Fetched]) -> Iterator[RangePart]:
        if not answers:
            return
        data = as_bytes(b"".join(answer.body for answer in answers))
        missing = sum(one.end - one.start for one in answers if not one.is_lost)
        missing += self._damaged
        for table in self._tables(data):
            rows = self._once(data, table)
            missing -= len(rows)
            yield from self._rows(data, rows)
        start, end = answers[0].start, answers[-1].end
        if missing > self._damaged and self._wants_all:
            reason = f"{missing} messages between {start} and {end} are not there any more"
            self._on_loss(self._queue, Loss(end, reason))

    def _tables(self, data: Bytes) -> Iterator[RecordTable]:
        """Yield the records; what is damaged is told as lost."""
        at, end = 0, len(data)
        while at < end:
            walk = walk_records(
                data, at, end, end, ANY_PLACE, rows_max=BATCH_ROWS_MAX, bytes_max=end
            )
            if len(walk.table):
                yield walk.table
            at = walk.position
            if at < end and len(walk.table) < BATCH_ROWS_MAX:
                at = self._behind_damage(data, at)

    def _behind_damage(self, data: Bytes, at: int) -> int:
        """Return where the next record starts, if the size of the damaged one tells it."""
        size = int.from_bytes(data[at : at + 4].tobytes(), "big", signed=True)
        if not RECORD_SIZE_MIN <= size <= len(data) - at:
            raise FalseAnswerError(
                queue_text(self._queue), f"a record of {size} bytes, {len(data) - at} are left"
            )
        offset = int.from_bytes(data[at + 20 : at + 28].tobytes(), "big", signed=True)
        reason = f"the message at {offset} is damaged: its checksum or its lengths are wrong"
        self._on_loss(self._queue, Loss(offset + 1, reason, is_damage=True))
        self._damaged += 1
        return at + size

    def _once(self, data: Bytes, table: RecordTable) -> RecordTable:
        """Return the records of the range, each once: answers of a filter may overlap."""
        is_ours = is_one_of(data, table.topic_at, table.topic_size, self._topic)
        if not is_ours.all() or (table.queue_id != self._queue.queue_id).any():
            raise FalseAnswerError(queue_text(self._queue), "a record of another queue")
        offsets = table.queue_offset
        before = np.maximum.accumulate(np.concatenate(([self._next - 1], offsets[:-1])))
        is_new = (offsets > before) & (offsets < self._end)
        self._next = max(self._next, int(offsets.max()) + 1)
        return table if is_new.all() else table.take(is_new)

    def _rows(self, data: Bytes, table: RecordTable) -> Iterator[RangePart]:
        while len(table):
            bodies = stored_bodies(table)
            if self._has_body:
                bodies = sent_bodies(data, table, bytes_max=BODY_BYTES_MAX)
            for row, reason in bodies.faults.items():
                offset = int(table.queue_offset[row])
                words = f"the body at {offset} cannot be decompressed: {reason}"
                self._on_loss(self._queue, Loss(offset + 1, words, is_damage=True))
            some = table.take(slice(bodies.rows))
            yield RangePart(data, some, self._builder.build(data, some, bodies.pieces, Faults()))
            table = table.take(slice(bodies.rows, None))
