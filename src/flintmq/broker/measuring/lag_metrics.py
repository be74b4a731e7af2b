"""Metrics of consumer groups: how far they are behind, and who is connected."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.broker.measuring.topic_metrics import STEP_COUNT, flag
from flintmq.model.topics import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_GROUP_PREFIX

if TYPE_CHECKING:
    from flintmq.broker.context import BrokerContext
    from flintmq.metrics.families import Family, FamilyMaker, FamilySource, FamilySteps

COLD_READS_MAX: Final = 8
"""Store times that one scrape reads from the disk; other groups keep the time known before."""

TIME_COUNT_MAX: Final = 100_000
"""Queues whose store time is remembered."""


class _KnownTime(NamedTuple):
    """When the message was stored that a group wants next in a queue."""

    offset: int
    time_ms: int


class LagFigures(NamedTuple):
    """How far a group is behind in a topic."""

    messages: int
    consumed: int
    end: int
    since_ms: int
    """The store time of the oldest message that it has not consumed; 0 if there is none."""
    in_flight: int
    """Messages that it has fetched and not committed."""
    queued_since_ms: int
    """The store time of the oldest message that it has not fetched; 0 if there is none."""


class LagReader:
    """Compares what groups have committed with what the queues hold.

    A group that is far behind wants messages that are not in memory any more.  The time of one is
    read from the disk once, and a few of them at a time, since the loop waits for it.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._known: dict[tuple[str, str, int], _KnownTime] = {}
        self._cold_reads_left = 0

    def begin(self) -> None:
        """Begin another scrape."""
        self._cold_reads_left = COLD_READS_MAX
        if len(self._known) > TIME_COUNT_MAX:
            self._known.clear()

    def lag(self, topic: str, group: str) -> LagFigures:
        """Return how far a group is behind in a topic, over all queues in which it has offsets."""
        store = self._context.store
        messages = consumed = ends = in_flight = since_ms = queued_since_ms = 0
        # What nobody holds any more is not in flight.
        is_online = self._context.consumers.get(group) is not None
        fetched = self._context.fetched.queues(group, topic) if is_online else {}
        for queue_id, offset in list(self._context.offsets.queues(group, topic).items()):
            offset, end = max(offset, 0), store.max_offset_in_queue(topic, queue_id)
            consumed, ends = consumed + offset, ends + end
            if offset >= end:
                self._known.pop((topic, group, queue_id), None)
                continue
            messages += end - offset
            time_ms = self._time((topic, group, queue_id), offset)
            since_ms = _earlier(since_ms, time_ms)
            next_offset = min(max(fetched.get(queue_id, offset), offset), end)
            in_flight += next_offset - offset
            if next_offset < end:
                if next_offset > offset:
                    time_ms = self._time((topic, group, -1 - queue_id), next_offset)
                queued_since_ms = _earlier(queued_since_ms, time_ms)
        return LagFigures(messages, consumed, ends, since_ms, in_flight, queued_since_ms)

    def _time(self, key: tuple[str, str, int], offset: int) -> int:
        """Return the store time of a message; a queue has a second key for what is not fetched."""
        topic, _, number = key
        queue_id, reader = max(number, -1 - number), self._context.store.reader
        known = self._known.get(key)
        if known is not None and known.offset == offset:
            return known.time_ms
        if reader.is_on_disk(topic, queue_id, offset):
            if not self._cold_reads_left:
                return known.time_ms if known is not None else 0
            self._cold_reads_left -= 1
        # Of what has expired the oldest message that is left tells the time.
        first = max(offset, self._context.store.min_offset_in_queue(topic, queue_id))
        time_ms = max(reader.unit_store_time(topic, queue_id, first), 0)
        self._known[key] = _KnownTime(offset, time_ms)
        return time_ms


def _earlier(known_ms: int, time_ms: int) -> int:
    """Return the earlier one of two times, of which 0 is none."""
    return min(known_ms, time_ms) if known_ms and time_ms else known_ms or time_ms


