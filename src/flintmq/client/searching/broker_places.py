"""Broker processes by cluster, name and address, and questions to several of them at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from flintmq.errors import FlintError
from flintmq.format.wire.bodies.dialect import loads_body
from flintmq.format.wire.bodies.routes import cluster_from_json, route_from_json
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.namesrv import RouteRequest
from flintmq.model.routes import MASTER_ID

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from flintmq.client.instance import ClientInstance
    from flintmq.model.routes import ClusterInfo, TopicRoute

_T = TypeVar("_T")
_Place = TypeVar("_Place")

CALLS_AT_ONCE_MAX: Final = 16
"""Servers that are asked at the same time."""


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class BrokerPlace:
    """One broker process: its cluster, name and id, and where it is reached."""

    cluster: str
    broker: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        """Whether it takes messages."""
        return self.broker_id == MASTER_ID

    @property
    def label(self) -> str:
        """What an operator knows it by."""
        return f"{self.broker} ({self.address})" if self.broker else self.address


@dataclass(frozen=True, slots=True)
class Answers(Generic[_Place, _T]):
    """What several servers have answered, and why others have not."""

    found: list[tuple[_Place, _T]]
    failures: list[tuple[_Place, FlintError]]

    def or_raise(self) -> list[tuple[_Place, _T]]:
        """Return the answers; raise the first failure if there is no answer at all."""
        if not self.found and self.failures:
            raise self.failures[0][1]
        return self.found


async def ask_all(
    places: Iterable[_Place], ask: Callable[[_Place], Awaitable[_T]]
) -> Answers[_Place, _T]:
    """Ask several servers at the same time; one that fails keeps none from answering."""
    room = asyncio.Semaphore(CALLS_AT_ONCE_MAX)
    wanted = list(places)

    async def one(place: _Place) -> _T | FlintError:
        async with room:
            try:
                return await ask(place)
            except FlintError as error:
                return error

    told = await asyncio.gather(*map(one, wanted))
    answers: Answers[_Place, _T] = Answers([], [])
    for place, answer in zip(wanted, told, strict=True):
        if isinstance(answer, FlintError):
            answers.failures.append((place, answer))
        else:
            answers.found.append((place, answer))
    return answers


async def fetch_cluster(client: ClientInstance) -> ClusterInfo:
    """Return all brokers that are registered, and their clusters."""
    answer = await client.servers.call(RequestCode.GET_BROKER_CLUSTER_INFO, None)
    return cluster_from_json(loads_body(answer.body))


async def fetch_route(client: ClientInstance, topic: str) -> TopicRoute:
    """Return where a topic is; TopicNotExistError if no broker has it."""
    header = RouteRequest(topic=topic, accept_standard_json_only=True)
    answer = await client.servers.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
    return route_from_json(loads_body(answer.body))


def broker_places(info: ClusterInfo) -> list[BrokerPlace]:
    """Return all broker processes of a cluster info, in order."""
    return sorted(
        BrokerPlace(cluster=cluster, broker=name, broker_id=number, address=address)
        for cluster, names in info.clusters.items()
        for name in names
        if name in info.brokers
        for number, address in info.brokers[name].addresses.items()
    )


def route_places(route: TopicRoute) -> list[BrokerPlace]:
    """Return one broker process for each broker of a route, its master if it is up."""
    return sorted(
        BrokerPlace(
            cluster=one.cluster,
            broker=one.broker_name,
            broker_id=min(one.addresses),
            address=one.addresses[min(one.addresses)],
        )
        for one in route.brokers
        if one.addresses
    )
