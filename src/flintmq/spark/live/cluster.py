"""What the driver asks a cluster: which queues there are, and where they begin and end."""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import Final

from flintmq.client.assigning.consume_from import QueueBounds
from flintmq.client.assigning.offset_store import RemoteOffsets
from flintmq.client.assigning.subscriptions import Subscriptions
from flintmq.client.errors import (
    ClientError,
    NoRouteError,
    ResponseError,
    SystemFailureError,
    TopicNotExistError,
)
from flintmq.client.instance import ClientInstance
from flintmq.format.errors import FormatError
from flintmq.format.wire.bodies.dialect import Members, loads_body
from flintmq.format.wire.bodies.routes import cluster_from_json
from flintmq.format.wire.bodies.topics import topic_table_from_json
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.codec import Header
from flintmq.format.wire.headers.query import ViewMessageRequest
from flintmq.model.message_queue import MessageQueue
from flintmq.model.routes import MASTER_ID, BrokerData, ClusterInfo
from flintmq.model.topic_config import Perm, TopicConfig
from flintmq.remoting import RemotingError
from flintmq.spark.errors import OptionError
from flintmq.spark.live.errors import RefusedReadError, queue_text
from flintmq.spark.live.fetch import RecordPuller
from flintmq.spark.live.live_options import LiveOptions
from flintmq.spark.live.live_session import each, persist
from flintmq.spark.live.pulling import LivePuller
from flintmq.spark.live.ranges import Offsets, QueueRange
from flintmq.spark.live.selection import ASSIGN

logger = logging.getLogger(__name__)

QUEUE_COUNT_MAX: Final = 100_000
SAMPLE_COUNT: Final = 32
_NAME_SERVER: Final = "name server"
_NO_RECORD: Final = "can not find message by the offset"
"""What brokers say where their log has no record at a physical offset."""


TOLD_TOPICS_MIN: Final = 100
"""With so many topics brokers are asked which queues there are, and not a name server."""


class Absence(Enum):
    """Why a queue that was read before is not there now."""

    BROKER_DOWN = "its broker is not registered"
    DELETED = "its topic was deleted"
    CLOSED = "its topic has fewer queues to read, or may not be read"


