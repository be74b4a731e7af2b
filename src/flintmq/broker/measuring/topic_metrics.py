"""Metrics of topics and groups: what was sent and fetched, in all and by topic.

The names that end in ``_total`` are RocketMQ 5's.  The others are those of the exporter for
RocketMQ 4, whose boards read rates instead of counters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.broker.statistics.broker_statistics import (
    BROKER_GET_COUNT,
    BROKER_PUT_COUNT,
    COMMIT_COUNT,
    GROUP_GET_COUNT,
    GROUP_GET_SIZE,
    ROLLBACK_COUNT,
    SEND_BACK_COUNT,
    TOPIC_PUT_COUNT,
    TOPIC_PUT_SIZE,
)
from flintmq.model.topics import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.broker.context import BrokerContext
    from flintmq.broker.statistics.broker_statistics import Counter
    from flintmq.metrics.families import Family, FamilyMaker, FamilySource, FamilySteps

STEP_COUNT: Final = 100
"""Counters or topics that are read without a pause."""


def flag(value: bool) -> str:
    """Return true or false as RocketMQ's labels have it."""
    return "true" if value else "false"


def counter_source(context: BrokerContext) -> FamilySource:
    """Return what reads the counters of topics, groups and the whole broker."""

    def read(make: FamilyMaker) -> FamilySteps:
        families = _CounterFamilies(context, make)
        yield from context.statistics.enter()
        for number, ((name, key), counter) in enumerate(context.statistics.counters()):
            add = families.by_name.get(name)
            if add is not None:
                add(key, counter)
            if number % STEP_COUNT == 0:
                yield None
        yield from families.all

    return read


