"""Topics as a sink: a task returns only after every message of its rows was acknowledged."""

import logging
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from flintmq.client.instance import ClientInstance
from flintmq.client.messaging.messages import Message
from flintmq.client.producing.producer import AsyncProducer
from flintmq.errors import FlintError
from flintmq.model.message_queue import MessageQueue
from flintmq.spark.errors import OptionError
from flintmq.spark.live.cluster_options import ClusterConnection
from flintmq.spark.live.errors import LiveError
from flintmq.spark.live.live_session import LiveSession, persist
from flintmq.spark.sink.chosen_queues import ChosenQueues, QueueChooser, choose_queues
from flintmq.spark.sink.errors import RowError, SinkError
from flintmq.spark.sink.row_columns import OutgoingRow, check_columns, rows_of
from flintmq.spark.sink.row_messages import MessageMaker
from flintmq.spark.sink.sender import QueueLines
from flintmq.spark.sink.sink_options import SinkOptions, parse_sink_options
from flintmq.spark.sink.task_time import MACHINE_TIME, SinkTime

logger = logging.getLogger(__name__)

TOPICS_MAX: Final = 10_000
"""Topics that one task writes to: a broker makes those that it does not know."""

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class SinkCommit(WriterCommitMessage):
    """What a task has sent, all of it acknowledged."""

    messages: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteIdentity:
    """Which write a task belongs to.  ``chosen`` are the queues that the driver has chosen."""

    query: str
    batch: int
    partition: int
    chosen: Mapping[str, ChosenQueues]


def batch_writer(
    schema: StructType, options: Mapping[str, str], *, overwrite: bool
) -> DataSourceArrowWriter:
    """Return the sink of a batch."""
    return TopicWriter(_checked(schema, options, overwrite=overwrite))


