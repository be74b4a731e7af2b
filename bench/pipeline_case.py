"""What the benchmarks of the pipeline have in common: a case, and how it is measured."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from pyspark.sql import SparkSession

from bench.broker_servers import Server
from bench.process_tree import TreeWatch, Usage, usage


class Subject(Protocol):
    """What a case runs on: a store, or a topic of a broker."""

    @property
    def messages(self) -> int:
        """How many messages it has."""
        ...

    def server_seconds(self) -> float:
        """Return the processor time that a server below this process has used for it so far."""
        ...


SubjectT = TypeVar("SubjectT", bound=Subject)


class BenchStore(NamedTuple):
    """A generated store."""

    root: Path
    messages: int

    def server_seconds(self) -> float:
        """Return nothing: no server is needed to read files."""
        return 0


class Done(NamedTuple):
    """What a run of a case has done."""

    messages: int
    seconds: float | None = None
    """For a case that does more than what shall be timed."""
    cpu_seconds: float | None = None
    """For a case whose work was done, and measured, by a process of its own."""
    latencies_ms: tuple[float, ...] = ()
    """For a case that looks at how long each message took."""
    used: Usage | None = None
    """Processor time of what is timed, for a case that does more."""
    server_seconds: float | None = None
    """For a case that starts a broker of its own: what that has used of it."""
    file_count: int | None = None
    """For a case that writes files whose number shall not follow the number of topics."""


class Section:
    """Times a part of a case, which does more than what shall be timed."""

    def __init__(self, server: Server | None = None) -> None:
        self._server = server
        self._before = self._now()
        self._after = self._before

    def _now(self) -> tuple[float, Usage, float]:
        server = 0 if self._server is None else self._server.cpu_seconds()
        return time.perf_counter(), usage(), server

    def __enter__(self) -> Self:
        self._before = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        self._after = self._now()

    def done(self, messages: int, file_count: int | None = None) -> Done:
        """Return what was done in it."""
        (begun, before, server_before), (ended, after, server_after) = self._before, self._after
        return Done(
            messages,
            ended - begun,
            used=after.since(before),
            server_seconds=server_after - server_before,
            file_count=file_count,
        )


class Case(NamedTuple, Generic[SubjectT]):
    """Something to time on a store or a topic."""

    name: str
    run: Callable[[SparkSession, SubjectT], Done]
    aim: int = 0
    """Messages a second."""
    is_whole_process: bool = False
    """It starts all it needs: it is never warm, and what it used is what has ended with it."""


@dataclass(frozen=True)
class Result:
    """One case on one store or topic."""

    name: str
    store_messages: int
    done: int
    wall_seconds: float
    java_seconds: float
    python_seconds: float
    server_seconds: float
    python_peak_mib: int
    is_whole_process: bool
    aim: int
    median_ms: float | None
    worst_ms: float | None
    file_count: int | None = None

    @property
    def per_second(self) -> float:
        return self.done / self.wall_seconds

    @property
    def per_cpu_second(self) -> float:
        """Messages per second of one core, whatever else the machine was doing.

        What a broker used, who was asked for the messages, is not part of it.
        """
        return self.done / (self.java_seconds + self.python_seconds)

    @property
    def java_share(self) -> float:
        return self.java_seconds / (self.java_seconds + self.python_seconds)

    @property
    def server_cores(self) -> float:
        """How many cores the broker had, on average: near 1 it can give no more."""
        return self.server_seconds / self.wall_seconds


def measure(case: Case[SubjectT], spark: SparkSession, subject: SubjectT) -> Result:
    """Time one run of a case."""
    with TreeWatch() as watch:
        server_before = subject.server_seconds()
        before, start = usage(), time.perf_counter()
        done = case.run(spark, subject)
        wall = time.perf_counter() - start
        used = usage().since(before) if done.used is None else done.used
        server = subject.server_seconds() - server_before
        server = server if done.server_seconds is None else done.server_seconds
    python = watch.cpu_seconds if case.is_whole_process else used.python
    return Result(
        name=case.name,
        store_messages=subject.messages,
        done=done.messages,
        wall_seconds=wall if done.seconds is None else done.seconds,
        java_seconds=0 if case.is_whole_process else used.java,
        python_seconds=python - server if done.cpu_seconds is None else done.cpu_seconds,
        server_seconds=server,
        python_peak_mib=watch.peak_mib,
        is_whole_process=case.is_whole_process,
        aim=case.aim,
        median_ms=statistics.median(done.latencies_ms) if done.latencies_ms else None,
        worst_ms=max(done.latencies_ms, default=None),
        file_count=done.file_count,
    )
