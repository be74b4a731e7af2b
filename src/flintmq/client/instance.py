"""One client: what its producers and consumers share.

It owns the connections, the routes, the heartbeats and the timers.  Producers and consumers
register with it, and it passes the requests of brokers on to them.  There is no global state: a
client is shared by handing it to several producers and consumers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from typing import TYPE_CHECKING, Final, Protocol, Self
from weakref import WeakKeyDictionary

from flintmq.client.client_tls import context_for
from flintmq.client.closing_time import ClosingTime
from flintmq.client.errors import ClientError, ResponseError, UsageError
from flintmq.client.messaging.request_reply import ReplyBox
from flintmq.client.messaging.unique_ids import UniqueIds
from flintmq.client.routing.name_servers import NameServers
from flintmq.client.routing.route_cache import RouteCache
from flintmq.client.signing import sign
from flintmq.client.wall_clock import monotonic_ms
from flintmq.format.wire.bodies.heartbeat import Heartbeat, encode_heartbeat
from flintmq.format.wire.codes import LanguageCode, RequestCode, ResponseCode
from flintmq.format.wire.frame import HeaderType
from flintmq.format.wire.headers.clients import UnregisterClientRequest
from flintmq.remoting import Answer, Limits, RemotingClient, RemotingError, Request, RequestTable
from flintmq.remoting.addresses import local_address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from types import TracebackType

    from flintmq.client.options import ClientOptions
    from flintmq.format.wire.bodies.heartbeat import ConsumerData
    from flintmq.format.wire.command import Command
    from flintmq.format.wire.headers.codec import Header
    from flintmq.format.wire.headers.transaction import CheckTransactionRequest
    from flintmq.remoting import Connection
    from flintmq.remoting.processors import Processor

logger = logging.getLogger(__name__)

INNER_PRODUCER: Final = "CLIENT_INNER_PRODUCER"
"""Every client is in this producer group; failed messages are sent again in its name."""

REBALANCE_INTERVAL_MS: Final = 20_000
DISCOVERY_INTERVAL_MS: Final = 120_000
STREAM_SUFFIX: Final = "@STREAM"


class ProducerMember(Protocol):
    """A producer group of a client."""

    group: str

    async def check_transaction(self, request: Request[CheckTransactionRequest]) -> None:
        """Answer how a transaction ended; the body of the request is the half message."""
        ...


class ConsumerMember(Protocol):
    """A consumer group of a client."""

    group: str

    def heartbeat_data(self) -> ConsumerData:
        """Return what brokers are told of the group."""
        ...

    async def rebalance(self) -> None:
        """Share the queues of the group again."""
        ...

    async def persist_offsets(self) -> None:
        """Commit how far the group has come."""
        ...

    async def serve(self, request: Request[Header]) -> Answer:
        """Serve a broker's request that concerns the group: codes 220, 221, 307, 309."""
        ...


