"""What ``bench.scale`` measures: the cost of one thing at several amounts of it.

Every subject yields points: an amount, and what was measured at it.  Servers run as processes of
their own; processor time is theirs.
"""

import asyncio
import os
import signal
import struct
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET
from typing import Final

from bench.generate_store import START_MS, StoreShape, generate
from bench.scale_server import SMALL_QUESTION, Point, Server, served
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.admin import CreateTopicRequest
from flintmq.format.wire.headers.offsets import SearchOffsetRequest
from flintmq.format.wire.headers.query import QueryMessageRequest
from flintmq.remoting import RemotingClient
from tests.kits.broker.broker_kit import send_header
from tests.kits.processes.serve_process import Group

QUEUES: Final = 8
SMALL_QUEUES: Final = "--set=mappedFileSizeConsumeQueue=20000"
MESSAGES_OF_BODIES: Final = 64 << 20
"""Bytes of bodies that are sent of each size, within bounds of their number."""
LARGE_BODY: Final = 4096
RETENTION_S: Final = 120
PAUSE_S: Final = 0.01


def topics(work: Path, amount: int) -> Point:
    """Make topics of eight queues, one of them with a message; kill the broker and start it."""
    return Point(amount, _many_queues(work, topic_count=amount, used_queues=1))


def queues(work: Path, amount: int) -> Point:
    """Make topics of eight queues, all of them with a message; kill the broker and start it."""
    return Point(amount, _many_queues(work, topic_count=amount // QUEUES, used_queues=QUEUES))


def _many_queues(work: Path, *, topic_count: int, used_queues: int) -> dict[str, float]:
    """Fill topics; each used queue is a mapped file."""

    async def fill(server: Server) -> tuple[float, float]:
        def create(name: str) -> Callable[[], Awaitable[Command]]:
            header = CreateTopicRequest(
                topic=name, read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6
            )
            return lambda: server.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)

        def send(name: str, queue_id: int) -> Callable[[], Awaitable[Command]]:
            header = send_header(name, queue_id=queue_id)
            return lambda: server.ask(RequestCode.SEND_MESSAGE_V2, header, b"x" * 128)

        names = [f"topic-{number}" for number in range(topic_count)]
        before = server.cpu_seconds
        await server.all(iter([create(name) for name in names]))
        created = server.cpu_seconds
        sends = [send(name, i) for name in names for i in range(used_queues)]
        await server.all(iter(sends))
        sent = server.cpu_seconds
        await server.client.close()
        return (created - before) / topic_count * 1e6, (sent - created) / len(sends) * 1e6

    data = work / "data"
    with served(data, SMALL_QUEUES) as (group, server):
        create_us, send_us = asyncio.run(fill(server))
        memory, descriptors = server.memory_mib, server.descriptor_count
        os.kill(group.pid, signal.SIGKILL)
    began = time.perf_counter()
    with served(data, SMALL_QUEUES):
        start_s = time.perf_counter() - began
    return {
        "create a topic, CPU µs": create_us,
        "first send to a queue, CPU µs": send_us,
        "memory, MiB": memory,
        "descriptors": descriptors,
        "start after kill -9, s": start_s,
    }


def connections(work: Path, amount: int) -> Point:
    """Keep idle connections open, and ask for something small beside them."""

    async def connect(group: Group, server: Server) -> dict[str, float]:
        base = server.memory_mib
        host, _, port = group.brokers[0].rpartition(":")
        writers = []
        for _ in range(amount):
            _, writer = await asyncio.open_connection(host, int(port))
            # Closed in the ordinary way their ports would be taken for a minute, which others need.
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, linger)
            writers.append(writer)
        await server.median_us(50)
        found = {
            "memory a connection, KiB": (server.memory_mib - base) * 1024 / amount,
            "descriptors": float(server.descriptor_count),
            "a small question beside them, µs": await server.median_us(),
        }
        for writer in writers:
            writer.close()
        await server.client.close()
        return found

    limits = ("--set=maxConnections=20000", "--set=maxConnectionsPerAddress=20000")
    with served(work / "data", *limits) as (group, server):
        return Point(amount, asyncio.run(connect(group, server)))


