"""Headers of administration: topics, groups, statistics, settings."""

from enum import IntEnum

from flintmq.format.wire.headers.codec import Header, Int32, header


class TopicFilterType(IntEnum):
    """How many tags a message of a topic may have."""

    SINGLE_TAG = 0
    MULTI_TAG = 1


@header
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


@header
class TopicRequest(Header):
    """Asks for something about one topic, or deletes it: codes 202, 215, 300 and 351."""

    topic: str


@header
class GroupConfigRequest(Header):
    """Asks for the configuration of a subscription group."""

    group: str


@header
class DeleteGroupRequest(Header):
    """Deletes a subscription group and, if told so, its offsets."""

    group_name: str
    remove_offset: bool = False


@header
class ConsumeStatsRequest(Header):
    """Asks how far a group has come, in one topic or in all of them."""

    consumer_group: str
    topic: str | None = None


@header
class BrokerConsumeStatsRequest(Header):
    """Asks how far all groups of a broker have come."""

    is_order: bool = False


@header
class ConsumeTimeSpanRequest(Header):
    """Asks for the times between which the messages of a group's queues lie."""

    topic: str
    group: str


@header
class CorrectionOffsetRequest(Header):
    """Asks for the least offsets of other groups on a topic."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


@header
class CloneGroupOffsetRequest(Header):
    """Copies the offsets of one group to another."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@header
class BrokerStatsRequest(Header):
    """Asks for one statistic of a broker."""

    stats_name: str
    stats_key: str


@header
class BrokerConfigResponse(Header):
    """The data version of a broker's settings, as JSON."""

    version: str
