"""Who is connected: the consumers and producers of groups, and how consumers are doing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from flintmq.admin.admin_errors import MissingError
from flintmq.admin.group_admin import GroupAdmin
from flintmq.client.errors import ConsumerNotOnlineError, SystemFailureError
from flintmq.client.searching.broker_places import BrokerPlace
from flintmq.format.wire.bodies.dialect import Members, loads_body, queue_from
from flintmq.format.wire.bodies.heartbeat import subscription_from_json
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.clients import (
    ConsumerGroupRequest,
    ConsumerRunningInfoRequest,
    ProducerGroupRequest,
)
from flintmq.model.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flintmq.errors import FlintError
    from flintmq.model.subscription import Subscription

_V4_0_0_SNAPSHOT: Final = 212
"""The number of that release; from then on each release has two, for its snapshot and itself."""
RUNNING_INFO_TIMEOUT_MS: Final = 12_000


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class ConnectedClient:
    """A client as its broker knows it."""

    client_id: str
    address: str
    language: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMembers:
    """The members of a consumer group that are connected, and what they say of themselves."""

    group: str
    consume_type: str
    message_model: str
    consume_from: str
    clients: Sequence[ConnectedClient]
    subscriptions: Mapping[str, Subscription]

    @property
    def min_version(self) -> str:
        """The oldest release among the members."""
        return min((one.version for one in self.clients), default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldQueue:
    """What a consumer holds of one queue."""

    topic: str
    broker: str
    queue_id: int
    commit_offset: int
    cached_message_count: int
    is_locked: bool
    is_dropped: bool
    last_pulled_at_ms: int | None
    last_consumed_at_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConsumption:
    """How a consumer is doing with one topic."""

    topic: str
    pull_rt_ms: float
    pull_per_second: float
    consume_rt_ms: float
    consume_ok_per_second: float
    consume_failed_per_second: float
    consume_failed_last_hour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningConsumer:
    """What one consumer tells of itself."""

    client_id: str
    properties: Mapping[str, str]
    subscriptions: Mapping[str, str]
    queues: Sequence[HeldQueue]
    topics: Sequence[TopicConsumption]
    stacks: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionMismatch:
    """Two members of a group want different messages of a topic; then neither gets all of them."""

    group: str
    topic: str
    expressions: Mapping[str, Sequence[str]]
    """The clients by what they subscribe to; an empty text for those that do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerInstance:
    """A producer that is connected to a broker."""

    group: str
    client_id: str
    address: str
    language: str
    version: str
    last_seen_at_ms: int | None


def version_text(number: int) -> str:
    """Return the release that a version number stands for, as mqadmin names it."""
    if number < _V4_0_0_SNAPSHOT:
        return str(number)
    release, is_release = divmod(number - _V4_0_0_SNAPSHOT, 2)
    digits = f"V{4 + release // 100}_{release // 10 % 10}_{release % 10}"
    return digits if is_release else digits + "_SNAPSHOT"


class MemberAdmin(GroupAdmin):
    """Operations on clients that are connected."""

    async def consumer_members(self, group: str, *, broker: str | None = None) -> ConsumerMembers:
        """Return who consumes for a group; ConsumerNotOnlineError if nobody does."""

        async def ask(place: BrokerPlace) -> Any:
            header = ConsumerGroupRequest(consumer_group=group)
            code = RequestCode.GET_CONSUMER_CONNECTION_LIST
            answer = await self.ask(place.address, code, header)
            return loads_body(answer.body)

        if broker is None:
            places = await self.group_places(group)
        else:
            places = await self.places(broker=broker)
        answers = await self.ask_all(places, ask)
        offline = [e for _, e in answers.failures if isinstance(e, ConsumerNotOnlineError)]
        if not answers.found and offline:
            raise offline[0]
        found = [Members(value, "the members of a group") for _, value in answers.or_raise()]
        first = found[0]
        clients = {_client(one) for members in found for one in members.items("connectionSet")}
        return ConsumerMembers(
            group=group,
            consume_type=first.text("consumeType", ""),
            message_model=first.text("messageModel", ""),
            consume_from=first.text("consumeFromWhere", ""),
            clients=sorted(clients),
            subscriptions={
                str(topic): subscription_from_json(one)
                for topic, one in sorted(first.table("subscriptionTable").items())
            },
        )

    async def running_consumer(
        self, group: str, client_id: str, *, with_stacks: bool = False
    ) -> RunningConsumer:
        """Return what one consumer tells of itself, by way of a broker that it is connected to."""
        header = ConsumerRunningInfoRequest(
            consumer_group=group, client_id=client_id, jstack_enable=with_stacks
        )

        async def ask(place: BrokerPlace) -> RunningConsumer:
            code = RequestCode.GET_CONSUMER_RUNNING_INFO
            answer = await self.ask(place.address, code, header, timeout_ms=RUNNING_INFO_TIMEOUT_MS)
            return _running(client_id, loads_body(answer.body))

        answers = await self.ask_all(await self.group_places(group), ask)
        return answers.or_raise()[0][1]

    async def running_consumers(
        self, group: str, *, with_stacks: bool = False
    ) -> tuple[list[RunningConsumer], list[tuple[str, FlintError]]]:
        """Return what each member of a group tells of itself, and who did not answer."""
        members = await self.consumer_members(group)
        ids = [one.client_id for one in members.clients]

        async def ask(client_id: str) -> RunningConsumer:
            return await self.running_consumer(group, client_id, with_stacks=with_stacks)

        answers = await self.ask_all(ids, ask)
        return [one for _, one in answers.found], [*answers.failures]

    async def producer_clients(self, group: str, topic: str) -> list[ConnectedClient]:
        """Return the producers of a group that are connected to the brokers of a topic."""

        async def ask(place: BrokerPlace) -> list[ConnectedClient]:
            header = ProducerGroupRequest(producer_group=group)
            code = RequestCode.GET_PRODUCER_CONNECTION_LIST
            try:
                answer = await self.ask(place.address, code, header)
            except SystemFailureError as error:
                # There is no code of its own for it.
                if "not exist" not in error.remark:
                    raise
                return []
            members = Members(loads_body(answer.body), "producers of a group")
            return [_client(one) for one in members.items("connectionSet")]

        answers = (await self.ask_all(await self.topic_places(topic), ask)).or_raise()
        clients = {one for _, found in answers for one in found}
        if not clients:
            raise MissingError(
                f"no producer of the group {group!r} is connected to a broker of {topic!r}"
            )
        return sorted(clients)

    async def producers_of(self, broker: str) -> list[ProducerInstance]:
        """Return all producers that are connected to a broker."""
        (place,) = await self.places(broker=broker)
        answer = await self.ask(place.address, RequestCode.GET_ALL_PRODUCER_INFO)
        table = Members(loads_body(answer.body), "all producers").table("data")
        members = Members(table, "all producers")
        rows = [_producer(str(group), one) for group in table for one in members.items(group)]
        return sorted(rows, key=lambda one: (one.group, one.client_id))


