"""Administration of topics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from flintmq.broker.tables.topic_table import TopicLimitError
from flintmq.errors import FlintError
from flintmq.format.topic_names import name_fault
from flintmq.format.wire.bodies.dialect import dumps_body, dumps_in_steps
from flintmq.format.wire.bodies.topics import topic_to_json, version_to_json
from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.headers.admin import CreateTopicRequest, TopicRequest
from flintmq.format.wire.headers.clients import NoFields
from flintmq.model.message_queue import MessageQueue
from flintmq.model.topic_config import QUEUE_COUNT_MAX, TopicConfig
from flintmq.remoting import Answer, RefusedError, Request

if TYPE_CHECKING:
    from flintmq.broker.context import BrokerContext
    from flintmq.model.steps import Steps
    from flintmq.store.upkeep.queue_cleaning import ForgottenQueues


_OF_THE_MASTER: Final = "a slave cleans up by the topics of its master"


class TopicProcessor:
    """Serves what operators ask and order about topics."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._forgetting: set[asyncio.Task[None]] = set()

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
            self._context.topics.put(
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

    async def delete(self, request: Request[TopicRequest]) -> Answer:
        """Forget a topic and its queues; offsets and the log stay."""
        topic = request.header.topic
        self._check_name(topic)
        self._context.topics.delete(topic)
        self._context.fetched.forget_topic(topic)
        await self._forget(self._deleted(topic))
        return Answer()

    def _deleted(self, topic: str) -> Steps[ForgottenQueues]:
        yield from self._context.statistics.forget_topic(topic)
        return (yield from self._unused_queues(topic))

    def _unused_queues(self, topic: str = "") -> Steps[ForgottenQueues]:
        is_live = self._context.topics.__contains__
        return self._context.store.forget_unused_topics(is_live, first=topic)

    async def _forget(self, steps: Steps[ForgottenQueues]) -> None:
        """Remove queues in slices, and wait in a thread until the disk has it.

        It goes on though whoever asked for it is gone: half of it would be of no use to anyone.
        """

        async def forget() -> None:
            turns, name = self._context.turns, "queues of deleted topics"
            forgotten = await turns.run(steps, name)
            if (unsynced := forgotten.unsynced).has_waiting:
                await asyncio.to_thread(unsynced.flush)
                await turns.run(unsynced.pass_waiting(), name)
            await asyncio.to_thread(forgotten.sync)

        task = asyncio.create_task(forget())
        self._forgetting.add(task)
        task.add_done_callback(self._forgetting.discard)
        await asyncio.shield(task)

    def _check_name(self, topic: str) -> None:
        fault = name_fault(topic)
        if fault is not None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, fault)
        if self._context.topics.is_system(topic):
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic."
            )

    async def all_configs(self, request: Request[NoFields]) -> Answer:
        """Tell the configuration of all topics."""
        turns, name = self._context.turns, "configuration of topics"
        return Answer(parts=[await turns.run(self._all_configs(), name, request.connection)])

    def _all_configs(self) -> Steps[bytes]:
        topics, version = self._context.topics, self._context.topics.version
        table: dict[str, Any] = {}
        for topic in topics:
            table[topic.name] = topic_to_json(topic)
            yield
        body = {"dataVersion": version_to_json(version), "topicConfigTable": table}
        return (yield from dumps_in_steps(body))

    def config(self, request: Request[TopicRequest]) -> Answer:
        """Tell the configuration of one topic."""
        return Answer(parts=[dumps_body(topic_to_json(self._topic(request.header.topic)))])

    def _topic(self, name: str) -> TopicConfig:
        topic = self._context.topics.get(name)
        if topic is None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return topic

    async def stats(self, request: Request[TopicRequest]) -> Answer:
        """Tell where the queues of a topic begin and end."""
        steps = self._stats(self._topic(request.header.topic))
        turns, name = self._context.turns, "statistics of a topic"
        return Answer(parts=[await turns.run(steps, name, request.connection)])

    def _stats(self, topic: TopicConfig) -> Steps[bytes]:
        store, table = self._context.store, dict[MessageQueue, dict[str, int]]()
        for queue_id in range(topic.write_queue_count):
            end = store.max_offset_in_queue(topic.name, queue_id)
            start = max(store.min_offset_in_queue(topic.name, queue_id), 0)
            last = store.reader.unit_store_time(topic.name, queue_id, end - 1) if end else 0
            queue = MessageQueue(topic.name, self._context.config.name, queue_id)
            table[queue] = {
                "lastUpdateTimestamp": max(last, 0),
                "maxOffset": max(end, 0),
                "minOffset": start,
            }
            yield
        return (yield from dumps_in_steps({"offsetTable": table}))

    def system_topics(self, request: Request[NoFields]) -> Answer:
        """Tell the topics that belong to the broker itself."""
        return Answer(parts=[dumps_body({"topicList": self._context.topics.system_topics()})])

    def consumed_by(self, request: Request[TopicRequest]) -> Answer:
        """Tell the groups that consume a topic, or have."""
        topic = request.header.topic
        groups = dict.fromkeys(self._context.consumers.groups_of(topic))
        groups |= dict.fromkeys(self._context.offsets.groups_of(topic))
        return Answer(parts=[dumps_body({"groupList": list(groups)})])

    async def clean_unused(self, request: Request[NoFields]) -> Answer:
        """Delete the queues of topics that do not exist any more.

        The topics of a slave are those of its master some seconds ago.  By these it would delete
        messages of topics that were made since, and they would be missing when it is promoted.
        """
        if not self._context.is_slave:
            await self._forget(self._unused_queues())
            return Answer()
        replica, topics = self._context.replica, self._context.topics
        try:
            if replica is None:
                raise RefusedError(ResponseCode.SYSTEM_ERROR, f"{_OF_THE_MASTER}: none is followed")
            known = await replica.known_topics()
        except (FlintError, TimeoutError) as error:
            reason = str(error) or "it is too far behind"
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"{_OF_THE_MASTER}: {reason}") from error
        await self._forget(
            self._context.store.forget_unused_topics(topics.__contains__, known=known)
        )
        return Answer()

    async def clean_expired(self, request: Request[NoFields]) -> Answer:
        """Delete queues of which no message is left."""
        await self._forget(self._context.store.forget_expired_queues())
        return Answer()
