"""What a run over live topics goes on without: told by a rule, counted for the report."""

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from flintmq.model.message_queue import MessageQueue
from flintmq.spark.errors import ArchiveError
from flintmq.spark.jobs.archive.archive_manifest import QueueRun
from flintmq.spark.jobs.damages import Damages, added
from flintmq.spark.jobs.live_losses import LossTally
from flintmq.spark.live.errors import queue_text
from flintmq.spark.live.ranges import Loss

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRule:
    """What becomes of messages that are gone or damaged: an error, or a word in the log."""

    allow_gap: bool
    skips_damage: bool

    def __call__(self, queue: MessageQueue, loss: Loss) -> None:
        """Raise ArchiveError, or say what is missing."""
        goes_on, advice = self.allow_gap, "allow_gap goes on without what is gone"
        if loss.is_damage:
            goes_on, advice = self.skips_damage, "on_corrupt=skip leaves it out"
        if not goes_on:
            raise ArchiveError(queue_text(queue), f"{loss.reason} ({advice})")
        logger.warning("messages are missing: queue=%s reason=%s", queue_text(queue), loss.reason)


class RunLosses:
    """Counts, by broker, what a run goes on without; the rule decides whether it does.

    A queue that was replaced counts as one message: how many it had nobody knows.
    """

    def __init__(self, rule: LossRule) -> None:
        self.rule = rule
        self._planned: defaultdict[str, LossTally] = defaultdict(LossTally)
        self._gaps: defaultdict[str, int] = defaultdict(int)
        self._absent = LossTally()

    def replaced(self, queue: MessageQueue, loss: Loss) -> None:
        """Tell that a queue is another one than before."""
        self.rule(queue, loss)
        self._planned[queue.broker_name](queue, loss)

    def passed(self, queue: MessageQueue, loss: Loss, wanted: int) -> None:
        """Tell that a queue does not have the messages from ``wanted`` on any more."""
        self.replaced(queue, loss)
        # The loss itself counts as one.
        self._gaps[queue.broker_name] += max(0, loss.resume - wanted - 1)

    def absent(self, queue: MessageQueue, loss: Loss) -> None:
        """Tell that a queue is not there.

        Each run says so anew as long as it is away, so no manifest has it.
        """
        self.rule(queue, loss)
        self._absent(queue, loss)

    def of_broker(self, broker: str, queues: Iterable[QueueRun]) -> Damages:
        """Return what a run that has archived ``queues`` lacks of a broker."""
        read = LossTally()
        missing_count = 0
        for one in queues:
            count = one.end - one.start - one.record_count
            if count:
                missing_count += count
                reason = f"{count} of the messages up to {one.end} are damaged or gone"
                read(MessageQueue(one.topic, broker, one.queue_id), Loss(one.start, reason))
        return added([self._of_plan(broker), read.damages(missing_count)])

    def of_absent(self) -> Damages:
        """Return what is told of queues that are not there."""
        return self._absent.damages()

    def of_plan(self) -> Damages:
        """Return what was known before anything was read."""
        return added([*map(self._of_plan, sorted(self._planned)), self.of_absent()])

    def _of_plan(self, broker: str) -> Damages:
        found = self._planned[broker].damages()
        return replace(found, missing_count=found.missing_count + self._gaps[broker])