def subscription_mismatches(
    group: str, consumers: Sequence[RunningConsumer]
) -> list[SubscriptionMismatch]:
    """Return the topics of which members of a group do not want the same messages."""
    own = RETRY_PREFIX + group
    topics = sorted({topic for one in consumers for topic in one.subscriptions if topic != own})
    found = []
    for topic in topics:
        wanted: dict[str, list[str]] = {}
        for one in consumers:
            wanted.setdefault(one.subscriptions.get(topic, ""), []).append(one.client_id)
        if len(wanted) > 1:
            found.append(SubscriptionMismatch(group=group, topic=topic, expressions=wanted))
    return found


def _client(value: Any) -> ConnectedClient:
    members = Members(value, "a client")
    return ConnectedClient(
        client_id=members.text("clientId", ""),
        address=members.text("clientAddr", ""),
        language=members.text("language", ""),
        version=version_text(members.integer("version", 0)),
    )


def _producer(group: str, value: Any) -> ProducerInstance:
    members = Members(value, "a producer")
    seen = members.integer("lastUpdateTimestamp", 0)
    return ProducerInstance(
        group=group,
        client_id=members.text("clientId", ""),
        address=members.text("remoteIP", "").lstrip("/"),
        language=members.text("language", ""),
        version=version_text(members.integer("version", 0)),
        last_seen_at_ms=seen if seen > 0 else None,
    )


def _running(client_id: str, value: Any) -> RunningConsumer:
    members = Members(value, "what a consumer tells of itself")
    subscriptions = [subscription_from_json(one) for one in members.items("subscriptionSet")]
    queues = [_held(queue_from(key), one) for key, one in members.table("mqTable").items()]
    status = sorted(members.table("statusTable").items())
    stacks = members.get("jstack")
    return RunningConsumer(
        client_id=client_id,
        properties={str(k): str(v) for k, v in sorted(members.table("properties").items())},
        subscriptions={
            one.topic: f"{one.expression_type}:{one.expression}"
            for one in sorted(subscriptions, key=lambda one: one.topic)
        },
        queues=sorted(queues, key=lambda one: (one.topic, one.broker, one.queue_id)),
        topics=[_consumption(str(topic), one) for topic, one in status],
        stacks=None if stacks is None else str(stacks),
    )


def _held(queue: Any, value: Any) -> HeldQueue:
    members = Members(value, "what a consumer holds of a queue")

    def moment(name: str) -> int | None:
        found = members.integer(name, 0)
        return found if found > 0 else None

    return HeldQueue(
        topic=queue.topic,
        broker=queue.broker_name,
        queue_id=queue.queue_id,
        commit_offset=members.integer("commitOffset", 0),
        cached_message_count=members.integer("cachedMsgCount", 0),
        is_locked=members.truth("locked", default=False),
        is_dropped=members.truth("droped", default=False),
        last_pulled_at_ms=moment("lastPullTimestamp"),
        last_consumed_at_ms=moment("lastConsumeTimestamp"),
    )


def _consumption(topic: str, value: Any) -> TopicConsumption:
    def number(name: str) -> float:
        found = value.get(name, 0) if isinstance(value, dict) else 0
        return float(found) if isinstance(found, int | float) else 0.0

    return TopicConsumption(
        topic=topic,
        pull_rt_ms=number("pullRT"),
        pull_per_second=number("pullTPS"),
        consume_rt_ms=number("consumeRT"),
        consume_ok_per_second=number("consumeOKTPS"),
        consume_failed_per_second=number("consumeFailedTPS"),
        consume_failed_last_hour=int(number("consumeFailedMsgs")),
    )