class _CounterFamilies:
    """The families that are made of a broker's counters."""

    def __init__(self, context: BrokerContext, make: FamilyMaker) -> None:
        self._is_system = context.topics.is_system
        config = context.config
        self._broker = (config.cluster, config.name)
        self._whole = (config.cluster, context.address, config.name)
        topic, group = ["topic", "is_system"], ["topic", "consumer_group", "is_system", "is_retry"]
        old_topic, old_group = (
            ["cluster", "broker", "topic"],
            ["cluster", "broker", "topic", "group"],
        )
        whole = ["cluster", "brokerIP", "broker"]
        self._in = make.counter("rocketmq_messages_in_total", "Messages sent to topics.", topic)
        self._in_size = make.counter(
            "rocketmq_throughput_in_total", "Bytes of the messages sent to topics.", topic
        )
        self._out = make.counter("rocketmq_messages_out_total", "Messages that groups got.", group)
        self._out_size = make.counter(
            "rocketmq_throughput_out_total", "Bytes of the messages that groups got.", group
        )
        self._commits = make.counter(
            "rocketmq_commit_messages_total",
            "Messages of transactions that were committed.",
            ["topic"],
        )
        self._rollbacks = make.counter(
            "rocketmq_rollback_messages_total",
            "Messages of transactions that were rolled back.",
            ["topic"],
        )

        def old(name: str, text: str, labels: list[str]) -> Family:
            return make.gauge(name, text, labels, is_plain=True)

        rate = "a second, over the last minute."
        self._old_in = old("rocketmq_producer_tps", f"Messages sent to a topic {rate}", old_topic)
        self._old_in_size = old(
            "rocketmq_producer_message_size", f"Bytes sent to a topic {rate}", old_topic
        )
        self._old_out = old("rocketmq_consumer_tps", f"Messages that a group got {rate}", old_group)
        self._old_consumed = old(
            "rocketmq_group_consume_tps", f"Messages that a group got {rate}", old_group
        )
        self._old_out_size = old(
            "rocketmq_consumer_message_size", f"Bytes that a group got {rate}", old_group
        )
        self._old_back = old(
            "rocketmq_send_back_nums", f"Messages that a group gave back {rate}", old_group
        )
        self._old_tps = old("rocketmq_broker_tps", f"Messages sent to the broker {rate}", whole)
        self._old_qps = old(
            "rocketmq_broker_qps", f"Messages fetched from the broker {rate}", whole
        )
        self.by_name: dict[str, Callable[[str, Counter], None]] = {
            TOPIC_PUT_COUNT: lambda key, one: self._add_topic(self._in, self._old_in, key, one),
            TOPIC_PUT_SIZE: lambda key, one: self._add_topic(
                self._in_size, self._old_in_size, key, one
            ),
            GROUP_GET_COUNT: self._add_got,
            GROUP_GET_SIZE: lambda key, one: self._add_group(
                self._out_size, self._old_out_size, key, one
            ),
            SEND_BACK_COUNT: lambda key, one: self._add_group(None, self._old_back, key, one),
            COMMIT_COUNT: lambda key, one: self._commits.add(one.value, key),
            ROLLBACK_COUNT: lambda key, one: self._rollbacks.add(one.value, key),
            BROKER_PUT_COUNT: lambda _, one: self._old_tps.add(one.minute.per_second, *self._whole),
            BROKER_GET_COUNT: lambda _, one: self._old_qps.add(one.minute.per_second, *self._whole),
        }

    @property
    def all(self) -> list[Family]:
        """All families, filled as far as counters were added."""
        return [
            *(self._in, self._in_size, self._out, self._out_size, self._commits, self._rollbacks),
            *(self._old_in, self._old_in_size, self._old_out, self._old_out_size),
            *(self._old_consumed, self._old_back, self._old_tps, self._old_qps),
        ]

    def _add_topic(self, family: Family, old: Family, topic: str, counter: Counter) -> None:
        family.add(counter.value, topic, flag(self._is_system(topic)))
        old.add(counter.minute.per_second, *self._broker, topic)

    def _add_got(self, key: str, counter: Counter) -> None:
        self._add_group(self._out, self._old_out, key, counter)
        self._add_group(None, self._old_consumed, key, counter)

    def _add_group(self, family: Family | None, old: Family, key: str, counter: Counter) -> None:
        topic, _, group = key.partition("@")
        if family is not None:
            is_retry = topic.startswith(RETRY_PREFIX)
            family.add(counter.value, topic, group, flag(self._is_system(topic)), flag(is_retry))
        old.add(counter.minute.per_second, *self._broker, topic, group)


def topic_source(context: BrokerContext) -> FamilySource:
    """Return what reads how far the queues of topics go."""

    def read(make: FamilyMaker) -> FamilySteps:
        config, store = context.config, context.store
        labels = ["cluster", "broker", "topic"]
        ends = make.gauge(
            "rocketmq_producer_offset", "Messages ever sent to a topic.", labels, is_plain=True
        )
        retries = make.gauge(
            "rocketmq_topic_retry_offset", "Messages ever given back.", labels, is_plain=True
        )
        dead = make.gauge(
            "rocketmq_topic_dlq_offset",
            "Messages that a group has ever given up.",
            ["cluster", "broker", "group"],
            is_plain=True,
        )
        dead_total = make.counter(
            "rocketmq_send_to_dlq_messages_total",
            "Messages that a group has ever given up; they are in its dead letter topic.",
            ["consumer_group"],
        )
        for number, topic in enumerate(list(context.topics)):
            if number % STEP_COUNT == 0:
                yield None
            name = topic.name
            queue_ids = range(max(topic.read_queue_count, topic.write_queue_count))
            end = sum(store.max_offset_in_queue(name, queue_id) for queue_id in queue_ids)
            if name.startswith(DLQ_PREFIX):
                group = name.removeprefix(DLQ_PREFIX)
                dead.add(end, config.cluster, config.name, group)
                dead_total.add(end, group)
            else:
                family = retries if name.startswith(RETRY_PREFIX) else ends
                family.add(end, config.cluster, config.name, name)
        yield from (ends, retries, dead, dead_total)

    return read
