"""Benchmarks of pairs: ``make bench-replication``.  A master with its slave, ours and the official.

Rates of sends are those of a master that has a slave; the lag is the time that the slave needs
after the last answer until it has everything.  Catch-up is an empty slave that gets a log which is
there already, measured from its first bytes to its last.  With ``--java`` the official pair is
measured in the same run, round by round.
"""

import argparse
import asyncio
import json
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from bench.broker_load import GoLoad, Load, PythonLoad, Sending
from bench.broker_servers import Server, java_reason, java_server, our_server
from flintmq.format.wire.bodies.dialect import loads_body
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.model.message import PutMessage
from flintmq.remoting import RemotingClient
from flintmq.store.config import StoreConfig
from flintmq.store.message_store import MessageStore

SENDINGS: Final = {
    "send 1 KiB, 4 x 64 in flight": Sending(1024, 4, 64),
    "send one at a time, 128 B": Sending(128, 1, 1),
}
ROLES: Final = ("ASYNC_MASTER", "SYNC_MASTER")
TOPIC: Final = "BenchTopic"
LOG_FILE_SIZE: Final = 256 << 20
HOST: Final = bytes([127, 0, 0, 1, 0, 0, 0, 1])
CATCH_UP_TIMEOUT_S: Final = 120
ASKED_MAX: Final = 30
ASK_PAUSE_S: Final = 0.02
"""How long a slave that catches up is left alone between two questions."""
SHARED: Final = {
    "brokerName": "bench",
    "mappedFileSizeCommitLog": LOG_FILE_SIZE,
    "haSendHeartbeatInterval": 1000,
    "cleanFileForciblyEnable": "false",
    "diskMaxUsedSpaceRatio": 95,
}

Runs = Callable[..., AbstractContextManager[Server]]


class Range(NamedTuple):
    """Where the log of a broker begins and ends."""

    start: int
    end: int
    undispatched: int
    """Bytes that queues and index do not have yet."""


def log_range(address: str) -> Range:
    """Ask a broker for the range of its log."""

    async def ask() -> Range:
        async with RemotingClient() as client:
            for _ in range(ASKED_MAX):
                answer = await client.call(
                    address, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_ms=20_000
                )
                if answer.code == ResponseCode.SUCCESS:
                    break
                await asyncio.sleep(0.5)  # The official one has no statistics at its start.
            else:
                raise RuntimeError(f"{address} answers with {answer.code}: {answer.remark}")
        table = loads_body(answer.body)["table"]
        return Range(
            max(int(table["commitLogMinOffset"]), 0),
            max(int(table["commitLogMaxOffset"]), 0),
            int(table["dispatchBehindBytes"]),
        )

    return asyncio.run(ask())


@contextmanager
def pair(runs: Runs, work: Path, role: str) -> Iterator[tuple[Server, Server]]:
    """Run a master and a slave, and wait until the slave follows."""
    for name in ("master", "slave"):
        (work / name).mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        master = stack.enter_context(runs(work / "master", settings={**SHARED, "brokerRole": role}))
        slave = stack.enter_context(slave_of(master, runs, work / "slave"))
        yield master, slave


def slave_of(master: Server, runs: Runs, work: Path) -> AbstractContextManager[Server]:
    """Run a slave that is told where its master is."""
    host, _, port = master.address.rpartition(":")
    return runs(
        work,
        settings={
            **SHARED,
            "brokerRole": "SLAVE",
            "brokerId": 1,
            "haMasterAddress": f"{host}:{int(port) + 1}",
            # The official one is started without a name server.
            **({"namesrvAddr": master.namesrv} if master.namesrv else {}),
        },
    )


def wait_for(slave: Server, end: int) -> float:
    """Wait until a slave has a log; return the seconds that took."""
    began = time.perf_counter()
    while log_range(slave.address).end < end:
        if time.perf_counter() - began > CATCH_UP_TIMEOUT_S:
            raise TimeoutError(f"{slave.name}: the slave does not come to {end}")
    return time.perf_counter() - began


