"""A broker on loopback with a manual clock, and a client that speaks to it request by request."""

import contextlib
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

from flintmq.broker import Broker, read_settings, run_broker
from flintmq.format.stored.record import Record, decode_record
from flintmq.format.subscription import build_subscription
from flintmq.format.wire.bodies.dialect import loads_body
from flintmq.format.wire.bodies.heartbeat import ConsumerData, Heartbeat, encode_heartbeat
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.codec import Header
from flintmq.format.wire.headers.pull import PullMessageRequest
from flintmq.format.wire.headers.send import SendMessageRequestV2, SendMessageResponse
from flintmq.remoting import RemotingClient, Request, RequestTable
from flintmq.remoting.processors import Answer
from flintmq.testing import ManualClock
from tests.kits.broker.remoting_kit import eventually, run_within

DEADLINE_S: Final = 20
START_MS: Final = 1_800_000_000_000
TIMEOUT_MS: Final = 10_000
SMALL: Final = {
    "listenPort": "0",
    "brokerName": "broker-a",
    "brokerClusterName": "TestCluster",
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    # Tests run the checks themselves.
    "transactionCheckInterval": "1000000",
    # A busy machine must not add lines to logs that tests look at.
    "longTurnMillis": "0",
}

__all__ = [
    "Site",
    "Wire",
    "consumer",
    "eventually",
    "pull_header",
    "records",
    "run",
    "send_header",
    "site",
]

_T = TypeVar("_T")


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a test's coroutine, which may not take for ever."""
    return run_within(work, DEADLINE_S)


class Wire:
    """One client connection, with the requests that tests need."""

    def __init__(self, broker: Broker, client: RemotingClient, asked: list[Command]) -> None:
        self.broker = broker
        self.client = client
        self.asked = asked
        """What the broker has asked this client."""

    async def call(
        self, code: int, header: Header | None = None, body: bytes = b"", *, port: int | None = None
    ) -> Command:
        address = self.broker.address if port is None else f"127.0.0.1:{port}"
        return await self.client.call(address, code, header, body, timeout_ms=TIMEOUT_MS)

    async def ask(self, code: int, header: Header | None = None, body: bytes = b"") -> Any:
        """Return the decoded body of a successful answer."""
        answer = await self.call(code, header, body)
        assert answer.code == ResponseCode.SUCCESS, answer
        return loads_body(answer.body) if answer.body else None

    async def send_raw(
        self,
        topic: str,
        body: bytes = b"body",
        *,
        code: int = RequestCode.SEND_MESSAGE_V2,
        **more: Any,
    ) -> Command:
        return await self.call(code, send_header(topic, **more), body)

    async def send(self, topic: str, body: bytes = b"body", **more: Any) -> SendMessageResponse:
        answer = await self.send_raw(topic, body, **more)
        assert answer.code == ResponseCode.SUCCESS, answer
        return SendMessageResponse.decode(answer.ext_fields)

    async def pull_raw(self, topic: str, **more: Any) -> Command:
        return await self.call(RequestCode.PULL_MESSAGE, pull_header(topic, **more))

    async def pull(self, topic: str, **more: Any) -> list[Record]:
        answer = await self.pull_raw(topic, **more)
        return records(answer.body)

    async def heartbeat(
        self, client_id: str = "c1", *, consumer: ConsumerData | None = None, producer: str = ""
    ) -> Command:
        beat = Heartbeat(
            client_id=client_id,
            producer_groups=(producer,) if producer else (),
            consumers=(consumer,) if consumer else (),
        )
        return await self.call(RequestCode.HEART_BEAT, None, encode_heartbeat(beat))


def send_header(
    topic: str, *, properties: dict[str, str] | None = None, **more: Any
) -> SendMessageRequestV2:
    text = "\x02".join(f"{name}\x01{value}" for name, value in (properties or {}).items())
    values: dict[str, Any] = {
        "producer_group": "producers",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": START_MS,
        "flag": 0,
        "properties": text or None,
    }
    return SendMessageRequestV2(topic=topic, **(values | more))


def pull_header(topic: str, **more: Any) -> PullMessageRequest:
    values: dict[str, Any] = {
        "consumer_group": "consumers",
        "queue_id": 0,
        "queue_offset": 0,
        "max_msg_nums": 32,
        "sys_flag": 4,
        "commit_offset": 0,
        "suspend_timeout_millis": 15_000,
        "subscription": "*",
        "sub_version": 0,
    }
    return PullMessageRequest(topic=topic, **(values | more))


def consumer(
    group: str = "consumers", *topics: str, expression: str = "*", **more: Any
) -> ConsumerData:
    subscriptions = tuple(build_subscription(topic, expression, version=1) for topic in topics)
    return ConsumerData(group=group, subscriptions=subscriptions, **more)


def records(body: bytes) -> list[Record]:
    """Return the records that stand behind each other in a body."""
    found = []
    at = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        found.append(decode_record(body[at : at + size]))
        at += size
    return found


class Site:
    """A broker that is up, its clock, and as many clients as a test wants."""

    def __init__(self, broker: Broker, clock: ManualClock) -> None:
        self.broker = broker
        self.clock = clock
        self._stack = contextlib.AsyncExitStack()

    async def client(self, *codes: int) -> Wire:
        """Return a new client; it answers the codes with success and notes what it was asked."""
        asked: list[Command] = []

        def note(request: Request[Any]) -> Answer:
            asked.append(request.command)
            return Answer()

        handled = {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: note} | dict.fromkeys(codes, note)
        client = await self._stack.enter_async_context(RemotingClient(RequestTable(handled)))
        return Wire(self.broker, client, asked)

    async def close(self) -> None:
        await self._stack.aclose()


@contextlib.asynccontextmanager
async def site(root: Path, **settings: Any) -> AsyncIterator[Site]:
    """Run a broker with small files in ``root``; settings have RocketMQ's names."""
    clock = ManualClock(START_MS)
    texts = {key: str(value) for key, value in settings.items()}
    config, store = read_settings(SMALL | {"storePathRootDir": str(root)} | texts)
    async with run_broker(config, store, clock=clock) as broker:
        here = Site(broker, clock)
        try:
            yield here
        finally:
            await here.close()
