"""A job as its command sees it: the Spark session that the options ask for, and its progress.

Spark is loaded when a session is started: help texts and the other commands do without it, and so
does an installation without the extra.
"""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import tzinfo
from types import FrameType
from typing import TYPE_CHECKING, Final

from flintmq.cli.pipeline.job_progress import say_start, task_progress
from flintmq.spark.runtime.java_runtime import end_java
from flintmq.spark.runtime.session_settings import SessionSettings

SIGNAL_EXIT: Final = 128
"""A process that a signal has ended has the number of the signal and this as its exit code."""

if TYPE_CHECKING:
    from flintmq.spark.runtime.session_types import Session
    from flintmq.spark.runtime.spark_session import TaskSession


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Have SIGTERM end this process as an exception does: what is temporary is removed.

    A command that takes the signal itself, as a stream does, goes on doing so: an exception in the
    middle of a call to Java would leave the connection to it in disorder.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield  # Only the main thread may say what becomes of signals, and only once.
        return
    is_ended = False

    def end(number: int, _frame: FrameType | None) -> None:
        nonlocal is_ended
        is_ended = True
        end_java()
        raise SystemExit(SIGNAL_EXIT + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except Exception:
        # Java was told to end as well, and whatever fails on the way out is no failure.
        if is_ended:
            raise SystemExit(SIGNAL_EXIT + signal.SIGTERM) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the user said about a job, whatever it does; ``name`` is that of its command."""

    name: str
    settings: SessionSettings
    is_json: bool

    @property
    def zone(self) -> tzinfo:
        """Where times are shown, and taken that name no zone."""
        return self.settings.time_zone

    @property
    def parallelism(self) -> int | None:
        """How many tasks the user wants at least; None leaves it to the job."""
        return self.settings.parallelism

    @contextmanager
    def session(self, *, progress: bool = True) -> "Iterator[Session]":
        """Yield the Spark session of the job, and show its progress meanwhile."""
        say_start()
        from flintmq.spark.runtime.spark_session import job_session

        with (
            ended_by_sigterm(),
            job_session(self.settings) as spark,
            self._progress(spark, shown=progress),
        ):
            yield spark

    @contextmanager
    def tasks(self) -> "Iterator[TaskSession]":
        """Yield a session without SQL, for tasks that are Python alone, and show its progress."""
        say_start()
        from flintmq.spark.runtime.spark_session import task_session

        with ended_by_sigterm(), task_session(self.settings) as spark, self._progress(spark):
            yield spark

    @contextmanager
    def _progress(self, spark: "TaskSession", *, shown: bool = True) -> Iterator[None]:
        with task_progress(spark, self.name, shown=shown):
            yield

    def split_size(self, directories: Sequence[str], *, default: int) -> int:
        """Return how many bytes of a log one task reads, fewer where the user wants more tasks."""
        from flintmq.spark.jobs.store_tables import split_size_for

        if self.parallelism is None:
            return default
        return split_size_for(directories, self.parallelism)