class ClientInstance:
    """One client of a cluster.  Use it as an async context manager."""

    def __init__(
        self,
        options: ClientOptions,
        *,
        stream: bool = False,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self.options = options
        self._credentials = options.signing_credentials
        self.now_ms = now_ms
        """The clock by which locks and what brokers have said expire."""
        self.ip = options.client_ip or local_address()
        self.client_id = self._make_id(stream=stream)
        self.unique_ids = UniqueIds(self.ip)
        self.remoting = RemotingClient(
            RequestTable(self._served()),
            limits=Limits(connect_timeout_ms=options.connect_timeout_ms),
            prepare=self.prepare,
            tls=context_for(options),
        )
        self.servers = NameServers(options, self.remoting)
        self.routes = RouteCache(self.servers)
        self.broker_versions: dict[str, int] = {}
        """The release of each broker, from its answers to heartbeats."""
        self.replies = ReplyBox()
        self._stream = stream
        self._producers: dict[str, ProducerMember | None] = {}
        self._consumers: dict[str, ConsumerMember] = {}
        self._introduced: WeakKeyDictionary[Connection, bytes] = WeakKeyDictionary()
        """The heartbeat that the broker at the other end was sent, by connection."""
        self._rebalance_due = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._fetching: dict[str, asyncio.Task[None]] = {}

    def _make_id(self, *, stream: bool) -> str:
        options = self.options
        name = options.instance_name or f"{os.getpid()}#{time.monotonic_ns()}"
        parts = [f"{self.ip}@{name}"]
        if options.unit_name:
            parts.append(options.unit_name)
        return "@".join(parts) + (STREAM_SUFFIX if stream else "")

    @property
    def has_repeating_headers(self) -> bool:
        """Whether requests that are alike have headers alike: they are in JSON, and unsigned."""
        return not self.options.binary_headers and self._credentials is None

    def prepare(self, command: Command) -> None:
        """Finish a request: its language, its notation, its signature."""
        command.language = LanguageCode.PYTHON
        if self.options.binary_headers:
            command.serialize_type = HeaderType.ROCKETMQ
        if self._stream:
            command.ext_fields = command.ext_fields | {"ReqT": "0"}
        if self._credentials is not None:
            sign(command, self._credentials)

    # -- members -----------------------------------------------------------------------------

    def add_producer(self, group: str, member: ProducerMember | None = None) -> None:
        """Take a producer group in; its member is asked about transactions."""
        if group in self._producers:
            raise UsageError(f"this client has a producer of group {group} already")
        self._producers[group] = member

    def add_consumer(self, member: ConsumerMember) -> None:
        """Take a consumer group in."""
        if member.group in self._consumers:
            raise UsageError(f"this client has a consumer of group {member.group} already")
        self._consumers[member.group] = member

    async def remove_producer(self, group: str) -> None:
        """Take a producer group out and tell the brokers."""
        if self._producers.pop(group, self) is not self:
            await self._unregister(producer_group=group)

    async def remove_consumer(self, group: str) -> None:
        """Take a consumer group out and tell the brokers."""
        if self._consumers.pop(group, None) is not None:
            await self._unregister(consumer_group=group)

    async def _unregister(
        self, *, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        header = UnregisterClientRequest(
            client_id=self.client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        await self._tell_all(RequestCode.UNREGISTER_CLIENT, header, b"", masters_only=False)

    # -- requests to brokers -----------------------------------------------------------------

    async def call(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
        accept: Collection[int] = (ResponseCode.SUCCESS,),
    ) -> Command:
        """Send a request and return the answer; ResponseError if its code is not accepted."""
        if timeout_ms is None:
            timeout_ms = self.options.request_timeout_ms
        answer = await self.remoting.call(address, code, header, body, timeout_ms=timeout_ms)
        if answer.code not in accept:
            raise ResponseError.for_code(answer.code, answer.remark, address=address)
        return answer

    async def _tell_all(
        self, code: int, header: Header | None, body: bytes, *, masters_only: bool
    ) -> None:
        async def tell(address: str) -> None:
            try:
                answer = await self.call(address, code, header, body)
            except (RemotingError, ClientError) as error:
                logger.debug("broker not told: address=%s reason=%s", address, error)
            else:
                self.broker_versions[address] = answer.version

        addresses = self.routes.all_addresses(masters_only=masters_only)
        await asyncio.gather(*map(tell, addresses))

    async def heartbeat(self) -> None:
        """Tell all known brokers which groups this client has."""
        if not self._producers and not self._consumers:
            return
        await self._tell_all(
            RequestCode.HEART_BEAT, None, self._beat(), masters_only=not self._consumers
        )

    def _beat(self) -> bytes:
        """Return the body of a heartbeat: the groups of now."""
        beat = Heartbeat(
            client_id=self.client_id,
            producer_groups=(*self._producers, INNER_PRODUCER),
            consumers=tuple(one.heartbeat_data() for one in self._consumers.values()),
        )
        return encode_heartbeat(beat)

    async def introduce(self, address: str, *, timeout_ms: int) -> None:
        """Tell one broker of the groups, unless it has heard of them on the same connection.

        Brokers bring replies only to clients that they know.
        """
        connection = await self.remoting.connect(address, timeout_ms=timeout_ms)
        beat = self._beat()
        if self._introduced.get(connection) == beat:
            return
        answer = await connection.call(RequestCode.HEART_BEAT, None, beat, timeout_ms=timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError.for_code(answer.code, answer.remark, address=address)
        self._introduced[connection] = beat

    def fetch_route_soon(self, topic: str) -> None:
        """Ask for the route of a topic whose broker cannot be reached; nobody waits for it.

        The broker may have come back elsewhere, or others may have the topic now.
        """
        if topic not in self._fetching and self._tasks:
            task = asyncio.create_task(self.routes.fetch_again(topic), name=f"route {topic}")
            self._fetching[topic] = task
            task.add_done_callback(lambda _: self._fetching.pop(topic, None))

    def wake_rebalance(self) -> None:
        """Have all consumers share their queues again, soon."""
        self._rebalance_due.set()

    # -- requests of brokers -----------------------------------------------------------------

    def _served(self) -> dict[int, Processor]:
        return {
            RequestCode.CHECK_TRANSACTION_STATE: self._check_transaction,
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._ids_changed,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: lambda request: self.replies.take(request),
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._for_group("group"),
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._for_group("group"),
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._for_group("consumer_group"),
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._for_group("consumer_group"),
        }

    async def _check_transaction(self, request: Request[CheckTransactionRequest]) -> None:
        for member in self._producers.values():
            if member is not None:
                await member.check_transaction(request)

    def _ids_changed(self, request: Request[Header]) -> Answer:
        self.wake_rebalance()
        return Answer()

    def _for_group(self, field: str) -> Processor:
        async def serve(request: Request[Header]) -> Answer:
            group = getattr(request.header, field)
            member = self._consumers.get(group)
            if member is None:
                return Answer(
                    ResponseCode.SYSTEM_ERROR, remark=f"The Consumer Group <{group}> not exist here"
                )
            return await member.serve(request)

        return serve

    # -- lifetime ----------------------------------------------------------------------------

    async def start(self) -> Self:
        """Find the name servers and begin what goes on in the background."""
        await self.servers.discover()
        options = self.options
        for job, interval_ms in (
            (self.routes.refresh, options.route_interval_ms),
            (self.heartbeat, options.heartbeat_interval_ms),
            (self._persist_offsets, options.offset_interval_ms),
            (self.servers.discover, DISCOVERY_INTERVAL_MS),
        ):
            task = asyncio.create_task(_repeat(job, interval_ms), name=job.__name__)
            self._tasks.append(task)
        self._tasks.append(asyncio.create_task(self._rebalance_forever(), name="rebalance"))
        return self

    async def _persist_offsets(self) -> None:
        await asyncio.gather(*(member.persist_offsets() for member in self._consumers.values()))

    async def _rebalance_forever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REBALANCE_INTERVAL_MS / 1000):
                    await self._rebalance_due.wait()
            self._rebalance_due.clear()
            # Side by side: the brokers of one may not answer, and others have none of theirs there.
            await asyncio.gather(*map(_rebalance, self._consumers.values()))

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self, closing: ClosingTime | None = None) -> None:
        """Stop what goes on in the background, tell the brokers, and close all connections.

        Unless something else is said, this takes at most ``request_timeout_ms``.
        """
        closing = closing or ClosingTime(self.options.request_timeout_ms)
        tasks = [*self._tasks, *self._fetching.values()]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        leaving = [*map(self.remove_producer, list(self._producers))]
        leaving += map(self.remove_consumer, list(self._consumers))
        if leaving:
            await closing.step("brokers that are told of the end", asyncio.gather(*leaving))
        await self.remoting.close(timeout_s=closing.left_s)


async def _rebalance(member: ConsumerMember) -> None:
    try:
        await member.rebalance()
    except Exception:
        # The next round may do better; it has to come.
        logger.exception("queues not shared out: group=%s", member.group)


async def _repeat(job: Callable[[], Awaitable[None]], interval_ms: int) -> None:
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            await job()
        except Exception:
            # One failure must not end what has to go on for as long as the client does.
            logger.exception("client housekeeping failed")
