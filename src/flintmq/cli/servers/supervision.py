"""Several brokers as processes of one group; one that dies is started again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, Self

from flintmq.cli.servers.running import METRICS_LINE
from flintmq.errors import FlintError
from flintmq.namesrv import run_namesrv

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from flintmq.cli.servers.serve_plan import Member, ServePlan

logger = logging.getLogger(__name__)

START_WORD_S: Final = 60
"""How often a word is said about a broker that is not up yet.

It may be recovering a large store: to end it would only make it begin again.
"""
STOP_TIMEOUT_S: Final = 60
RESTART_COUNT_MAX: Final = 6
"""Restarts in a row of a broker that does not last; with the delays they take a minute."""

RESTART_DELAY_S: Final = 1
RESTART_DELAY_MAX_S: Final = 30
LASTING_RUN_S: Final = 60
"""A broker that ran for so long is started again as if it had never ended."""

_BOOTED: Final = re.compile(r"The broker\[.+, (?P<address>\S+)\] boot success\.")
_METRICS: Final = re.compile(rf"{METRICS_LINE}http://(?P<address>[^/\s]+)/")


class ProcessEndedError(FlintError):
    """A process of the group has ended by itself."""


async def supervise(
    plan: ServePlan,
    stopped: asyncio.Event,
    *,
    ready: Callable[[str], None],
    log_options: Sequence[str],
) -> None:
    """Run name servers here and each broker in a process, until stopped or all have died.

    All brokers have to start.  Later one that ends by itself is started again while the others go
    on, until it has ended too often.
    """
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(run_namesrv(config))
            for config in plan.namesrv_configs()
        ]
        namesrv = ";".join(server.address for server in servers)
        brokers = [
            KeptBroker(plan, member, namesrv=namesrv, log_options=log_options)
            for member in plan.members()
        ]
        for broker in brokers:
            stack.push_async_callback(broker.stop)
            await broker.start()
        addresses = [await broker.booted() for broker in brokers]
        metrics = [broker.metrics for broker in brokers]
        metrics += [server.metrics_address for server in servers]
        ready(plan.ready_line(namesrv, addresses, metrics))
        keepers = [asyncio.create_task(broker.keep(), name=broker.name) for broker in brokers]
        stop: asyncio.Task[Any] = asyncio.create_task(stopped.wait())
        running: set[asyncio.Task[Any]] = {stop, *keepers}
        try:
            while stop in running and len(running) > 1:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            if stop in running:
                raise ProcessEndedError("all brokers have ended too often")
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


class Restarts:
    """When a broker that ended is started again: later each time, and not for ever."""

    def __init__(self) -> None:
        self.count = 0
        """Restarts in a row, none of which lasted."""

    def next_delay_s(self, ran_s: float) -> float | None:
        """Return how long to wait after a run of ``ran_s``; None to give up."""
        if ran_s >= LASTING_RUN_S:
            self.count = 0
        if self.count >= RESTART_COUNT_MAX:
            return None
        self.count += 1
        return min(RESTART_DELAY_S << (self.count - 1), RESTART_DELAY_MAX_S)


class KeptBroker:
    """One broker of the group, in one process after the other."""

    def __init__(
        self, plan: ServePlan, member: Member, *, namesrv: str, log_options: Sequence[str]
    ) -> None:
        self._plan = plan
        self._member = member
        self._namesrv = namesrv
        self._log_options = log_options
        self._process: _BrokerProcess | None = None
        self._port: int | None = None
        self._restarts = Restarts()

    @property
    def name(self) -> str:
        """The name of the broker."""
        return self._member.name

    @property
    def metrics(self) -> str | None:
        """Where the broker shows its metrics, once it is up."""
        return None if self._process is None else self._process.metrics

    async def start(self) -> None:
        """Start a process; it goes on with the port that the one before it had."""
        plan, member = self._plan, self._member
        broker, store = plan.broker_settings(member, self._namesrv, port=self._port)
        path = plan.keep_settings(member, broker, store)
        self._process = await _BrokerProcess.start(self.name, path, self._log_options)

    async def booted(self) -> str:
        """Return the address of the broker once it is up."""
        assert self._process is not None
        address = await self._process.booted()
        self._port = int(address.rpartition(":")[2])
        return address

    async def keep(self) -> None:
        """Start the broker again whenever it ends; return when it has ended too often."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        while True:
            assert self._process is not None
            code = await self._process.ended()
            delay = self._restarts.next_delay_s(loop.time() - started)
            if delay is None:
                logger.error("broker given up: name=%s exit_code=%d", self.name, code)
                return
            logger.warning(
                "broker ended by itself: name=%s exit_code=%d restart=%d of %d in_s=%d",
                self.name,
                code,
                self._restarts.count,
                RESTART_COUNT_MAX,
                delay,
            )
            await asyncio.sleep(delay)
            started = loop.time()
            await self.start()
            try:
                address = await self.booted()
            except ProcessEndedError as error:
                logger.warning("broker not up again: name=%s reason=%s", self.name, error)
                await self._process.stop()
            else:
                logger.info("broker up again: name=%s address=%s", self.name, address)

    async def stop(self) -> None:
        """Let the broker end by itself, and see that it does."""
        if self._process is not None:
            await self._process.stop()


class _BrokerProcess:
    """One broker in a process of its own."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process
        self._reader: asyncio.Task[None] | None = None
        self.metrics: str | None = None

    @classmethod
    async def start(cls, name: str, settings: Path, log_options: Sequence[str]) -> Self:
        """Start a broker on the settings in a file."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "flintmq", "broker", "-c", str(settings)),
            *("--stop-with-stdin", *log_options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # An interrupt at the terminal is for this process only.
        )
        return cls(name, process)

    async def booted(self) -> str:
        """Return the address of the broker once it is up."""
        assert self._process.stdout is not None
        patience = asyncio.create_task(self._say_that_it_starts())
        try:
            async for line in self._process.stdout:
                text = line.decode("utf-8", "replace")
                if (shown := _METRICS.match(text)) is not None:
                    self.metrics = shown["address"]
                found = _BOOTED.search(text)
                if found is not None:
                    self._reader = asyncio.create_task(self._drain())
                    return found["address"]
        finally:
            patience.cancel()
        code = await self._process.wait()
        raise ProcessEndedError(f"{self.name} did not start: exit code {code}")

    async def _say_that_it_starts(self) -> None:
        began = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(START_WORD_S)
            waited_s = asyncio.get_running_loop().time() - began
            logger.warning("broker not up yet: name=%s waited_s=%d", self.name, waited_s)

    async def _drain(self) -> None:
        assert self._process.stdout is not None
        while await self._process.stdout.read(65536):
            pass

    async def ended(self) -> int:
        """Return the exit code once the process has ended."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Let the broker end by itself, and see that it does."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        if self._reader is not None:
            self._reader.cancel()
