"""From the records that a broker has sent to Arrow batches.

The body of an answer is a sequence of records as they are in the log, so the kernels that read logs
read it too.  Answers are joined until there is enough for a batch.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from flintmq.format.stored.record_layout import (
    MAGIC_AT,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    RECORD_SIZE_MIN,
    SIZE_AT,
)
from flintmq.kernels.compiled import Bytes, as_bytes
from flintmq.kernels.records import ANY_OFFSET, RecordTable, walk_records
from flintmq.kernels.texts import is_one_of
from flintmq.model.message_queue import MessageQueue
from flintmq.model.subscription import Subscription
from flintmq.spark.live.errors import FalseAnswerError, queue_text
from flintmq.spark.live.fetch import Fetched, OnLoss
from flintmq.spark.live.ranges import Loss, QueueRange
from flintmq.spark.options.offset_bounds import OffsetBounds
from flintmq.spark.rows.bodies import sent_bodies, stored_bodies
from flintmq.spark.rows.conditions import RowConditions
from flintmq.spark.rows.row_batches import Faults, RowBuilder

BATCH_BYTES: Final = 4 << 20
BATCH_ROWS_MAX: Final = 16_384
BODY_BYTES_MAX: Final = 16 << 20
"""Bodies of a batch that were decompressed."""


class Records(NamedTuple):
    """Records that were looked at: a table of ``data``."""

    data: Bytes
    table: RecordTable


class RowsOfRecords(NamedTuple):
    """Some rows, and the records that they were made of: a table of ``data``."""

    data: Bytes
    table: RecordTable
    rows: pa.RecordBatch


class RangeRows:
    """Makes batches of one range of a queue; answers come in the order of their offsets."""

    def __init__(
        self, wanted: QueueRange, subscription: Subscription, schema: pa.Schema, on_loss: OnLoss
    ) -> None:
        self._records = RangeRecords(wanted, subscription, on_loss)
        # Brokers compare hashes of tags only, so the tags themselves are compared here.
        self._conditions = RowConditions(OffsetBounds({}, {}), tags=subscription.tags or None)
        self._schema = schema
        self._rows = PulledRows(wanted.queue.broker_name, self._conditions.widen(schema), on_loss)

    def batches(self, answers: Iterable[Fetched]) -> Iterator[pa.RecordBatch]:
        """Yield the wanted rows."""
        for records in self._records.of(answers):
            for some in self._rows.of(records):
                kept = self._conditions.apply(some.rows, self._schema)
                if kept.num_rows:
                    yield kept


class PulledRows:
    """Makes rows of records, of whichever queues of one broker they are."""

    def __init__(self, broker_name: str, schema: pa.Schema, on_loss: OnLoss) -> None:
        self._broker_name = broker_name
        self._on_loss = on_loss
        self._has_body = "body" in schema.names
        # No file of the broker's is known here; only an archive has the columns for it.
        constants = {"brokerName": broker_name, "fileName": None, "path": None}
        self._builder = RowBuilder(schema, constants)

    def of(self, records: Records) -> Iterator[RowsOfRecords]:
        """Yield a row for each record, with its record."""
        data, table = records
        while len(table):
            bodies = stored_bodies(table)
            if self._has_body:
                bodies = sent_bodies(data, table, bytes_max=BODY_BYTES_MAX)
            for row, reason in bodies.faults.items():
                offset = int(table.queue_offset[row])
                words = f"the body at {offset} cannot be decompressed: {reason}"
                self._on_loss(
                    self._queue(data, table, row), Loss(offset + 1, words, is_damage=True)
                )
            some = table.take(slice(bodies.rows))
            yield RowsOfRecords(
                data, some, self._builder.build(data, some, bodies.pieces, Faults())
            )
            table = table.take(slice(bodies.rows, None))

    def _queue(self, data: Bytes, table: RecordTable, row: int) -> MessageQueue:
        at, size = int(table.topic_at[row]), int(table.topic_size[row])
        topic = data[at : at + size].tobytes().decode()
        return MessageQueue(topic, self._broker_name, int(table.queue_id[row]))


class JoinedRecords:
    """Joins the records of short ranges: rows of many cost little more than rows of few."""

    def __init__(self) -> None:
        self._waiting: list[Records] = []
        self._size = 0
        self._count = 0

    def add(self, records: Records) -> Iterator[Records]:
        """Take records; yield what is enough for a batch."""
        if int(records.table.size.sum()) != len(records.data):
            # Something in between is left out, and must not be found again.
            yield from self.rest()
            yield records
            return
        self._waiting.append(records)
        self._size += len(records.data)
        self._count += len(records.table)
        if self._size >= BATCH_BYTES or self._count >= BATCH_ROWS_MAX:
            yield from self.rest()

    def rest(self) -> Iterator[Records]:
        """Yield what still waits."""
        waiting, count, self._waiting, self._size, self._count = (
            self._waiting,
            self._count,
            [],
            0,
            0,
        )
        if len(waiting) < 2:
            yield from waiting
            return
        data = np.concatenate([one.data for one in waiting])
        end = len(data)
        walk = walk_records(data, 0, end, end, ANY_OFFSET, rows_max=count, bytes_max=end)
        assert len(walk.table) == count, "each was a whole record before they were joined"
        yield Records(data, walk.table)


class RangeRecords:
    """Looks at the records of one range of a queue; answers come in the order of their offsets."""

    def __init__(self, wanted: QueueRange, subscription: Subscription, on_loss: OnLoss) -> None:
        self._queue = wanted.queue
        self._next = wanted.start
        self._end = wanted.end
        self._on_loss = on_loss
        self._damaged = 0
        self._wants_all = subscription.wants_all
        self._topic = frozenset({wanted.queue.topic.encode()})

    def of(self, answers: Iterable[Fetched]) -> Iterator[Records]:
        """Yield all records that the broker gave."""
        waiting: list[Fetched] = []
        size = count = 0
        for answer in answers:
            waiting.append(answer)
            size += len(answer.body)
            count += answer.end - answer.start
            if size >= BATCH_BYTES or count >= BATCH_ROWS_MAX:
                yield from self._looked_at(waiting)
                waiting, size, count = [], 0, 0
        yield from self._looked_at(waiting)

    def _looked_at(self, answers: list[Fetched]) -> Iterator[Records]:
        if not answers:
            return
        data = as_bytes(b"".join(answer.body for answer in answers))
        missing = sum(one.end - one.start for one in answers if not one.is_lost)
        missing += self._damaged
        for table in self._tables(data):
            records = self._once(data, table)
            missing -= len(records)
            if len(records):
                yield Records(data, records)
        start, end = answers[0].start, answers[-1].end
        if missing > self._damaged and self._wants_all:
            reason = f"{missing} messages between {start} and {end} are not there any more"
            self._on_loss(self._queue, Loss(end, reason))

    def _tables(self, data: Bytes) -> Iterator[RecordTable]:
        """Yield the records; what is damaged is told as lost."""
        at, end = 0, len(data)
        # There cannot be more, and room for more is dear where a range is short.
        rows_max = min(BATCH_ROWS_MAX, end // RECORD_SIZE_MIN + 1)
        while at < end:
            walk = walk_records(data, at, end, end, ANY_OFFSET, rows_max=rows_max, bytes_max=end)
            if len(walk.table):
                yield walk.table
            at = walk.position
            if at < end and len(walk.table) < rows_max:
                at = self._behind_damage(data, at)

    def _behind_damage(self, data: Bytes, at: int) -> int:
        """Return where the next record starts, if the size of the damaged one tells it."""
        size = int.from_bytes(data[at + SIZE_AT : at + MAGIC_AT].tobytes(), "big", signed=True)
        if not RECORD_SIZE_MIN <= size <= len(data) - at:
            raise FalseAnswerError(
                queue_text(self._queue), f"a record of {size} bytes, {len(data) - at} are left"
            )
        offset = int.from_bytes(
            data[at + QUEUE_OFFSET_AT : at + PHYSICAL_OFFSET_AT].tobytes(), "big", signed=True
        )
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
