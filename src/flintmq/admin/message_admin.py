"""Messages: finding them by id, by key and by offset, who has consumed them, sending them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from flintmq.admin.changes import AdminChange, PlannedChange, carry_out
from flintmq.admin.offset_admin import OffsetAdmin
from flintmq.admin.topic_admin import TopicAdmin
from flintmq.client.errors import ConsumerNotOnlineError, UsageError
from flintmq.client.messaging.messages import Message
from flintmq.client.producing.producer import AsyncProducer
from flintmq.client.searching.message_search import (
    END_OF_TIME_MS,
    PAGE_COUNT,
    KeySearch,
    find_by_id,
    find_by_key,
    find_by_unique_id,
)
from flintmq.errors import FlintError
from flintmq.format.wire.bodies.dialect import Members, loads_body
from flintmq.format.wire.bodies.heartbeat import CONSUME_TYPES, MESSAGE_MODELS
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.clients import ConsumeDirectlyRequest
from flintmq.model.message_queue import MessageQueue
from flintmq.model.topics import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flintmq.client.messaging.messages import ReceivedMessage, SendResult

ADMIN_GROUP: Final = "flintmq-admin"
PUSH_TIMEOUT_MS: Final = 15_000


class TrackState(Enum):
    """What a group has done with a message."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    PULL = "PULL"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTrack:
    """What one group has done with a message."""

    group: str
    state: TrackState
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectConsumption:
    """How one consumer has handled a message that it was told to consume."""

    group: str
    client_id: str
    result: str
    elapsed_ms: int
    remark: str | None


