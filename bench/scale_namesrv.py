"""What a name server costs with many brokers: ours, and that of Java where it is installed."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

from bench.broker_servers import java_namesrv, java_reason
from bench.scale_server import TIMEOUT_MS, Point, Server
from flintmq.format.wire.bodies.registration import encode_registration
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.namesrv import RegisterBrokerRequest, RouteRequest
from flintmq.model.data_version import DataVersion
from flintmq.model.topic_config import TopicConfig
from flintmq.remoting import RemotingClient
from tests.kits.processes.broker_process import OurNamesrv

TOPICS_A_BROKER: Final = 20
QUERY_COUNT: Final = 20_000
WARM_COUNT: Final = 20_000
"""Questions before any count: Java compiles what it does often."""
NOTICE_S: Final = 150


def brokers(work: Path, amount: int) -> Point:
    """Register brokers with twenty topics each, ask where topics are, lose one of the brokers."""
    with _ours(work / "ours") as server:
        found = asyncio.run(_measure(server, amount))
    if java_reason() is None:
        with java_namesrv(work / "java") as running:
            java = asyncio.run(_measure(Server(running.pid, running.address), amount))
        found |= {f"Java: {name}": value for name, value in java.items()}
    return Point(amount, found)


@contextlib.contextmanager
def _ours(data: Path) -> Iterator[Server]:
    with OurNamesrv(data) as namesrv:
        yield Server(namesrv.pid, namesrv.address)


async def _measure(server: Server, amount: int) -> dict[str, float]:
    base, before = server.memory_mib, server.cpu_seconds
    clients = [RemotingClient() for _ in range(amount)]
    for number, client in enumerate(clients):
        await _register(client, server.address, number)
    registered = server.cpu_seconds
    memory = server.memory_mib - base

    def route(number: int) -> Callable[[], Awaitable[Command]]:
        topic = f"topic-{number % amount}-{number % TOPICS_A_BROKER}"
        return lambda: server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteRequest(topic=topic))

    await server.all(iter([route(number) for number in range(WARM_COUNT)]))
    warmed, began = server.cpu_seconds, time.perf_counter()
    await server.all(iter([route(number) for number in range(QUERY_COUNT)]))
    seconds = time.perf_counter() - began
    asked = server.cpu_seconds
    noticed_ms = await _lose_one(server, clients.pop(), f"last-{amount - 1}")
    for client in clients:
        await client.close()
    await server.client.close()
    return {
        "a registration, CPU µs": (registered - before) / amount * 1e6,
        "memory, MiB": memory,
        "a route, CPU µs": (asked - warmed) / QUERY_COUNT * 1e6,
        "routes a second": QUERY_COUNT / seconds,
        "a lost broker noticed, ms": noticed_ms,
    }


async def _register(client: RemotingClient, address: str, number: int) -> None:
    own = [TopicConfig(name=f"topic-{number}-{each}") for each in range(TOPICS_A_BROKER)]
    own.append(TopicConfig(name=f"last-{number}"))
    header = RegisterBrokerRequest(
        broker_name=f"broker-{number}",
        broker_addr=f"127.0.0.1:{20_000 + number}",
        cluster_name="DefaultCluster",
        ha_server_addr=f"127.0.0.1:{20_001 + number}",
        broker_id=0,
    )
    body = encode_registration(own, DataVersion(1, 1))
    answer = await client.call(
        address, RequestCode.REGISTER_BROKER, header, body, timeout_ms=TIMEOUT_MS
    )
    assert answer.code == ResponseCode.SUCCESS, answer


async def _lose_one(server: Server, last: RemotingClient, topic: str) -> float:
    """Close a broker's connection; return the milliseconds until its topic is not found."""
    header = RouteRequest(topic=topic)
    await last.close()
    began = time.perf_counter()
    while True:
        answer = await server.client.call(
            server.address, RequestCode.GET_ROUTEINFO_BY_TOPIC, header, timeout_ms=TIMEOUT_MS
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return (time.perf_counter() - began) * 1e3
        assert time.perf_counter() - began < NOTICE_S, answer
