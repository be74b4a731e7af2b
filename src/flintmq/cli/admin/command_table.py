"""The one table of the commands of ``flintmq admin``: family, name, what it does, where it is."""

from __future__ import annotations

from typing import Final, NamedTuple

_HERE: Final = "flintmq.cli.admin"


class CommandRow(NamedTuple):
    """One command, known without loading it."""

    name: str
    summary: str
    location: str
    family: str


def _rows(family: str, module: str, *commands: tuple[str, str, str]) -> list[CommandRow]:
    return [
        CommandRow(name, summary, f"{_HERE}.{module}:{attribute}", family)
        for name, attribute, summary in commands
    ]


COMMANDS: Final[tuple[CommandRow, ...]] = (
    *_rows(
        "Brokers",
        "broker_commands",
        ("clusterList", "cluster_list", "All brokers with their rates and disks."),
        ("brokerStatus", "broker_status", "How a broker is doing, in some sixty values."),
        ("getBrokerConfig", "get_broker_config", "The settings of brokers."),
        ("updateBrokerConfig", "update_broker_config", "Change a setting of running brokers."),
        ("cleanExpiredCQ", "clean_expired_queues", "Delete queues without messages."),
        ("deleteExpiredCommitLog", "delete_expired_log", "Delete log files that are old enough."),
        ("cleanUnusedTopic", "clean_unused_topics", "Delete the queues of deleted topics."),
    ),
    *_rows(
        "Topics",
        "topic_commands",
        ("updateTopic", "update_topic", "Create a topic, or change its configuration."),
        ("deleteTopic", "delete_topic", "Delete a topic."),
        ("updateTopicPerm", "update_topic_perm", "Change what may be done with a topic."),
        ("topicList", "topic_list", "The names of all topics."),
        ("topicRoute", "topic_route", "Which brokers have a topic."),
        ("topicStatus", "topic_status", "Where the queues of a topic begin and end."),
        ("topicClusterList", "topic_cluster_list", "Which clusters have a topic."),
        ("updateOrderConf", "update_order_conf", "Which queues of a topic are used in order."),
        ("allocateMQ", "allocate_queues", "Which queues each of some clients would get."),
    ),
)
"""All commands, in the order in which the help shows them."""
