"""A cluster as the source or the target of topics: queues are counted, topics are made."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

from flintmq.client.errors import ClientError, TopicNotExistError
from flintmq.client.instance import ClientInstance
from flintmq.format.wire.bodies.dialect import loads_body
from flintmq.format.wire.bodies.routes import cluster_from_json
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.admin import CreateTopicRequest
from flintmq.model.routes import MASTER_ID, BrokerData
from flintmq.model.topic_config import Perm
from flintmq.model.topics import AUTO_CREATE_TOPIC
from flintmq.remoting import RemotingError
from flintmq.spark.live.cluster_options import lowered, parse_connection
from flintmq.spark.live.live_session import LiveSession
from flintmq.spark.runtime.failures import JobError
from flintmq.spark.sink.writer import forget_queues

_LOOKS_MAX: Final = 100
_LOOK_S: Final = 0.1
_T = TypeVar("_T")


class TopicCluster:
    """A cluster whose topics are counted and made, named by options of the source or the sink."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)
        self._connection = parse_connection(lowered(options))

    @property
    def name(self) -> str:
        """How the cluster is told from others."""
        return self._connection.namesrv

    def make(self, wanted: Mapping[str, int]) -> list[str]:
        """Make the topics that do not exist, with so many queues; return which."""
        return self._ask(lambda client: make_topics(client, wanted))

    def queue_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Return how many queues topics have on the broker where they have most."""
        return self._ask(lambda client: queue_counts(client, topics))

    def shares_brokers(self, other: "TopicCluster") -> bool:
        """Whether a broker belongs to both: two name servers may speak of one cluster."""
        return not self.masters().isdisjoint(other.masters())

    def masters(self) -> set[str]:
        """Return the addresses of the brokers that take messages."""
        return {broker.addresses[MASTER_ID] for broker in self._ask(_masters)}

    def forget(self, write_id: str) -> None:
        """Let the name servers forget a write that has come to its end."""
        forget_queues(self._connection, write_id)

    def _ask(self, work: Callable[[ClientInstance], Coroutine[Any, Any, _T]]) -> _T:
        try:
            with LiveSession(self._connection) as session:
                return session.run(work(session.client))
        except (ClientError, RemotingError) as error:
            raise JobError(f"{self.name}: {error}") from error


async def queue_counts(client: ClientInstance, topics: Iterable[str]) -> dict[str, int]:
    """Return how many queues topics have, on the broker where they have most.

    JobError if one of them does not exist.
    """
    counts = {}
    for topic in topics:
        try:
            route = await client.routes.fetch(topic)
        except TopicNotExistError as error:
            raise JobError(f"there is no topic {topic}") from error
        counts[topic] = max((one.write_queue_count for one in route.queues), default=0)
    return counts


async def make_topics(client: ClientInstance, wanted: Mapping[str, int]) -> list[str]:
    """Make those topics that do not exist, on all masters; return their names.

    A topic that exists stays as it is: whoever made it may have had reasons for its queues.
    """
    made = []
    for topic, queue_count in wanted.items():
        try:
            await client.routes.fetch(topic)
        except TopicNotExistError:
            for broker in await _masters(client):
                await put_topic(client, broker, topic, queue_count)
            await _until_known(client, topic)
            made.append(topic)
    return made


async def _until_known(client: ClientInstance, topic: str) -> None:
    """Wait until the name server has heard of a topic from its brokers."""
    for _ in range(_LOOKS_MAX):
        with contextlib.suppress(TopicNotExistError):
            await client.routes.fetch(topic)
            return
        await asyncio.sleep(_LOOK_S)
    raise JobError(f"the topic {topic} was made, but the name server does not know it")


async def put_topic(
    client: ClientInstance, broker: BrokerData, topic: str, queue_count: int
) -> None:
    """Create a topic on one broker, or replace its configuration."""
    header = CreateTopicRequest(
        topic=topic,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=queue_count,
        write_queue_nums=queue_count,
        perm=Perm.READ_WRITE,
    )
    address = broker.addresses[MASTER_ID]
    await client.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def _masters(client: ClientInstance) -> list[BrokerData]:
    answer = await client.servers.call(RequestCode.GET_BROKER_CLUSTER_INFO)
    brokers = cluster_from_json(loads_body(answer.body)).brokers.values()
    found = [broker for broker in brokers if MASTER_ID in broker.addresses]
    if not found:
        raise JobError("the name server knows no broker that takes messages")
    return found
