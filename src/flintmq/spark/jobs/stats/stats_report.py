"""What ``stats`` tells: typed, bounded, and without Spark."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

from flintmq.spark.jobs.damages import Damages

TOP: Final = 20
TOP_MAX: Final = 10_000
"""How many topics, queues, tags, groups and keys a report lists: by default, and at most."""

Item = TypeVar("Item")


class TopicKind(Enum):
    """What a topic is for.  The broker makes all but the ordinary ones."""

    ORDINARY = "ordinary"
    DELAY = "delay"
    RETRY = "retry"
    DEAD_LETTER = "dead-letter"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True)
class Top(Generic[Item]):
    """The first ones of a list, and how many there are in all."""

    count: int
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """How much there is of something.

    Sizes are bytes of whole records as they are stored.  The median is true to one percent.
    Times are store times in milliseconds.
    """

    message_count: int
    byte_count: int
    size_min: int
    size_median: int
    size_max: int
    first_time: int | None
    last_time: int | None

    @property
    def size_mean(self) -> float:
        """The mean size of a record."""
        return self.byte_count / self.message_count if self.message_count else 0.0

    @property
    def rate(self) -> float | None:
        """Messages a second from the first to the last; None if all have one time."""
        if self.first_time is None or self.last_time is None or self.last_time <= self.first_time:
            return None
        return self.message_count * 1000 / (self.last_time - self.first_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStats:
    """One topic over all directories; ``peak_hour_count`` is that of its busiest hour."""

    topic: str
    kind: TopicKind
    queue_count: int
    peak_hour_count: int
    volume: Volume


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """One queue of one directory."""

    path: str
    topic: str
    queue_id: int
    volume: Volume


@dataclass(frozen=True, slots=True, kw_only=True)
class TagStats:
    """The messages of a topic with one tag, or with none."""

    topic: str
    tag: str | None
    volume: Volume


@dataclass(frozen=True, slots=True, kw_only=True)
class HourStats:
    """One hour of store time, named by its first millisecond; hours without messages lack."""

    hour: int
    message_count: int
    byte_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KindStats:
    """The topics of one kind."""

    kind: TopicKind
    topic_count: int
    message_count: int
    byte_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeStats:
    """How many records have a size from ``size_from`` up to, not including, ``size_to``."""

    size_from: int
    size_to: int
    message_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """How many messages of a topic a consumer group has not confirmed, in one directory."""

    path: str
    group: str
    topic: str
    queue_count: int
    lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedText:
    """A key, or a unique id, that several messages of a topic have.

    Ids are compared inside one directory (``path``), since a master and its slave share them all.
    """

    path: str | None
    topic: str
    text: str
    message_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Messages by time: the starts of bins of one width, with their messages; empty ones lack."""

    width_ms: int
    bins: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsReport:
    """What is in some store directories, and how it came in.

    Topics, queues and tags are in the order of their message counts, hours in that of time.
    ``hot_keys``, ``duplicate_ids`` and ``timeline`` are None where nobody asked for them.
    """

    directories: tuple[str, ...]
    total: Volume
    kinds: tuple[KindStats, ...]
    topics: Top[TopicStats]
    queues: Top[QueueStats]
    tags: Top[TagStats]
    hours: Top[HourStats]
    sizes: tuple[SizeStats, ...]
    lags: Top[GroupLag]
    hot_keys: Top[RepeatedText] | None
    duplicate_ids: Top[RepeatedText] | None
    damages: Damages
    timeline: Timeline | None = None
