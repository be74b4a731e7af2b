"""Consumers against a broker of ours in the same process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterable, Sized
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from flintmq import AsyncProducer, AsyncPushConsumer, ConsumeFrom, Message, ReceivedMessage
from flintmq.broker import Broker, read_settings, run_broker
from flintmq.model.message_queue import MessageQueue
from flintmq.namesrv import NamesrvConfig, run_namesrv
from flintmq.testing import ManualClock
from flintmq.testing.embedded_brokers import SMALL_FILES
from tests.kits.broker.remoting_kit import eventually, run_within

DEADLINE_S: Final = 30
TOPIC: Final = "orders"
GROUP: Final = "readers"
QUEUE_COUNT: Final = 4

_T = TypeVar("_T")


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a test's coroutine, which may not take for ever."""
    return run_within(work, DEADLINE_S)


async def turns(count: int = 200) -> None:
    """Let the loop turn: broker and consumers live in it, so what they would do is done."""
    for _ in range(count):
        await asyncio.sleep(0)


async def got_count(got: Sized, count: int) -> None:
    """Wait until so many things are there."""
    await eventually(lambda: len(got) == count)


def queue(queue_id: int, topic: str = TOPIC) -> MessageQueue:
    return MessageQueue(topic, "broker-a", queue_id)


def numbers(count: int, start: int = 0) -> set[bytes]:
    return {b"%d" % number for number in range(start, start + count)}


def bodies(messages: Iterable[ReceivedMessage]) -> list[bytes]:
    return [message.body for message in messages]


@dataclass(slots=True)
class Collected:
    """A handler that keeps what it gets."""

    messages: list[ReceivedMessage] = field(default_factory=list)

    async def __call__(self, message: ReceivedMessage) -> None:
        self.messages.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return bodies(self.messages)


class Site:
    """A name server, a broker that can be started again, and a producer."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stack = AsyncExitStack()
        self._running = AsyncExitStack()
        self.clock = ManualClock(1_800_000_000_000)
        self.namesrv = ""
        self._port = 0

    async def open(self) -> None:
        config = NamesrvConfig(
            listen_port=0,
            kv_config_path=self._root / "kvConfig.json",
            config_store_path=self._root / "namesrv.properties",
        )
        server = await self._stack.enter_async_context(run_namesrv(config))
        self.namesrv = server.address
        self._stack.push_async_callback(self.stop_broker)
        await self.start_broker()
        self.producer = await self._stack.enter_async_context(
            AsyncProducer(namesrv=self.namesrv, group="senders")
        )

    async def start_broker(self) -> None:
        settings = {
            **SMALL_FILES,
            "brokerName": "broker-a",
            "listenPort": str(self._port),
            "namesrvAddr": self.namesrv,
            "storePathRootDir": str(self._root / "store"),
        }
        self.broker: Broker = await self._running.enter_async_context(
            run_broker(*read_settings(settings), clock=self.clock)
        )
        self._port = int(self.broker.address.rpartition(":")[2])
        self.broker.context.topics.ensure(TOPIC, QUEUE_COUNT)

    async def stop_broker(self) -> None:
        await self._running.aclose()

    async def close(self) -> None:
        await self._stack.aclose()

    async def send(self, count: int, *, start: int = 0, queue_count: int = QUEUE_COUNT) -> None:
        """Send numbered messages, to one queue after the other in turn."""
        for number in range(start, start + count):
            message = Message(topic=TOPIC, body=b"%d" % number, tag="AB"[number % 2])
            await self.producer.send(message, queue=queue(number % queue_count))

    def offsets(self, group: str = GROUP, topic: str = TOPIC) -> dict[int, int]:
        """Return what the broker knows of a group's progress, by queue."""
        return dict(self.broker.context.offsets.queues(group, topic))

    def push(self, handler: Any, **options: Any) -> AsyncPushConsumer:
        """Return a consumer of the topic, from its beginning on."""
        settings: dict[str, Any] = {
            "group": GROUP,
            "subscriptions": {TOPIC: "*"},
            "consume_from": ConsumeFrom.FIRST_OFFSET,
            "offset_interval_ms": 20,
            "stop_timeout_ms": 5000,
        }
        return AsyncPushConsumer(namesrv=self.namesrv, handler=handler, **(settings | options))


@contextlib.asynccontextmanager
async def site(root: Path) -> AsyncIterator[Site]:
    here = Site(root)
    try:
        await here.open()
        yield here
    finally:
        await here.close()
