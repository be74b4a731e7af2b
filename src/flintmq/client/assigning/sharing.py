"""Which queues of a topic a member of a group gets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypedDict

from flintmq.client.assigning.consume_from import ConsumeFrom
from flintmq.client.assigning.strategies import QueueStrategy, allocate, averagely
from flintmq.client.errors import ResponseError
from flintmq.client.field_types import check_field_types
from flintmq.format.wire.bodies.dialect import Members, loads_body
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.clients import ConsumerGroupRequest

if TYPE_CHECKING:
    from flintmq.client.instance import ClientInstance
    from flintmq.model.message_queue import MessageQueue


class MessageModel(Enum):
    """Who gets a message: one member of the group, or every one."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingRules:
    """How a group shares its queues, and where it starts on those that are new to it."""

    model: MessageModel = MessageModel.CLUSTERING
    strategy: QueueStrategy = averagely
    consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET
    consume_timestamp_ms: int | None = None

    def __post_init__(self) -> None:
        check_field_types(self)

    @property
    def is_clustering(self) -> bool:
        """Whether the members share the messages."""
        return self.model is MessageModel.CLUSTERING


class SharingKeywords(TypedDict, total=False):
    """The fields of `SharingRules` as single keywords."""

    model: MessageModel
    strategy: QueueStrategy
    consume_from: ConsumeFrom
    consume_timestamp_ms: int | None


async def share(
    client: ClientInstance, group: str, topic: str, rules: SharingRules
) -> list[MessageQueue] | None:
    """Return the queues of a topic for this client; None if there are none to share yet.

    Raises:
        ClientError, RemotingError: no broker could be asked.
    """
    queues = await client.routes.subscribe_queues(topic)
    if not queues:
        return None
    if not rules.is_clustering:
        return queues
    address = client.routes.any_broker(topic)
    if address is None:
        return None
    return allocate(
        rules.strategy, client.client_id, queues, await _members(client, address, group)
    )


async def _members(client: ClientInstance, address: str, group: str) -> list[str]:
    """Return the members of a group; a broker that does not know this client is told of it first.

    Otherwise a broker that was restarted would make its members give all their queues up.
    """
    try:
        members = await _ask_members(client, address, group)
    except ResponseError:
        members = []
    if client.client_id not in members:
        await client.heartbeat()
        members = await _ask_members(client, address, group)
    return members


async def _ask_members(client: ClientInstance, address: str, group: str) -> list[str]:
    header = ConsumerGroupRequest(consumer_group=group)
    answer = await client.call(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    return list(
        map(str, Members(loads_body(answer.body), "members of a group").items("consumerIdList"))
    )