class Cluster:
    """The queues of a cluster that options choose.  It remembers nothing from call to call."""

    def __init__(self, client: ClientInstance, options: LiveOptions) -> None:
        self._client = client
        self._options = options
        self._bounds = QueueBounds(client)
        self._offsets = RemoteOffsets(client, options.group)
        self.puller: RecordPuller = LivePuller(client, options)

    # -- queues ------------------------------------------------------------------------------

    async def queues(self) -> list[MessageQueue]:
        """Return the queues to read, as the name server knows them now.

        Raises:
            OptionError: there are more of them than anybody has use for.
            UnreachableError: no name server answers.
        """
        return _limited(await each(await self._topics(), self._queues_of))

    async def told_queues(self) -> list[MessageQueue]:
        """Return the queues to read, those of very many topics as their brokers know them.

        A broker tells all of its topics in one answer, a name server the route of one topic.  A
        topic that no broker tells of is asked for by its route.

        Raises as `queues` does.
        """
        topics = await self._topics()
        if len(topics) < TOLD_TOPICS_MIN:
            return _limited(await each(topics, self._queues_of))
        told = await self._told(topics)
        untold = [topic for topic in topics if topic not in told]
        return _limited([*told.values(), *await each(untold, self._queues_of)])

    async def _told(self, topics: Collection[str]) -> dict[str, list[MessageQueue]]:
        """Return queues as the tables of brokers have them; none if routes may say otherwise.

        The route of one topic of each broker shows that.  A broker may, for example, forbid reads
        for all of its topics: then its table knows nothing of it, and routes do.
        """
        wanted, found = frozenset(topics), dict[str, list[MessageQueue]]()
        brokers = (await self.info()).brokers
        tables = await each(brokers.values(), self._topic_table)
        samples: dict[str, str] = {}
        for name, table in zip(brokers, tables, strict=True):
            if table is None:
                return {}
            for topic in wanted & table.keys():
                config = table[topic]
                readable = config.read_queue_count if config.perm & Perm.READ else 0
                queues = (MessageQueue(topic, name, queue_id) for queue_id in range(readable))
                found.setdefault(topic, []).extend(filter(self._options.selection.takes, queues))
                samples[name] = topic
        known = await each(sorted(set(samples.values())), self._queues_of)
        by_routes = {queue for some in known for queue in some}
        by_tables = {queue for topic in samples.values() for queue in found[topic]}
        return found if by_routes == by_tables else {}

    async def _topic_table(self, broker: BrokerData) -> Mapping[str, TopicConfig] | None:
        """Return the topics of a broker; None if it does not tell them."""
        address = broker.addresses.get(MASTER_ID) or next(iter(broker.addresses.values()), None)
        try:
            if address is not None:
                answer = await self._client.call(address, RequestCode.GET_ALL_TOPIC_CONFIG)
                return topic_table_from_json(loads_body(answer.body))[0]
        except (ClientError, RemotingError, FormatError) as error:
            logger.info("topics not told: broker=%s reason=%s", broker.broker_name, error)
        return None

    def require(self, queues: Collection[MessageQueue]) -> None:
        """Raise OptionError for a topic or a queue that was named and does not exist."""
        selection = self._options.selection
        for topic in sorted(selection.topics - {queue.topic for queue in queues}):
            raise OptionError(f"there is no topic {topic!r}, or it has no queue that can be read")
        for broker, topic, queue_id in selection.assigned:
            if not any(
                one.topic == topic
                and one.queue_id == queue_id
                and broker in (None, one.broker_name)
                for one in queues
            ):
                where = "" if broker is None else f" of {broker}"
                raise OptionError(f"{ASSIGN}: {topic} has no queue {queue_id}{where}")

    async def _topics(self) -> Collection[str]:
        selection = self._options.selection
        if selection.pattern is None:
            return selection.named_topics
        answer = await self._ask_servers(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        known = map(str, Members(loads_body(answer), "topics").items("topicList"))
        info = await self.info()
        return sorted(selection.matching(known, {*info.brokers, *info.clusters}))

    async def _queues_of(self, topic: str) -> list[MessageQueue]:
        async def fetch() -> list[MessageQueue]:
            try:
                await self._client.routes.fetch(topic)
            except TopicNotExistError:
                return []
            return await self._client.routes.subscribe_queues(topic)

        found = await persist(f"route of {topic}", self._options.retries, fetch)
        return list(filter(self._options.selection.takes, found))

    async def absence(
        self, queue: MessageQueue, look: Callable[[], Awaitable[Collection[MessageQueue]]]
    ) -> Absence | None:
        """Return why a queue is not there, None if it is back when ``look`` looks for queues.

        Raises:
            UnreachableError: its broker is down, and did not come back.
        """

        async def cause() -> Absence | None:
            if queue in await look():
                return None
            absence = await self.why_absent(queue)
            if absence is Absence.BROKER_DOWN:
                raise NoRouteError(queue.topic, f"{queue.broker_name} is down", "start it")
            return absence

        return await persist(queue_text(queue), self._options.retries, cause)

    async def why_absent(self, queue: MessageQueue) -> Absence:
        """Return why a queue is not among those that the name server knows."""
        info = await self.info()
        if queue.broker_name not in info.brokers:
            return Absence.BROKER_DOWN
        try:
            route = await self._client.routes.fetch(queue.topic)
        except TopicNotExistError:
            return Absence.DELETED
        homes = [one for one in route.queues if one.broker_name == queue.broker_name]
        if not homes:
            return Absence.DELETED
        readable = max(one.read_queue_count if one.perm & Perm.READ else 0 for one in homes)
        # Between two looks it may have come back; then the next one finds it.
        return Absence.CLOSED if queue.queue_id >= readable else Absence.BROKER_DOWN

    async def ask_home(self, queue: MessageQueue, code: int, header: Header | None = None) -> bytes:
        """Send a request without a body to the broker of a queue; return the body of the answer.

        Raises:
            UnreachableError: it did not answer.
            RefusedReadError: it refuses.
        """

        async def ask() -> bytes:
            address = await self._client.routes.home(queue)
            return (await self._client.call(address, code, header)).body

        return await persist(
            f"broker {queue.broker_name}",
            self._options.retries,
            ask,
            lambda: self._client.routes.fetch(queue.topic),
        )

    async def log_bounds(self, queue: MessageQueue) -> tuple[int, int] | None:
        """Return where the log of a queue's broker starts and ends; None if it does not tell."""
        try:
            body = await self.ask_home(queue, RequestCode.GET_BROKER_RUNTIME_INFO)
            table = Members(loads_body(body), "an answer").table("table")
            return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
        except (RefusedReadError, FormatError, KeyError, ValueError) as error:
            logger.info("log not told: broker=%s reason=%s", queue.broker_name, error)
            return None

    async def record_in_log(self, queue: MessageQueue, physical_offset: int) -> bytes | None:
        """Return the record at a physical offset of the log of a queue's broker.

        It is empty if no record is there, and None if the broker refuses to tell.

        Raises:
            UnreachableError: the broker did not answer.
        """

        async def ask() -> bytes:
            address = await self._client.routes.home(queue)
            header = ViewMessageRequest(offset=physical_offset)
            try:
                return (
                    await self._client.call(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
                ).body
            except SystemFailureError as error:
                if _NO_RECORD in error.remark:
                    return b""
                raise

        try:
            return await persist(
                f"broker {queue.broker_name}",
                self._options.retries,
                ask,
                lambda: self._client.routes.fetch(queue.topic),
            )
        except RefusedReadError as error:
            logger.info("record not told: broker=%s reason=%s", queue.broker_name, error)
            return None

    async def check_expression(self, topics: Iterable[str]) -> None:
        """Have a broker say whether it can serve an expression that is no list of tags.

        Raises:
            RefusedReadError: it cannot; the cause tells why.
        """
        options = self._options
        wanted = Subscriptions(None)
        for topic in topics:
            wanted.add(topic, options.expression, options.expression_type)

        async def check() -> None:
            try:
                await wanted.check(self._client, options.group)
            except ResponseError as error:
                # It has understood, so it would say the same again.
                raise RefusedReadError(options.expression_type, str(error)) from error

        await persist(options.expression_type, options.retries, check)

    # -- offsets -----------------------------------------------------------------------------

    async def begins(self, queues: Iterable[MessageQueue]) -> Offsets:
        """Return the offset of the oldest message of each queue."""
        return await self._asked(queues, self._bounds.begin)

    async def ends(self, queues: Iterable[MessageQueue]) -> Offsets:
        """Return the offset that the next message of each queue gets."""
        return await self._asked(queues, self._bounds.end)

    async def mean_sizes(self, ranges: Iterable[QueueRange]) -> dict[MessageQueue, int]:
        """Return the mean size of a few records at the start of each range."""

        async def sample(one: QueueRange) -> int:
            answer = await self.puller.pull(one.queue, one.start, SAMPLE_COUNT, everything=True)
            return len(answer.body) // max(1, answer.next_offset - answer.offset)

        wanted = [one for one in ranges if one.length]
        sizes = await each(wanted, sample)
        return {one.queue: size for one, size in zip(wanted, sizes, strict=True)}

    async def commit(self, offsets: Offsets) -> None:
        """Commit offsets for the group.  A failure is logged: the checkpoint is what counts."""
        for queue, offset in offsets.items():
            try:
                await self._offsets.commit(queue, offset)
            except (ClientError, RemotingError) as error:
                logger.warning("offset not committed: queue=%s reason=%s", queue, error)

    async def _asked(
        self, queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[int]]
    ) -> Offsets:
        async def asked(queue: MessageQueue) -> int:
            return await persist(
                queue_text(queue),
                self._options.retries,
                lambda: ask(queue),
                lambda: self._client.routes.fetch(queue.topic),
            )

        wanted = list(queues)
        offsets = await each(wanted, asked)
        # A queue of which a broker has no file yet begins and ends at -1 for some.
        return {queue: max(0, offset) for queue, offset in zip(wanted, offsets, strict=True)}

    async def info(self) -> ClusterInfo:
        """Return all brokers that the name server knows."""
        return cluster_from_json(
            loads_body(await self._ask_servers(RequestCode.GET_BROKER_CLUSTER_INFO))
        )

    async def _ask_servers(self, code: int) -> bytes:
        answer = await persist(
            _NAME_SERVER, self._options.retries, lambda: self._client.servers.call(code)
        )
        return answer.body


def _limited(found: Iterable[Collection[MessageQueue]]) -> list[MessageQueue]:
    """Return queues in their order; OptionError if they are more than anybody has use for."""
    queues = sorted(queue for some in found for queue in some)
    if len(queues) > QUEUE_COUNT_MAX:
        raise OptionError(f"{len(queues)} queues are chosen; at most {QUEUE_COUNT_MAX} are read")
    return queues
