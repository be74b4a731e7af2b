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
        "Brokers",
        "statistics_commands",
        ("statsAll", "stats_all", "The traffic of topics and groups."),
        ("checkMsgSendRT", "check_send_rt", "How long sends to a topic take."),
        ("clusterRT", "cluster_rt", "How long sends to each broker take."),
        ("sendMsgStatus", "send_status", "How long sends to one broker take."),
        ("startMonitoring", "start_monitoring", "Groups that are behind or without members."),
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
    *_rows(
        "Consumers and producers",
        "offset_commands",
        ("consumerProgress", "consumer_progress", "How far groups have come, by queue."),
        ("brokerConsumeStats", "broker_consume_stats", "How far all groups of a broker are."),
        ("lag", "lag", "How far groups are behind, in messages and seconds."),
        ("resetOffsetByTime", "reset_offset_by_time", "Move a group to a time."),
        ("skipAccumulatedMessage", "skip_accumulated", "Move a group to the newest message."),
        ("cloneGroupOffset", "clone_group_offset", "Move a group to where another is."),
    ),
    *_rows(
        "Consumers and producers",
        "group_commands",
        ("consumerConnection", "consumer_connection", "Who consumes for a group."),
        ("consumerStatus", "consumer_status", "How the members of a group are doing."),
        ("getConsumerConfig", "get_consumer_config", "How a group is configured."),
        ("updateSubGroup", "update_group", "Create a group, or change its configuration."),
        ("deleteSubGroup", "delete_group", "Delete a group."),
        ("producerConnection", "producer_connection", "Which producers a topic has."),
        ("producer", "producer_list", "All producers of a broker."),
    ),
    *_rows(
        "Messages",
        "message_commands",
        ("queryMsgById", "query_by_id", "Messages by the ids that brokers gave."),
        ("queryMsgByUniqueKey", "query_by_unique_key", "Messages by the id of their producer."),
        ("queryMsgByKey", "query_by_key", "Messages by one of their keys."),
        ("queryMsgByOffset", "query_by_offset", "The message at an offset of a queue."),
        ("queryMsgTraceById", "query_trace", "What was done with a message."),
        ("sendMessage", "send_message", "Send a message."),
    ),
    *_rows(
        "Messages",
        "scan_commands",
        ("printMsg", "print_messages", "The messages of a topic in a range of times."),
        ("printMsgByQueue", "print_queue", "The messages of a queue; counts by tag."),
        ("consumeMessage", "consume_messages", "Messages from an offset or a time on."),
        ("queryCq", "query_queue", "Raw entries of a consume queue."),
    ),
    *_rows(
        "Messages",
        "dead_letter_commands",
        ("dlq", "dead_letter_group", "Dead letters: list, show, replay."),
    ),
    *_rows(
        "Messages",
        "tail_command",
        ("tail", "tail", "The messages of a topic as they come."),
    ),
    *_rows(
        "Messages",
        "bench_command",
        ("bench", "bench", "How fast a cluster is: producer, consumer, latency."),
    ),
    *_rows(
        "Name servers",
        "namesrv_commands",
        ("getNamesrvConfig", "get_namesrv_config", "The settings of name servers."),
        ("updateNamesrvConfig", "update_namesrv_config", "Change a setting of name servers."),
        ("updateKvConfig", "update_kv_config", "Set a key-value pair."),
        ("deleteKvConfig", "delete_kv_config", "Delete a key-value pair."),
        ("wipeWritePerm", "wipe_write_perm", "Let nobody send to a broker: drain it."),
        ("addWritePerm", "add_write_perm", "Let everybody send to a broker again."),
    ),
    *_rows(
        "Access control",
        "account_commands",
        ("updateAclConfig", "update_account", "Add an account, or change it."),
        ("deleteAclConfig", "delete_account", "Remove an account."),
        ("clusterAclConfigVersion", "access_versions", "How often accounts were changed."),
        ("updateGlobalWhiteAddr", "update_white_addresses", "Who needs no account."),
    ),
    *_rows(
        "Whole clusters",
        "doctor_command",
        ("doctor", "doctor", "What is wrong with a cluster, and what to do."),
    ),
    *_rows(
        "Whole clusters",
        "export_commands",
        ("exportMetadata", "export_metadata", "Topics and groups as a file."),
        ("exportConfigs", "export_configs", "Settings of brokers as a file."),
        ("exportMetrics", "export_metrics", "How brokers are doing as a file."),
        ("copy", "copy_configuration", "Topics and groups to another cluster."),
    ),
)
"""All commands, in the order in which the help shows them."""
