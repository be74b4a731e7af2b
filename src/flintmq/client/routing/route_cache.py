"""The routes a client knows: fetched when needed, refreshed from time to time."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from flintmq.client.errors import ClientError, NoRouteError, TopicNotExistError
from flintmq.client.routing.queue_lists import (
    NEW_TOPIC_QUEUE_COUNT,
    publish_queues,
    subscribe_queues,
)
from flintmq.format.wire.bodies.dialect import loads_body
from flintmq.format.wire.bodies.routes import route_from_json
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.namesrv import RouteRequest
from flintmq.model.routes import MASTER_ID, TopicRoute
from flintmq.model.topics import AUTO_CREATE_TOPIC
from flintmq.remoting import RemotingError

if TYPE_CHECKING:
    from flintmq.client.routing.name_servers import NameServers
    from flintmq.model.message_queue import MessageQueue

logger = logging.getLogger(__name__)

AGAIN_S: Final = 1.0
"""How long a route counts as fresh although a broker of it cannot be reached."""


class RouteCache:
    """Routes by topic, and the addresses of brokers by name."""

    def __init__(self, servers: NameServers) -> None:
        self._servers = servers
        self._routes: dict[str, TopicRoute] = {}
        self._borrowed: set[str] = set()
        self._publish: dict[str, list[MessageQueue]] = {}
        self._subscribe: dict[str, list[MessageQueue]] = {}
        self._addresses: dict[str, dict[int, str]] = {}
        self._wanted: set[str] = set()
        self._locks: dict[str, asyncio.Lock] = {}
        self._again_at: dict[str, float] = {}
        """When a route may be asked for once more, by the clock of the loop."""

    # -- fetching ----------------------------------------------------------------------------

    async def fetch(self, topic: str) -> TopicRoute:
        """Ask for the route of a topic and remember it."""
        header = RouteRequest(topic=topic, accept_standard_json_only=True)
        answer = await self._servers.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        route = route_from_json(loads_body(answer.body))
        self._take(topic, route)
        self._borrowed.discard(topic)
        return route

    async def fetch_again(self, topic: str) -> None:
        """Ask for the route of a topic whose broker cannot be reached: a slave may be there.

        Callers at the same time, and within a second, share one question.  Where no name server
        answers, the route stays as it was.
        """
        async with self._locks.setdefault(topic, asyncio.Lock()):
            now = asyncio.get_running_loop().time()
            if now < self._again_at.get(topic, 0):
                return
            try:
                await self._fetch_or_borrow(topic)
            except (ClientError, RemotingError) as error:
                logger.debug("route not fetched again: topic=%s reason=%s", topic, error)
            self._again_at[topic] = asyncio.get_running_loop().time() + AGAIN_S

    def _take(self, topic: str, route: TopicRoute) -> None:
        self._routes[topic] = route
        self._publish[topic] = publish_queues(topic, route)
        self._subscribe[topic] = subscribe_queues(topic, route)
        for broker in route.brokers:
            self._addresses[broker.broker_name] = dict(broker.addresses)

    async def _fetch_or_borrow(self, topic: str) -> None:
        try:
            await self.fetch(topic)
        except TopicNotExistError:
            if topic not in self._borrowed:
                raise
            await self._borrow(topic)

    async def _borrow(self, topic: str) -> None:
        """Use the route of the model topic for a topic that the first send will create."""
        model = await self.fetch(AUTO_CREATE_TOPIC)
        queues = tuple(
            replace(
                one,
                read_queue_count=min(NEW_TOPIC_QUEUE_COUNT, one.read_queue_count),
                write_queue_count=min(NEW_TOPIC_QUEUE_COUNT, one.read_queue_count),
            )
            for one in model.queues
        )
        self._take(topic, replace(model, queues=queues))
        self._borrowed.add(topic)

    def known_publish_queues(self, topic: str) -> list[MessageQueue] | None:
        """Return the queues that a topic can be sent to, if they are known; ask nobody."""
        found = self._publish.get(topic)
        if found:
            self._wanted.add(topic)
        return found

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that a topic can be sent to; a new topic borrows those of a model.

        An empty list means that there are none; ClientError, that no name server could be asked.
        """
        found = self.known_publish_queues(topic)
        if found:
            return found
        self._wanted.add(topic)
        async with self._locks.setdefault(topic, asyncio.Lock()):
            if not self._publish.get(topic):
                try:
                    await self.fetch(topic)
                except TopicNotExistError:
                    try:
                        await self._borrow(topic)
                    except TopicNotExistError:
                        return []
        return self._publish.get(topic, [])

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues from which a topic can be read; none for an unknown topic."""
        self._wanted.add(topic)
        if topic not in self._subscribe or topic in self._borrowed:
            try:
                await self.fetch(topic)
            except TopicNotExistError:
                return []
        return self._subscribe.get(topic, [])

    async def refresh(self) -> None:
        """Fetch all routes in use again; one that cannot be fetched stays as it was."""
        for topic in list(self._wanted):
            try:
                await self.fetch(topic)
            except ClientError as error:
                logger.debug("route not refreshed: topic=%s reason=%s", topic, error)
        self._forget_gone_brokers()

    def _forget_gone_brokers(self) -> None:
        named = {one.broker_name for route in self._routes.values() for one in route.brokers}
        for name in self._addresses.keys() - named:
            del self._addresses[name]

    # -- addresses ---------------------------------------------------------------------------

    def master(self, broker_name: str) -> str | None:
        """Return the address of a broker's master; None if it is not known."""
        return self._addresses.get(broker_name, {}).get(MASTER_ID)

    def reader(self, broker_name: str, broker_id: int) -> tuple[str, bool] | None:
        """Return an address to read from, and whether it is a slave; ``broker_id`` is preferred."""
        known = self._addresses.get(broker_name, {})
        for one in (broker_id, broker_id + 1 if broker_id != MASTER_ID else broker_id):
            if one in known:
                return known[one], one != MASTER_ID
        for one, address in known.items():
            return address, one != MASTER_ID
        return None

    async def home(self, queue: MessageQueue) -> str:
        """Return the address to ask about a queue: its master, else any address of its broker."""
        address = self.master(queue.broker_name)
        if address is not None:
            return address
        await self.fetch(queue.topic)
        found = self.reader(queue.broker_name, MASTER_ID)
        if found is None:
            raise NoRouteError(
                queue.topic, f"broker {queue.broker_name} has no address", "wait, or start it"
            )
        return found[0]

    def any_broker(self, topic: str) -> str | None:
        """Return the address of some broker that has a topic."""
        route = self._routes.get(topic)
        if route is None or not route.brokers:
            return None
        broker = random.choice(route.brokers)
        return broker.addresses.get(MASTER_ID) or next(iter(broker.addresses.values()), None)

    def all_addresses(self, *, masters_only: bool) -> list[str]:
        """Return the addresses of all known brokers."""
        return [
            address
            for known in self._addresses.values()
            for broker_id, address in known.items()
            if not masters_only or broker_id == MASTER_ID
        ]