class MessageAdmin(TopicAdmin, OffsetAdmin):
    """Operations on single messages."""

    async def delete_own_topics(
        self, group: str, *, cluster: str, dry_run: bool = False
    ) -> list[AdminChange]:
        """Delete the topics that a group has for its retries and its dead letters."""
        known, changes = set(await self.topics()), list[AdminChange]()
        for topic in (RETRY_PREFIX + group, DLQ_PREFIX + group):
            if topic in known:
                changes += await self.delete_topic(topic, cluster=cluster, dry_run=dry_run)
        return changes

    # -- finding -----------------------------------------------------------------------------

    async def message_by_id(self, offset_id: str) -> ReceivedMessage:
        """Return the message that an offset id names; MessageNotFoundError if it is not there.

        The id says which broker has it; only brokers that are registered are asked.
        """
        return await find_by_id(self.client, offset_id)

    async def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME_MS,
        count_max: int = PAGE_COUNT,
        is_unique: bool = False,
    ) -> KeySearch:
        """Return the newest messages of a key, at most ``count_max`` of them.

        With ``is_unique`` the key is the unique id that a producer has given.
        """
        return await find_by_key(
            self.client,
            topic,
            key,
            begin_ms=begin_ms,
            end_ms=end_ms,
            count_max=count_max,
            is_unique=is_unique,
        )

    async def message_by_unique_id(self, topic: str, unique_id: str) -> list[ReceivedMessage]:
        """Return the messages that a producer has given an id; several if it sent again."""
        return await find_by_unique_id(self.client, topic, unique_id)

    # -- what became of them -----------------------------------------------------------------

    async def track(self, message: ReceivedMessage) -> list[MessageTrack]:
        """Return what each group of a message's topic has done with it."""
        groups = await self.groups_of_topic(message.queue.topic)
        return [await self._track(message, group) for group in groups]

    async def _track(self, message: ReceivedMessage, group: str) -> MessageTrack:
        try:
            members = await self.consumer_members(group)
            if members.consume_type == CONSUME_TYPES[0]:
                return MessageTrack(group=group, state=TrackState.PULL)
            if members.message_model == MESSAGE_MODELS[0]:
                return MessageTrack(group=group, state=TrackState.CONSUME_BROADCASTING)
            progress = await self.group_progress(group)
        except ConsumerNotOnlineError as error:
            return MessageTrack(group=group, state=TrackState.NOT_ONLINE, reason=error.remark)
        except FlintError as error:
            return MessageTrack(group=group, state=TrackState.UNKNOWN, reason=str(error))
        queue = message.queue
        for one in progress.queues:
            if MessageQueue(one.topic, one.broker, one.queue_id) == queue:
                if one.consumer_offset <= message.queue_offset:
                    return MessageTrack(group=group, state=TrackState.NOT_CONSUME_YET)
                subscription = members.subscriptions.get(queue.topic)
                tags = frozenset() if subscription is None else subscription.tags
                is_filtered = bool(tags) and message.tag not in tags
                state = TrackState.CONSUMED_BUT_FILTERED if is_filtered else TrackState.CONSUMED
                return MessageTrack(group=group, state=state)
        return MessageTrack(group=group, state=TrackState.UNKNOWN)

    async def push_message(
        self, message: ReceivedMessage, group: str, client_id: str
    ) -> DirectConsumption:
        """Have one consumer handle a message now, and return how that went."""
        header = ConsumeDirectlyRequest(
            consumer_group=group, client_id=client_id, msg_id=message.offset_message_id
        )
        await self.client.routes.fetch(message.queue.topic)
        address = await self.client.routes.home(message.queue)
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        answer = await self.ask(address, code, header, timeout_ms=PUSH_TIMEOUT_MS)
        members = Members(loads_body(answer.body), "the result of a direct consumption")
        return DirectConsumption(
            group=group,
            client_id=client_id,
            result=members.text("consumeResult", ""),
            elapsed_ms=members.integer("spentTimeMills", 0),
            remark=members.get("remark"),
        )

    async def push_messages(
        self,
        messages: Iterable[ReceivedMessage],
        group: str,
        client_id: str,
        *,
        dry_run: bool = False,
    ) -> list[AdminChange]:
        """Have one consumer handle messages now; each change tells how that went."""
        plans = [self._push_plan(one, group, client_id) for one in messages]
        return await carry_out(plans, dry_run=dry_run)

    def _push_plan(self, message: ReceivedMessage, group: str, client_id: str) -> PlannedChange:
        change = AdminChange(
            target=client_id, subject=f"message {message.message_id}", new={"group": group}
        )

        async def apply() -> dict[str, object]:
            done = await self.push_message(message, group, client_id)
            return {"result": done.result, "elapsedMs": done.elapsed_ms, "remark": done.remark}

        return PlannedChange(change, apply)

    # -- sending -----------------------------------------------------------------------------

    async def resend_messages(
        self, messages: Iterable[ReceivedMessage], *, dry_run: bool = False
    ) -> list[AdminChange]:
        """Send messages to their topics again, as new ones with the same body, tag and keys."""
        return await carry_out([self._resend_plan(one) for one in messages], dry_run=dry_run)

    def _resend_plan(self, message: ReceivedMessage) -> PlannedChange:
        topic = message.queue.topic
        change = AdminChange(
            target=topic, subject=f"message {message.message_id}", new={"sent": "again"}
        )

        async def apply() -> dict[str, object]:
            again = Message(topic=topic, body=message.body, tag=message.tag, keys=message.keys)
            result = await self.send_message(again)
            return {"offsetMessageId": result.offset_message_id}

        return PlannedChange(change, apply)

    async def send_message(
        self, message: Message, *, broker: str | None = None, queue_id: int | None = None
    ) -> SendResult:
        """Send a message, to one broker and queue if they are named."""
        if (broker is None) != (queue_id is None):
            raise UsageError("name both a broker (-b) and a queue (-i), or neither")
        queue = None
        if broker is not None and queue_id is not None:
            queue = MessageQueue(message.topic, broker, queue_id)
        async with AsyncProducer(group=ADMIN_GROUP, client=self.client) as producer:
            return await producer.send(message, queue=queue)
