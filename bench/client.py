"""Benchmarks of the client: ``python -m bench.client``, or ``make bench-client``.

One broker process serves all in turn: our client, the C++ client of PyPI's ``rocketmq`` package
where that is installed, and with ``--java`` the official Java client 4.9.8.  With ``--against`` it
is our client of another tree instead, by this tree's broker.  Every piece of work runs in a process
of its own; whoever comes first in one round comes last in the next.  What counts is the ratio
within one run.
"""

import argparse
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from flintmq.testing import EmbeddedCluster
from tests.kits.processes.java_clients import find_clients

OURS: Final = "bench.client_ours"
THEIRS: Final = "bench.client_theirs"
CPP: Final = "C++"
JAVA: Final = "Java 4.9.8"
OLDER: Final = "the other tree"
CASE_TIMEOUT_S: Final = 300
CLUSTER_STARTS: Final = 10

_READY: Final = re.compile(r"ready: namesrv=(\S+)")


class Work(NamedTuple):
    """One row of the table: what is done, how often, and what theirs is compared with."""

    what: str
    name: str
    factor: float
    theirs: str
    """The same work of clients that know fewer ways."""
    topic: str | None = None


WORKS: Final = (
    Work("send one by one", "one_by_one", 0.1, "one_by_one"),
    Work("send, 256 in flight", "in_flight", 1, "in_flight"),
    Work("batches of 16", "batches", 4, "batches"),
    # The C++ client waits for each batch: it has no other way.
    Work("batches of 16, 8 in flight", "batches_in_flight", 4, "batches"),
    Work("push consumption, coroutine", "consumption", 4, "consumption", "filled"),
    Work("push consumption, function", "consumption_in_threads", 4, "consumption", "filled"),
)


class Rate(NamedTuple):
    """Messages a second, by the clock and by the client's processor time."""

    per_second: float
    per_cpu_second: float


@contextmanager
def broker() -> Iterator[str]:
    """Run a broker in a process of its own; give the address of its name server."""
    with tempfile.TemporaryDirectory(prefix="flintmq-bench-") as data:
        command = [sys.executable, "-m", "flintmq", "serve", "--data", data]
        command += ["--namesrv-port", "0", "--broker-port", "0", "--log-level", "warning"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            found = _READY.search(process.stdout.readline())
            assert found is not None, "the broker did not start"
            try:
                yield found[1]
            finally:
                process.terminate()


def run_case(
    module: str, work: str, namesrv: str, topic: str, count: int, *, tree: Path | None = None
) -> Rate:
    """Do a piece of work in Python, in a process of its own; by another tree if one is given."""
    command = [sys.executable, "-m", "bench.client_case", module, work, namesrv, topic, str(count)]
    return run_command(command, count, tree)


def run_java(work: str, namesrv: str, topic: str, count: int) -> Rate:
    """Do a piece of work with the Java client, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="flintmq-bench-") as home:
        command = find_clients("4.9.8").command(
            "ClientBench", work, namesrv, topic, str(count), flags=(f"-Duser.home={home}",)
        )
        return run_command(command, count)


def run_command(command: list[str], count: int, tree: Path | None = None) -> Rate:
    """Run a piece of work that tells in its last line what it took."""
    environment = None if tree is None else os.environ | {"PYTHONPATH": str(tree / "src")}
    # The C++ client prints to standard output whenever it likes; the last line is ours.
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=CASE_TIMEOUT_S,
        cwd=tree,
        env=environment,
    )
    took = json.loads(done.stdout[done.stdout.rindex("{") :])
    return Rate(count / took["seconds"], count / took["cpu_seconds"])


def measure(
    *,
    messages: int,
    rounds: int,
    works: list[Work],
    has_java: bool,
    against: Path | None,
    console: Console,
) -> dict[str, dict[str, Rate]]:
    """Return the median rates by work and client."""
    has_theirs = against is None and importlib.util.find_spec("rocketmq") is not None
    found: dict[str, dict[str, Rate]] = {}
    for work in works:
        count = int(messages * work.factor)
        samples: dict[str, list[Rate]] = {}
        with broker() as namesrv:
            if work.topic is not None:
                run_case(OURS, "batches", namesrv, work.topic, count)
            cases = [("flintmq", partial(run_case, OURS, work.name))]
            if has_theirs:
                cases.append((CPP, partial(run_case, THEIRS, work.theirs)))
            if against is not None:
                cases.append((OLDER, partial(run_case, OURS, work.name, tree=against)))
            if has_java:
                cases.append((JAVA, partial(run_java, work.theirs)))
            for number in range(rounds):
                for client, run in cases[:: -1 if number % 2 else 1]:
                    topic = work.topic or f"{re.sub('[^A-Za-z]', '', client)}-{work.name}"
                    rate = run(namesrv, topic, count)
                    samples.setdefault(client, []).append(rate)
                    console.print(f"{number + 1}/{rounds} {work.what}, {client}: {rate[0]:,.0f}/s")
        found[work.what] = {client: _median(rates) for client, rates in samples.items()}
    return found


def _median(rates: list[Rate]) -> Rate:
    return Rate(*(statistics.median(column) for column in zip(*rates, strict=True)))


def cluster_start_ms() -> float:
    """Return the median time until a cluster inside a test is ready; the first one is left out."""
    times = []
    for _ in range(CLUSTER_STARTS + 1):
        began = time.perf_counter()
        with EmbeddedCluster():
            times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times[1:])


def show(found: dict[str, dict[str, Rate]], start_ms: float, console: Console) -> None:
    """Print a table: ours, theirs where there is one, and the ratios."""
    others = [name for name in (CPP, JAVA, OLDER) if any(name in rates for rates in found.values())]
    # The last two columns of each compare rates by the clock and by processor time.
    table = Table("what", "flintmq/s", "CPU µs")
    for name in others:
        for heading in (f"{name}/s", "ratio", "by CPU"):
            table.add_column(heading)
    for what, rates in found.items():
        ours = rates["flintmq"]
        cells = [what, f"{ours.per_second:,.0f}", f"{1e6 / ours.per_cpu_second:.1f}"]
        for theirs in (rates[name] for name in others):
            cells.append(f"{theirs.per_second:,.0f}")
            cells.append(f"{ours.per_second / theirs.per_second:.2f}")
            cells.append(f"{ours.per_cpu_second / theirs.per_cpu_second:.2f}")
        table.add_row(*cells)
    console.print(table)
    console.print(f"EmbeddedCluster is ready after {start_ms:.0f} ms")


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="rows whose name holds this text")
    parser.add_argument("--java", action="store_true", help="the Java client beside it")
    parser.add_argument("--against", type=Path, help="another tree whose client is beside it")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    console = Console()
    works = [work for work in WORKS if (arguments.only or "") in work.what]
    found = measure(
        messages=arguments.messages,
        rounds=arguments.rounds,
        works=works,
        has_java=arguments.java,
        against=None if arguments.against is None else arguments.against.resolve(),
        console=console,
    )
    start_ms = cluster_start_ms()
    show(found, start_ms, console)
    if arguments.json is not None:
        rates = {
            what: {client: rate._asdict() for client, rate in by_client.items()}
            for what, by_client in found.items()
        }
        told = {"rates": rates, "cluster_start_ms": start_ms}
        arguments.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
