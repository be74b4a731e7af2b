"""One client: what its producers and consumers share.

Connections, routes, heartbeats and the timers live here; members register, and are asked what
concerns them.  There is no global state: who wants to share a client hands it on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from flintmq.client.errors import ClientError, ResponseError, UsageError
from flintmq.client.name_servers import NameServers
from flintmq.client.request_reply import ReplyBox
from flintmq.client.route_book import RouteBook
from flintmq.client.signing import sign
from flintmq.client.unique_ids import UniqueIds
from flintmq.format.bodies.heartbeat import Heartbeat, encode_heartbeat
from flintmq.format.codes import LanguageCode, RequestCode, ResponseCode
from flintmq.format.headers.clients import UnregisterClientRequest
from flintmq.remoting import Answer, Limits, ProcessorTable, RemotingClient, RemotingError, Request
from flintmq.remoting.addresses import local_address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from types import TracebackType

    from flintmq.client.options import ClientOptions
    from flintmq.format.bodies.heartbeat import ConsumerData
    from flintmq.format.command import Command
    from flintmq.format.headers.codec import Header
    from flintmq.remoting.processors import Processor

logger = logging.getLogger(__name__)

INNER_PRODUCER: Final = "CLIENT_INNER_PRODUCER"
"""A producer group that every client is in: by it messages are given back."""

REBALANCE_INTERVAL_MS: Final = 20_000
DISCOVERY_INTERVAL_MS: Final = 120_000
STREAM_SUFFIX: Final = "@STREAM"


class ProducerMember(Protocol):
    """A producer group of a client."""

    group: str

    async def check_transaction(self, request: Request[Any]) -> None:
        """Answer how a transaction ended; the body of the request is the half message."""
        ...


class ConsumerMember(Protocol):
    """A consumer group of a client."""

    group: str

    def heartbeat_data(self) -> ConsumerData:
        """Return what brokers are told of the group."""
        ...

    async def rebalance(self) -> None:
        """Share the queues of the group out anew."""
        ...

    async def persist_offsets(self) -> None:
        """Commit how far the group has come."""
        ...

    async def serve(self, request: Request[Any]) -> Answer:
        """Serve a broker's request that concerns the group: codes 220, 221, 307, 309."""
        ...


class ClientInstance:
    """One client of a cluster.  Use it as an async context manager."""

    def __init__(self, options: ClientOptions, *, stream: bool = False) -> None:
        self.options = options
        self.ip = options.client_ip or local_address()
        self.client_id = self._make_id(stream=stream)
        self.unique_ids = UniqueIds(self.ip)
        self.remoting = RemotingClient(
            ProcessorTable(self._served()),
            limits=Limits(connect_timeout_ms=options.connect_timeout_ms),
            prepare=self._prepare,
            tls=options.tls,
        )
        self.servers = NameServers(options, self.remoting)
        self.routes = RouteBook(self.servers)
        self.broker_versions: dict[str, int] = {}
        """The release of each broker, from its answers to heartbeats."""
        self.replies = ReplyBox()
        self._stream = stream
        self._producers: dict[str, ProducerMember | None] = {}
        self._consumers: dict[str, ConsumerMember] = {}
        self._rebalance_due = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_open = False

    def _make_id(self, *, stream: bool) -> str:
        options = self.options
        name = options.instance_name or f"{os.getpid()}#{time.monotonic_ns()}"
        parts = [f"{self.ip}@{name}"]
        if options.unit_name:
            parts.append(options.unit_name)
        return "@".join(parts) + (STREAM_SUFFIX if stream else "")

    def _prepare(self, command: Command) -> None:
        command.language = LanguageCode.PYTHON
        if self._stream:
            command.ext_fields = command.ext_fields | {"ReqT": "0"}
        if self.options.credentials is not None:
            sign(command, self.options.credentials)

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

    # -- asking ------------------------------------------------------------------------------

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
        """Ask a broker; an answer with a code that is not accepted raises ResponseError."""
        answer = await self.remoting.call(
            address, code, header, body, timeout_ms=timeout_ms or self.options.request_timeout_ms
        )
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
        """Tell all brokers known which groups are here."""
        if not self._producers and not self._consumers:
            return
        beat = Heartbeat(
            client_id=self.client_id,
            producer_groups=(*self._producers, INNER_PRODUCER),
            consumers=tuple(one.heartbeat_data() for one in self._consumers.values()),
        )
        await self._tell_all(
            RequestCode.HEART_BEAT,
            None,
            encode_heartbeat(beat),
            masters_only=not self._consumers,
        )

    def wake_rebalance(self) -> None:
        """Share queues out anew, soon."""
        self._rebalance_due.set()

    # -- being asked -------------------------------------------------------------------------

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

    async def _check_transaction(self, request: Request[Any]) -> None:
        for member in self._producers.values():
            if member is not None:
                await member.check_transaction(request)

    def _ids_changed(self, request: Request[Any]) -> Answer:
        self.wake_rebalance()
        return Answer()

    def _for_group(self, field: str) -> Processor:
        async def serve(request: Request[Any]) -> Answer:
            group = getattr(request.header, field)
            member = self._consumers.get(group)
            if member is None:
                return Answer(
                    ResponseCode.SYSTEM_ERROR, remark=f"The Consumer Group <{group}> not exist here"
                )
            return await member.serve(request)

        return serve

    # -- lifetime ----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.servers.discover()
        self._is_open = True
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
        for member in list(self._consumers.values()):
            await member.persist_offsets()

    async def _rebalance_forever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REBALANCE_INTERVAL_MS / 1000):
                    await self._rebalance_due.wait()
            self._rebalance_due.clear()
            for member in list(self._consumers.values()):
                try:
                    await member.rebalance()
                except Exception:
                    # The next round may do better; this loop has to go on.
                    logger.exception("queues not shared out: group=%s", member.group)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_open = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        for group in list(self._producers):
            await self.remove_producer(group)
        for group in list(self._consumers):
            await self.remove_consumer(group)
        await self.remoting.close()


async def _repeat(job: Callable[[], Awaitable[None]], interval_ms: int) -> None:
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            await job()
        except Exception:
            # One failure must not end what has to go on for as long as the client does.
            logger.exception("client housekeeping failed")
