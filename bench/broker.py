"""Benchmarks of the broker: ``make bench-broker``.  Prints a table, and writes JSON where asked.

With ``--java`` the official broker runs beside ours and both are measured in turn, round by
round, so that whatever else the machine does hits both; ``--against SRC`` does the same with
another tree of ours, such as a clone of the commit before a change; ``--brokers N`` measures N of
our brokers, over which the load is spread, beside one.  Rates are given against the
wall clock and against the processor time of the broker; a ratio is the median of the rounds, with
the least and the greatest of them behind it.  Last comes how long others wait beside retention,
rolls, large queries and state that is written (`bench.turns`).
"""

import argparse
import functools
import json
import os
import platform
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.broker_load import GoLoad, Load, PythonLoad
from bench.broker_rows import (
    ASYNC_ROWS,
    SYNC_ROWS,
    TOPIC,
    WARMING,
    Row,
    RowFigures,
    measure_row,
    prepare_row,
)
from bench.broker_servers import Server, java_reason, java_server, our_server
from bench.broker_start import Start, Started, measure_starts
from bench.turns import AMOUNTS, measure_stalls, stalls_table

LATENCY_ROWS: Final = {
    "push, 1,000 a second": ("p50_us", "p99_us"),
    "send 128 B, 4 x 64 in flight": ("p50_us", "p999_us"),
    "SYNC_FLUSH, send 128 B, 16 x 1": ("p50_us", "p999_us"),
}
"""Rows whose latencies are shown as rows of their own; their ratio is the other's to ours."""


class Bench:
    """Measures rows of the servers in turn."""

    def __init__(
        self, load: Load, *, rounds: int, seconds: float, warm_seconds: float, console: Console
    ) -> None:
        self._load = load
        self._rounds = rounds
        self._seconds = seconds
        self._warm_seconds = warm_seconds
        self._console = console
        self.memory: dict[str, list[int]] = {}
        """MiB of each server at its start and after the load."""

    def measure(self, servers: list[Server], rows: Mapping[str, Row]) -> dict[str, RowFigures]:
        """Return the samples of all rows."""
        before = {server.name: server.own_mib() for server in servers}
        for server in servers:
            # The topic is made, and machine code has come, Java's and ours.
            self._load.send(server.address, TOPIC, WARMING, self._warm_seconds)
            for row in rows.values():
                prepare_row(server, self._load, row)
        figures = {name: RowFigures({one.name: [] for one in servers}) for name in rows}
        for number in range(self._rounds):
            # Whoever comes first in one round comes last in the next.
            order = servers if number % 2 == 0 else servers[::-1]
            for name, row in rows.items():
                for server in order:
                    sample = measure_row(server, self._load, row, self._seconds)
                    figures[name].samples[server.name].append(sample)
                    self._console.print(
                        f"{number + 1}/{self._rounds} {name}, {server.name}: "
                        f"{sample.per_second:,.0f}/s, {sample.per_cpu_second:,.0f} by processor"
                    )
        for server in servers:
            self.memory.setdefault(server.name, [before[server.name], server.own_mib()])
        return figures


def table_of(figures: Mapping[str, RowFigures], title: str) -> Table:
    """Return all rates side by side, with the ratio to the last server where there are two."""
    names = list(next(iter(figures.values())).samples)
    table = Table("what", title=title)
    for name in names:
        table.add_column(f"{name}, a second", justify="right")
        table.add_column("of its processor time", justify="right")
    if len(names) == 2:
        table.add_column("ratio", justify="right")
        table.add_column("by processor time", justify="right")
    for row, figure in figures.items():
        fields = ("per_second", "per_cpu_second")
        cells = [f"{figure.median(name, field):,.0f}" for name in names for field in fields]
        if len(names) == 2:
            cells += [_spread(figure.ratios(field)) for field in fields]
        table.add_row(row, *cells)
    for row, fields in LATENCY_ROWS.items():
        if row in figures and figures[row].median(names[0], "p50_us"):
            for field in fields:
                _add_latency(table, row, figures[row], field, names)
    return table


def _add_latency(table: Table, row: str, figure: RowFigures, field: str, names: list[str]) -> None:
    cells = [cell for name in names for cell in (f"{figure.median(name, field):,.0f}", "")]
    if len(names) == 2:
        cells.append(_spread(sorted(1 / max(ratio, 1e-9) for ratio in figure.ratios(field))))
    table.add_row(f"{row}: {field.removesuffix('_us')}, µs", *cells)


def _spread(ratios: list[float]) -> str:
    middle = len(ratios) // 2
    median = ratios[middle] if len(ratios) % 2 else (ratios[middle - 1] + ratios[middle]) / 2
    return f"{median:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def start_table_of(
    starts: Mapping[str, Started], memory: Mapping[str, list[int]], title: str
) -> Table:
    """Return starts and memory side by side."""
    table = Table("what", title=title)
    for name in starts:
        table.add_column(name, justify="right")
    if len(starts) == 2:
        table.add_column("ratio", justify="right")
    _add_plain(table, "start, s", [start.seconds for start in starts.values()])
    _add_plain(table, "of processor time", [start.cpu_seconds for start in starts.values()])
    for number, what in enumerate(("own memory, MiB", "after the load") if memory else ()):
        _add_plain(table, what, [memory[name][number] for name in starts])
    return table


