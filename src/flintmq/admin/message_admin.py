"""Messages: finding them by id, by key and by offset, who has consumed them, sending them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from flintmq.admin.admin_base import BrokerPlace
from flintmq.admin.admin_errors import MissingError
from flintmq.admin.changes import AdminChange, PlannedChange, carry_out
from flintmq.admin.offset_admin import OffsetAdmin
from flintmq.admin.topic_admin import TopicAdmin
from flintmq.client.errors import ConsumerNotOnlineError, SystemFailureError, UsageError
from flintmq.client.messaging.message_decoding import decode_message
from flintmq.client.messaging.messages import Message
from flintmq.client.producing.producer import AsyncProducer
from flintmq.errors import FlintError
from flintmq.format.errors import MessageIdError
from flintmq.format.host import host_text
from flintmq.format.message_id import decode_offset_id
from flintmq.format.stored.pulled_records import decode_records
from flintmq.format.wire.bodies.dialect import Members, loads_body
from flintmq.format.wire.bodies.heartbeat import CONSUME_TYPES, MESSAGE_MODELS
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.clients import ConsumeDirectlyRequest
from flintmq.format.wire.headers.query import QueryMessageRequest, ViewMessageRequest
from flintmq.model.message_queue import MessageQueue
from flintmq.model.topics import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flintmq.client.messaging.messages import ReceivedMessage, SendResult
    from flintmq.format.stored.record import Record

ADMIN_GROUP: Final = "flintmq-admin"
PAGE_COUNT: Final = 64
"""Messages that brokers give for one search by key, unless they are set up otherwise."""
FOUND_COUNT_MAX: Final = 100_000
SCANNED_COUNT_MAX: Final = 1_000_000
"""Messages that one broker may send for a search, however few of them have the key."""
END_OF_TIME_MS: Final = (1 << 63) - 1
PUSH_TIMEOUT_MS: Final = 15_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySearch:
    """The messages that a search by key has found, newest first."""

    messages: Sequence[ReceivedMessage]
    scanned: int
    """How many messages brokers have sent: keys of one hash come together."""
    is_complete: bool
    """Whether there are no more of them within the times that were asked for."""
    failures: Sequence[tuple[str, FlintError]] = ()
    """The brokers that did not answer, and why."""


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
        """Return the message that an offset id names; MissingError if it is not there.

        The id says which broker has it; only brokers that are registered are asked.
        """
        try:
            host, offset = decode_offset_id(offset_id)
        except MessageIdError as error:
            raise UsageError(str(error)) from error
        address = host_text(host)
        places = await self.all_places()
        wanted = [one for one in places if one.address == address] or places

        async def ask(place: BrokerPlace) -> ReceivedMessage:
            header = ViewMessageRequest(offset=offset)
            answer = await self.ask(place.address, RequestCode.VIEW_MESSAGE_BY_ID, header)
            records = decode_records(answer.body)
            if not records:
                raise MissingError(f"{place.label} answers without a message")
            return decode_message(records[0], place.broker)

        answers = await self.ask_all(wanted, ask)
        for _, message in answers.found:
            if message.offset_message_id == offset_id.upper():
                return message
        for _, failure in answers.failures:
            if type(failure) not in (SystemFailureError, MissingError):
                raise failure
        raise MissingError(f"no broker has the message {offset_id}; it may be deleted already")

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

        A broker gives 64 at a time; further ones are asked for by the time of the oldest.  With
        ``is_unique`` the key is the unique id that a producer has given.
        """
        if not 0 < count_max <= FOUND_COUNT_MAX:
            raise UsageError(f"count_max must be from 1 to {FOUND_COUNT_MAX}")
        search = _KeySearch(self, topic, key, begin_ms, count_max, is_unique=is_unique)

        async def ask(place: BrokerPlace) -> KeySearch:
            return await search.run(place, end_ms)

        answers = await self.ask_all(await self.topic_places(topic), ask)
        found = [one for _, one in answers.or_raise()]
        messages = sorted(
            (message for one in found for message in one.messages),
            key=lambda one: (-one.store_timestamp, one.queue.broker_name, -one.physical_offset),
        )
        return KeySearch(
            messages=messages[:count_max],
            scanned=sum(one.scanned for one in found),
            is_complete=not answers.failures
            and all(one.is_complete for one in found)
            and len(messages) <= count_max,
            failures=[(place.label, error) for place, error in answers.failures],
        )

    async def message_by_unique_id(self, topic: str, unique_id: str) -> list[ReceivedMessage]:
        """Return the messages that a producer has given an id; several if it sent again."""
        found = await self.messages_by_key(topic, unique_id, is_unique=True)
        if not found.messages:
            raise MissingError(f"no message {unique_id} in {topic!r}; it may be deleted already")
        return list(found.messages)

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


class _KeySearch:
    """One search by key; a broker is asked again for what is older than the oldest found."""

    def __init__(
        self,
        admin: MessageAdmin,
        topic: str,
        key: str,
        begin_ms: int,
        count_max: int,
        *,
        is_unique: bool,
    ) -> None:
        self._admin = admin
        self._topic = topic
        self._key = key
        self._begin_ms = begin_ms
        self._count_max = count_max
        self._is_unique = is_unique

    async def run(self, place: BrokerPlace, end_ms: int) -> KeySearch:
        """Search on one broker."""
        found: dict[int, ReceivedMessage] = {}
        seen: set[int] = set()
        is_complete = True
        while len(found) <= self._count_max and len(seen) < SCANNED_COUNT_MAX:
            page = await self._page(place.address, end_ms)
            new = [one for one in page if one.physical_offset not in seen]
            if not new:
                if len(page) < PAGE_COUNT:
                    break
                # More of one second than an answer holds: what is beyond cannot be had.
                is_complete = False
                end_ms = min(one.store_timestamp for one in page) // 1000 * 1000 - 1
                continue
            seen.update(one.physical_offset for one in new)
            for record in new:
                message = decode_message(record, place.broker)
                if self._is_wanted(message):
                    found[record.physical_offset] = message
            end_ms = min(one.store_timestamp for one in page)
        else:
            is_complete = False
        return KeySearch(messages=list(found.values()), scanned=len(seen), is_complete=is_complete)

    async def _page(self, address: str, end_ms: int) -> list[Record]:
        if end_ms < self._begin_ms:
            return []
        header = QueryMessageRequest(
            topic=self._topic,
            key=self._key,
            max_num=PAGE_COUNT,
            begin_timestamp=self._begin_ms,
            end_timestamp=end_ms,
            unique_key_query=True if self._is_unique else None,
        )
        answer = await self._admin.ask(
            address,
            RequestCode.QUERY_MESSAGE,
            header,
            accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        return decode_records(answer.body) if answer.code == ResponseCode.SUCCESS else []

    def _is_wanted(self, message: ReceivedMessage) -> bool:
        """Whether a message has the key itself, not only one of the same hash."""
        if message.queue.topic != self._topic:
            return False
        keys: Any = (message.message_id,) if self._is_unique else message.keys
        return self._key in keys
