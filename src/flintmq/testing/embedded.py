"""A name server and a broker inside a test: real ones, on free ports, with a temporary store."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, Unpack

from flintmq.client.errors import UsageError
from flintmq.client.loop_thread import InThread
from flintmq.client.messaging.message_decoding import decode_message
from flintmq.client.messaging.messages import Message, ReceivedMessage, SendResult
from flintmq.client.producing.producer import AsyncProducer
from flintmq.format.stored.record import decode_record
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.admin import CreateTopicRequest
from flintmq.model.topic_config import Perm
from flintmq.namesrv import NamesrvConfig, run_namesrv
from flintmq.store.running_flags import RunningFlag
from flintmq.testing.clock import ManualClock
from flintmq.testing.embedded_brokers import EmbeddedBrokers
from flintmq.testing.faulty_files import FaultyFiles
from flintmq.testing.tcp_proxy import AsyncTcpProxy, TcpProxy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from flintmq.broker import Broker
    from flintmq.client.messaging.messages import MessageKeywords

READ_COUNT: Final = 32
POLL_S: Final = 0.005
REGISTRATION_S: Final = 10
"""How long a new topic may take until name servers know it."""


def _shared_with_namesrv(settings: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in settings.items() if key.startswith("tls.")}


class AsyncEmbeddedCluster:
    """A name server and a broker in this process; use it as an async context manager.

    With ``replicas`` the broker is a master with so many slaves (``brokerRole="SYNC_MASTER"`` makes
    it a synchronous one).  They follow it through `stream`, which can do harm to that.

    ``manual_clock`` puts the time of the broker into the hands of the test: `advance` lets
    delays, retries and timeouts of transactions pass at once.  With ``proxied`` clients reach the
    broker through `proxy`, which can do to them what bad networks do.  Further settings have
    RocketMQ's names; those that begin with ``tls.`` are for the name server as well.
    """

    def __init__(
        self,
        *,
        root: Path | None = None,
        manual_clock: bool = False,
        proxied: bool = False,
        replicas: int = 0,
        **settings: object,
    ) -> None:
        self._root = root
        self._is_proxied = proxied
        self._replica_count = replicas
        self.clock = ManualClock(time.time_ns() // 1_000_000) if manual_clock else None
        self._files = FaultyFiles()
        self._settings = {key: str(value) for key, value in settings.items()}
        self._stack = AsyncExitStack()
        self._brokers: EmbeddedBrokers | None = None
        self.namesrv = ""
        """The address to give to any client."""

    async def __aenter__(self) -> Self:
        stack = self._stack
        root = self._root
        if root is None:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flintmq-")))
        try:
            namesrv = await stack.enter_async_context(
                run_namesrv(
                    replace(
                        NamesrvConfig.from_properties(_shared_with_namesrv(self._settings)),
                        listen_port=0,
                        kv_config_path=root / "namesrv" / "kvConfig.json",
                        config_store_path=root / "namesrv" / "namesrv.properties",
                    )
                )
            )
            self._brokers = brokers = EmbeddedBrokers(
                root,
                namesrv.address,
                self._settings,
                clock=self.clock,
                files=self._files,
                proxied=self._is_proxied,
            )
            stack.push_async_callback(brokers.stop)
            await brokers.start_master()
            if self._replica_count:
                await brokers.start_slaves(self._replica_count)
            self.namesrv = namesrv.address
            self._producer = await stack.enter_async_context(
                AsyncProducer(namesrv=self.namesrv, group="flintmq-testing")
            )
        except BaseException:
            await stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._brokers = None
        await self._stack.aclose()

    @property
    def _running(self) -> EmbeddedBrokers:
        if self._brokers is None:
            raise UsageError("the cluster is not running: use it in a with statement")
        return self._brokers

    @property
    def broker(self) -> Broker:
        """The broker, or the master of slaves; its tables and its store belong to the loop."""
        master = self._running.master
        if master is None:
            raise UsageError("the master was killed: start it again first")
        return master

    @property
    def slaves(self) -> list[Broker]:
        """The slaves, in the order of their broker ids from 1 on."""
        return self._running.slaves

    @property
    def proxy(self) -> AsyncTcpProxy:
        """The proxy between clients and the broker; messages that `send` sends pass it too."""
        found = self._running.proxy
        if found is None:
            raise UsageError("nothing is between clients and the broker: say proxied=True")
        return found

    @property
    def stream(self) -> AsyncTcpProxy:
        """The proxy between the slaves and their master: cut it, delay it, stall it."""
        found = self._running.stream
        if found is None:
            raise UsageError("there are no slaves: say replicas=1")
        return found

    async def kill_master(self) -> None:
        """Cut the master off from everybody, and end it."""
        await self._running.kill_master()

    async def start_master(self) -> None:
        """Start the master again, on the port that it had."""
        await self._running.start_master()

    async def wait_for_slaves(self, *, timeout_s: float = 10) -> None:
        """Wait until every slave has all that its master has, in its queues too."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        master = self.broker.context.store
        while any(
            slave.context.store.dispatcher.offset < master.log.end_offset for slave in self.slaves
        ):
            if loop.time() > deadline:
                ends = [slave.context.store.log.end_offset for slave in self.slaves]
                raise TimeoutError(
                    f"the master is at {master.log.end_offset}, slaves are at {ends} "
                    f"after {timeout_s} s"
                )
            await asyncio.sleep(POLL_S)

    # -- topics and groups -------------------------------------------------------------------

    async def create_topic(self, topic: str, *, queue_count: int = 4) -> None:
        """Create a topic, or change how many queues it has; return when clients can find it."""
        header = CreateTopicRequest(
            topic=topic,
            read_queue_nums=queue_count,
            write_queue_nums=queue_count,
            perm=Perm.READ_WRITE,
        )
        client, address = self._producer.client, self.broker.address
        await client.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        deadline = asyncio.get_running_loop().time() + REGISTRATION_S
        while len(await client.routes.publish_queues(topic) or ()) != queue_count:
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError(f"{topic} was not registered within {REGISTRATION_S} s")
            await asyncio.sleep(POLL_S)
            await client.routes.fetch(topic)

    def lag(self, group: str, topic: str) -> int:
        """Return how many messages of a topic come after what a group has committed.

        Where it has committed nothing, all messages that are there count.
        """
        context = self.broker.context
        config = context.topics.get(topic)
        lag = 0
        for queue_id in range(0 if config is None else config.read_queue_count):
            begin = max(context.store.min_offset_in_queue(topic, queue_id), 0)
            committed = context.offsets.get(group, topic, queue_id)
            end = context.store.max_offset_in_queue(topic, queue_id)
            lag += end - (begin if committed is None else committed)
        return lag

    # -- messages ----------------------------------------------------------------------------

    async def send(self, topic: str, body: bytes, **fields: Unpack[MessageKeywords]) -> SendResult:
        """Send a message; ``fields`` are those of `Message`."""
        return await self._producer.send(Message(topic=topic, body=body, **fields))

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return all messages of a topic, by queue and offset."""
        context = self.broker.context
        config = context.topics.get(topic)
        found = []
        for queue_id in range(0 if config is None else config.read_queue_count):
            offset = context.store.min_offset_in_queue(topic, queue_id)
            while offset < context.store.max_offset_in_queue(topic, queue_id):
                result = context.store.get_messages(topic, queue_id, offset, READ_COUNT)
                if result is None or not result.messages:
                    break
                with result:
                    found += [
                        decode_message(decode_record(bytes(view)), context.config.name)
                        for view in result.messages
                    ]
                    offset = result.next_begin_offset
        return found

    async def wait_for(
        self, topic: str, count: int, *, timeout_s: float = 10
    ) -> list[ReceivedMessage]:
        """Wait until a topic has at least ``count`` messages and return them."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while len(found := self.messages(topic)) < count:
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError(
                    f"{len(found)} of {count} messages in {topic} after {timeout_s} s"
                )
            await asyncio.sleep(POLL_S)
        return found

    # -- time and faults ---------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        """Let time pass for the broker; delayed messages that are due come within moments."""
        if self.clock is None:
            raise UsageError("the cluster has the real time: make it with manual_clock=True")
        self.clock.advance(ms)

    def drop_connections(self) -> int:
        """Cut all clients off, as a network does; return how many."""
        connections = list(self.broker.server.connections)
        for connection in connections:
            connection.abort()
        return len(connections)

    def fail_next_fsync(self) -> None:
        """Let the next flush of the log to the disk fail.

        With ``flushDiskType="SYNC_FLUSH"`` the sends that wait for it fail, and the broker takes
        no more messages until it is restarted.
        """
        self._files.fail_next_sync()

    @contextlib.contextmanager
    def refusing_sends(self, reason: str = "refused by the test") -> Iterator[None]:
        """Have the broker refuse all messages inside the block, with SERVICE_NOT_AVAILABLE."""
        flags = self.broker.context.store.flags
        flags.set(RunningFlag.NOT_WRITABLE, reason)
        try:
            yield
        finally:
            flags.clear(RunningFlag.NOT_WRITABLE)