def lag_source(context: BrokerContext) -> FamilySource:
    """Return what reads how far groups are behind."""
    reader = LagReader(context)

    def read(make: FamilyMaker) -> FamilySteps:
        families, now_ms = _LagFamilies(context, make), context.clock.now_ms()
        reader.begin()
        for number, (topic, group) in enumerate(context.offsets.pairs()):
            if number % (STEP_COUNT // 4) == 0:
                yield None
            if topic in context.topics:
                families.add(topic, group, reader.lag(topic, group), now_ms)
        yield from families.all

    return read


class _LagFamilies:
    """The families that tell how far groups are behind."""

    def __init__(self, context: BrokerContext, make: FamilyMaker) -> None:
        self._context = context
        config = context.config
        self._broker = (config.cluster, config.name)
        labels = ["topic", "consumer_group", "is_system", "is_retry"]
        self._messages = make.gauge(
            "rocketmq_consumer_lag_messages", "Messages that a group has not consumed yet.", labels
        )
        self._latency = make.gauge(
            "rocketmq_consumer_lag_latency",
            "Milliseconds since the oldest message was stored that a group has not consumed.",
            labels,
        )
        self._in_flight = make.gauge(
            "rocketmq_consumer_inflight_messages",
            "Messages that a group has fetched and not committed.",
            labels,
        )
        self._ready = make.gauge(
            "rocketmq_consumer_ready_messages", "Messages that a group has not fetched yet.", labels
        )
        self._queueing = make.gauge(
            "rocketmq_consumer_queueing_latency",
            "Milliseconds since the oldest message was stored that a group has not fetched.",
            labels,
        )
        old = ["cluster", "broker", "topic", "group"]

        def plain(name: str, text: str, labels: list[str]) -> Family:
            return make.gauge(name, text, labels, is_plain=True)

        self._consumed = plain(
            "rocketmq_group_consume_total_offset", "Messages that a group has consumed.", old
        )
        self._ends = plain(
            "rocketmq_consumer_offset", "Messages that a group's queues have had.", old
        )
        self._old_latency = plain(
            "rocketmq_group_get_latency_by_storetime", "Milliseconds that a group is behind.", old
        )
        diff = ["group", "topic", "countOfOnlineConsumers", "msgModel"]
        self._diffs = {
            DLQ_PREFIX: plain("rocketmq_group_dlqdiff", "Dead letters that wait.", diff),
            RETRY_PREFIX: plain("rocketmq_group_retrydiff", "Retries that wait.", diff),
            "": plain("rocketmq_group_diff", "Messages that wait for a group.", diff),
        }

    @property
    def all(self) -> list[Family]:
        """All families, filled as far as lags were added."""
        old = (self._consumed, self._ends, self._old_latency)
        native = (self._messages, self._latency, self._in_flight, self._ready, self._queueing)
        return [*native, *old, *self._diffs.values()]

    def add(self, topic: str, group: str, lag: LagFigures, now_ms: int) -> None:
        """Add what is known of a group in a topic."""
        is_retry = topic.startswith(RETRY_PREFIX)
        is_system = self._context.topics.is_system(topic) or group.startswith(SYSTEM_GROUP_PREFIX)
        labels = (topic, group, flag(is_system), flag(is_retry))
        late_ms = max(now_ms - lag.since_ms, 0) if lag.since_ms else 0
        queued_ms = max(now_ms - lag.queued_since_ms, 0) if lag.queued_since_ms else 0
        self._messages.add(lag.messages, *labels)
        self._in_flight.add(lag.in_flight, *labels)
        self._ready.add(lag.messages - lag.in_flight, *labels)
        self._queueing.add(queued_ms, *labels)
        self._latency.add(late_ms, *labels)
        old = (*self._broker, topic, group)
        self._consumed.add(lag.consumed, *old)
        self._ends.add(lag.end, *old)
        self._old_latency.add(late_ms, *old)
        members = self._context.consumers.get(group)
        online = 0 if members is None else len(members.members)
        model = {"BROADCASTING": "0", "CLUSTERING": "1"}
        shown = "" if members is None else model.get(members.message_model, "")
        for prefix, family in self._diffs.items():
            if topic.startswith(prefix):
                family.add(lag.messages, group, topic, str(online), shown)
                break


def client_source(context: BrokerContext) -> FamilySource:
    """Return what reads who is connected."""

    def read(make: FamilyMaker) -> FamilySteps:
        config = context.config
        producers: Counter[tuple[str, str]] = Counter()
        old_producers = make.gauge(
            "rocketmq_producer_count",
            "Members of a producer group.",
            ["cluster", "broker", "group"],
            is_plain=True,
        )
        for group, clients in context.producers:
            producers.update((one.language.name, str(one.version)) for one in clients)
            old_producers.add(len(clients), config.cluster, config.name, group)
        yield None
        shown = make.gauge(
            "rocketmq_producer_connections", "Connected producers.", ["language", "version"]
        )
        for labels, count in producers.items():
            shown.add(count, *labels)
        yield from (shown, old_producers)
        consumers = make.gauge(
            "rocketmq_consumer_connections",
            "Connected consumers.",
            ["consumer_group", "language", "version", "consume_mode", "is_system"],
        )
        old_consumers = make.gauge(
            "rocketmq_group_count", "Members of a consumer group.", ["group"], is_plain=True
        )
        for number, members in enumerate(context.consumers):
            if number % STEP_COUNT == 0:
                yield None
            old_consumers.add(len(members.members), members.name)
            kinds = Counter(
                (one.language.name, str(one.version)) for one in members.members.values()
            )
            is_system = flag(members.name.startswith(SYSTEM_GROUP_PREFIX))
            mode = members.consume_type.removeprefix("CONSUME_").lower()
            for (language, version), count in kinds.items():
                consumers.add(count, members.name, language, version, mode, is_system)
        yield from (consumers, old_consumers)

    return read
