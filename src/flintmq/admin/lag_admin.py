"""How far groups have come: offsets and lag by queue, by group and by broker."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flintmq.admin.admin_errors import MissingError
from flintmq.admin.member_admin import MemberAdmin
from flintmq.client.searching.broker_places import Answers, BrokerPlace
from flintmq.errors import FlintError
from flintmq.format.wire.bodies.dialect import Members, loads_body, queue_from
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.admin import (
    BrokerConsumeStatsRequest,
    ConsumeStatsRequest,
    ConsumeTimeSpanRequest,
)
from flintmq.model.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProgress:
    """How far a group has come in one queue."""

    topic: str
    broker: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    diff: int
    last_consumed_at_ms: int | None
    """When the message that was consumed last had been stored."""
    client: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProgressReport:
    """How far a group has come in all its queues."""

    group: str
    queues: Sequence[QueueProgress]
    consumed_per_second: float

    @property
    def diff_total(self) -> int:
        """How many messages it has still to consume."""
        return sum(one.diff for one in self.queues)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """One group, as ``consumerProgress`` lists all of them."""

    group: str
    member_count: int
    version: str
    consume_type: str
    message_model: str
    consumed_per_second: float
    diff_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerGroupLag:
    """How far a group has come in one queue of a broker."""

    topic: str
    group: str
    broker: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    diff: int
    last_consumed_at_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLag:
    """How far a group is behind in one topic: in messages, and in seconds."""

    group: str
    topic: str
    messages: int
    seconds: float
    """The age of the oldest message that was not consumed yet; zero if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedGroup:
    """A group, and what somebody should look after."""

    group: str
    members: int
    diff_total: int
    problems: Sequence[str]


class LagAdmin(MemberAdmin):
    """Operations that tell how far groups have come."""

    async def group_progress(
        self, group: str, *, topic: str | None = None, with_clients: bool = False
    ) -> GroupProgressReport:
        """Return how far a group has come in each queue; MissingError if it never consumed."""
        # Of a topic that is named a broker tells offsets though the group has none there.
        header = ConsumeStatsRequest(consumer_group=group)

        async def ask(place: BrokerPlace) -> Any:
            answer = await self.ask(place.address, RequestCode.GET_CONSUME_STATS, header)
            return loads_body(answer.body)

        answers = await self.ask_all(await self.group_places(group), ask)
        found = [Members(value, "a group's progress") for _, value in answers.or_raise()]
        if answers.failures:
            raise answers.failures[0][1]
        rows = [_progress(*one) for members in found for one in _offsets(members)]
        rows = [one for one in rows if topic in (None, one.topic)]
        if not rows:
            raise MissingError(f"the group {group!r} has consumed nothing yet, or does not exist")
        clients = await self._owners(group) if with_clients else {}
        rows = [
            replace(one, client=clients.get((one.topic, one.broker, one.queue_id))) for one in rows
        ]
        return GroupProgressReport(
            group=group,
            queues=sorted(rows, key=lambda one: (one.topic, one.broker, one.queue_id)),
            consumed_per_second=sum(_rate(members) for members in found),
        )

    async def _owners(self, group: str) -> dict[tuple[str, str, int], str]:
        """Return which client has which queue, as the members themselves tell it."""
        try:
            consumers, _ = await self.running_consumers(group)
        except FlintError:
            return {}
        return {
            (queue.topic, queue.broker, queue.queue_id): one.client_id.split("@")[0]
            for one in consumers
            for queue in one.queues
        }

    async def groups(self) -> list[str]:
        """Return the groups that have consumed, by their retry topics, sorted."""
        answer = await self.ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        topics = map(str, Members(loads_body(answer.body), "topics").items("topicList"))
        return sorted(one.removeprefix(RETRY_PREFIX) for one in topics if _is_retry(one))

    async def group_summaries(self) -> Answers[str, GroupSummary]:
        """Return all groups with their members and how far they are behind."""

        async def ask(group: str) -> GroupSummary:
            try:
                progress = await self.group_progress(group)
                diff, rate = progress.diff_total, progress.consumed_per_second
            except MissingError:
                diff, rate = 0, 0.0
            try:
                members = await self.consumer_members(group)
            except FlintError:
                members = None
            return GroupSummary(
                group=group,
                member_count=0 if members is None else len(members.clients),
                version="" if members is None else members.min_version,
                consume_type="" if members is None else members.consume_type,
                message_model="" if members is None else members.message_model,
                consumed_per_second=rate,
                diff_total=diff,
            )

        return await self.ask_all(await self.groups(), ask)

    async def watched_groups(self, *, lag_max: int) -> Answers[str, WatchedGroup]:
        """Return all groups with their problems: far behind, or nobody consumes what waits."""
        answers = await self.group_summaries()
        found = [(group, _watched(one, lag_max)) for group, one in answers.found]
        return Answers(found, answers.failures)

    async def broker_lags(
        self, broker: str, *, ordered_only: bool = False, timeout_ms: int | None = None
    ) -> list[BrokerGroupLag]:
        """Return how far all groups have come in the queues of one broker."""
        (place,) = await self.places(broker=broker)
        header = BrokerConsumeStatsRequest(is_order=ordered_only)
        code = RequestCode.GET_BROKER_CONSUME_STATS
        answer = await self.ask(place.address, code, header, timeout_ms=timeout_ms)
        members = Members(loads_body(answer.body), "the groups of a broker")
        rows = [
            _broker_lag(str(group), _progress(*one))
            for table in members.items("consumeStatsList")
            for group, stats in _by_group(table)
            for one in _offsets(Members(stats, "a group's progress"))
        ]
        return sorted(rows, key=lambda one: (one.topic, one.group, one.broker, one.queue_id))

    async def lags(self, group: str, *, topic: str | None = None) -> list[TopicLag]:
        """Return how far a group is behind in each topic, in messages and in seconds."""
        progress = await self.group_progress(group, topic=topic)
        topics = sorted({one.topic for one in progress.queues})
        found = []
        for name in topics:
            rows = [one for one in progress.queues if one.topic == name]
            messages = sum(one.diff for one in rows)
            seconds = await self._delay_s(group, name) if messages else 0.0
            found.append(TopicLag(group=group, topic=name, messages=messages, seconds=seconds))
        return found

    async def all_lags(self, *, topic: str | None = None) -> Answers[str, list[TopicLag]]:
        """Return how far all groups are behind; one that has consumed nothing is not."""

        async def ask(group: str) -> list[TopicLag]:
            try:
                return await self.lags(group, topic=topic)
            except MissingError:
                return []

        return await self.ask_all(await self.groups(), ask)

    async def _delay_s(self, group: str, topic: str) -> float:
        """Return the age of the oldest message that a group has still to consume."""
        header = ConsumeTimeSpanRequest(topic=topic, group=group)

        async def ask(place: BrokerPlace) -> int:
            code = RequestCode.QUERY_CONSUME_TIME_SPAN
            answer = await self.ask(place.address, code, header)
            spans = Members(loads_body(answer.body), "time spans").items("consumeTimeSpanSet")
            return max((Members(one, "a span").integer("delayTime", 0) for one in spans), default=0)

        answers = (await self.ask_all(await self.topic_places(topic), ask)).or_raise()
        delay_ms = max((one for _, one in answers), default=0)
        # A queue whose next message is not there any more tells a time since 1970.
        now_ms = time.time() * 1000
        return delay_ms / 1000 if 0 <= delay_ms < now_ms / 2 else 0.0


