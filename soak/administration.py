"""What operators do to a broker that works: topics, groups, settings, clean-up, questions."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import Final

from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.admin import (
    BrokerConsumeStatsRequest,
    CreateTopicRequest,
    DeleteGroupRequest,
    TopicRequest,
)
from flintmq.format.wire.headers.codec import Header
from flintmq.format.wire.headers.offsets import QueueBoundRequest
from flintmq.model.property_names import KEYS
from flintmq.remoting import RemotingClient, RemotingError
from soak.oracle import MessageId, Oracle, Queue
from soak.topics import DELETED, QUEUE_COUNTS
from tests.kits.broker.broker_kit import pull_header, records

TIMEOUT_MS: Final = 10_000
_REPEAT_S: Final = 0.1
_PERMISSION_TO_READ_AND_WRITE: Final = 6
_READ_COUNT: Final = 256


class RefusedByBrokerError(Exception):
    """A broker did not do what an operator asked for."""


class Administration:
    """An operator with a connection of its own."""

    def __init__(self, address: str, oracle: Oracle, *, random_numbers: random.Random) -> None:
        self._address = address
        self._oracle = oracle
        self._random = random_numbers
        self._client = RemotingClient()
        self._numbers = itertools.count()

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def ask(self, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        """Return the answer to one request."""
        return await self._client.call(self._address, code, header, body, timeout_ms=TIMEOUT_MS)

    async def order(
        self, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> None:
        """Ask for something that has to be done."""
        answer = await self.ask(code, header, body)
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedByBrokerError(f"{code.name}: {answer.code} {answer.remark}")

    async def is_serving(self) -> bool:
        """Whether the broker answers."""
        try:
            await self.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        except RemotingError:
            return False
        return True

    # -- topics ------------------------------------------------------------------------------

    async def create_topic(self, topic: str, queue_count: int) -> None:
        """Make a topic, or leave it as it is."""
        header = CreateTopicRequest(
            topic=topic,
            read_queue_nums=queue_count,
            write_queue_nums=queue_count,
            perm=_PERMISSION_TO_READ_AND_WRITE,
        )
        await self.order(RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def delete_and_make_anew(self) -> None:
        """Delete a topic while others send to it; ask again until there is an answer.

        Whoever asked and got no answer does not know whether it is done, or will yet be.
        """
        self._oracle.topic_deletion_began(DELETED)
        while True:
            with contextlib.suppress(RemotingError):
                await self.order(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest(topic=DELETED))
                break
            await asyncio.sleep(_REPEAT_S)
        self._oracle.topic_deleted(DELETED)
        while True:
            with contextlib.suppress(RemotingError):
                await self.create_topic(DELETED, QUEUE_COUNTS[DELETED])
                return
            await asyncio.sleep(_REPEAT_S)

    async def _short_lived_topic(self) -> None:
        name = f"soak-short-{next(self._numbers)}"
        await self.create_topic(name, 3)
        await self.order(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest(topic=name))

    async def _short_lived_group(self) -> None:
        name = f"soak-group-{next(self._numbers)}"
        body = b'{"groupName":"%s","retryQueueNums":2}' % name.encode()
        await self.order(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        header = DeleteGroupRequest(group_name=name, remove_offset=True)
        await self.order(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    # -- everything else ---------------------------------------------------------------------

    async def _clean_unused_topics(self) -> None:
        await self.order(RequestCode.CLEAN_UNUSED_TOPIC)

    async def _clean_expired_queues(self) -> None:
        await self.order(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def _change_settings(self) -> None:
        body = b"shortPollingTimeMills=%d" % self._random.randint(500, 2000)
        await self.order(RequestCode.UPDATE_BROKER_CONFIG, None, body)

    async def _ask_questions(self) -> None:
        await self.order(RequestCode.GET_ALL_TOPIC_CONFIG)
        await self.order(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        await self.order(RequestCode.GET_ALL_CONSUMER_OFFSET)
        await self.order(RequestCode.GET_BROKER_CONSUME_STATS, BrokerConsumeStatsRequest())

    async def _expire(self) -> None:
        """Let log files go as soon as they are full, or keep them for days again.

        A broker begins with it when it has run for a minute; the setting outlives its end.
        """
        hours = self._random.choice((0, 0, 72))
        if hours == 0:
            self._oracle.expiry_requested()
        body = b"fileReservedTime=%d" % hours
        await self.order(RequestCode.UPDATE_BROKER_CONFIG, None, body)
        await self.order(RequestCode.DELETE_EXPIRED_COMMITLOG)

    def operations(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return what may be done at any time, by its name."""
        return {
            "delete a topic": self.delete_and_make_anew,
            "short-lived topic": self._short_lived_topic,
            "short-lived group": self._short_lived_group,
            "clean unused topics": self._clean_unused_topics,
            "clean expired queues": self._clean_expired_queues,
            "change settings": self._change_settings,
            "questions": self._ask_questions,
            "expire log files": self._expire,
        }

    # -- reading -----------------------------------------------------------------------------

    async def begin_of(self, queue: Queue) -> int:
        """Return the offset of the first message of a queue."""
        header = QueueBoundRequest(topic=queue.topic, queue_id=queue.queue_id)
        answer = await self.ask(RequestCode.GET_MIN_OFFSET, header)
        return int(answer.ext_fields["offset"])

    async def read(self, queue: Queue) -> dict[int, MessageId]:
        """Return everything in a queue, from its first message to its last."""
        found: dict[int, MessageId] = {}
        offset = await self.begin_of(queue)
        while True:
            header = pull_header(
                queue.topic,
                consumer_group="soak-readers",
                queue_id=queue.queue_id,
                queue_offset=offset,
                max_msg_nums=_READ_COUNT,
                suspend_timeout_millis=0,
                sys_flag=4,
            )
            answer = await self.ask(RequestCode.PULL_MESSAGE, header)
            for record in records(answer.body) if answer.code == ResponseCode.SUCCESS else ():
                found[record.queue_offset] = MessageId.parse(record.properties[KEYS])
            following = int(answer.ext_fields["nextBeginOffset"])
            if answer.code == ResponseCode.PULL_NOT_FOUND or following <= offset:
                return found
            offset = following
