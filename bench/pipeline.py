"""Benchmarks of the pipeline on Spark: `python -m bench.pipeline`, or `make bench-pipeline`.

Every case runs on two stores, one of them five times the other, so that it shows whether cost
grows with the data and memory does not.  The Java broker rebuilds the same stores.  Cases whose
names begin with "live" run on topics of a broker, of two sizes as well.
"""

import argparse
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from bench.generate_store import StoreShape, generate
from bench.pipeline_archive import archive_cases
from bench.pipeline_case import BenchStore, Case, Result, SubjectT, measure
from bench.pipeline_jobs import job_cases
from bench.pipeline_latency import latency_cases
from bench.pipeline_live import BODY_SIZE, LIVE_PREFIX, LiveTopic, live_cases, live_topic
from bench.pipeline_reports import report_cases
from bench.pipeline_scan import scan_cases
from bench.pipeline_topics import topic_cases
from flintmq.spark.runtime.session_settings import SessionSettings
from flintmq.spark.runtime.spark_session import job_session

SMALLER = 5
TABLE_WIDTH = 120

Progress = Callable[[str], None]


class Bench(NamedTuple):
    """What all cases need."""

    spark: SparkSession
    parent: Path
    progress: Progress

    def on_stores(self, cases: Sequence[Case[BenchStore]], messages: int) -> Iterator[Result]:
        """Run cases on stores of two sizes."""
        for count in (messages // SMALLER, messages) if cases else ():
            store = BenchStore(self.parent / str(count), count)
            self.progress(f"writing a store of {count:,} messages")
            generate(store.root, StoreShape(messages=count))
            yield from self._measured(cases, store, is_first=count < messages)
            shutil.rmtree(store.root)

    def on_topics(
        self, cases: Sequence[Case[LiveTopic]], messages: int, body_size: int
    ) -> Iterator[Result]:
        """Run cases on topics of two sizes."""
        for count in (messages // SMALLER, messages) if cases else ():
            work = self.parent / f"live-{count}"
            self.progress(f"filling a topic with {count:,} messages")
            with live_topic(work, count, body_size) as topic:
                yield from self._measured(cases, topic, is_first=count < messages)
            shutil.rmtree(work)

    def _measured(
        self, cases: Sequence[Case[SubjectT]], subject: SubjectT, *, is_first: bool
    ) -> Iterator[Result]:
        for case in cases:
            if is_first and not case.is_whole_process:
                # Java compiles what runs often, and the workers load the kernels: not timed.
                case.run(self.spark, subject)
            result = measure(case, self.spark, subject)
            self.progress(f"{case.name}: {result.wall_seconds:.1f} s, {_speed(result)}")
            yield result


def _speed(result: Result) -> str:
    if result.median_ms is None:
        return f"{result.per_second:,.0f} messages a second"
    return f"{result.median_ms:,.0f} ms a micro-batch"


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
        "files",
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
            "" if one.file_count is None else f"{one.file_count:,}",
            f"{one.aim:,}" if one.aim else "",
        )
    return table


def _live_table(results: Sequence[Result]) -> Table:
    table = Table(title="live topics")
    table.add_column("what", no_wrap=True)
    for heading in (
        "messages",
        "seconds",
        "a second",
        "of one core",
        "Java",
        "broker's cores",
        "median ms",
        "worst ms",
    ):
        table.add_column(heading, justify="right")
    for one in results:
        is_rate = one.median_ms is None
        table.add_row(
            one.name.removeprefix(LIVE_PREFIX),
            f"{one.store_messages:,}",
            f"{one.wall_seconds:.1f}",
            f"{one.per_second:,.0f}" if is_rate else "",
            f"{one.per_cpu_second:,.0f}" if is_rate else "",
            "" if one.is_whole_process else f"{one.java_share:.0%}",
            f"{one.server_cores:.2f}",
            "" if one.median_ms is None else f"{one.median_ms:,.0f}",
            "" if one.worst_ms is None else f"{one.worst_ms:,.0f}",
        )
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000, help="of the larger store")
    parser.add_argument("--live-messages", type=int, default=250_000, help="of the larger topic")
    parser.add_argument("--live-body-size", type=int, default=BODY_SIZE, help="bytes of a message")
    parser.add_argument("--only", metavar="WORD", default="", help="cases with this in their name")
    parser.add_argument("--directory", type=Path, help="where the stores go for the time")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    return parser.parse_args()


def main() -> None:
    """Run the benchmarks as the command line says."""
    options = _options()
    stores = [*scan_cases(), *report_cases(), *job_cases(), *archive_cases(), *topic_cases()]
    topics = [*live_cases(), *latency_cases()]
    console, errors = Console(width=TABLE_WIDTH), Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="flintmq-bench-", dir=options.directory) as name,
        job_session(SessionSettings(app_name="flintmq-bench")) as spark,
    ):
        bench = Bench(spark, Path(name), errors.print)
        chosen = [case for case in stores if options.only in case.name]
        of_stores = [*bench.on_stores(chosen, options.messages)]
        live = [case for case in topics if options.only in case.name]
        of_topics = [*bench.on_topics(live, options.live_messages, options.live_body_size)]
    if of_stores:
        console.print(_table(of_stores))
    if of_topics:
        console.print(_live_table(of_topics))
    if options.json is not None:
        rows = [
            asdict(one) | {"per_second": one.per_second, "per_cpu_second": one.per_cpu_second}
            for one in [*of_stores, *of_topics]
        ]
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
