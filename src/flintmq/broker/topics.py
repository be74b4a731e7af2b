"""The topics of a broker: which exist, which are made on the way, and what the file says."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from flintmq.format.bodies.topics import topic_table_from_json, topic_table_to_json
from flintmq.model.data_version import DataVersion
from flintmq.model.topic_config import QUEUE_COUNT_MAX, Perm, TopicConfig, TopicSysFlag
from flintmq.model.topics import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    NO_SEND_TOPICS,
    OFFSET_MOVED_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flintmq.broker.config import BrokerConfig
    from flintmq.store.state_file import StateFile

logger = logging.getLogger(__name__)

TOPIC_COUNT_MAX: Final = 100_000
"""Topics of one broker; clients may make them, so there is a limit."""


class TopicTable:
    """The topics of one broker.

    ``on_change`` is called for every topic that is new or changed, after it was written down.
    """

    def __init__(
        self,
        file: StateFile,
        *,
        config: Callable[[], BrokerConfig],
        now_ms: Callable[[], int],
        delay_level_count: int,
    ) -> None:
        self._file = file
        self._config = config
        self._now_ms = now_ms
        self._topics: dict[str, TopicConfig] = {}
        self._built_in: frozenset[str] = frozenset()
        self.version = DataVersion()
        self.on_change: Callable[[], None] | None = None
        self._add_built_in(delay_level_count)

    def _add_built_in(self, delay_level_count: int) -> None:
        config = self._config()
        made = [
            _topic(SELF_TEST_TOPIC, 1),
            _topic(BENCHMARK_TOPIC, 1024),
            _topic(config.cluster, 16, perm=7 if config.cluster_topic_enable else 1),
            _topic(config.name, 1, perm=7 if config.broker_topic_enable else 1),
            _topic(OFFSET_MOVED_TOPIC, 1),
            _topic(SCHEDULE_TOPIC, delay_level_count),
            _topic(self.reply_topic, 1),
        ]
        if config.auto_create_topic:
            made.append(_topic(AUTO_CREATE_TOPIC, config.default_topic_queue_count, perm=7))
        if config.trace_topic_enable:
            made.append(_topic(config.trace_topic, 1))
        self._topics.update((topic.name, topic) for topic in made)
        self._built_in = frozenset(self._topics)

    @property
    def reply_topic(self) -> str:
        """Where replies to request messages go."""
        return f"{self._config().cluster}_REPLY_TOPIC"

    # -- looking -----------------------------------------------------------------------------

    def get(self, name: str) -> TopicConfig | None:
        """Return a topic."""
        return self._topics.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(list(self._topics.values()))

    def __len__(self) -> int:
        return len(self._topics)

    def is_system(self, name: str) -> bool:
        """Whether clients may neither create nor delete a topic."""
        return name in SYSTEM_TOPICS or name in self._built_in or name.startswith(SYSTEM_PREFIX)

    def may_be_sent_to(self, name: str) -> bool:
        """Whether clients may send to a topic."""
        return name not in NO_SEND_TOPICS

    def system_topics(self) -> list[str]:
        """Return the names of all system topics."""
        return sorted(SYSTEM_TOPICS | self._built_in)

    # -- changing ----------------------------------------------------------------------------

    def put(self, topic: TopicConfig) -> None:
        """Add a topic or replace its configuration."""
        if topic.name not in self._topics and len(self._topics) >= TOPIC_COUNT_MAX:
            raise TopicLimitError(f"there are {TOPIC_COUNT_MAX} topics already")
        before = self._topics.get(topic.name)
        self._topics[topic.name] = topic
        self.version = self.version.next(self._now_ms())
        self.persist()
        logger.info("topic %s: %s", "created" if before is None else "changed", topic)
        self.announce()

    def delete(self, name: str) -> bool:
        """Forget a topic; return whether it was there."""
        if self._topics.pop(name, None) is None:
            return False
        self.version = self.version.next(self._now_ms())
        self.persist()
        logger.info("topic deleted: topic=%s", name)
        return True

    def bump_version(self) -> None:
        """Let name servers see a change that concerns all topics."""
        self.version = self.version.next(self._now_ms())
        self.persist()

    def announce(self) -> None:
        """Let name servers know soon."""
        if self.on_change is not None:
            self.on_change()

    def create_on_send(
        self, name: str, default_topic: str, queue_count: int, *, unit: bool
    ) -> TopicConfig | None:
        """Make the topic that a message is sent to, after the model of a default topic.

        Nothing is made where the default topic is unknown or may not be inherited from.
        """
        model = self._topics.get(default_topic)
        if model is None:
            return None
        is_off = default_topic == AUTO_CREATE_TOPIC and not self._config().auto_create_topic
        if is_off or not model.perm & Perm.INHERIT:
            return None
        count = min(max(queue_count, 0), model.write_queue_count)
        made = TopicConfig(
            name=name,
            read_queue_count=count,
            write_queue_count=count,
            perm=model.perm & ~Perm.INHERIT,
            filter_type=model.filter_type,
            sys_flag=TopicSysFlag.UNIT if unit else TopicSysFlag.NONE,
        )
        self.put(made)
        return made

    def ensure(
        self, name: str, queue_count: int, *, perm: int = Perm.READ_WRITE, sys_flag: int = 0
    ) -> TopicConfig:
        """Return a topic, made with so many queues if it is not there."""
        found = self._topics.get(name)
        if found is None:
            found = replace(
                _topic(name, min(max(queue_count, 0), QUEUE_COUNT_MAX), perm=perm),
                sys_flag=sys_flag,
            )
            self.put(found)
        return found

    def set_order(self, ordered: frozenset[str]) -> None:
        """Mark the topics that name servers hold an order configuration for."""
        changed = [topic for topic in self if topic.order != (topic.name in ordered)]
        for topic in changed:
            self._topics[topic.name] = replace(topic, order=not topic.order)
        if changed:
            self.bump_version()

    # -- file --------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the file; what it says goes before what is built in."""
        state = self._file.load()
        if state.value is not None:
            topics, self.version = topic_table_from_json(state.value)
            self._topics.update(topics)

    def persist(self) -> None:
        """Write the file."""
        self._file.save(topic_table_to_json(self._topics.values(), self.version))


class TopicLimitError(ValueError):
    """There are as many topics as there may be."""


def _topic(name: str, queue_count: int, *, perm: int = Perm.READ_WRITE) -> TopicConfig:
    return TopicConfig(
        name=name, read_queue_count=queue_count, write_queue_count=queue_count, perm=perm
    )
