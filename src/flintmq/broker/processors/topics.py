"""Administration of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.topics import TopicLimitError
from flintmq.format.bodies.dialect import dumps_body
from flintmq.format.bodies.topics import topic_table_to_json, topic_to_json
from flintmq.format.codes import ResponseCode
from flintmq.format.headers.admin import CreateTopicRequest, TopicRequest
from flintmq.format.headers.clients import NoFields
from flintmq.format.topic_names import name_fault
from flintmq.model.message_queue import MessageQueue
from flintmq.model.topic_config import QUEUE_COUNT_MAX, TopicConfig
from flintmq.remoting import Answer, RefusedError, Request

if TYPE_CHECKING:
    from flintmq.broker.parts import BrokerParts


class TopicProcessor:
    """Serves what operators ask and order about topics."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts

    def create(self, request: Request[CreateTopicRequest]) -> Answer:
        """Create a topic or replace its configuration."""
        header = request.header
        self._check_name(header.topic)
        for count in (header.read_queue_nums, header.write_queue_nums):
            if not 0 <= count <= QUEUE_COUNT_MAX:
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR, f"a topic has 0 to {QUEUE_COUNT_MAX} queues"
                )
        try:
            self._parts.topics.put(
                TopicConfig(
                    name=header.topic,
                    read_queue_count=header.read_queue_nums,
                    write_queue_count=header.write_queue_nums,
                    perm=header.perm,
                    filter_type=header.topic_filter_type.name,
                    sys_flag=header.topic_sys_flag or 0,
                )
            )
        except TopicLimitError as error:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return Answer()

    def delete(self, request: Request[TopicRequest]) -> Answer:
        """Forget a topic and its queues; offsets and the log stay."""
        topic = request.header.topic
        self._check_name(topic)
        self._parts.topics.delete(topic)
        self._parts.store.clean_unused_topics([one.name for one in self._parts.topics])
        self._parts.statistics.forget_topic(topic)
        return Answer()

    def _check_name(self, topic: str) -> None:
        fault = name_fault(topic)
        if fault is not None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, fault)
        if self._parts.topics.is_system(topic):
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic."
            )

    def all_configs(self, request: Request[NoFields]) -> Answer:
        """Tell the configuration of all topics."""
        topics = self._parts.topics
        return Answer(parts=[dumps_body(topic_table_to_json(topics, topics.version))])

    def config(self, request: Request[TopicRequest]) -> Answer:
        """Tell the configuration of one topic."""
        return Answer(parts=[dumps_body(topic_to_json(self._topic(request.header.topic)))])

    def _topic(self, name: str) -> TopicConfig:
        topic = self._parts.topics.get(name)
        if topic is None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return topic

    def stats(self, request: Request[TopicRequest]) -> Answer:
        """Tell where the queues of a topic begin and end."""
        topic, store = self._topic(request.header.topic), self._parts.store
        table = {}
        for queue_id in range(topic.write_queue_count):
            end = store.max_offset_in_queue(topic.name, queue_id)
            start = max(store.min_offset_in_queue(topic.name, queue_id), 0)
            last = store.reader.unit_store_time(topic.name, queue_id, end - 1) if end else 0
            queue = MessageQueue(topic.name, self._parts.config.name, queue_id)
            table[queue] = {
                "lastUpdateTimestamp": max(last, 0),
                "maxOffset": max(end, 0),
                "minOffset": start,
            }
        return Answer(parts=[dumps_body({"offsetTable": table})])

    def system_topics(self, request: Request[NoFields]) -> Answer:
        """Tell the topics that belong to the broker itself."""
        return Answer(parts=[dumps_body({"topicList": self._parts.topics.system_topics()})])

    def consumed_by(self, request: Request[TopicRequest]) -> Answer:
        """Tell the groups that consume a topic, or have."""
        topic = request.header.topic
        groups = dict.fromkeys(self._parts.consumers.groups_of(topic))
        groups |= dict.fromkeys(self._parts.offsets.groups_of(topic))
        return Answer(parts=[dumps_body({"groupList": list(groups)})])

    def clean_unused(self, request: Request[NoFields]) -> Answer:
        """Delete the queues of topics that do not exist any more."""
        self._parts.store.clean_unused_topics([one.name for one in self._parts.topics])
        return Answer()

    def clean_expired(self, request: Request[NoFields]) -> Answer:
        """Delete queues of which no message is left."""
        self._parts.store.clean_expired_queues()
        return Answer()
