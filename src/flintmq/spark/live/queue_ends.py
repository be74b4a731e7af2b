"""Where queues end, asked with few questions: an idle stream looks again and again.

A broker is asked how long its log is.  If the log has not grown since the last look, no queue has.
Else each topic is asked about, all of its queues at once.
"""

from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

from flintmq.format.errors import FormatError
from flintmq.format.wire.bodies.dialect import Members, loads_body, queue_from
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.admin import TopicRequest
from flintmq.model.message_queue import MessageQueue
from flintmq.spark.live.cluster import Cluster
from flintmq.spark.live.errors import FalseAnswerError, RefusedReadError
from flintmq.spark.live.live_session import each

_LOG_STATE: Final = ("bootTimestamp", "commitLogMaxOffset")
_BEHIND: Final = "dispatchBehindBytes"


class QueueTail(NamedTuple):
    """Where a queue ends, and when its last message was stored (None if that is not known)."""

    offset: int
    store_time_ms: int | None = None


QueueTails = dict[MessageQueue, QueueTail]


class EndsLook:
    """Looks where queues end; it remembers what it has seen."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._states: dict[str, tuple[str, ...]] = {}
        self._ends: QueueTails = {}
        self.question_count = 0
        """How many questions the last look has asked."""

    def forget(self) -> None:
        """Ask for everything at the next look."""
        self._states.clear()

    async def look(self, queues: Iterable[MessageQueue]) -> QueueTails:
        """Return where queues end now.

        Raises:
            UnreachableError: a broker did not answer.
        """
        self.question_count = 0
        homes: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            homes.setdefault(queue.broker_name, []).append(queue)
        found: QueueTails = {}
        for some in await each(homes.values(), self._of_broker):
            found |= some
        self._ends = found
        return found

    async def _of_broker(self, queues: list[MessageQueue]) -> QueueTails:
        broker = queues[0].broker_name
        before = self._states.pop(broker, None)
        state = await self._state(queues[0])
        if state is not None and state == before and all(one in self._ends for one in queues):
            ends = {queue: self._ends[queue] for queue in queues}
        else:
            topics: dict[str, list[MessageQueue]] = {}
            for queue in queues:
                topics.setdefault(queue.topic, []).append(queue)
            ends = {}
            for some in await each(topics.values(), self._of_topic):
                ends |= some
        if state is not None:
            self._states[broker] = state
        return ends

    async def _state(self, queue: MessageQueue) -> tuple[str, ...] | None:
        """Return what changes whenever a queue of the broker grows; None if that is not known."""
        self.question_count += 1
        try:
            body = await self._cluster.ask_home(queue, RequestCode.GET_BROKER_RUNTIME_INFO)
        except RefusedReadError:
            return None
        table = _members(queue, body).table("table")
        state = tuple(str(table.get(name, "")) for name in _LOG_STATE)
        # Queues follow the log: while they are behind, they grow although it does not.
        return state if all(state) and str(table.get(_BEHIND)) == "0" else None

    async def _of_topic(self, queues: list[MessageQueue]) -> QueueTails:
        """Return the ends of queues of one topic on one broker."""
        self.question_count += 1
        first = queues[0]
        header = TopicRequest(topic=first.topic)
        told: QueueTails = {}
        try:
            body = await self._cluster.ask_home(first, RequestCode.GET_TOPIC_STATS_INFO, header)
        except RefusedReadError:
            pass
        else:
            told = _told_ends(first, body)
        ends = {queue: told[queue] for queue in queues if queue in told}
        # A queue that is read and not written to any more is not told of.
        return ends | await self._single(queue for queue in queues if queue not in told)

    async def _single(self, queues: Iterable[MessageQueue]) -> QueueTails:
        wanted: Collection[MessageQueue] = list(queues)
        self.question_count += len(wanted)
        offsets = await self._cluster.ends(wanted)
        return {queue: QueueTail(offset) for queue, offset in offsets.items()}


def _told_ends(home: MessageQueue, body: bytes) -> QueueTails:
    """Return what the statistics of a topic say; a broker may call itself by another name."""
    told: QueueTails = {}
    try:
        for name, value in _members(home, body).table("offsetTable").items():
            bounds = Members(value, "the bounds of a queue")
            end = max(0, bounds.integer("maxOffset", 0))
            time_ms = bounds.integer("lastUpdateTimestamp", 0)
            told[home._replace(queue_id=queue_from(name).queue_id)] = QueueTail(
                end, time_ms if time_ms > 0 else None
            )
    except FormatError as error:
        raise FalseAnswerError(f"broker {home.broker_name}", str(error)) from error
    return told


def _members(home: MessageQueue, body: bytes) -> Members:
    try:
        value: Any = loads_body(body)
        return Members(value, "an answer")
    except FormatError as error:
        raise FalseAnswerError(f"broker {home.broker_name}", str(error)) from error
