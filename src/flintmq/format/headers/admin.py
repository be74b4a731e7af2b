"""Headers of administration: topics, groups, statistics, settings."""

from dataclasses import dataclass
from enum import IntEnum

from flintmq.format.headers.codec import Header, Int32


class TopicFilterType(IntEnum):
    """How many tags a message of a topic may have."""

    SINGLE_TAG = 0
    MULTI_TAG = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicRequest(Header):
    """Creates a topic or replaces its configuration."""

    topic: str
    default_topic: str | None = None
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: Int32 | None = None
    order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRequest(Header):
    """Asks for something about one topic, or deletes it: codes 202, 215, 300 and 351."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfigRequest(Header):
    """Asks for the configuration of a subscription group."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupRequest(Header):
    """Deletes a subscription group and, if told so, its offsets."""

    group_name: str
    remove_offset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStatsRequest(Header):
    """Asks how far a group has come, in one topic or in all of them."""

    consumer_group: str
    topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConsumeStatsRequest(Header):
    """Asks how far all groups of a broker have come."""

    is_order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeTimeSpanRequest(Header):
    """Asks for the times between which the messages of a group's queues lie."""

    topic: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionOffsetRequest(Header):
    """Asks for the least offsets of other groups on a topic."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneGroupOffsetRequest(Header):
    """Copies the offsets of one group to another."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatsRequest(Header):
    """Asks for one statistic of a broker."""

    stats_name: str
    stats_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfigResponse(Header):
    """The data version of a broker's settings, as JSON."""

    version: str
