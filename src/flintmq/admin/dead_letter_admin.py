"""Dead letters: which groups have them, what they are, and having them consumed again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flintmq.admin.admin_errors import AdminError, MissingError
from flintmq.admin.message_admin import ADMIN_GROUP
from flintmq.admin.trace_admin import TraceAdmin
from flintmq.client.errors import TopicNotExistError, UsageError
from flintmq.client.messaging.envelope import Envelope
from flintmq.client.wall_clock import wall_ms
from flintmq.errors import FlintError
from flintmq.format.properties import encode_properties
from flintmq.format.sys_flag import COMPRESSED, COMPRESSION_MASK
from flintmq.format.wire.codes import RequestCode
from flintmq.model import property_names as names
from flintmq.model.topics import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.admin.scan_admin import QueueScan
    from flintmq.client.messaging.messages import ReceivedMessage, SendResult

PLANNED: Final = "planned"
_DROPPED: Final = (
    *(names.TRAN_MSG, names.DELAY, names.MIN_OFFSET, names.MAX_OFFSET, names.RECONSUME_TIME),
    *(names.MAX_RECONSUME_TIMES, names.CONSUME_START_TIME, names.REAL_TOPIC, names.REAL_QID),
)
"""Properties that would steer what brokers and clients do with a message that is sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """The dead letters of one group."""

    group: str
    topic: str
    messages: int
    last_stored_at_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """What became of one dead letter."""

    message_id: str
    origin_topic: str | None
    target_topic: str
    outcome: str
    """planned, sent or failed."""
    new_offset_message_id: str | None = None
    error: FlintError | None = None


class DeadLetterAdmin(TraceAdmin):
    """Operations on dead letters."""

    async def dead_letters(self) -> list[DeadLetters]:
        """Return the groups that have dead letters, those with most of them first."""
        topics = [one for one in await self.topics() if one.startswith(DLQ_PREFIX)]
        answers = await self.ask_all(topics, self.topic_status)
        found = [
            DeadLetters(
                group=topic.removeprefix(DLQ_PREFIX),
                topic=topic,
                messages=sum(one.max_offset - one.min_offset for one in queues),
                last_stored_at_ms=max(
                    (one.last_stored_at_ms for one in queues if one.last_stored_at_ms),
                    default=None,
                ),
            )
            for topic, queues in answers.or_raise()
        ]
        return sorted(found, key=lambda one: (-one.messages, one.group))

    async def scan_dead_letters(
        self,
        group: str,
        *,
        begin_ms: int | None = None,
        end_ms: int | None = None,
        count_max: int = 1000,
        cursor: str | None = None,
    ) -> QueueScan:
        """Read the dead letters of a group that were stored within a range of times."""
        try:
            return await self.scan(
                DLQ_PREFIX + group,
                begin_ms=begin_ms,
                end_ms=end_ms,
                count_max=count_max,
                cursor=cursor,
            )
        except TopicNotExistError as error:
            raise MissingError(
                f"the group {group!r} has no dead letters; dlq list shows which groups have some"
            ) from error

    async def replay_dead_letters(
        self,
        group: str,
        messages: Sequence[ReceivedMessage],
        *,
        topic: str | None = None,
        to_origin: bool = False,
        per_second: float | None = None,
        dry_run: bool = False,
    ) -> list[ReplayOutcome]:
        """Send dead letters again, and return what became of each.

        Unless something else is said they go to the retry topic of their group, so that no other
        group gets them; ``to_origin`` sends them to the topics that they came from, for all
        groups, and ``topic`` to another one.  At most ``per_second`` are sent in a second.
        """
        if topic is not None and to_origin:
            raise UsageError("send them to a topic or to where they came from, not both")
        if per_second is not None and per_second <= 0:
            raise UsageError("a rate is above zero")
        loop = asyncio.get_running_loop()
        due, outcomes = loop.time(), []
        for message in messages:
            origin = message.properties.get(names.RETRY_TOPIC)
            target = topic or (origin if to_origin else RETRY_PREFIX + group) or ""
            if dry_run:
                outcomes.append(_outcome(message, target, PLANNED))
                continue
            if per_second is not None:
                await asyncio.sleep(max(due - loop.time(), 0))
                due = max(due, loop.time()) + 1 / per_second
            try:
                is_retry = target == RETRY_PREFIX + group
                result = await self._send_again(message, target, is_retry=is_retry)
            except FlintError as error:
                outcomes.append(_outcome(message, target, "failed", error=error))
            else:
                new_id = result.offset_message_id
                outcomes.append(_outcome(message, target, "sent", new_id=new_id))
        return outcomes

    async def _send_again(
        self, message: ReceivedMessage, topic: str, *, is_retry: bool
    ) -> SendResult:
        if not topic:
            raise AdminError("the message does not say which topic it came from; name one")
        properties = {k: v for k, v in message.properties.items() if k not in _DROPPED}
        properties[names.WAIT] = "true"
        if not is_retry:
            properties.pop(names.RETRY_TOPIC, None)
        queues = await self.client.routes.publish_queues(topic)
        home = [one for one in queues if one.broker_name == message.queue.broker_name]
        if not queues:
            raise MissingError(f"no broker takes messages for {topic!r}")
        queue = (home or queues)[message.queue_offset % len(home or queues)]
        envelope = Envelope(
            topic=topic,
            code=RequestCode.SEND_MESSAGE_V2,
            body=message.stored_body,
            properties=encode_properties(properties).decode(),
            sys_flag=message.sys_flag & (COMPRESSED | COMPRESSION_MASK),
            flag=message.flag,
            message_id=message.message_id,
            born_timestamp=wall_ms(),
        )
        address = self.client.routes.master(queue.broker_name)
        if address is None:
            raise AdminError(f"{queue.broker_name} has no master")
        answer = await self.client.remoting.call(
            address,
            envelope.code,
            envelope.header(ADMIN_GROUP, queue),
            envelope.body,
            timeout_ms=self._options.request_timeout_ms,
        )
        return envelope.result(answer, queue, address=address)


def _outcome(
    message: ReceivedMessage,
    target: str,
    outcome: str,
    *,
    new_id: str | None = None,
    error: FlintError | None = None,
) -> ReplayOutcome:
    return ReplayOutcome(
        message_id=message.message_id,
        origin_topic=message.properties.get(names.RETRY_TOPIC),
        target_topic=target,
        outcome=outcome,
        new_offset_message_id=new_id,
        error=error,
    )
