"""Servers under measurement: processes of their own, with a client that fills and asks them."""

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.codec import Header
from flintmq.format.wire.headers.offsets import QueueBoundRequest
from flintmq.remoting import RemotingClient
from tests.kits.processes.serve_process import Group, serving

TIMEOUT_MS: Final = 120_000
IN_FLIGHT: Final = 64
SMALL_QUESTION: Final = QueueBoundRequest(topic="TBW102", queue_id=0)
TICKS: Final = os.sysconf("SC_CLK_TCK")


class Point(NamedTuple):
    """What was measured at one amount, by its name with its unit."""

    amount: int
    measured: dict[str, float]


class Server:
    """A server process, and a client that fills and asks it."""

    def __init__(self, pid: int, address: str) -> None:
        self.pid = pid
        self.address = address
        self.client = RemotingClient()

    async def ask(self, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        """Ask, and see that it went well."""
        answer = await self.client.call(self.address, code, header, body, timeout_ms=TIMEOUT_MS)
        assert answer.code == ResponseCode.SUCCESS, answer
        return answer

    async def all(self, requests: Iterator[Callable[[], Awaitable[Command]]]) -> None:
        """Ask for many things, some at a time."""

        async def worker() -> None:
            for request in requests:
                await request()

        await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))

    @property
    def cpu_seconds(self) -> float:
        """Processor time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / TICKS

    @property
    def memory_mib(self) -> float:
        """Memory of its own, without pages of files."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        (kib,) = (line.split()[1] for line in lines if line.startswith("RssAnon"))
        return int(kib) / 1024

    @property
    def descriptor_count(self) -> int:
        """Open files and sockets."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    async def median_us(self, count: int = 300) -> float:
        """Return how long a small question takes, one at a time."""
        took = []
        for _ in range(count):
            began = time.perf_counter()
            await self.ask(RequestCode.GET_MAX_OFFSET, SMALL_QUESTION)
            took.append(time.perf_counter() - began)
        return sorted(took)[count // 2] * 1e6


@contextlib.contextmanager
def served(data: Path, *arguments: str) -> Iterator[tuple[Group, Server]]:
    """Run a name server with a broker; give it, and a client of the broker."""
    with serving(data, "--log-level=error", *arguments, small=False) as group:
        yield group, Server(group.pid, group.brokers[0])
