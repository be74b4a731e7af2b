"""Random faults: what is done to the servers, their disk and their connections, one by one."""

import asyncio
import random
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from typing import Final

from flintmq.remoting import RemotingError
from soak.administration import Administration, RefusedByBrokerError
from soak.measures import Fault, Measures
from soak.oracle import Oracle
from soak.servers import ServerError, Servers
from soak.volume import Volume

PAUSE_S: Final = (3.0, 10.0)
"""Between two faults."""
STOP_S: Final = (0.5, 6.0)
FULL_S: Final = (3.0, 10.0)
BUSY_S: Final = (5.0, 15.0)
KILL_WHILE_FULL_SHARE: Final = 0.3
KILL_WHILE_ADMINISTERED_SHARE: Final = 0.25
SERVING_WITHIN_S: Final = 30
_LOOK_AGAIN_S: Final = 0.1


class Faults:
    """Chooses faults by a seed and does them."""

    def __init__(
        self,
        servers: Servers,
        volume: Volume | None,
        operator: Administration,
        oracle: Oracle,
        measures: Measures,
        *,
        random_numbers: random.Random,
        say: Callable[[str], None],
    ) -> None:
        self._servers = servers
        self._volume = volume
        self._operator = operator
        self._oracle = oracle
        self._measures = measures
        self._random = random_numbers
        self._say = say
        self._note = ""
        self._kinds: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "kill": (3, self._kill),
            "stop": (3, self._stop),
            "restart": (2, self._restart),
            "cut": (3, self._cut),
            "name server": (1, self._kill_namesrv),
            "admin": (6, self._administer),
        }
        if volume is not None:
            self._kinds["full disk"] = (2, self._fill_disk)
            self._kinds["slow disk"] = (2, self._slow_disk)

    async def run_until(self, deadline: float) -> None:
        """Do one fault after the other, until a time of the run."""
        while True:
            pause_s = self._random.uniform(*PAUSE_S)
            if self._measures.now() + pause_s > deadline:
                return
            await asyncio.sleep(pause_s)
            weights = [weight for weight, _ in self._kinds.values()]
            (kind,) = self._random.choices(list(self._kinds), weights)
            await self._do(kind)

    async def _do(self, kind: str) -> None:
        begin, self._note = self._measures.now(), ""
        if self._servers.broker.has_died:
            self._oracle.broken("server that died", f"broker, before {kind} at {begin:.1f} s")
            self._servers.broker.kill()
            await self._start_broker()
        try:
            await self._kinds[kind][1]()
        except (ServerError, RefusedByBrokerError) as error:
            self._oracle.broken("server that failed", f"{kind} {self._note}: {error}")
            if self._servers.broker.pid is None:
                await self._start_broker()
        end = self._measures.now()
        self._measures.faults.append(Fault(kind, begin, end, self._note))
        self._say(f"{begin:7.1f} s  {kind} {self._note} ({end - begin:.1f} s)")
        await self._wait_until_serving(kind)

    async def _wait_until_serving(self, kind: str) -> None:
        began = time.monotonic()
        while not await self._operator.is_serving():
            if time.monotonic() - began > SERVING_WITHIN_S:
                text = f"{SERVING_WITHIN_S} s after {kind} at {self._measures.now():.1f} s"
                self._oracle.broken("broker that does not serve", text)
                return
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _start_broker(self) -> None:
        await asyncio.to_thread(self._servers.start_broker)
        self._note += f" then {self._servers.flush_mode}"

    # -- processes ---------------------------------------------------------------------------

    async def _kill(self) -> None:
        """Kill the broker, and start it with the other flush mode."""
        await asyncio.to_thread(self._servers.broker.kill)
        await self._start_broker()

    async def _restart(self) -> None:
        """Stop in order, and start with the other flush mode."""
        await asyncio.to_thread(self._servers.broker.stop)
        await self._start_broker()

    async def _stop(self) -> None:
        """Stop the process for some seconds, at whatever point it is."""
        seconds = self._random.uniform(*STOP_S)
        self._note = f"{seconds:.1f} s"
        self._servers.broker.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self._servers.broker.signal(signal.SIGCONT)

    async def _kill_namesrv(self) -> None:
        await asyncio.to_thread(self._servers.namesrv.kill)
        await asyncio.sleep(self._random.uniform(*STOP_S))
        await asyncio.to_thread(self._servers.start_namesrv)

    async def _cut(self) -> None:
        """End all connections of the broker at once, several times."""
        count = self._random.randint(1, 5)
        self._note = f"{count} times"
        for _ in range(count):
            await asyncio.to_thread(cut_connections, self._servers.broker.port)
            await asyncio.sleep(self._random.uniform(0.05, 1))

    # -- disk --------------------------------------------------------------------------------

    async def _fill_disk(self) -> None:
        assert self._volume is not None
        try:
            await asyncio.to_thread(self._volume.fill)
            await asyncio.sleep(self._random.uniform(*FULL_S))
            if self._random.random() < KILL_WHILE_FULL_SHARE:
                self._note = "and kill"
                await asyncio.to_thread(self._servers.broker.kill)
        finally:
            self._volume.free()
        if self._servers.broker.pid is None:
            await self._start_broker()

    async def _slow_disk(self) -> None:
        """Another process writes and syncs on the same volume all the time."""
        assert self._volume is not None
        busy = self._volume.keep_busy()
        try:
            await asyncio.sleep(self._random.uniform(*BUSY_S))
        finally:
            busy.kill()
            await asyncio.to_thread(busy.wait)

    # -- operators ---------------------------------------------------------------------------

    async def _administer(self) -> None:
        """Do what operators do; now and then the broker is killed meanwhile."""
        operations = self._operator.operations()
        name = self._random.choice(list(operations))
        self._note = name
        work = asyncio.ensure_future(operations[name]())
        if self._random.random() < KILL_WHILE_ADMINISTERED_SHARE:
            self._note += " and kill"
            await asyncio.sleep(self._random.uniform(0, 0.05))
            await self._kill()
        try:
            await work
        except RemotingError as error:
            self._note += f" ({type(error).__name__})"


def cut_connections(port: int) -> None:
    """End every connection of a port in the kernel: both ends see a reset."""
    command = ["ss", "-K", "-t", "sport", "=", f":{port}"]
    subprocess.run(command, capture_output=True, check=False)
