"""The routes of a cluster: which brokers live, and which topics each has.

Nothing here waits or knows sockets: a registration, a lost connection and the time come in, a
route goes out.  Names of topics that a broker no longer mentions stay until they are deleted or
the broker is gone, as RocketMQ has it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from flintmq.model.data_version import DataVersion
from flintmq.model.routes import MASTER_ID, BrokerData, ClusterInfo, QueueData, TopicRoute
from flintmq.model.topic_config import Perm, TopicSysFlag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from flintmq.format.wire.bodies.registration import Registration
    from flintmq.format.wire.headers.namesrv import RegisterBrokerRequest
    from flintmq.remoting.peer import Peer


class LiveBroker:
    """What is known of a broker process that has registered."""

    __slots__ = ("connection", "ha_address", "updated_ms", "version")

    def __init__(
        self, updated_ms: int, version: DataVersion, connection: Peer, ha_address: str
    ) -> None:
        self.updated_ms = updated_ms
        self.version = version
        self.connection = connection
        self.ha_address = ha_address


class _Broker:
    __slots__ = ("addresses", "cluster")

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.addresses: dict[int, str] = {}


class Registered(NamedTuple):
    """What a slave is told when it registers."""

    master_address: str | None = None
    ha_address: str | None = None


def queues_of(broker_name: str, registration: Registration) -> dict[str, QueueData]:
    """Return the queues of all topics of a registration; any thread may do it."""
    return {
        topic.name: QueueData(
            broker_name=broker_name,
            read_queue_count=topic.read_queue_count,
            write_queue_count=topic.write_queue_count,
            perm=topic.perm,
            topic_sys_flag=topic.sys_flag,
        )
        for topic in registration.topics.values()
    }


class RouteTable:
    """All that a name server knows of brokers."""

    def __init__(self) -> None:
        self._brokers: dict[str, _Broker] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._live: dict[str, LiveBroker] = {}
        self._filter_servers: dict[str, tuple[str, ...]] = {}

    # -- brokers come and go -----------------------------------------------------------------

    def register(
        self,
        request: RegisterBrokerRequest,
        registration: Registration,
        connection: Peer,
        now_ms: int,
        *,
        queues: Mapping[str, QueueData] | None = None,
    ) -> Registered:
        """Register a broker, or refresh its registration.

        Its topics are taken in too, if they have changed, unless ``queues`` names others: thousands
        of them are taken in by `put_queues`, some at a time.
        """
        name, address = request.broker_name, request.broker_addr
        if self.has_news(request, registration):
            self.put_queues(name, queues_of(name, registration) if queues is None else queues)
        broker = self._brokers.setdefault(name, _Broker(request.cluster_name))
        broker.cluster = request.cluster_name
        # A broker that comes back under another id must not be there twice.
        for other_id in [one for one, at in broker.addresses.items() if at == address]:
            if other_id != request.broker_id:
                del broker.addresses[other_id]
        broker.addresses[request.broker_id] = address
        self._live[address] = LiveBroker(
            now_ms, registration.version, connection, request.ha_server_addr
        )
        if registration.filter_servers:
            self._filter_servers[address] = registration.filter_servers
        else:
            self._filter_servers.pop(address, None)
        return self._master_for(broker, request.broker_id)

    def has_news(self, request: RegisterBrokerRequest, registration: Registration) -> bool:
        """Whether a registration brings topics that are not in the routes yet."""
        broker = self._brokers.get(request.broker_name)
        is_new = broker is None or request.broker_id not in broker.addresses
        return request.broker_id == MASTER_ID and (
            is_new or self.has_changed(request.broker_addr, registration.version)
        )

    def put_queues(self, broker_name: str, queues: Mapping[str, QueueData]) -> None:
        """Take in the queues that a broker has of some topics."""
        for topic, data in queues.items():
            known = self._topics.get(topic)
            if known is None:
                self._topics[topic] = {broker_name: data}
            else:
                known[broker_name] = data

    def _master_for(self, broker: _Broker, broker_id: int) -> Registered:
        if broker_id == MASTER_ID:
            return Registered()
        address = broker.addresses.get(MASTER_ID)
        master = None if address is None else self._live.get(address)
        return Registered() if master is None else Registered(address, master.ha_address)

    def has_changed(self, address: str, version: DataVersion) -> bool:
        """Whether a broker's topics are others than those it last registered with."""
        live = self._live.get(address)
        return live is None or live.version != version

    def version_of(self, address: str) -> DataVersion | None:
        """Return the version a broker last registered with."""
        live = self._live.get(address)
        return None if live is None else live.version

    def touch(self, address: str, now_ms: int) -> None:
        """Note that a broker is alive."""
        live = self._live.get(address)
        if live is not None:
            live.updated_ms = now_ms

    def unregister(self, broker_name: str, broker_id: int, address: str) -> None:
        """Remove a broker."""
        self._live.pop(address, None)
        self._filter_servers.pop(address, None)
        broker = self._brokers.get(broker_name)
        if broker is None:
            return
        broker.addresses.pop(broker_id, None)
        if not broker.addresses:
            del self._brokers[broker_name]
            self._forget_topics(broker_name)

    def _forget_topics(self, broker_name: str) -> None:
        for topic, queues in list(self._topics.items()):
            queues.pop(broker_name, None)
            if not queues:
                del self._topics[topic]

    def _drop(self, address: str) -> None:
        for name, broker in list(self._brokers.items()):
            for broker_id in [one for one, at in broker.addresses.items() if at == address]:
                self.unregister(name, broker_id, address)
        self._live.pop(address, None)

    def lost(self, connection: Peer) -> list[str]:
        """Remove the brokers whose last registration came over ``connection``."""
        gone = [at for at, live in self._live.items() if live.connection is connection]
        for address in gone:
            self._drop(address)
        return gone

    def expire(self, now_ms: int, timeout_ms: int) -> list[tuple[str, Peer]]:
        """Remove brokers that were silent for too long; return them with their connections."""
        silent = [
            (address, live.connection)
            for address, live in self._live.items()
            if now_ms - live.updated_ms > timeout_ms
        ]
        for address, _ in silent:
            self._drop(address)
        return silent

    # -- what is asked -----------------------------------------------------------------------

    def route(self, topic: str) -> TopicRoute | None:
        """Return where a topic is; None if no live broker has it."""
        queues = self._topics.get(topic)
        if not queues:
            return None
        brokers = tuple(
            self._broker_data(name, self._brokers[name])
            for name in queues
            if name in self._brokers and self._brokers[name].addresses
        )
        if not brokers:
            return None
        servers = {
            address: self._filter_servers[address]
            for broker in brokers
            for address in broker.addresses.values()
            if address in self._filter_servers
        }
        return TopicRoute(queues=tuple(queues.values()), brokers=brokers, filter_servers=servers)

    def _broker_data(self, name: str, broker: _Broker) -> BrokerData:
        return BrokerData(
            cluster=broker.cluster,
            broker_name=name,
            addresses=dict(sorted(broker.addresses.items())),
        )

    def cluster_info(self) -> ClusterInfo:
        """Return all brokers."""
        clusters: dict[str, list[str]] = {}
        for name, broker in self._brokers.items():
            clusters.setdefault(broker.cluster, []).append(name)
        return ClusterInfo(
            brokers={name: self._broker_data(name, one) for name, one in self._brokers.items()},
            clusters={cluster: tuple(names) for cluster, names in clusters.items()},
        )

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Return the topics that brokers of a cluster have."""
        names = {name for name, broker in self._brokers.items() if broker.cluster == cluster}
        return [topic for topic, queues in self._topics.items() if not names.isdisjoint(queues)]

    def topics_where(self, wanted: Callable[[TopicSysFlag], bool]) -> list[str]:
        """Return the topics whose flag is as wanted, judged by their first broker."""
        return [
            topic
            for topic, queues in self._topics.items()
            if wanted(TopicSysFlag(next(iter(queues.values())).topic_sys_flag & 3))
        ]

    def names(self) -> list[str]:
        """Return the names of clusters and brokers, which are topics of their own."""
        found: dict[str, None] = {}
        for name, broker in self._brokers.items():
            found[broker.cluster] = None
            found[name] = None
        return list(found)

    def any_address(self) -> str | None:
        """Return the address of some live broker."""
        addresses: Iterable[str] = (
            address for broker in self._brokers.values() for address in broker.addresses.values()
        )
        return next(iter(addresses), None)

    # -- what is changed by hand -------------------------------------------------------------

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Forget a topic, of one cluster if one is named."""
        queues = self._topics.get(topic)
        if queues is None:
            return
        if cluster is not None:
            for name in [one for one in queues if self._is_in(one, cluster)]:
                del queues[name]
        if cluster is None or not queues:
            del self._topics[topic]

    def _is_in(self, broker_name: str, cluster: str) -> bool:
        broker = self._brokers.get(broker_name)
        return broker is not None and broker.cluster == cluster

    def wipe_write_perm(self, broker_name: str) -> int:
        """Let nobody send to a broker; return how many topics that concerns."""
        return self._change_perm(broker_name, lambda perm: perm & ~Perm.WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Let everybody send to a broker again; return how many topics that concerns."""
        return self._change_perm(broker_name, lambda perm: Perm.READ_WRITE)

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for queues in self._topics.values():
            queue = queues.get(broker_name)
            if queue is not None:
                queues[broker_name] = dataclasses.replace(queue, perm=int(change(queue.perm)))
                count += 1
        return count