def bodies(work: Path, amount: int) -> Point:
    """Send messages with bodies of ``amount`` bytes."""
    count = max(min(MESSAGES_OF_BODIES // amount, 20_000), 32)

    async def send(server: Server) -> dict[str, float]:
        header, body = send_header("bodies"), b"x" * amount
        request = (RequestCode.SEND_MESSAGE_V2, header, body)
        await server.all(iter([lambda: server.ask(*request)] * min(count, 2000)))
        before, began = server.cpu_seconds, time.perf_counter()
        await server.all(iter([lambda: server.ask(*request)] * count))
        seconds = time.perf_counter() - began
        cpu_us = (server.cpu_seconds - before) / count * 1e6
        await server.client.close()
        return {"CPU µs a message": cpu_us, "MiB a second": amount * count / seconds / (1 << 20)}

    with served(work / "data") as (_, server):
        return Point(amount, asyncio.run(send(server)))


def log(work: Path, amount: int) -> Point:
    """Start on a log of ``amount`` messages that nobody stopped, and look messages up."""
    return Point(amount, _crashed(work, StoreShape(messages=amount)))


def large_log(work: Path, amount: int) -> Point:
    """Do the same with ``amount`` GiB of messages of 4 KiB, then delete all that is old."""
    record_size = len(StoreShape(messages=1, body_size=LARGE_BODY).template)
    shape = StoreShape(messages=(amount << 30) // record_size, body_size=LARGE_BODY)
    return Point(amount, _crashed(work, shape, with_retention=True))


def _crashed(work: Path, shape: StoreShape, *, with_retention: bool = False) -> dict[str, float]:
    data = work / "data"
    generate(data / "store", shape)
    (data / "store" / "abort").touch()
    log = data / "store" / "commitlog"
    for file in log.iterdir():
        os.utime(file, (START_MS // 1000,) * 2)  # Retention goes by it.
    file_count = len(list(log.iterdir()))
    began = time.perf_counter()
    # Nothing is to be deleted before it is asked for.
    other_hour = (time.localtime().tm_hour + 12) % 24
    with served(data, f"--set=deleteWhen={other_hour:02}") as (_, server):
        found = {
            "log, GiB": float(file_count),
            "start after a crash, s": time.perf_counter() - began,
            "its processor time, s": server.cpu_seconds,
        }
        found |= asyncio.run(_look_up(server, shape.topics[0]))
        if with_retention:
            found |= asyncio.run(_expire(server, log, file_count))
    return found


async def _look_up(server: Server, topic: str) -> dict[str, float]:
    by_time = SearchOffsetRequest(topic=topic, queue_id=0, timestamp=1_700_000_000_777)
    by_key = QueryMessageRequest(
        topic=topic, key="order-0000000000", max_num=32, begin_timestamp=0, end_timestamp=1 << 60
    )
    began = time.perf_counter()
    await server.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, by_time)
    by_time_ms = (time.perf_counter() - began) * 1e3
    began = time.perf_counter()
    await server.ask(RequestCode.QUERY_MESSAGE, by_key)
    by_key_ms = (time.perf_counter() - began) * 1e3
    await server.client.close()
    return {"by time, ms": by_time_ms, "by key, ms": by_key_ms}


async def _expire(server: Server, log: Path, file_count: int) -> dict[str, float]:
    """Delete what is old; return the processor time for each file and how long others wait."""
    server.client = RemotingClient()
    before = server.cpu_seconds
    await server.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
    deadline = time.monotonic() + RETENTION_S
    waited = []
    while len(os.listdir(log)) > 1:  # noqa: PTH208 - names are enough, and it is asked often
        assert time.monotonic() < deadline, "the files are not deleted"
        began = time.perf_counter()
        await server.ask(RequestCode.GET_MAX_OFFSET, SMALL_QUESTION)
        waited.append((time.perf_counter() - began) * 1e3)
        await asyncio.sleep(PAUSE_S)
    cpu_ms = (server.cpu_seconds - before) / max(file_count - 1, 1) * 1e3
    await server.client.close()
    return {
        "deletion of a file, CPU ms": cpu_ms,
        "worst wait beside it, ms": max(waited, default=0),
    }