def measure_sends(
    runs: Runs, work: Path, load: Load, *, rounds: int, seconds: float
) -> dict[str, float]:
    """Return rates and lags by row."""
    rows: dict[str, float] = {}
    for role in ROLES:
        with pair(runs, work / role, role) as (master, slave):
            load.send(master.address, TOPIC, SENDINGS["send one at a time, 128 B"], 1)
            wait_for(slave, log_range(master.address).end)
            for name, sending in SENDINGS.items():
                rates, lags = [], []
                for _ in range(rounds):
                    rates.append(load.send(master.address, TOPIC, sending, seconds).per_second)
                    lags.append(wait_for(slave, log_range(master.address).end))
                rows[f"{role}: {name}, messages/s"] = statistics.median(rates)
                rows[f"{role}: {name}, lag after it in ms"] = statistics.median(lags) * 1000
    return rows


def make_store(root: Path, size: int) -> None:
    """Write a log of ``size`` bytes with messages of 1 KiB."""
    config = StoreConfig(root=root, commit_log_file_size=LOG_FILE_SIZE)
    with MessageStore.open(config, background=False) as store:
        number = 0
        while store.log.end_offset < size:
            message = PutMessage(
                topic=TOPIC,
                queue_id=number % 4,
                body=b"%08d" % number * 128,
                properties={"UNIQ_KEY": f"{number:032X}"},
                born_host=HOST,
                store_host=HOST,
            )
            assert store.put(message).ok
            number += 1
            if number % 10_000 == 0:
                store.dispatch()


def measure_catch_up(runs: Runs, work: Path, store: Path, data: str) -> dict[str, float]:
    """Return how fast an empty slave gets a log that is there."""
    for name in ("master", "slave"):
        (work / name).mkdir(parents=True)
    shutil.copytree(store, work / "master" / data, copy_function=shutil.copyfile)
    with ExitStack() as stack:
        master = stack.enter_context(runs(work / "master", settings=SHARED))
        end = log_range(master.address).end
        slave = stack.enter_context(slave_of(master, runs, work / "slave"))
        before = slave.cpu_seconds(), master.cpu_seconds()
        first: tuple[float, int] | None = None
        took: float | None = None
        deadline = time.perf_counter() + CATCH_UP_TIMEOUT_S
        while True:
            time.sleep(ASK_PAUSE_S)
            start, now, undispatched = log_range(slave.address)
            if now - start > 0 and first is None:
                first = time.perf_counter(), now
            if now >= end and first is not None and took is None:
                took, got = time.perf_counter() - first[0], end - first[1]
                used = slave.cpu_seconds() - before[0], master.cpu_seconds() - before[1]
            if took is not None and first is not None and not undispatched:
                took_all = time.perf_counter() - first[0]
                break
            if time.perf_counter() > deadline:
                raise TimeoutError(f"{slave.name}: catch-up stands at {now} of {end}")
        whole = (end - start) / (1 << 20)
    return {
        "catch-up, MiB/s": got / (1 << 20) / took if took > 0.02 else float("nan"),
        "catch-up with queues and index, MiB/s": whole / took_all,
        "catch-up, MiB per second of the slave's processor": whole / max(used[0], 0.01),
        "catch-up, MiB per second of the master's processor": whole / max(used[1], 0.01),
    }


def table_of(results: dict[str, dict[str, float]], title: str) -> Table:
    """Return the results side by side."""
    table = Table(title=title)
    table.add_column("")
    for name in results:
        table.add_column(name, justify="right")
    for row in next(iter(results.values())):
        table.add_row(row, *(f"{rows.get(row, float('nan')):,.1f}" for rows in results.values()))
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Benchmarks of master and slave.")
    parser.add_argument("--java", action="store_true", help="measure the official pair too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--catch-up-mib", type=int, default=500)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console = Console(width=120)
    kinds: dict[str, tuple[Runs, str]] = {"FlintMQ": (our_server, "data/store")}
    reason = java_reason() if options.java else "not asked for"
    if reason is None:
        kinds["Java 4.9.7"] = (java_server, "store")
    elif options.java:
        console.print(f"no official broker: {reason}")
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="flintmq-bench-") as directory:
        work = Path(directory)
        is_go = GoLoad.is_there()
        load: Load = GoLoad(work) if is_go else PythonLoad()
        make_store(work / "made", options.catch_up_mib << 20)
        for name, (runs, data) in kinds.items():
            here = work / name.split()[0]
            results[name] = measure_sends(
                runs, here / "sends", load, rounds=options.rounds, seconds=options.seconds
            )
            results[name] |= measure_catch_up(runs, here / "catch-up", work / "made", data)
            shutil.rmtree(here)
    console.print(table_of(results, f"pairs, {platform.machine()}, {load.name}"))
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
