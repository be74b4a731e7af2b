"""Which queues are read: the options ``subscribe``, ``subscribePattern`` and ``assign``."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from flintmq.model.message_queue import MessageQueue
from flintmq.model.topics import LMQ_PREFIX, SYSTEM_PREFIX, SYSTEM_TOPICS
from flintmq.spark.errors import OptionError
from flintmq.spark.options.option_values import Given, parse_json, parse_names

SUBSCRIBE: Final = "subscribe"
PATTERN: Final = "subscribePattern"
ASSIGN: Final = "assign"
SELECTIONS: Final = (SUBSCRIBE, PATTERN, ASSIGN)
PATTERN_LENGTH_MAX: Final = 1000

_ASSIGN_FORM: Final = 'JSON such as {"topic": {"broker": [0, 1]}} or {"topic": [0, 1]}'
_OWN_PREFIX: Final = "%"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSelection:
    """The topics or queues that are read: one of the three is there.

    ``assigned`` names broker (None for all), topic and queue id.
    """

    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    assigned: frozenset[tuple[str | None, str, int]] = frozenset()

    @property
    def named_topics(self) -> frozenset[str]:
        """The topics that are named; none for a pattern."""
        return self.topics | {topic for _, topic, _ in self.assigned}

    def matching(self, topics: Iterable[str], others: Collection[str] = ()) -> frozenset[str]:
        """Return which of all topics of a cluster the pattern means.

        Topics of the system are never meant, nor are ``others``: brokers make a topic that is
        named after themselves and one after the cluster.  Retries and dead letters are meant
        only by a pattern that begins as their names do.
        """
        assert self.pattern is not None
        pattern = re.compile(self.pattern)
        return frozenset(
            topic
            for topic in topics
            if pattern.fullmatch(topic)
            and topic not in others
            and not is_system(topic)
            and (not topic.startswith(_OWN_PREFIX) or self.pattern.startswith(_OWN_PREFIX))
        )

    def means(self, queue: MessageQueue) -> bool:
        """Whether a queue is read, wherever it is."""
        if self.pattern is not None:
            return bool(self.matching([queue.topic]))
        return queue.topic in self.named_topics and self.takes(queue)

    def takes(self, queue: MessageQueue) -> bool:
        """Whether a queue of a topic that is read is read too."""
        if not self.assigned:
            return True
        topic, broker, queue_id = queue
        return bool(self.assigned & {(broker, topic, queue_id), (None, topic, queue_id)})


def is_system(topic: str) -> bool:
    """Whether a topic is for the cluster's own use."""
    return topic in SYSTEM_TOPICS or topic.startswith(
        (SYSTEM_PREFIX, SYSTEM_PREFIX.upper(), LMQ_PREFIX)
    )


def parse_selection(given: Given) -> QueueSelection:
    """Return what is read; exactly one of the three options must be given."""
    named = [name for name in SELECTIONS if name.lower() in given]
    if len(named) != 1:
        have = f"not {' and '.join(named)}" if named else "none is there"
        raise OptionError(f"live topics need one of {', '.join(SELECTIONS)}; {have}")
    if named == [SUBSCRIBE]:
        return QueueSelection(topics=parse_names(SUBSCRIBE, given, ",") or frozenset())
    if named == [PATTERN]:
        return QueueSelection(pattern=_parse_pattern(given[PATTERN.lower()]))
    return QueueSelection(assigned=_parse_assign(given[ASSIGN]))


def _parse_pattern(text: str) -> str:
    if not 0 < len(text) <= PATTERN_LENGTH_MAX:
        raise OptionError(f"{PATTERN} has 1 to {PATTERN_LENGTH_MAX} characters, not {len(text)}")
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"{PATTERN} is no pattern: {error}") from error
    return text


def _parse_assign(text: str) -> frozenset[tuple[str | None, str, int]]:
    table = parse_json(ASSIGN, text)
    if not isinstance(table, dict) or not table:
        raise OptionError(f"{ASSIGN} is {_ASSIGN_FORM}, not {text[:80]!r}")
    found: set[tuple[str | None, str, int]] = set()
    for topic, level in table.items():
        brokers = level if isinstance(level, dict) else {None: level}
        for broker, queue_ids in brokers.items():
            if not isinstance(queue_ids, list) or not queue_ids or not all(map(_is_id, queue_ids)):
                raise OptionError(f"{ASSIGN} of {topic!r} names no queues; it is {_ASSIGN_FORM}")
            found.update((broker, topic, queue_id) for queue_id in queue_ids)
    return frozenset(found)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
