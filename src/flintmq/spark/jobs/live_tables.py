"""What jobs read of live topics: the messages that there are at one moment, and offsets of groups.

A query may scan a topic more than once, and the topic grows meanwhile.  So start and end of each
queue are asked for once, and all scans keep to them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from flintmq.client.errors import ClientError
from flintmq.client.instance import ClientInstance
from flintmq.format.wire.bodies.dialect import Members, loads_body
from flintmq.format.wire.codes import RequestCode
from flintmq.remoting import RemotingError
from flintmq.spark.jobs.damages import Damages, added
from flintmq.spark.jobs.job_input import LiveInput
from flintmq.spark.jobs.live_losses import PlannedLosses, find_losses
from flintmq.spark.jobs.store_tables import FORMAT
from flintmq.spark.live.cluster import Cluster
from flintmq.spark.live.live_choice import NAMESRV
from flintmq.spark.live.live_columns import LIVE
from flintmq.spark.live.live_session import LiveSession
from flintmq.spark.live.places import ProvenRange, places_to_json
from flintmq.spark.live.planning import batch_ranges
from flintmq.spark.live.ranges import QueueRange, to_json
from flintmq.spark.live.selection import ASSIGN, SELECTIONS
from flintmq.spark.options.offset_bounds import ENDING, STARTING
from flintmq.spark.options.store_options import Source
from flintmq.spark.runtime.failures import JobError
from flintmq.spark.stored.tables import row_source_of

_PLACE: Final = "path"
"""A column that jobs group by: what a directory is to stores, a broker is to a cluster."""

_CHOICES: Final = frozenset(
    name.lower()
    for name in (
        *(*SELECTIONS, "topic", STARTING, ENDING, "startingTimestamp", "endingTimestamp"),
        *("startingOffsetsByTimestamp", "endingOffsetsByTimestamp"),
        "startingOffsetsByTimestampStrategy",
    )
)
"""Options that are answered by the offsets of this moment."""

_GroupOffset = tuple[str, str, int, int, int, int, str, str]


class LiveTables:
    """The tables of live topics at this moment."""

    def __init__(self, spark: SparkSession, source: LiveInput) -> None:
        self._spark = spark
        read = self._read_options = source.read
        self._planned_losses = PlannedLosses(fail=read.fail_on_data_loss)
        with LiveSession(read.connection) as session:
            cluster = Cluster(session.client, read)
            self._proven = session.run(batch_ranges(cluster, read, self._planned_losses))
        self._ranges = [one.wanted for one in self._proven]
        self._connection = read.connection
        self._others = {
            name: value for name, value in source.options.items() if name.lower() not in _CHOICES
        }
        self.names = (f"{NAMESRV} {read.connection.namesrv}",)
        """How reports call the cluster."""

    def messages(
        self, columns: Iterable[str], options: Mapping[str, str] | None = None
    ) -> DataFrame:
        """Return a table of some columns; the option ``topic`` picks some of the topics."""
        wanted = frozenset(columns)
        names = [name for name in LIVE.kinds if name in wanted]
        if _PLACE in wanted and "brokerName" not in names:
            names.append("brokerName")
        schema = StructType([one for one in LIVE.struct() if one.name in names])
        table = self._read(schema, self._chosen(options))
        return table.withColumn(_PLACE, F.col("brokerName")) if _PLACE in wanted else table

    def _chosen(self, options: Mapping[str, str] | None) -> list[ProvenRange]:
        topic = (options or {}).get("topic")
        if topic is None:
            return self._proven
        return [one for one in self._proven if one.wanted.queue.topic in topic.split(",")]

    def _read(self, schema: StructType, ranges: list[ProvenRange]) -> DataFrame:
        if not ranges:
            return self._spark.createDataFrame([], schema)
        queues: dict[str, dict[str, list[int]]] = {}
        for topic, broker, queue_id in (one.wanted.queue for one in ranges):
            queues.setdefault(topic, {}).setdefault(broker, []).append(queue_id)
        bounds = {
            ASSIGN: queues,
            STARTING: to_json({one.wanted.queue: one.wanted.start for one in ranges}),
            ENDING: places_to_json({one.wanted.queue: one.end for one in ranges}),
        }
        reader = self._spark.read.format(FORMAT).schema(schema).options(**self._others)
        return reader.options(**{name: json.dumps(it) for name, it in bounds.items()}).load()

    def table(self, source: Source, options: Mapping[str, str] | None = None) -> DataFrame:
        """Return how far groups have come in these topics; a cluster has no other table."""
        if source is not Source.OFFSETS:
            raise JobError(f"a cluster has no table {source.value}; store directories have")
        with LiveSession(self._connection) as session:
            rows = session.run(_group_offsets(session.client, self._ranges))
        return self._spark.createDataFrame(rows, row_source_of(source).columns.struct())

    def damages(self) -> Damages:
        """Return what is missing; nothing where that would have been an error."""
        options = self._read_options
        if options.fail_on_data_loss:
            return Damages()
        found = find_losses(self._spark.sparkContext, self._proven, options)
        return added([self._planned_losses.damages(), found])


async def _group_offsets(client: ClientInstance, ranges: list[QueueRange]) -> list[_GroupOffset]:
    """Return the offsets that groups have committed, by the brokers that keep them."""
    by_queue = {(*one.queue,): one for one in ranges}
    found: list[_GroupOffset] = []
    for broker in sorted({one.queue.broker_name for one in ranges}):
        address = client.routes.master(broker)
        if address is None:
            first = next(one.queue for one in ranges if one.queue.broker_name == broker)
            address = await client.routes.home(first)
        try:
            answer = await client.call(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
        except (ClientError, RemotingError) as error:
            raise JobError(f"the offsets of groups are not told: {error}") from error
        for group, topic, queue_id, offset in _committed(answer.body):
            queue = by_queue.get((topic, broker, queue_id))
            if queue is not None:
                bounds = (queue.start, queue.end)
                found.append((group, topic, queue_id, offset, *bounds, broker, broker))
    return found


def _committed(body: bytes) -> Iterator[tuple[str, str, int, int]]:
    table = Members(loads_body(body), "offsets of groups").table("offsetTable")
    for name, queues in table.items():
        topic, separator, group = str(name).partition("@")
        for queue_id, offset in queues.items() if separator and isinstance(queues, dict) else ():
            yield group, topic, int(queue_id), int(offset)
