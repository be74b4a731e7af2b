"""Benchmarks of the broker: ``make bench-broker``.  Prints a table, and writes JSON where asked.

With ``--java`` the official broker runs beside ours and both are measured in turn, round by
round, so that whatever else the machine does hits both.  Rates are given against the wall clock
and against the processor time of the broker.
"""

import argparse
import functools
import json
import os
import platform
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from bench.broker_load import GoLoad, Load, PythonLoad, Sending
from bench.broker_servers import Server, java_reason, java_server, our_server
from bench.broker_start import Start, Started, measure_starts
from flintmq.format.frame import HeaderType

SENDINGS: Final = {
    "send 128 B, 4 x 64 in flight": Sending(128, 4, 64),
    "send 1 KiB, 4 x 64 in flight": Sending(1024, 4, 64),
    "send in batches of 32, 128 B": Sending(128, 4, 16, 32),
    "send one at a time, 128 B": Sending(128, 1, 1),
}
PULL: Final = "pull, 4 queues, 32 a time"
TOPIC: Final = "BenchTopic"


class Measured(NamedTuple):
    """One row of one server: the median of the rounds."""

    per_second: float
    per_cpu_second: float


class Result(NamedTuple):
    """Everything about one server."""

    start: Started
    start_mib: int
    end_mib: int
    rates: dict[str, Measured]


def measure(
    servers: list[Server],
    load: Load,
    *,
    starts: dict[str, Started],
    rounds: int,
    seconds: float,
    console: Console,
) -> dict[str, Result]:
    """Measure the servers in turn."""
    start_mib = {server.name: server.own_mib() for server in servers}
    for server in servers:
        # The topic is made, and Java's compiler has seen the work.
        load.send(server.address, TOPIC, next(iter(SENDINGS.values())), seconds)
    samples: dict[tuple[str, str], list[Measured]] = {}
    for number in range(rounds):
        # Whoever comes first in one round comes last in the next.
        order = servers if number % 2 == 0 else servers[::-1]
        for row in (*SENDINGS, PULL):
            for server in order:
                measured = _one(server, load, row, seconds)
                samples.setdefault((server.name, row), []).append(measured)
                console.print(f"{number + 1}/{rounds} {row}, {server.name}: {measured[0]:,.0f}/s")
    return {
        server.name: Result(
            starts[server.name],
            start_mib[server.name],
            server.own_mib(),
            {row: _median(samples[server.name, row]) for row in (*SENDINGS, PULL)},
        )
        for server in servers
    }


def _one(server: Server, load: Load, row: str, seconds: float) -> Measured:
    before = server.cpu_seconds()
    if row == PULL:
        rate = load.pull(server.address, TOPIC, seconds)
    else:
        rate = load.send(server.address, TOPIC, SENDINGS[row], seconds)
    used = max(server.cpu_seconds() - before, 0.01)
    return Measured(rate, rate * seconds / used)


def _median(samples: list[Measured]) -> Measured:
    return Measured(
        statistics.median(sample.per_second for sample in samples),
        statistics.median(sample.per_cpu_second for sample in samples),
    )


def table_of(results: dict[str, Result], title: str) -> Table:
    """Return all figures side by side, with the ratio to the last server where there are two."""
    names = list(results)
    table = Table(title=title)
    table.add_column("what")
    for name in names:
        table.add_column(f"{name}, a second", justify="right")
        table.add_column("of its processor time", justify="right")
    if len(names) == 2:
        table.add_column("ratio", justify="right")
        table.add_column("by processor time", justify="right")
    for row in (*SENDINGS, PULL):
        rates = [results[name].rates[row] for name in names]
        cells = [f"{rate:,.0f}" for measured in rates for rate in measured]
        if len(names) == 2:
            cells += [f"{ours / theirs:.2f}" for ours, theirs in zip(*rates, strict=True)]
        table.add_row(row, *cells)
    _add_starts(table, [result.start for result in results.values()])
    _add_plain(table, "own memory, MiB", [f"{result.start_mib}" for result in results.values()])
    _add_plain(table, "after the load", [f"{result.end_mib}" for result in results.values()])
    return table


def _add_starts(table: Table, starts: list[Started]) -> None:
    _add_plain(table, "start, s", [f"{start.seconds:.3f}" for start in starts])
    _add_plain(table, "of processor time", [f"{start.cpu_seconds:.3f}" for start in starts])


def start_table_of(starts: dict[str, Started], title: str) -> Table:
    """Return the starts side by side."""
    table = Table("what", title=title)
    for name in starts:
        table.add_column(name, justify="right")
        table.add_column()
    if len(starts) == 2:
        table.add_column("ratio", justify="right")
    _add_starts(table, list(starts.values()))
    return table


def _add_plain(table: Table, name: str, values: list[str]) -> None:
    cells = [cell for value in values for cell in (value, "")]
    if len(values) == 2:
        cells.append(f"{float(values[0]) / float(values[1]):.2f}")
    table.add_row(name, *cells)


def main() -> None:
    """Run the benchmarks as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="of each sample (default: 5)")
    parser.add_argument("--rounds", type=int, default=3, help="samples of a row (default: 3)")
    parser.add_argument("--starts", type=int, default=5, help="starts measured (default: 5)")
    parser.add_argument("--only-start", action="store_true", help="measure nothing but the start")
    parser.add_argument("--java", action="store_true", help="measure the official broker beside")
    parser.add_argument(
        "--java-without-tls", action="store_true", help="the official broker without TLS"
    )
    parser.add_argument("--load", type=Path, help="source of the load generator in Go")
    parser.add_argument("--header", choices=["json", "rocketmq"], default="json")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    errors = Console(stderr=True)
    header_type = HeaderType[options.header.upper()]
    title = f"broker, Python {platform.python_version()}, {os.cpu_count()} cores"
    with tempfile.TemporaryDirectory(prefix="flintmq-bench-") as name, ExitStack() as stack:
        work = Path(name)
        java = functools.partial(java_server, tls=not options.java_without_tls)
        kinds = _kinds(work, java=java if options.java else None, errors=errors)
        starts = measure_starts(kinds, work, rounds=options.starts)
        if options.only_start:
            Console().print(start_table_of(starts, title))
            return
        load: Load = PythonLoad(header_type=header_type)
        if GoLoad.is_there(options.load):
            load = GoLoad(options.load, work, header_type=header_type)
        servers = [
            stack.enter_context(start(work / f"store-{number}"))
            for number, start in enumerate(kinds.values())
        ]
        results = measure(
            servers,
            load,
            starts=starts,
            rounds=options.rounds,
            seconds=options.seconds,
            console=errors,
        )
    Console().print(table_of(results, f"{title}, {load.name}"))
    if options.json is not None:
        options.json.write_text(json.dumps(_plain(results), indent=2) + "\n")


def _kinds(work: Path, *, java: Start | None, errors: Console) -> dict[str, Start]:
    """Return which servers are measured, and how each is started."""
    kinds: dict[str, Start] = {"FlintMQ": functools.partial(our_server, bytecode=work / "bytecode")}
    reason = java_reason() if java is not None else None
    if reason is not None:
        errors.print(f"without the official broker: {reason}")
    elif java is not None:
        kinds["Java 4.9.7"] = java
    return kinds


def _plain(results: dict[str, Result]) -> dict[str, object]:
    return {
        name: result._asdict()
        | {"start": result.start._asdict()}
        | {"rates": {row: rate._asdict() for row, rate in result.rates.items()}}
        for name, result in results.items()
    }


if __name__ == "__main__":
    main()
