"""Asking producers about transactions that nobody has ended.

One pass follows the queue of half messages from where the last one stopped.  It reads the op
records beside it to know what is decided, and asks about the rest: the half message is put again
at the end of the queue, and its producer is sent a request with the new offset.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from flintmq.broker.record_copies import copy_of
from flintmq.errors import FlintError
from flintmq.format.stored.record import decode_record
from flintmq.format.stored.record_encoding import encode_record
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.transaction import CheckTransactionRequest
from flintmq.model.property_names import (
    CHECK_IMMUNITY_SECONDS,
    PREPARED_QUEUE_OFFSET,
    PRODUCER_GROUP,
    REAL_QID,
    REAL_TOPIC,
    TRANSACTION_CHECK_TIMES,
    UNIQ_KEY,
    WAIT,
)
from flintmq.model.steps import finish
from flintmq.model.topics import TRANS_CHECK_MAX_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from flintmq.store.results import GetStatus

if TYPE_CHECKING:
    from flintmq.broker.context import BrokerContext
    from flintmq.format.stored.record import Record
    from flintmq.model.steps import Steps
    from flintmq.store.results import PutResult

logger = logging.getLogger(__name__)

GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group under which the progress in both queues is kept."""

PASS_TIME_MAX_MS: Final = 60_000
READ_COUNT: Final = 32
MOVED_COUNT_MAX: Final = 100_000
_HOUR_MS: Final = 3_600_000
_QUEUE: Final = 0


@dataclass(slots=True)
class _PassProgress:
    """How far one pass over the queue of half messages has come."""

    started_ms: int
    half_offset: int
    op_offset: int
    decided: dict[int, int] = field(default_factory=dict)
    """Half offset → offset of the op record that decided it."""
    op_done: set[int] = field(default_factory=set)
    """Op records that need not be read again."""
    op_end: int = 0
    last_op_born_ms: int | None = None
    read_all_ops: bool = False


