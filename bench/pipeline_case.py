"""What the benchmarks of the pipeline have in common: a case, and how it is measured."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from bench.process_tree import TreeWatch, usage


class BenchStore(NamedTuple):
    """A generated store."""

    root: Path
    messages: int


class Done(NamedTuple):
    """What a run of a case has done."""

    messages: int
    seconds: float | None = None
    """For a case that does more than what shall be timed."""


class Case(NamedTuple):
    """Something to time on a store."""

    name: str
    run: Callable[[SparkSession, BenchStore], Done]
    aim: int = 0
    """Messages a second."""
    is_whole_process: bool = False
    """It starts all it needs: it is never warm, and what it used is what has ended with it."""


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
    is_whole_process: bool
    aim: int

    @property
    def per_second(self) -> float:
        return self.done / self.wall_seconds

    @property
    def per_cpu_second(self) -> float:
        """Messages per second of one core, whatever else the machine was doing."""
        return self.done / (self.java_seconds + self.python_seconds)

    @property
    def java_share(self) -> float:
        return self.java_seconds / (self.java_seconds + self.python_seconds)


def measure(case: Case, spark: SparkSession, store: BenchStore) -> Result:
    """Time one run of a case."""
    with TreeWatch() as watch:
        before, start = usage(), time.perf_counter()
        done = case.run(spark, store)
        wall = time.perf_counter() - start
        used = usage().since(before)
    return Result(
        name=case.name,
        store_messages=store.messages,
        done=done.messages,
        wall_seconds=wall if done.seconds is None else done.seconds,
        java_seconds=0 if case.is_whole_process else used.java,
        python_seconds=watch.cpu_seconds if case.is_whole_process else used.python,
        python_peak_mib=watch.peak_mib,
        is_whole_process=case.is_whole_process,
        aim=case.aim,
    )
