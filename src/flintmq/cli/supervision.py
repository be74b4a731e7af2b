"""Several brokers as processes of one group: all run, or the group ends."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from flintmq.errors import FlintError
from flintmq.namesrv import run_namesrv

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from flintmq.cli.serve_plan import ServePlan

START_TIMEOUT_S: Final = 120
STOP_TIMEOUT_S: Final = 60
_BOOTED: Final = re.compile(r"The broker\[.+, (?P<address>\S+)\] boot success\.")


class PartDiedError(FlintError):
    """A process of the group has ended by itself."""


async def supervise(
    plan: ServePlan, stopped: asyncio.Event, *, ready: Callable[[str], None], log_level: str
) -> None:
    """Run the name server here and each broker in a process, until stopped or one dies."""
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(run_namesrv(plan.namesrv_config()))
        parts = [
            await stack.enter_async_context(_broker(plan, index, namesrv.address, log_level))
            for index in range(plan.count)
        ]
        addresses = [await part.booted() for part in parts]
        ready(plan.ready_line(namesrv.address, addresses))
        ends = {asyncio.create_task(part.ended()): part for part in parts}
        stop = asyncio.create_task(stopped.wait())
        try:
            done, _ = await asyncio.wait([stop, *ends], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stop}:
                raise PartDiedError(f"{ends[task].name} ended with exit code {task.result()}")
        finally:
            for task in (stop, *ends):
                task.cancel()


class _BrokerProcess:
    """One broker in a process of its own."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process
        self._reader: asyncio.Task[None] | None = None

    async def booted(self) -> str:
        """Return the address of the broker once it is up."""
        assert self._process.stdout is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_TIMEOUT_S):
                async for line in self._process.stdout:
                    found = _BOOTED.search(line.decode("utf-8", "replace"))
                    if found is not None:
                        self._reader = asyncio.create_task(self._drain())
                        return found["address"]
                code = await self._process.wait()
                raise PartDiedError(f"{self.name} did not start: exit code {code}")
        raise PartDiedError(f"{self.name} was not up within {START_TIMEOUT_S} s")

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


@contextlib.asynccontextmanager
async def _broker(
    plan: ServePlan, index: int, namesrv: str, log_level: str
) -> AsyncIterator[_BrokerProcess]:
    broker, store = plan.broker_settings(index, namesrv)
    path = plan.keep_settings(index, broker, store)
    command = [sys.executable, "-m", "flintmq", "broker", "-c", str(path)]
    process = await asyncio.create_subprocess_exec(
        *command,
        "--stop-with-stdin",
        "--log-level",
        log_level,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # An interrupt at the terminal is for this process only.
    )
    part = _BrokerProcess(plan.name(index), process)
    try:
        yield part
    finally:
        await part.stop()