def _add_plain(table: Table, name: str, values: list[float]) -> None:
    ratio = [f"{values[0] / values[1]:.2f}"] if len(values) == 2 else []
    table.add_row(name, *[f"{value:,.3g}" for value in values], *ratio)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="of each sample (default: 5)")
    parser.add_argument("--rounds", type=int, default=3, help="samples of a row (default: 3)")
    parser.add_argument("--warm", type=float, default=15, help="seconds of load before (15)")
    parser.add_argument("--starts", type=int, default=5, help="starts measured (default: 5)")
    parser.add_argument("--only-start", action="store_true", help="measure nothing but the start")
    parser.add_argument("--rows", default="", help="only rows whose names have this text")
    parser.add_argument("--only-stalls", action="store_true", help="measure nothing but stalls")
    parser.add_argument("--java", action="store_true", help="measure the official broker beside")
    parser.add_argument(
        "--java-without-tls", action="store_true", help="the official broker without TLS"
    )
    parser.add_argument(
        "--against", type=Path, metavar="SRC", help="measure another tree of ours beside"
    )
    parser.add_argument(
        "--brokers", type=int, metavar="N", help="measure N brokers of ours beside one"
    )
    parser.add_argument(
        "--without-machine-code", action="store_true", help="ours as it is without numba"
    )
    parser.add_argument("--load", choices=["go", "python"], help="default: Go where it is there")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser.parse_args()


def main() -> None:
    """Run the benchmarks as the command line says."""
    options = _options()
    if options.against is not None and not (options.against / "flintmq").is_dir():
        # Python would take the installed one, and ours would be measured beside itself.
        raise SystemExit(f"--against: there is no package flintmq in {options.against}")
    if not options.only_stalls:
        _compare(options)
    if not options.rows and not options.only_start:
        found, counted = measure_stalls(AMOUNTS, Console(stderr=True))
        Console(width=160).print(stalls_table(found, counted))


def _compare(options: argparse.Namespace) -> None:
    """Measure rates and starts, beside another broker where one is wanted."""
    errors = Console(stderr=True)
    title = f"broker, Python {platform.python_version()}, {os.cpu_count()} cores"
    with tempfile.TemporaryDirectory(prefix="flintmq-bench-") as name:
        work = Path(name)
        kinds = _kinds(work, options, errors)
        starts = {}
        if options.starts:
            starts = measure_starts(
                {key: made({}) for key, made in kinds.items()}, work, rounds=options.starts
            )
        figures: dict[str, RowFigures] = {}
        memory: dict[str, list[int]] = {}
        if not options.only_start:
            is_go = GoLoad.is_there() if options.load is None else options.load == "go"
            load: Load = GoLoad(work) if is_go else PythonLoad()
            title += f", {load.name}"
            bench = Bench(
                load,
                rounds=options.rounds,
                seconds=options.seconds,
                warm_seconds=options.warm,
                console=errors,
            )
            figures = _figures(bench, kinds, work, options.rows, is_go=is_go)
            memory = bench.memory
    if figures:
        Console(width=200).print(table_of(figures, title))
    if starts:
        Console().print(start_table_of(starts, memory, title))
    if options.json is not None:
        options.json.write_text(json.dumps(_plain(figures, starts, memory), indent=2) + "\n")


def _figures(
    bench: Bench, kinds: Mapping[str, "Kind"], work: Path, wanted: str, *, is_go: bool
) -> dict[str, RowFigures]:
    """Measure the rows that are wanted, those of each way to flush with brokers of their own."""
    figures: dict[str, RowFigures] = {}
    for mode, rows in (("ASYNC_FLUSH", ASYNC_ROWS), ("SYNC_FLUSH", SYNC_ROWS)):
        chosen = {
            name: row
            for name, row in rows.items()
            if wanted in name and (is_go or not row.needs_go)
        }
        if not chosen:
            continue
        with ExitStack() as stack:
            servers = [
                stack.enter_context(made({"flushDiskType": mode})(work / f"{mode}-{number}"))
                for number, made in enumerate(kinds.values())
            ]
            figures |= bench.measure(servers, chosen)
    return figures


Kind = Callable[[Mapping[str, str]], Start]
"""Gives a start of a server with these settings."""


def _kinds(work: Path, options: argparse.Namespace, errors: Console) -> dict[str, Kind]:
    """Return which servers are measured, and how each is started."""

    def ours(settings: Mapping[str, str]) -> Start:
        more = {"machineCode": "false"} if options.without_machine_code else {}
        return functools.partial(
            our_server, bytecode=work / "bytecode", settings={**settings, **more}
        )

    def java(settings: Mapping[str, str]) -> Start:
        return functools.partial(java_server, tls=not options.java_without_tls, settings=settings)

    def other(settings: Mapping[str, str]) -> Start:
        return functools.partial(
            our_server,
            bytecode=work / "other-bytecode",
            settings=settings,
            source=options.against.resolve(strict=True),
        )

    def several(settings: Mapping[str, str]) -> Start:
        return functools.partial(
            our_server,
            bytecode=work / "bytecode",
            settings=settings,
            broker_count=options.brokers,
        )

    kinds: dict[str, Kind] = {"FlintMQ": ours}
    if options.brokers is not None:
        return {f"FlintMQ, {options.brokers} brokers": several, **kinds}
    if options.against is not None:
        kinds["the other tree"] = other
        return kinds
    reason = java_reason() if options.java else None
    if reason is not None:
        errors.print(f"without the official broker: {reason}")
    elif options.java:
        kinds["Java 4.9.7"] = java
    return kinds


def _plain(
    figures: Mapping[str, RowFigures],
    starts: Mapping[str, Started],
    memory: Mapping[str, list[int]],
) -> dict[str, object]:
    return {
        "rows": {
            row: {
                name: [sample._asdict() for sample in samples]
                for name, samples in figure.samples.items()
            }
            for row, figure in figures.items()
        },
        "starts": {name: start._asdict() for name, start in starts.items()},
        "memory_mib": dict(memory),
    }


if __name__ == "__main__":
    main()