def stream_writer(
    schema: StructType, options: Mapping[str, str], *, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """Return the sink of a stream."""
    sink = _checked(schema, options, overwrite=overwrite)
    if sink.write_id is not None:
        raise OptionError("writeId names a batch write; a stream has the id of its query")
    return TopicStreamWriter(sink)


def _checked(schema: StructType, options: Mapping[str, str], *, overwrite: bool) -> SinkOptions:
    """Return the options, if rows of the schema can be written by them."""
    if overwrite:
        raise SinkError("a topic cannot be overwritten: use mode append")
    sink = parse_sink_options(options)
    check_columns(schema, kafka=sink.kafka_columns, topic=sink.topic)
    return sink


class TopicWriter(DataSourceArrowWriter):
    """Writes a batch.  The driver names it, so that rows that are sent again can be told.

    Unless the user has named it, nobody can repeat it later.  Then the driver itself chooses the
    queues of a topic that it knows, and name servers need not keep the choice.
    """

    def __init__(self, options: SinkOptions, *, time: SinkTime = MACHINE_TIME) -> None:
        self._options = options
        self._time = time
        self._query = options.write_id or uuid.uuid4().hex
        self._chosen: dict[str, ChosenQueues] = {}
        if options.write_id is None and options.topic is not None:
            self._chosen[options.topic] = _choose(options, options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkCommit:
        """Send the rows of one partition."""
        identity = WriteIdentity(
            query=self._query,
            batch=self._options.batch_id,
            partition=_task_context().partitionId(),
            chosen=self._chosen,
        )
        return send_partition(self._options, identity, iterator, time=self._time)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Clear up after the last task."""
        self._forget()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Clear up; what was sent cannot be taken back."""
        self._forget()

    def _forget(self) -> None:
        if self._options.write_id is None and self._options.topic is None:
            forget_queues(self._options.connection, self._query)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query; Spark tells the tasks which."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkCommit:
        """Send the rows of one partition of one micro-batch."""
        context = _task_context()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise SinkError("Spark does not tell which micro-batch this is")
        identity = WriteIdentity(
            query=query,
            batch=int(batch),
            partition=context.partitionId(),
            chosen={},
        )
        return send_partition(self._options, identity, iterator)


def _task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "only tasks write"
    return context


def send_partition(
    options: SinkOptions,
    identity: WriteIdentity,
    batches: Iterator[pa.RecordBatch],
    *,
    time: SinkTime = MACHINE_TIME,
) -> SinkCommit:
    """Send all rows, and return when every one was acknowledged.

    Raises:
        RowError: a row is no message.
        SendError: a message was not acknowledged.
    """
    with LiveSession(options.connection) as session:
        task = session.run(SinkTask.open(session.client, options, identity, time))
        try:
            for batch in batches:
                session.run(task.put(batch))
            return session.run(task.finish())
        finally:
            session.run(task.close())


class SinkTask:
    """The sending of one partition; its methods run in the event loop of the client."""

    def __init__(
        self,
        options: SinkOptions,
        identity: WriteIdentity,
        placement: QueueChooser,
        producer: AsyncProducer,
        time: SinkTime,
    ) -> None:
        self._options = options
        self._identity = identity
        self._placement = placement
        self._producer = producer
        self._lines = QueueLines(producer, options, time=time)
        self._chosen: dict[str, ChosenQueues] = {}
        self._maker = MessageMaker(
            identity.query, identity.batch, identity.partition, options, time=time
        )

    @classmethod
    async def open(
        cls,
        client: ClientInstance,
        options: SinkOptions,
        identity: WriteIdentity,
        time: SinkTime,
    ) -> "SinkTask":
        """Begin."""
        producer = AsyncProducer(
            group=options.producer_group, client=client, send_timeout_ms=options.send_timeout_ms
        )
        placement = QueueChooser(client, identity.query, identity.chosen)
        return cls(options, identity, placement, await producer.start(), time)

    async def put(self, batch: pa.RecordBatch) -> None:
        """Send rows; it returns when they are under way."""
        for row in self._rows(batch):
            queues = self._chosen.get(row.topic)
            if queues is None:
                queues = self._chosen[row.topic] = await self._queues(row.topic)
            await self._lines.put(*self._placed(row, queues))

    def _rows(self, batch: pa.RecordBatch) -> Iterator[OutgoingRow]:
        options = self._options
        try:
            yield from rows_of(batch, kafka=options.kafka_columns, topic=options.topic)
        except ValueError as error:
            raise self._row_error(error) from error

    def _placed(self, row: OutgoingRow, queues: ChosenQueues) -> tuple[MessageQueue, Message]:
        """Return the queue of a row, and the message that is sent."""
        try:
            queue = queues.choose(row, self._maker.turn)
            return queue, self._maker.make(row, queues.floors[queue])
        except ValueError as error:
            raise self._row_error(error) from error

    def _row_error(self, error: ValueError) -> RowError:
        return RowError(self._identity.partition, self._maker.sequence, str(error))

    async def _queues(self, topic: str) -> ChosenQueues:
        if len(self._chosen) >= TOPICS_MAX:
            raise SinkError(f"more than {TOPICS_MAX} topics in one task")
        try:
            return await persist(
                f"topic {topic}", self._options.retries, lambda: self._placement.queues(topic)
            )
        except LiveError as error:
            raise SinkError(str(error)) from error

    async def finish(self) -> SinkCommit:
        """Wait for the last answer."""
        await self._lines.drain()
        return SinkCommit(self._lines.acknowledged, self._lines.acknowledged_bytes)

    async def close(self) -> None:
        """Stop sending, and close the connections."""
        await self._lines.close()
        await self._producer.close()


def _choose(options: SinkOptions, topic: str) -> ChosenQueues:
    with LiveSession(options.connection) as session:
        client = session.client
        work = persist(f"topic {topic}", options.retries, lambda: choose_queues(client, topic))
        return session.run(work)


def forget_queues(connection: ClusterConnection, query: str) -> None:
    """Have the name servers forget which queues a write has used, as nobody will repeat it."""
    try:
        with LiveSession(connection) as session:
            session.run(QueueChooser(session.client, query).forget())
    except FlintError as error:
        # A few bytes stay on the name servers; the rows are where they should be.
        logger.warning("queues of a write not forgotten: write=%s reason=%s", query, error)
