"""Benchmarks of the pipeline on Spark: `python -m bench.pipeline`, or `make bench-pipeline`.

Every case runs on two stores, one of them five times the other, so that it shows whether cost
grows with the data and memory does not.  The Java broker rebuilds the same stores.
"""

import argparse
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.generate_store import StoreShape, generate
from bench.pipeline_archive import archive_cases
from bench.pipeline_case import BenchStore, Case, Result, measure
from bench.pipeline_jobs import job_cases
from bench.pipeline_scan import scan_cases
from flintmq.spark.session import SessionSettings, job_session

SMALLER = 5
TABLE_WIDTH = 120

Progress = Callable[[str], None]


def run(cases: Sequence[Case], messages: int, parent: Path, progress: Progress) -> list[Result]:
    """Run all cases on stores of two sizes."""
    results = []
    with job_session(SessionSettings(app_name="flintmq-bench")) as spark:
        for count in (messages // SMALLER, messages):
            store = BenchStore(parent / str(count), count)
            progress(f"writing a store of {count:,} messages")
            generate(store.root, StoreShape(messages=count))
            for case in cases:
                if count < messages and not case.is_whole_process:
                    # Java compiles what runs often, and the workers load the kernels: not timed.
                    case.run(spark, store)
                result = measure(case, spark, store)
                rate, seconds = result.per_second, result.wall_seconds
                progress(f"{case.name}: {seconds:.1f} s, {rate:,.0f} messages a second")
                results.append(result)
            shutil.rmtree(store.root)
    return results


def _table(results: Sequence[Result]) -> Table:
    title = f"pipeline, Python {platform.python_version()}, {os.cpu_count()} cores"
    table = Table("what", title=title)
    for heading in (
        "messages",
        "seconds",
        "a second",
        "a second of one core",
        "of it Java",
        "peak MiB",
        "aim",
    ):
        table.add_column(heading, justify="right")
    for one in results:
        table.add_row(
            one.name,
            f"{one.store_messages:,}",
            f"{one.wall_seconds:.1f}",
            f"{one.per_second:,.0f}",
            f"{one.per_cpu_second:,.0f}",
            "" if one.is_whole_process else f"{one.java_share:.0%}",
            "" if one.is_whole_process else str(one.python_peak_mib),
            f"{one.aim:,}" if one.aim else "",
        )
    return table


def main() -> None:
    """Run the benchmarks as the command line says."""
    cases = [*scan_cases(), *job_cases(), *archive_cases()]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000, help="of the larger store")
    parser.add_argument("--only", metavar="WORD", help="cases with this in their name")
    parser.add_argument("--directory", type=Path, help="where the stores go for the time")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    chosen = [case for case in cases if options.only is None or options.only in case.name]
    console, errors = Console(width=TABLE_WIDTH), Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="flintmq-bench-", dir=options.directory) as name:
        results = run(chosen, options.messages, Path(name), errors.print)
    console.print(_table(results))
    if options.json is not None:
        rows = [
            asdict(one) | {"per_second": one.per_second, "per_cpu_second": one.per_cpu_second}
            for one in results
        ]
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
