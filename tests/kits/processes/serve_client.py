"""What a client needs to send to a running group and to read everything back."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from flintmq.format.wire.bodies.dialect import loads_body
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.namesrv import RouteRequest
from flintmq.format.wire.headers.send import SendMessageResponse
from flintmq.remoting import RemotingClient, RemotingError
from tests.kits.broker.broker_kit import pull_header, records, send_header
from tests.kits.broker.remoting_kit import run_within

DEADLINE_S: Final = 60
TIMEOUT_MS: Final = 20_000
QUEUE_COUNT: Final = 4
TOPIC: Final = "IntegrationTopic"

_T = TypeVar("_T")


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a test's coroutine, which may not take for ever."""
    return run_within(work, DEADLINE_S)


async def send(
    client: RemotingClient, address: str, body: bytes, queue_id: int = 0, topic: str = TOPIC
) -> SendMessageResponse:
    """Send a message and return where it is; RemotingError if it was not acknowledged."""
    header = send_header(topic, queue_id=queue_id, properties={"KEYS": "k", "TAGS": "t"})
    code = RequestCode.SEND_MESSAGE_V2
    answer = await client.call(address, code, header, body, timeout_ms=TIMEOUT_MS)
    assert answer.code == ResponseCode.SUCCESS, answer
    return SendMessageResponse.decode(answer.ext_fields)


async def read_queue(
    client: RemotingClient, address: str, queue_id: int, topic: str = TOPIC
) -> dict[int, bytes]:
    """Return queue offset → body of everything in a queue."""
    found: dict[int, bytes] = {}
    offset = 0
    while True:
        header = pull_header(topic, queue_id=queue_id, queue_offset=offset)
        answer = await client.call(address, RequestCode.PULL_MESSAGE, header, timeout_ms=TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            return found
        found |= {record.queue_offset: bytes(record.body) for record in records(answer.body)}
        offset = int(answer.ext_fields["nextBeginOffset"])


async def brokers_of(client: RemotingClient, namesrv: str, topic: str) -> set[str]:
    """Return the addresses of the brokers that have a topic."""
    answer = await client.call(
        namesrv,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RouteRequest(topic=topic),
        timeout_ms=TIMEOUT_MS,
    )
    if answer.code != ResponseCode.SUCCESS:
        return set()
    datas = loads_body(answer.body)["brokerDatas"]
    return {address for data in datas for address in data["brokerAddrs"].values()}


class Load:
    """Sends over several connections, each message after the last, until the broker goes."""

    def __init__(self, address: str, *, worker_count: int) -> None:
        self._address = address
        self._worker_count = worker_count
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        """Queue and offset → body."""

    async def run(self) -> None:
        await asyncio.gather(*map(self._work, range(self._worker_count)))

    async def _work(self, number: int) -> None:
        queue_id = number % QUEUE_COUNT
        async with RemotingClient() as client:
            with contextlib.suppress(RemotingError):
                for sequence in range(1_000_000):
                    body = b"%d-%d" % (number, sequence)
                    stored = await send(client, self._address, body, queue_id)
                    self.acknowledged[queue_id, stored.queue_offset] = body
