"""A name server and a broker inside a test: real ones, on free ports, with a temporary store."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from flintmq.broker import read_settings, run_broker
from flintmq.client.errors import UsageError
from flintmq.client.loop_thread import InThread, now
from flintmq.client.messages import Message, ReceivedMessage, SendResult
from flintmq.client.producer import AsyncProducer
from flintmq.client.received import received
from flintmq.format.record import decode_record
from flintmq.namesrv import NamesrvConfig, run_namesrv
from flintmq.store.flags import RunningFlag
from flintmq.testing.clock import ManualClock
from flintmq.testing.faulty_files import FaultyFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from flintmq.broker import Broker

_T = TypeVar("_T")

READ_COUNT: Final = 32
POLL_S: Final = 0.005
SMALL_FILES: Final = {
    "mappedFileSizeCommitLog": str(4 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
    "maxMessageSize": str(2 << 20),
}


class AsyncEmbeddedCluster:
    """A name server and a broker in this process; use it as an async context manager.

    ``manual_clock`` puts the time of the broker into the hands of the test: `advance` lets
    delays, retries and timeouts of transactions pass at once.  Further settings have RocketMQ's
    names.
    """

    def __init__(
        self, *, root: Path | None = None, manual_clock: bool = False, **settings: object
    ) -> None:
        self._root = root
        self.clock = ManualClock(time.time_ns() // 1_000_000) if manual_clock else None
        self._files = FaultyFiles()
        self._settings = {key: str(value) for key, value in settings.items()}
        self._stack = AsyncExitStack()
        self._broker: Broker | None = None
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
                    NamesrvConfig(
                        listen_port=0,
                        kv_config_path=root / "namesrv" / "kvConfig.json",
                        config_store_path=root / "namesrv" / "namesrv.properties",
                    )
                )
            )
            config, store = read_settings(
                {
                    **SMALL_FILES,
                    "brokerName": "broker-a",
                    "listenPort": "0",
                    "namesrvAddr": namesrv.address,
                    "storePathRootDir": str(root / "store"),
                    # Tests are over before it pays.
                    "machineCode": "false",
                    **self._settings,
                }
            )
            self._broker = await stack.enter_async_context(
                run_broker(config, store, clock=self.clock, files=self._files)
            )
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
        self._broker = None
        await self._stack.aclose()

    @property
    def broker(self) -> Broker:
        """The broker itself."""
        if self._broker is None:
            raise UsageError("the cluster is not running: use it in a with statement")
        return self._broker

    # -- messages ----------------------------------------------------------------------------

    async def send(self, topic: str, body: bytes, **fields: Any) -> SendResult:
        """Send a message; ``fields`` are those of `Message`."""
        return await self._producer.send(Message(topic=topic, body=body, **fields))

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return all messages of a topic, by queue and offset."""
        parts = self.broker.parts
        config = parts.topics.get(topic)
        found = []
        for queue_id in range(0 if config is None else config.read_queue_count):
            offset = parts.store.min_offset_in_queue(topic, queue_id)
            while offset < parts.store.max_offset_in_queue(topic, queue_id):
                result = parts.store.get_messages(topic, queue_id, offset, READ_COUNT)
                if result is None or not result.messages:
                    break
                with result:
                    found += [
                        received(decode_record(bytes(view)), parts.config.name)
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
        """Let the disk fail the next time that the log is brought to it.

        With ``flushDiskType="SYNC_FLUSH"`` the sends that wait for it fail, and the broker takes
        no more messages until it is restarted.
        """
        self._files.fail_next_sync()

    @contextlib.contextmanager
    def refusing_sends(self, reason: str = "refused by the test") -> Iterator[None]:
        """Have the broker refuse all messages meanwhile, with SERVICE_NOT_AVAILABLE."""
        flags = self.broker.parts.store.flags
        flags.set(RunningFlag.NOT_WRITABLE, reason)
        try:
            yield
        finally:
            flags.clear(RunningFlag.NOT_WRITABLE)


class EmbeddedCluster(InThread[AsyncEmbeddedCluster]):
    """The same for tests without asyncio: it runs in a thread of its own."""

    _noun = "cluster"

    def __init__(
        self, *, root: Path | None = None, manual_clock: bool = False, **settings: object
    ) -> None:
        super().__init__(
            lambda: AsyncEmbeddedCluster(root=root, manual_clock=manual_clock, **settings)
        )

    @property
    def namesrv(self) -> str:
        """The address to give to any client."""
        return self._opened()[1].namesrv

    def send(self, topic: str, body: bytes, **fields: Any) -> SendResult:
        """Send a message; ``fields`` are those of `Message`."""
        thread, cluster = self._opened()
        return thread.run(cluster.send(topic, body, **fields))

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return all messages of a topic, by queue and offset."""
        thread, cluster = self._opened()
        return thread.run(now(lambda: cluster.messages(topic)))

    def wait_for(self, topic: str, count: int, *, timeout_s: float = 10) -> list[ReceivedMessage]:
        """Wait until a topic has at least ``count`` messages and return them."""
        thread, cluster = self._opened()
        return thread.run(cluster.wait_for(topic, count, timeout_s=timeout_s))

    def advance(self, ms: int) -> None:
        """Let time pass for the broker."""
        thread, cluster = self._opened()
        thread.run(now(lambda: cluster.advance(ms)))

    def drop_connections(self) -> int:
        """Cut all clients off; return how many."""
        thread, cluster = self._opened()
        return thread.run(now(cluster.drop_connections))

    def fail_next_fsync(self) -> None:
        """Let the disk fail the next time that the log is brought to it."""
        thread, cluster = self._opened()
        thread.run(now(cluster.fail_next_fsync))

    @contextlib.contextmanager
    def refusing_sends(self, reason: str = "refused by the test") -> Iterator[None]:
        """Have the broker refuse all messages meanwhile."""
        with self._opened()[1].refusing_sends(reason):  # Flags may be set from any thread.
            yield