def _watched(one: GroupSummary, lag_max: int) -> WatchedGroup:
    problems = []
    if one.diff_total > lag_max:
        problems.append(f"{one.diff_total} messages behind")
    if one.member_count == 0 and one.diff_total > 0:
        problems.append("nobody consumes")
    return WatchedGroup(
        group=one.group, members=one.member_count, diff_total=one.diff_total, problems=problems
    )


def _by_group(table: Any) -> Iterator[tuple[str, Any]]:
    """Yield the groups of one part of a broker's statistics, with each of their topics."""
    members = Members(table, "the groups of a broker")
    for group in table:
        for stats in members.items(group):
            yield str(group), stats


def _is_retry(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def _offsets(members: Members) -> list[tuple[Any, Any]]:
    return [*members.table("offsetTable").items()]


def _rate(members: Members) -> float:
    value = members.get("consumeTps")
    return float(value) if isinstance(value, int | float) else 0.0


def _progress(key: Any, value: Any) -> QueueProgress:
    queue, members = queue_from(key), Members(value, "how far a group has come in a queue")
    end = members.integer("brokerOffset", 0)
    consumed = members.integer("consumerOffset", 0)
    last = members.integer("lastTimestamp", 0)
    return QueueProgress(
        topic=queue.topic,
        broker=queue.broker_name,
        queue_id=queue.queue_id,
        broker_offset=end,
        consumer_offset=consumed,
        diff=end - consumed,
        last_consumed_at_ms=last if last > 0 else None,
    )


def _broker_lag(group: str, one: QueueProgress) -> BrokerGroupLag:
    return BrokerGroupLag(
        topic=one.topic,
        group=group,
        broker=one.broker,
        queue_id=one.queue_id,
        broker_offset=one.broker_offset,
        consumer_offset=one.consumer_offset,
        diff=one.diff,
        last_consumed_at_ms=one.last_consumed_at_ms,
    )
