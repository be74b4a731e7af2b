"""Fetching messages of a queue, at once or when there are some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.broker.held_pulls import HeldPull
from flintmq.broker.offset_events import offset_moved_event
from flintmq.broker.statistics import BROKER_GET_COUNT, GROUP_GET_COUNT, GROUP_GET_SIZE
from flintmq.broker.tag_filter import filter_for
from flintmq.format.bodies.heartbeat import MESSAGE_MODELS
from flintmq.format.codes import ResponseCode
from flintmq.format.headers.pull import PullMessageRequest, PullMessageResponse
from flintmq.format.subscription import ExpressionError, build_subscription
from flintmq.model.subscription import Subscription
from flintmq.model.topic_config import Perm
from flintmq.remoting import Answer, RefusedError, Request
from flintmq.store.results import GetResult, GetStatus

if TYPE_CHECKING:
    from flintmq.broker.parts import BrokerParts
    from flintmq.broker.tag_filter import TagFilter
    from flintmq.model.group_config import GroupConfig

COMMIT_OFFSET: Final = 1
SUSPEND: Final = 2
SUBSCRIPTION: Final = 4

_BROADCASTING: Final = MESSAGE_MODELS[0]

_CODES: Final = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
}
_NOTHING_THERE: Final = frozenset({GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.NO_MATCHED_LOGIC_QUEUE})


class PullProcessor:
    """Serves pulls."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts

    def pull(self, request: Request[PullMessageRequest]) -> Answer | None:
        """Answer with messages; a pull that finds none and may wait is held."""
        header = request.header
        group, message_filter = self._checked(header)
        if header.sys_flag & COMMIT_OFFSET:
            self._parts.offsets.commit(
                header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )
        answer = self._read(header, group, message_filter)
        if answer.code != ResponseCode.PULL_NOT_FOUND or not header.sys_flag & SUSPEND:
            return answer
        config = self._parts.config
        timeout_ms = header.suspend_timeout_millis
        held = HeldPull(
            (header.topic, header.queue_id),
            header.queue_offset,
            message_filter,
            answer=lambda: request.answer(self._read_after_all(header)),
            is_gone=lambda: request.connection.is_closed,
        )
        timeout_ms = timeout_ms if config.long_polling else config.short_polling_ms
        return None if self._parts.held.hold(held, timeout_ms) else answer

    def _read_after_all(self, header: PullMessageRequest) -> Answer:
        """Answer a pull that was held; what it may read can have changed meanwhile."""
        try:
            group, message_filter = self._checked(header)
        except RefusedError as refusal:
            return Answer(refusal.code, remark=refusal.remark)
        return self._read(header, group, message_filter)

    # -- checks ------------------------------------------------------------------------------

    def _checked(self, header: PullMessageRequest) -> tuple[GroupConfig, TagFilter | None]:
        group = self._checked_group(header)
        self._check_topic(header)
        return group, filter_for(self._subscription(header, group))

    def _checked_group(self, header: PullMessageRequest) -> GroupConfig:
        config = self._parts.config
        if not config.permission & Perm.READ:
            raise RefusedError(
                ResponseCode.NO_PERMISSION, f"the broker[{config.ip1}] pulling message is forbidden"
            )
        group = self._parts.groups.get(header.consumer_group)
        if group is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist",
            )
        if not group.consume_enable:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"subscription group no permission, {header.consumer_group}",
            )
        return group

    def _check_topic(self, header: PullMessageRequest) -> None:
        topic = self._parts.topics.get(header.topic)
        if topic is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please!",
            )
        if not topic.perm & Perm.READ:
            raise RefusedError(
                ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling is forbidden"
            )
        if not 0 <= header.queue_id < topic.read_queue_count:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] has "
                f"{topic.read_queue_count} queues to read",
            )

    def _subscription(self, header: PullMessageRequest, group: GroupConfig) -> Subscription:
        if header.sys_flag & SUBSCRIPTION:
            try:
                found = build_subscription(
                    header.topic, header.subscription, header.expression_type
                )
            except ExpressionError as error:
                raise RefusedError(
                    ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the subscription: {error}"
                ) from error
        else:
            found = self._registered_subscription(header, group)
        if not found.is_tag:
            kind = found.expression_type
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {kind}",
            )
        return found

    def _registered_subscription(
        self, header: PullMessageRequest, config: GroupConfig
    ) -> Subscription:
        group = self._parts.consumers.get(header.consumer_group)
        if group is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist"
            )
        if not config.consume_broadcast_enable and group.message_model == _BROADCASTING:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{config.name}] can not consume by broadcast way",
            )
        found = group.subscriptions.get(header.topic)
        if found is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the group {config.name} does not subscribe to {header.topic}",
            )
        if found.version < header.sub_version:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        return found

    # -- reading -----------------------------------------------------------------------------

    def _read(
        self, header: PullMessageRequest, group: GroupConfig, message_filter: TagFilter | None
    ) -> Answer:
        result = self._parts.store.get_messages(
            header.topic,
            header.queue_id,
            header.queue_offset,
            header.max_msg_nums,
            message_filter,
        )
        if result is None:
            return Answer(ResponseCode.SYSTEM_ERROR, remark="store getMessage return null")
        if result.status in _NOTHING_THERE:
            moved = header.queue_offset != 0
            code = ResponseCode.PULL_OFFSET_MOVED if moved else ResponseCode.PULL_NOT_FOUND
        else:
            code = _CODES[result.status]
        answer_header = PullMessageResponse(
            suggest_which_broker_id=self._suggested_broker(result, group),
            next_begin_offset=result.next_begin_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
        )
        if code == ResponseCode.PULL_OFFSET_MOVED:
            self._parts.store.put(offset_moved_event(self._parts, header, result))
        if code != ResponseCode.SUCCESS:
            result.release()
            return Answer(code, answer_header, result.status.value)
        self._count(header, result)
        return Answer(
            code, answer_header, result.status.value, parts=result.messages, release=result.release
        )

    def _suggested_broker(self, result: GetResult, group: GroupConfig) -> int:
        if not self._parts.config.slave_read:
            return 0
        return group.slow_broker_id if result.suggest_slave else group.broker_id

    def _count(self, header: PullMessageRequest, result: GetResult) -> None:
        statistics, count = self._parts.statistics, len(result.messages)
        key = f"{header.topic}@{header.consumer_group}"
        statistics.add(GROUP_GET_COUNT, key, count)
        statistics.add(GROUP_GET_SIZE, key, result.total_size)
        statistics.add(BROKER_GET_COUNT, self._parts.config.cluster, count)
