"""How long a broker is away after it was killed, ours and that of Java: on the same messages.

Both get the same messages from the generator in Go, in batches, and are killed.  The time of a
start is from its command to the answer with the last message of every queue.
"""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from bench.broker_load import QUEUE_COUNT, GoLoad, Sending
from bench.broker_servers import Server, java_reason, java_server, our_server
from bench.scale_server import TIMEOUT_MS, Point
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.offsets import OffsetResponse, QueueBoundRequest
from flintmq.format.wire.headers.pull import PullMessageRequest
from flintmq.remoting import RemotingClient

TOPIC: Final = "RestartTopic"
SENDING: Final = Sending(128, 4, 8, 32)
AS_IN_JAVA: Final = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}
"""Sizes of files: ``flintmq serve`` chooses smaller ones."""

Start: TypeAlias = Callable[[], AbstractContextManager[Server]]


class Kind(NamedTuple):
    """One of the brokers: how it starts, and where its store is."""

    prefix: str
    start: Start
    store: Path


def restart(work: Path, amount: int) -> Point:
    """Store messages, kill the broker, start it; the same with queues and index lost."""
    load = GoLoad(work)
    ours = work / "ours"
    kinds = [Kind("", lambda: our_server(ours, settings=AS_IN_JAVA), ours / "data" / "store")]
    if java_reason() is None:
        java = work / "java"
        kinds.append(Kind("Java: ", lambda: java_server(java, tls=False), java / "store"))
    found: dict[str, float] = {}
    for kind in kinds:
        for name, value in _measure(kind, load, amount).items():
            found[kind.prefix + name] = value
        shutil.rmtree(kind.store)
    return Point(amount, found)


def _measure(kind: Kind, load: GoLoad, amount: int) -> dict[str, float]:
    with kind.start() as server:
        load.fill(server.address, TOPIC, SENDING, amount)
        _kill(server)
    restarted_s, restarted_cpu_s = _start(kind, amount)
    for lost in ("consumequeue", "index"):
        shutil.rmtree(kind.store / lost)
    # Java goes by its times, and would make anew only what is behind them.
    (kind.store / "checkpoint").unlink()
    rebuilt_s, rebuilt_cpu_s = _start(kind, amount)
    return {
        "start after kill -9, s": restarted_s,
        "its processor time, s": restarted_cpu_s,
        "start with views lost, s": rebuilt_s,
        "CPU of that, s": rebuilt_cpu_s,
    }


def _start(kind: Kind, amount: int) -> tuple[float, float]:
    """Start a broker, ask it for its last messages and kill it; return seconds and CPU seconds."""
    began = time.perf_counter()
    with kind.start() as server:
        count = asyncio.run(_read_last(server.address))
        seconds = time.perf_counter() - began
        cpu_seconds = server.cpu_seconds()
        assert count >= amount, f"{count} messages of {amount} are there"
        _kill(server)
    return seconds, cpu_seconds


async def _read_last(address: str) -> int:
    """Read the last message of every queue; return how many messages all queues have."""
    client = RemotingClient()
    count = 0
    for queue_id in range(QUEUE_COUNT):
        bound = QueueBoundRequest(topic=TOPIC, queue_id=queue_id)
        answer = await client.call(
            address, RequestCode.GET_MAX_OFFSET, bound, timeout_ms=TIMEOUT_MS
        )
        end = OffsetResponse.decode(answer.ext_fields).offset
        pull = PullMessageRequest(
            consumer_group="restart",
            topic=TOPIC,
            queue_id=queue_id,
            queue_offset=end - 1,
            max_msg_nums=1,
            sys_flag=4,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        answer = await client.call(address, RequestCode.PULL_MESSAGE, pull, timeout_ms=TIMEOUT_MS)
        assert answer.code == ResponseCode.SUCCESS, answer
        count += end
    await client.close()
    return count


def _kill(server: Server) -> None:
    os.kill(server.pid, signal.SIGKILL)
