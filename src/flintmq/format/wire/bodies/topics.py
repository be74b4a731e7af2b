"""Topics in JSON: one configuration, and a table of them with its version."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from flintmq.format.wire.bodies.dialect import BodyError, Members
from flintmq.model.data_version import DataVersion
from flintmq.model.topic_config import QUEUE_COUNT_MAX, Perm, TopicConfig

FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")


def topic_to_json(topic: TopicConfig) -> dict[str, Any]:
    """Return the JSON members of a topic."""
    return {
        "order": topic.order,
        "perm": int(topic.perm),
        "readQueueNums": topic.read_queue_count,
        "topicFilterType": topic.filter_type,
        "topicName": topic.name,
        "topicSysFlag": int(topic.sys_flag),
        "writeQueueNums": topic.write_queue_count,
    }


def topic_from_json(value: Any) -> TopicConfig:
    """Return the topic that JSON members describe."""
    members = Members(value, "a topic")
    return TopicConfig(
        name=members.text("topicName"),
        read_queue_count=_queue_count(members, "readQueueNums"),
        write_queue_count=_queue_count(members, "writeQueueNums"),
        perm=members.integer("perm", Perm.READ_WRITE),
        filter_type=members.choice("topicFilterType", FILTER_TYPES, FILTER_TYPES[0]),
        sys_flag=members.integer("topicSysFlag", 0),
        order=members.truth("order", default=False),
    )


def _queue_count(members: Members, name: str) -> int:
    count = members.integer(name, 16)
    if not 0 <= count <= QUEUE_COUNT_MAX:
        raise BodyError(f"a topic: {name} is not between 0 and {QUEUE_COUNT_MAX}")
    return count


def version_to_json(version: DataVersion) -> dict[str, Any]:
    """Return the JSON members of a version."""
    return {"counter": version.counter, "timestamp": version.timestamp}


def version_from_json(value: Any) -> DataVersion:
    """Return the version that JSON members describe; without any, the first."""
    if value is None:
        return DataVersion()
    members = Members(value, "a data version")
    return DataVersion(members.integer("timestamp", 0), members.integer("counter", 0))


def topic_table_to_json(topics: Iterable[TopicConfig], version: DataVersion) -> dict[str, Any]:
    """Return a table of topics, as topics.json and code 21 have it."""
    return {
        "dataVersion": version_to_json(version),
        "topicConfigTable": {topic.name: topic_to_json(topic) for topic in topics},
    }


def topic_table_from_json(value: Any) -> tuple[dict[str, TopicConfig], DataVersion]:
    """Return the topics by name, and the version of their table."""
    members = Members(value, "a table of topics")
    table: Mapping[Any, Any] = members.table("topicConfigTable")
    topics = map(topic_from_json, table.values())
    version = version_from_json(members.get("dataVersion"))
    return {topic.name: topic for topic in topics}, version