class TransactionCheck:
    """Looks after undecided transactions."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        # Half offset → where the half message was put again.  A producer may still end the
        # transaction by the old offset; that decides the copy, which need not be asked about.
        self._moved: dict[int, int] = {}
        self._last_put: PutResult | None = None
        """The last half message put again that the disk may not have yet."""
        self._uncommitted: dict[str, int] = {}
        """How far the passes have come, also where the disk has not everything yet."""

    def run(self) -> int:
        """Go over the half messages once; return how many producers were asked."""
        return finish(self.steps())

    def steps(self) -> Steps[int]:
        """Do the same as `run`, interruptible behind each half message.

        What is decided while the pass is interrupted can be asked about all the same, as it can
        when a producer ends a transaction while the question is on its way.
        """
        context = self._context
        context.topics.ensure(TRANS_HALF_TOPIC, 1)
        context.dispatch()
        progress = _PassProgress(
            context.clock.now_ms(),
            self._progress(TRANS_HALF_TOPIC),
            self._progress(TRANS_OP_HALF_TOPIC),
        )
        progress.op_end = progress.op_offset
        self._read_ops(progress)
        try:
            return (yield from self._follow(progress))
        finally:
            # A pass that is broken off keeps what it has done: nobody is asked twice.
            self._commit(progress)
            context.dispatch()

    def _progress(self, topic: str) -> int:
        return max(self._committed(topic), self._uncommitted.get(topic, 0))

    def _committed(self, topic: str) -> int:
        """Return from where on a pass would follow a topic after a restart."""
        committed = self._context.offsets.get(GROUP, topic, _QUEUE) or 0
        return max(committed, self._context.store.min_offset_in_queue(topic, _QUEUE))

    # -- op records --------------------------------------------------------------------------

    def _read_ops(self, progress: _PassProgress) -> bool:
        """Read the next op records; return whether there were any."""
        records = self._read(TRANS_OP_HALF_TOPIC, progress.op_end, READ_COUNT)
        for record in records:
            progress.op_end = record.queue_offset + 1
            progress.last_op_born_ms = record.born_timestamp
            try:
                half_offset = int(bytes(record.body))
            except ValueError:
                logger.warning("op record without an offset: offset=%d", record.queue_offset)
                progress.op_done.add(record.queue_offset)
                continue
            half_offset = self._current_offset(half_offset)
            if half_offset < progress.half_offset:
                progress.op_done.add(record.queue_offset)
            else:
                progress.decided[half_offset] = record.queue_offset
        progress.read_all_ops = not records
        return bool(records)

    def _current_offset(self, half_offset: int) -> int:
        while half_offset in self._moved:
            half_offset = self._moved.pop(half_offset)
        return half_offset

    def _read(self, topic: str, offset: int, count: int) -> list[Record]:
        result = self._context.store.get_messages(topic, _QUEUE, offset, count)
        if result is None:
            return []
        with result:
            if result.status is not GetStatus.FOUND:
                return []
            return [decode_record(bytes(view)) for view in result.messages]

    def _commit(self, progress: _PassProgress) -> None:
        """Commit how far this pass has come, once the disk has what it put again.

        With synchronous flush a half message counts as stored when the disk has it.  Progress past
        it that was saved earlier would lose it in a power failure.
        """
        while progress.op_offset in progress.op_done:
            progress.op_offset += 1
        reached = {TRANS_HALF_TOPIC: progress.half_offset, TRANS_OP_HALF_TOPIC: progress.op_offset}
        self._uncommitted = reached
        offsets, last = self._context.offsets, self._last_put

        def commit(result: PutResult | None) -> None:
            if result is not None and not result.ok:
                return
            for topic, offset in reached.items():
                # Where nothing was done nothing is committed: tools list whoever has an offset.
                if offset != self._committed(topic):
                    offsets.commit(GROUP, topic, _QUEUE, offset)
            if self._uncommitted is reached:
                self._uncommitted = {}
            if self._last_put is last:
                self._last_put = None

        if last is None:
            commit(None)
        else:
            self._context.puts.when_done(last, commit, must_wait=True)

    # -- half messages -----------------------------------------------------------------------

    def _follow(self, progress: _PassProgress) -> Steps[int]:
        asked = 0
        clock = self._context.clock
        end = self._context.store.max_offset_in_queue(TRANS_HALF_TOPIC, _QUEUE)
        while (
            progress.half_offset < end and clock.now_ms() - progress.started_ms < PASS_TIME_MAX_MS
        ):
            op_offset = progress.decided.pop(progress.half_offset, None)
            if op_offset is not None:
                progress.op_done.add(op_offset)
                progress.half_offset += 1
                yield
                continue
            half = self._half_at(progress)
            if half is None:
                yield
                continue
            verdict = self._judge(half, progress)
            if verdict is None:
                break
            asked += verdict
            yield
        return asked

    def _half_at(self, progress: _PassProgress) -> Record | None:
        """Return the half message to judge; one that cannot be read is passed over."""
        records = self._read(TRANS_HALF_TOPIC, progress.half_offset, 1)
        if not records:
            logger.warning("half message passed over: offset=%d", progress.half_offset)
            progress.half_offset += 1
            return None
        progress.half_offset = records[0].queue_offset
        return records[0]

    def _judge(self, half: Record, progress: _PassProgress) -> int | None:
        """Do what is due for a half message: 1 asked, 0 not asked, None stop the pass."""
        context, properties = self._context, half.properties
        now_ms = context.clock.now_ms()
        if self._is_given_up(half, properties, now_ms):
            self._give_up(half)
            progress.half_offset += 1
            return 0
        if half.store_timestamp >= progress.started_ms:
            return None
        timeout_ms = context.config.transaction_timeout_ms
        age = now_ms - half.born_timestamp
        immunity = self._immunity_ms(properties)
        if immunity is not None:
            if age < immunity:
                return self._wait_out_immunity(half, properties, progress)
        elif 0 <= age < timeout_ms:
            return None
        limit = timeout_ms if immunity is None else immunity
        late_op = (
            progress.last_op_born_ms is not None
            and progress.last_op_born_ms - progress.started_ms > timeout_ms
        )
        if (progress.read_all_ops and age > limit) or late_op or age <= -1:
            asked = self._ask(half, properties)
            if asked is None:
                return None
            progress.half_offset += 1
            return asked
        # What is undecided so far may be decided by an op record not read yet.
        self._read_ops(progress)
        return 0

    @staticmethod
    def _immunity_ms(properties: dict[str, str]) -> int | None:
        text = properties.get(CHECK_IMMUNITY_SECONDS, "")
        return int(text) * 1000 if text.isascii() and text.isdigit() and len(text) < 10 else None

    def _wait_out_immunity(
        self, half: Record, properties: dict[str, str], progress: _PassProgress
    ) -> int | None:
        """Put a half message that nobody is to be asked about yet to the end of the queue."""
        earlier = properties.get(PREPARED_QUEUE_OFFSET)
        first_offset = earlier if earlier is not None else str(half.queue_offset)
        result = self._put(half, properties | {PREPARED_QUEUE_OFFSET: first_offset})
        if result is None:
            return None
        progress.half_offset += 1
        return 0

    def _is_given_up(self, half: Record, properties: dict[str, str], now_ms: int) -> bool:
        """Whether nobody is asked any more: it was asked often enough, or expires with its log.

        RocketMQ gives up whatever is older than its log files may be.  Where those are kept for
        less time than all questions take, as with ``fileReservedTime=0``, that would be before
        anybody was asked, and a transaction whose end got lost on the way would be lost too.
        """
        config = self._context.config
        times = properties.get(TRANSACTION_CHECK_TIMES, "0")
        if times.isdigit() and int(times) >= config.transaction_check_max:
            return True
        questions_ms = config.transaction_check_max * config.transaction_check_interval_ms
        kept_ms = self._context.store.config.file_reserved_hours * _HOUR_MS
        age_ms = now_ms - half.born_timestamp
        return age_ms > max(kept_ms, config.transaction_timeout_ms + questions_ms)

    def _give_up(self, half: Record) -> None:
        topic = self._context.topics.ensure(TRANS_CHECK_MAX_TOPIC, 1)
        copy = replace(copy_of(half, half.properties), topic=topic.name, queue_id=0)
        result = self._context.store.put(copy)
        if result.ok:
            self._last_put = result
        logger.warning(
            "transaction given up: id=%s kept=%s",
            half.properties.get(UNIQ_KEY),
            result.status.stored,
        )

    # -- asking ------------------------------------------------------------------------------

    def _put(self, half: Record, properties: dict[str, str]) -> PutResult | None:
        result = self._context.store.put(copy_of(half, properties))
        if not result.status.stored:
            logger.error("half message not put again: reason=%s", result.reason)
            return None
        if len(self._moved) >= MOVED_COUNT_MAX:
            del self._moved[next(iter(self._moved))]
        self._moved[half.queue_offset] = result.queue_offset
        self._last_put = result
        return result

    def _ask(self, half: Record, properties: dict[str, str]) -> int | None:
        """Put a half message again and ask its producer; None when it cannot be put."""
        times = properties.get(TRANSACTION_CHECK_TIMES, "0")
        count = int(times) + 1 if times.isdigit() else 1
        changed = properties | {TRANSACTION_CHECK_TIMES: str(count)}
        result = self._put(half, changed)
        if result is None:
            return None
        access, topic = self._context.access, properties.get(REAL_TOPIC, "")
        producer = self._context.producers.pick(
            properties.get(PRODUCER_GROUP, ""),
            # Anybody can say that he belongs to a group of producers.
            lambda one: access is None or access.may_publish(one.connection, topic),
        )
        if producer is None:
            logger.warning("nobody to ask: group=%s", properties.get(PRODUCER_GROUP))
            return 0
        header = CheckTransactionRequest(
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=result.physical_offset,
            msg_id=properties.get(UNIQ_KEY),
            transaction_id=properties.get(UNIQ_KEY),
            offset_msg_id=result.message_id,
        )
        try:
            producer.connection.tell(
                RequestCode.CHECK_TRANSACTION_STATE, header, _as_sent(half, changed, result)
            )
        except FlintError as error:
            logger.warning("producer not asked: id=%s reason=%s", producer.client_id, error)
            return 0
        return 1


def _as_sent(half: Record, properties: dict[str, str], result: PutResult) -> bytes:
    """Return the half message as a record of the topic and queue it is meant for."""
    # What a producer is asked about says so, though what is stored does not.
    message = copy_of(half, properties | {WAIT: "false"})
    assert message.properties_text is not None
    return bytes(
        encode_record(
            properties.get(REAL_TOPIC, "").encode(),
            int(properties.get(REAL_QID, "0")),
            message.flag,
            result.queue_offset,
            result.physical_offset,
            message.sys_flag,
            message.born_timestamp,
            message.born_host,
            result.store_timestamp,
            message.store_host,
            message.reconsume_times,
            0,
            message.body,
            message.properties_text,
        )
    )
