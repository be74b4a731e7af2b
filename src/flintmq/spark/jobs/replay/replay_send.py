"""Sending messages on that were stored before, in the order of their queues.

Messages of one queue go to one queue: that with the same number if the target has it, else
counted round.  What they were is kept in two properties, since a broker sets its own times.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from flintmq.spark.jobs.store_tables import FORMAT

STORED_AT: Final = "FLINTMQ_STORED_AT"
BORN_AT: Final = "FLINTMQ_BORN_AT"
"""Properties: when the original was stored and born, in milliseconds."""

_SENT: Final = ("topic", "body", "tags", "keys", "properties", "queueId", "shardingKey", "flag")
_PLACE: Final = "shardingKey"
_ORIGIN: Final = "originalTopic"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendPlan:
    """How messages are sent on.

    ``cluster`` are options that name the target, ``names`` the new names of topics, and
    ``queue_counts`` how many queues the target has, by new name.  ``partitions`` must stay the
    same where a batch is repeated: the marks of its rows depend on it.
    """

    cluster: Mapping[str, str]
    write_id: str
    names: Mapping[str, str]
    queue_counts: Mapping[str, int]
    partitions: int
    rate: int | None = None


def send_on(messages: DataFrame, batch: int, order: str, plan: SendPlan) -> None:
    """Send messages; it returns when all of them were acknowledged.

    ``order`` is the column that ascends within each queue.
    """
    options = {**plan.cluster, "writeId": plan.write_id, "batchId": str(batch)}
    if plan.rate is not None:
        # Tasks that run at the same time share what is allowed.
        options["maxMessagesPerSecond"] = f"{plan.rate / plan.partitions:.6f}"
    rows = _outgoing(messages, order, plan)
    ordered = rows.repartition(plan.partitions, "topic", "queueId", _PLACE)
    # Topic and queue of the original tell rows apart that have the same place in the order, so
    # each attempt has the same order, also where topics are put together under one name.
    ordered = ordered.sortWithinPartitions(order, _ORIGIN, _PLACE).select(*_SENT)
    ordered.write.format(FORMAT).mode("append").options(**options).save()


def _outgoing(messages: DataFrame, order: str, plan: SendPlan) -> DataFrame:
    topic = _looked_up(plan.names, F.col("topic"))
    return messages.select(
        topic.alias("topic"),
        "body",
        "tags",
        "keys",
        _properties().alias("properties"),
        F.pmod("queueId", _looked_up(plan.queue_counts, topic)).cast("int").alias("queueId"),
        # Queues of the same number on two brokers stay apart if the target has two as well.
        F.concat_ws("/", "brokerName", F.col("queueId").cast("string")).alias(_PLACE),
        "flag",
        F.col(order),
        F.col("topic").alias(_ORIGIN),
    )


def _properties() -> Column:
    """Return the properties as they were, without those that no client may send."""
    origin = F.create_map(
        F.lit(STORED_AT),
        F.unix_millis("storeTimestamp").cast("string"),
        F.lit(BORN_AT),
        F.unix_millis("bornTimestamp").cast("string"),
    )
    # A time that no calendar has is null, and cannot be told.
    told = F.map_filter(origin, lambda _, value: value.isNotNull())
    kept = F.map_filter(
        "properties",
        lambda name, value: ~name.isin(STORED_AT, BORN_AT) & (F.trim(name) != "") & (value != ""),
    )
    return F.map_concat(F.coalesce(kept, F.create_map().cast("map<string,string>")), told)


def _looked_up(values: Mapping[str, str] | Mapping[str, int], key: Column) -> Column:
    pairs = [F.lit(part) for pair in values.items() for part in pair]
    return F.create_map(*pairs)[key]
