"""One run: servers, load, faults and measures together, then everything is checked."""

import asyncio
import contextlib
import random
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final, NamedTuple

from flintmq.remoting import RemotingError
from soak.administration import Administration
from soak.faults import Faults
from soak.java_peers import JavaPeer
from soak.load import Load, all_queues
from soak.log_check import Window, check_log
from soak.measures import Measures
from soak.oracle import Oracle
from soak.report import check_budgets
from soak.servers import ServerError, Servers
from soak.topics import DELETED, FOLLOWED, JAVA, OURS, QUEUE_COUNTS
from soak.volume import Volume
from tests.kits.processes.java_toolchain import JavaToolchain

SETTINGS: Final = {
    "mappedFileSizeCommitLog": 16 << 20,
    "mappedFileSizeConsumeQueue": 200_000,
    "maxHashSlotNum": 50_000,
    "maxIndexNum": 200_000,
    "flushConsumerOffsetInterval": 1000,
    "transactionTimeOut": 3000,
    "transactionCheckInterval": 5000,
    # Only who is asked to may delete what was acknowledged.
    "cleanFileForciblyEnable": "false",
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "longTurnMillis": 100,
}
SAMPLE_S: Final = 1.0
BEGINS_EVERY: Final = 5
"""Of so many samples, one asks where queues begin."""
DRAIN_TIMEOUT_S: Final = 120
VERIFY_TIMEOUT_S: Final = 1800


class Plan(NamedTuple):
    """What a run is to be."""

    seconds: float
    seed: int
    work: Path
    """Where logs and, without a volume, the store go."""
    volume: Volume | None
    java: JavaToolchain | None


class Soak:
    """A run and what it has found."""

    def __init__(self, plan: Plan, *, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._say = say
        followers = [OURS] if plan.java is None else [OURS, JAVA]
        self.oracle = Oracle(dict.fromkeys(FOLLOWED, followers))
        self.measures = Measures()
        self.store = (plan.work if plan.volume is None else plan.volume.path) / "store"
        self.servers = Servers(plan.work, self.store, SETTINGS)
        self._operator = Administration(
            self.servers.broker.address, self.oracle, random_numbers=random.Random(plan.seed + 1)
        )
        self._load = Load(
            self.servers.namesrv.address,
            self.oracle,
            self.measures,
            random_numbers=random.Random(plan.seed + 2),
        )

    async def run(self) -> None:
        """Do everything; what is wrong is in the oracle."""
        try:
            await asyncio.to_thread(self.servers.start_namesrv)
            await asyncio.to_thread(self.servers.start_broker)
            for topic, queue_count in QUEUE_COUNTS.items():
                await self._operator.create_topic(topic, queue_count)
            async with self._sampling(), self._load.consumer(), self._java("consumer"):
                await self._run_load()
            await self._read_everything()
        except Exception:
            # What was measured until then is worth its report.
            self.oracle.broken("run that failed", traceback.format_exc()[-3000:])
        finally:
            await self._operator.close()
            await asyncio.to_thread(self._stop_servers)
        await asyncio.to_thread(self._verify_store)
        self._check_logs()
        check_budgets(self.measures, self.oracle)

    async def _run_load(self) -> None:
        faults = Faults(
            self.servers,
            self._plan.volume,
            self._operator,
            self.oracle,
            self.measures,
            random_numbers=random.Random(self._plan.seed),
            say=self._say,
        )
        sending = asyncio.create_task(self._load.send(), name="load")
        async with self._java("producer"):
            await faults.run_until(self._plan.seconds)
            await asyncio.sleep(max(self._plan.seconds - self.measures.now(), 0))
        self._load.end_sending()
        self._say(f"{self.measures.now():7.1f} s  no more sends; consumers get the rest")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.oracle.nothing_owed(), DRAIN_TIMEOUT_S)
        self._load.close()
        await sending

    @contextlib.asynccontextmanager
    async def _java(self, role: str) -> AsyncIterator[None]:
        """Run a Java client; at the end of the context it is asked to end."""
        if self._plan.java is None:
            yield
            return
        home = self._plan.work / "java"
        await asyncio.to_thread(home.mkdir, exist_ok=True)
        peer = JavaPeer(role, self.oracle, self.measures)
        namesrv = self.servers.namesrv.address
        running = asyncio.create_task(peer.run(self._plan.java, home, namesrv), name=f"java {role}")
        try:
            yield
            peer.end_input()
            await asyncio.wait_for(running, DRAIN_TIMEOUT_S)
        finally:
            peer.kill()
            running.cancel()

    @contextlib.asynccontextmanager
    async def _sampling(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._sample(), name="samples")
        try:
            yield
        finally:
            task.cancel()

    async def _sample(self) -> None:
        followed = [queue for queue in all_queues() if queue.topic != DELETED]
        count = 0
        while True:
            for server in (self.servers.broker, self.servers.namesrv):
                self.measures.sample(server.name, server.pid)
            count += 1
            if count % BEGINS_EVERY == 0:
                with contextlib.suppress(RemotingError):
                    for queue in followed:
                        self.oracle.begins_at(queue, await self._operator.begin_of(queue))
            await asyncio.sleep(SAMPLE_S)

    # -- the end -----------------------------------------------------------------------------

    async def _read_everything(self) -> None:
        found = {}
        for queue in all_queues():
            self.oracle.begins_at(queue, await self._operator.begin_of(queue))
            found[queue] = await self._operator.read(queue)
        self.oracle.finish(found)

    def _stop_servers(self) -> None:
        try:
            self.servers.broker.stop()
            self.servers.namesrv.stop()
        except ServerError as error:
            self.oracle.broken("server that failed", str(error))
        finally:
            self.servers.close()

    def _verify_store(self) -> None:
        command = [sys.executable, "-m", "flintmq", "store", "verify", str(self.store)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=VERIFY_TIMEOUT_S, check=False
        )
        (self._plan.work / "verify.txt").write_text(done.stdout + done.stderr)
        if done.returncode != 0:
            self.oracle.broken("store that is not sound", done.stdout[-2000:] + done.stderr[-2000:])

    def _check_logs(self) -> None:
        began = self.measures.began_at
        windows = [
            Window(fault.kind, began + fault.begin, began + fault.end)
            for fault in self.measures.faults
        ]
        for server in (self.servers.broker, self.servers.namesrv):
            for log in server.logs:
                for finding in check_log(log, windows):
                    self.oracle.broken(finding.kind, finding.text)