class EmbeddedCluster(InThread[AsyncEmbeddedCluster]):
    """`AsyncEmbeddedCluster` for tests without asyncio: it runs in a thread of its own."""

    _noun = "cluster"

    def __init__(
        self,
        *,
        root: Path | None = None,
        manual_clock: bool = False,
        proxied: bool = False,
        replicas: int = 0,
        **settings: object,
    ) -> None:
        super().__init__(
            lambda: AsyncEmbeddedCluster(
                root=root,
                manual_clock=manual_clock,
                proxied=proxied,
                replicas=replicas,
                **settings,
            )
        )

    @property
    def namesrv(self) -> str:
        """The address to give to any client."""
        return self._opened()[1].namesrv

    @property
    def proxy(self) -> TcpProxy:
        """The proxy between clients and the broker."""
        thread, cluster = self._opened()
        return TcpProxy.attached(cluster.proxy, thread)

    def create_topic(self, topic: str, *, queue_count: int = 4) -> None:
        """Create a topic, or change how many queues it has; return when clients can find it."""
        self._await(AsyncEmbeddedCluster.create_topic, topic, queue_count=queue_count)

    def lag(self, group: str, topic: str) -> int:
        """Return how many messages of a topic come after what a group has committed."""
        return self._call(AsyncEmbeddedCluster.lag, group, topic)

    @property
    def stream(self) -> TcpProxy:
        """The proxy between the slaves and their master: cut it, delay it, stall it."""
        thread, cluster = self._opened()
        return TcpProxy.attached(cluster.stream, thread)

    def kill_master(self) -> None:
        """Cut the master off from everybody, and end it."""
        self._await(AsyncEmbeddedCluster.kill_master)

    def start_master(self) -> None:
        """Start the master again, on the port that it had."""
        self._await(AsyncEmbeddedCluster.start_master)

    def wait_for_slaves(self, *, timeout_s: float = 10) -> None:
        """Wait until every slave has all that its master has, in its queues too."""
        self._await(AsyncEmbeddedCluster.wait_for_slaves, timeout_s=timeout_s)

    def send(self, topic: str, body: bytes, **fields: Unpack[MessageKeywords]) -> SendResult:
        """Send a message; ``fields`` are those of `Message`."""
        return self._await(lambda cluster: cluster.send(topic, body, **fields))

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return all messages of a topic, by queue and offset."""
        return self._call(AsyncEmbeddedCluster.messages, topic)

    def wait_for(self, topic: str, count: int, *, timeout_s: float = 10) -> list[ReceivedMessage]:
        """Wait until a topic has at least ``count`` messages and return them."""
        return self._await(AsyncEmbeddedCluster.wait_for, topic, count, timeout_s=timeout_s)

    def advance(self, ms: int) -> None:
        """Let time pass for the broker; delayed messages that are due come within moments."""
        self._call(AsyncEmbeddedCluster.advance, ms)

    def drop_connections(self) -> int:
        """Cut all clients off, as a network does; return how many."""
        return self._call(AsyncEmbeddedCluster.drop_connections)

    def fail_next_fsync(self) -> None:
        """Let the next flush of the log to the disk fail."""
        self._call(AsyncEmbeddedCluster.fail_next_fsync)

    @contextlib.contextmanager
    def refusing_sends(self, reason: str = "refused by the test") -> Iterator[None]:
        """Have the broker refuse all messages inside the block."""
        with self._opened()[1].refusing_sends(reason):  # Flags may be set from any thread.
            yield
