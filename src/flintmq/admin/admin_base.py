"""What all families of operations share: whom to ask, and which brokers a name stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, Unpack

from flintmq.admin.admin_errors import AdminError, MissingError
from flintmq.client.client_user import ClientUser
from flintmq.client.errors import UsageError
from flintmq.client.keywords import KeywordSorter
from flintmq.client.options import ClientKeywords, ClientOptions
from flintmq.client.searching.broker_places import (
    Answers,
    BrokerPlace,
    ask_all,
    broker_places,
    fetch_cluster,
    fetch_route,
    route_places,
)
from flintmq.errors import FlintError
from flintmq.format.wire.codes import ResponseCode
from flintmq.model.routes import MASTER_ID

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from flintmq.client.closing_time import ClosingTime
    from flintmq.client.instance import ClientInstance
    from flintmq.format.wire.command import Command
    from flintmq.format.wire.headers.codec import Header
    from flintmq.model.routes import ClusterInfo, TopicRoute

_T = TypeVar("_T")
_Place = TypeVar("_Place")


class AdminBase(ClientUser):
    """Asks name servers and brokers; the families of operations add what they ask."""

    _noun = "admin"

    def __init__(
        self,
        *,
        options: ClientOptions | None = None,
        client: ClientInstance | None = None,
        **keywords: Unpack[ClientKeywords],
    ) -> None:
        sorter = KeywordSorter(type(self), keywords, ClientOptions)
        super().__init__(client, sorter.fill_if_given(ClientOptions, options))

    async def _begin(self, client: ClientInstance) -> None:
        """Do nothing: an admin is a member of no group."""

    async def _end(self, client: ClientInstance, closing: ClosingTime, *, is_failed: bool) -> None:
        """Do nothing: an admin is a member of no group."""

    # -- asking ------------------------------------------------------------------------------

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
        accept: Collection[int] = (ResponseCode.SUCCESS,),
    ) -> Command:
        """Ask one server and return its answer; ResponseError if its code is not accepted."""
        return await self.client.call(
            address, code, header, body, timeout_ms=timeout_ms, accept=accept
        )

    async def ask_namesrv(self, code: int, header: Header | None = None) -> Command:
        """Ask the name servers until one answers."""
        return await self.client.servers.call(code, header)

    def name_servers(self) -> tuple[str, ...]:
        """Return the addresses of all name servers that are known."""
        addresses = tuple(sorted(self.client.servers.addresses))
        if not addresses:
            raise UsageError("no name server is known; give one with -n HOST:PORT or NAMESRV_ADDR")
        return addresses

    async def ask_all(
        self, places: Iterable[_Place], ask: Callable[[_Place], Awaitable[_T]]
    ) -> Answers[_Place, _T]:
        """Ask several servers at the same time; one that fails keeps none from answering."""
        return await ask_all(places, ask)

    # -- where things are --------------------------------------------------------------------

    async def cluster_info(self) -> ClusterInfo:
        """Return all brokers that are registered, and their clusters."""
        return await fetch_cluster(self.client)

    async def topic_route(self, topic: str) -> TopicRoute:
        """Return where a topic is; TopicNotExistError if no broker has it."""
        return await fetch_route(self.client, topic)

    async def all_places(self) -> list[BrokerPlace]:
        """Return all broker processes that are registered, in order."""
        return broker_places(await self.cluster_info())

    async def places(
        self, *, cluster: str | None = None, broker: str | None = None, masters_only: bool = True
    ) -> list[BrokerPlace]:
        """Return the brokers of a cluster, or the one that is named by its address or name.

        An address that is not registered is taken as it is: a broker may be asked before name
        servers know it.
        """
        if (cluster is None) == (broker is None):
            raise UsageError("name either a broker (-b) or a cluster (-c)")
        if broker is not None and ":" in broker:
            try:
                known = [one for one in await self.all_places() if one.address == broker]
            except FlintError:
                known = []
            unknown = BrokerPlace(cluster="", broker="", broker_id=MASTER_ID, address=broker)
            return known or [unknown]
        everywhere = await self.all_places()
        if broker is not None:
            found = [one for one in everywhere if one.broker == broker]
            names = sorted({one.broker for one in everywhere})
        else:
            found = [one for one in everywhere if one.cluster == cluster]
            names = sorted({one.cluster for one in everywhere})
        if not found:
            noun, name = ("cluster", cluster) if broker is None else ("broker", broker)
            raise MissingError(
                f"there is no {noun} {name!r}; the name server knows {', '.join(names) or 'none'}"
            )
        masters = [one for one in found if one.is_master]
        if masters_only and not masters:
            raise AdminError(f"{broker or cluster} has no master; start one")
        return masters if masters_only else found

    async def topic_places(self, topic: str) -> list[BrokerPlace]:
        """Return one broker process for each broker that has a topic, its master if it is up."""
        return route_places(await self.topic_route(topic))
