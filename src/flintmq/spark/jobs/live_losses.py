"""What live topics should have and do not give, where a job was told to go on without it.

Tasks of a table can say it to their log only.  So the ranges are pulled once more, and what is
missing comes back to the driver; that is done only where failOnDataLoss is false.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark import SparkContext

from flintmq.model.message_queue import MessageQueue
from flintmq.spark.jobs.damages import DAMAGES_MAX, DamagedRange, Damages, added
from flintmq.spark.live.errors import queue_text
from flintmq.spark.live.fetch import RangeFetch
from flintmq.spark.live.live_columns import LIVE
from flintmq.spark.live.live_options import LiveOptions
from flintmq.spark.live.live_reader import LivePartition, partitions_of
from flintmq.spark.live.live_rows import RangeRows
from flintmq.spark.live.live_session import LiveSession
from flintmq.spark.live.places import ProvenRange
from flintmq.spark.live.planning import lose
from flintmq.spark.live.pulling import LivePuller
from flintmq.spark.live.queue_identity import check_same
from flintmq.spark.live.ranges import Loss
from flintmq.spark.runtime.stage_names import stage_name

_SCHEMA: Final = pa.schema([pa.field("body", LIVE.kinds["body"][1])])


class LossTally:
    """Counts losses; it is called where one is found."""

    def __init__(self) -> None:
        self._count = 0
        self._losses: list[DamagedRange] = []

    def __call__(self, queue: MessageQueue, loss: Loss) -> None:
        """Count a loss."""
        self._count += 1
        if len(self._losses) < DAMAGES_MAX:
            damaged = DamagedRange(queue_text(queue), loss.resume, 0, loss.reason)
            self._losses.append(damaged)

    def damages(self, missing_count: int = 0) -> Damages:
        """Return what was found; every loss is at least one message."""
        missing_count = max(missing_count, self._count)
        return Damages(self._count, 0, tuple(self._losses), missing_count=missing_count)


class PlannedLosses:
    """What was missing when ranges were planned: told to the log, and counted."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self._tally = LossTally()

    def __call__(self, queue: MessageQueue, loss: Loss) -> None:
        """Raise DataLossError, or count the loss."""
        lose(queue, loss, fail=self._fail)
        self._tally(queue, loss)

    def damages(self) -> Damages:
        """Return what was counted."""
        return self._tally.damages()


def find_losses(
    context: SparkContext, ranges: Iterable[ProvenRange], options: LiveOptions
) -> Damages:
    """Pull ranges once more on the executors; return what is not there."""
    parts = partitions_of(list(ranges), options)
    if not parts:
        return Damages()
    with stage_name(context, "asking what is missing"):
        found = context.parallelize(parts, len(parts)).map(partial(_losses_of, options)).collect()
    return added(found)


def _losses_of(options: LiveOptions, partition: LivePartition) -> Damages:
    wanted = partition.wanted
    subscription = options.subscription(wanted.queue.topic)
    tally = LossTally()
    with LiveSession(options.connection) as session:
        puller = LivePuller(session.client, options)
        fetch = RangeFetch(session, puller, wanted, tally)
        rows = RangeRows(wanted, subscription, _SCHEMA, tally)
        row_count = sum(batch.num_rows for batch in rows.batches(fetch.answers()))
        session.run(check_same(puller, ProvenRange(wanted, partition.proofs), tally))
    return tally.damages(wanted.length - row_count if subscription.wants_all else 0)
