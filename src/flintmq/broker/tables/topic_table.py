"""The topics of a broker: built-in ones, those in its file, and those that sends create."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from flintmq.broker.tables.state_keeper import StateKeeper
from flintmq.broker.tables.table_limits import TABLE_SIZE_MAX, TableLimitError, json_size
from flintmq.broker.tables.topic_file_text import TopicFileText
from flintmq.format.wire.bodies.topics import topic_table_from_json
from flintmq.model.data_version import DataVersion
from flintmq.model.topic_config import QUEUE_COUNT_MAX, Perm, TopicConfig, TopicSysFlag
from flintmq.model.topics import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    LMQ_PREFIX,
    NO_SEND_TOPICS,
    OFFSET_MOVED_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
    WAITING_TOPIC,
)
from flintmq.remoting.refusal_counts import NEW_TOPICS, RefusalCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from flintmq.broker.config import BrokerConfig
    from flintmq.store.files.state_file import StateFile

logger = logging.getLogger(__name__)

TOPIC_COUNT_MAX: Final = 100_000
"""Topics of one broker; clients may make them, so there is a limit."""

NEWS_COUNT_MAX: Final = 1024
"""Changed topics that are remembered for those who ask what has changed."""

ENTRY_SIZE: Final = 200
"""Bytes that a topic has in the file besides its name, which is there twice."""


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
        refused: RefusalCounts | None = None,
        has_light_queues: bool = False,
    ) -> None:
        self._has_light_queues = has_light_queues
        self._refused = refused or RefusalCounts()
        self._minute = 0
        self._made_in_minute = 0
        """Topics that sends have made in this minute."""
        self._text = TopicFileText()
        self.keeper = StateKeeper(file, self._snapshot)
        self._news: dict[str, int] = {}
        """Topics that are new or changed, by the number of the change; the last one is last."""
        self._news_since = 0
        """The number of the change from which on they are all there."""
        self._unsaved: dict[str, int] = {}
        """Topics that changed, by the version of the file that will have them."""
        self._looked_at_version = 0
        """The version up to which topics that are saved were taken out of these."""
        self._config = config
        self._now_ms = now_ms
        self._topics: dict[str, TopicConfig] = {}
        self._built_in: frozenset[str] = frozenset()
        self.version = DataVersion()
        self.on_change: Callable[[], None] | None = None
        self._add_built_in(delay_level_count)
        self._size = sum(map(_entry_size, self._topics))

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
        """Return a topic; light queues are there without being in the table."""
        found = self._topics.get(name)
        if found is None and self._has_light_queues and name.startswith(LMQ_PREFIX):
            return _topic(name, 1)
        return found

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

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
        own = {name for name in (WAITING_TOPIC,) if name in self._topics}
        return sorted(SYSTEM_TOPICS | self._built_in | own)

    # -- changing ----------------------------------------------------------------------------

    def put(self, topic: TopicConfig) -> None:
        """Add a topic or replace its configuration."""
        if topic.name not in self._topics:
            if len(self._topics) >= TOPIC_COUNT_MAX:
                raise TopicLimitError(f"there are {TOPIC_COUNT_MAX} topics already")
            size = _entry_size(topic.name)
            if self._size + size > TABLE_SIZE_MAX:
                raise TopicLimitError(f"the topics have {TABLE_SIZE_MAX} bytes already")
            self._size += size
        before = self._topics.get(topic.name)
        self._topics[topic.name] = topic
        self._changed(topic.name)
        logger.info("topic %s: %s", "created" if before is None else "changed", topic)
        self.announce()

    def delete(self, name: str) -> bool:
        """Forget a topic; return whether it was there."""
        if self._topics.pop(name, None) is None:
            return False
        self._size -= _entry_size(name)
        self._changed(name)
        self._forget_news()
        logger.info("topic deleted: topic=%s", name)
        return True

    def bump_version(self) -> None:
        """Give the topics a new version, so that name servers see that something has changed."""
        self._count_change()
        self._forget_news()

    def _count_change(self) -> None:
        self.version = self.version.next(self._now_ms())
        self.keeper.changed()

    @property
    def change_number(self) -> int:
        """How often the table has changed."""
        return self.keeper.version

    def changed_since(self, change_number: int) -> list[TopicConfig] | None:
        """Return the topics that are new or changed since a change.

        None if that is not known any more, or something else has changed.
        """
        if change_number < self._news_since:
            return None
        changed = []
        for name, number in reversed(self._news.items()):
            if number <= change_number:
                break
            changed.append(self._topics[name])
        return changed

    def _note_news(self, name: str) -> None:
        self._news.pop(name, None)
        self._news[name] = self.change_number
        if len(self._news) > NEWS_COUNT_MAX:
            oldest = next(iter(self._news))
            self._news_since = self._news.pop(oldest)

    def _forget_news(self) -> None:
        self._news.clear()
        self._news_since = self.change_number

    def _changed(self, name: str) -> None:
        """Have a changed topic written; until it is, sends to it are not acknowledged."""
        self._count_change()
        self._note_news(name)
        saved_version = self.keeper.saved_version
        if saved_version != self._looked_at_version:
            # Once for each write: a heartbeat may make thousands of topics before the next one.
            self._looked_at_version = saved_version
            self._unsaved = {
                one: version for one, version in self._unsaved.items() if version > saved_version
            }
        if not self.keeper.is_saved:
            self._unsaved[name] = self.keeper.version

    def is_saved(self, name: str) -> bool:
        """Return whether the file has a topic as it is now."""
        return self._unsaved.get(name, 0) <= self.keeper.saved_version

    def announce(self) -> None:
        """Have the topics registered with the name servers soon."""
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
        self._check_rate(name)
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

    def _check_rate(self, name: str) -> None:
        """Count a topic that a send makes; TopicLimitError if there were too many in a minute."""
        most, minute = self._config().new_topics_per_minute_max, self._now_ms() // 60_000
        if minute != self._minute:
            self._minute, self._made_in_minute = minute, 0
        if most and self._made_in_minute >= most:
            self._refused.note(NEW_TOPICS)
            raise TopicLimitError(f"topic[{name}]: {most} topics were made in this minute already")
        self._made_in_minute += 1

    def ensure(
        self, name: str, queue_count: int, *, perm: int = Perm.READ_WRITE, sys_flag: int = 0
    ) -> TopicConfig:
        """Return a topic, which is created with so many queues if it is missing."""
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

    def replace_all(self, topics: Mapping[str, TopicConfig], version: DataVersion) -> bool:
        """Take over the table of a master; return whether it was another one."""
        if version == self.version:
            return False
        size = sum(map(_entry_size, topics))
        if len(topics) > TOPIC_COUNT_MAX or size > TABLE_SIZE_MAX:
            raise TopicLimitError(f"the master has {len(topics)} topics, more than there can be")
        self._topics, self._size, self.version = dict(topics), size, version
        self.keeper.changed()
        self._forget_news()
        self.announce()
        return True

    # -- file --------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the file; its topics replace built-in ones of the same name."""
        state = self.keeper.file.load()
        if state.value is not None:
            topics, self.version = topic_table_from_json(state.value)
            self._topics.update(topics)
            self._size = sum(map(_entry_size, self._topics))

    def _snapshot(self) -> Callable[[], Any]:
        topics, version = list(self._topics.values()), self.version
        return lambda: self._text.encode(topics, version)


class TopicLimitError(TableLimitError):
    """There are as many topics as there may be."""


def _entry_size(name: str) -> int:
    return ENTRY_SIZE + 2 * json_size(name)


def _topic(name: str, queue_count: int, *, perm: int = Perm.READ_WRITE) -> TopicConfig:
    return TopicConfig(
        name=name, read_queue_count=queue_count, write_queue_count=queue_count, perm=perm
    )
