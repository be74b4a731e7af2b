"""Benchmarks of the pipeline on Spark: `python -m bench.pipeline`, or `make bench-pipeline`.

Every case runs on two stores, one of them five times the other, so that it shows whether cost
grows with the data and memory does not.
"""

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from bench.generate_store import StoreShape, generate
from bench.process_tree import PeakMemory, usage
from flintmq.spark.session import SessionSettings, job_session

SMALLER = 5
FEW = "topic string, queueId int, queueOffset long, storeTimestamp timestamp"
ONE_TOPIC = "BenchTopic1"


class Case(NamedTuple):
    """Something to time.  ``run`` returns how many messages it went through."""

    name: str
    run: Callable[[SparkSession, Path], int]
    aim: int = 0


@dataclass(frozen=True)
class Result:
    """One case on one store."""

    name: str
    store_messages: int
    done: int
    wall_seconds: float
    java_seconds: float
    python_seconds: float
    python_peak_mib: int
    aim: int

    @property
    def per_second(self) -> float:
        return self.done / self.wall_seconds

    @property
    def per_cpu_second(self) -> float:
        """Messages per second of one core, whatever else the machine was doing."""
        return self.done / (self.java_seconds + self.python_seconds)


def load(spark: SparkSession, store: Path, schema: str = "", **options: str) -> DataFrame:
    reader = spark.read.format("flintmq").options(**options)
    return (reader.schema(schema) if schema else reader).load(str(store))


def count_few(spark: SparkSession, store: Path) -> int:
    return load(spark, store, FEW).count()


def scan_few(spark: SparkSession, store: Path) -> int:
    """Let Spark look at every value: `count` might leave some out."""
    row = load(spark, store, FEW).selectExpr("count(topic)", "max(queueOffset)", "sum(queueId)")
    return int(row.first()[0])  # type: ignore[index]


def count_all(spark: SparkSession, store: Path) -> int:
    return load(spark, store).count()


def count_topic(spark: SparkSession, store: Path) -> int:
    """Count one topic of four; the messages of the others are gone through as well."""
    count = load(spark, store, "topic string", topic=ONE_TOPIC).count()
    return count * StoreShape(messages=1).topic_count


def scan_cases() -> list[Case]:
    return [
        Case("count, 4 columns", count_few, aim=2_000_000),
        Case("aggregate of 4 columns", scan_few, aim=2_000_000),
        Case("count with a topic filter", count_topic, aim=2_000_000),
        Case("count, all columns", count_all, aim=2_000_000),
    ]


def measure(case: Case, spark: SparkSession, store: Path, messages: int) -> Result:
    """Time one run of a case."""
    with PeakMemory() as peak:
        before, start = usage(), time.perf_counter()
        done = case.run(spark, store)
        wall = time.perf_counter() - start
        used = usage().since(before)
    return Result(case.name, messages, done, wall, used.java, used.python, peak.mib, case.aim)


def run(
    cases: list[Case], messages: int, parent: Path, progress: Callable[[str], None]
) -> list[Result]:
    """Run all cases on stores of two sizes."""
    results = []
    with job_session(SessionSettings(app_name="flintmq-bench")) as spark:
        for count in (messages // SMALLER, messages):
            store = parent / str(count)
            progress(f"writing a store of {count:,} messages")
            generate(store, StoreShape(messages=count))
            # Java compiles what runs often, and the workers load the kernels: not timed.
            for case in cases if count < messages else ():
                case.run(spark, store)
            for case in cases:
                result = measure(case, spark, store, count)
                progress(f"{case.name}: {result.per_second:,.0f}/s")
                results.append(result)
            shutil.rmtree(store)
    return results


def _table(results: list[Result]) -> Table:
    title = f"pipeline, Python {platform.python_version()}, {os.cpu_count()} cores"
    table = Table("what", title=title)
    for heading in (
        "messages",
        "a second",
        "a second of one core",
        "of it Java",
        "peak MiB",
        "aim",
    ):
        table.add_column(heading, justify="right")
    for one in results:
        share = one.java_seconds / (one.java_seconds + one.python_seconds)
        table.add_row(
            one.name,
            f"{one.store_messages:,}",
            f"{one.per_second:,.0f}",
            f"{one.per_cpu_second:,.0f}",
            f"{share:.0%}",
            str(one.python_peak_mib),
            f"{one.aim:,}" if one.aim else "",
        )
    return table


def main() -> None:
    """Run the benchmarks as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000, help="of the larger store")
    parser.add_argument("--directory", type=Path, help="where the stores go for the time")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    console, errors = Console(), Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="flintmq-bench-", dir=options.directory) as name:
        results = run(scan_cases(), options.messages, Path(name), errors.print)
    console.print(_table(results))
    if options.json is not None:
        rows = [
            asdict(one) | {"per_second": one.per_second, "per_cpu_second": one.per_cpu_second}
            for one in results
        ]
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
