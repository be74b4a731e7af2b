"""What the tests of jobs have in common."""

import dataclasses
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from flintmq.model.message import PutMessage
from flintmq.spark.runtime.failures import LoggedError, reason_of
from flintmq.spark.runtime.session_settings import SessionSettings
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.store.offline_stores import START_MS, message, small_config

ONE_FILE = 1 << 20


def light_session(spark: SparkSession) -> SparkSession:
    """Return a session that does not cut a handful of rows into 200 partitions."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def write_store(root: Path, messages: Iterable[PutMessage], **settings: Any) -> Path:
    """Write a store, one message a second, by default in one log file: one task reads it."""
    config = small_config(root, **({"commit_log_file_size": ONE_FILE} | settings))
    clock = ManualClock(START_MS)
    with MessageStore.open(config, clock=clock, background=False) as store:
        for one in messages:
            assert store.put(one).ok
            clock.advance(1000)
        store.dispatch()
    return root


def numbered(count: int, **changes: dict[str, Any]) -> list[PutMessage]:
    """Return messages; ``changes`` are fields by "n" and the number of a message."""
    return [
        dataclasses.replace(message(number), **changes.get(f"n{number}", {}))
        for number in range(count)
    ]


def copy_store(source: Path, target: Path) -> Path:
    """Return a copy that may be harmed."""
    shutil.copytree(source, target)
    return target


def shared_session(
    spark: SparkSession,
) -> Callable[[SessionSettings], AbstractContextManager[SparkSession]]:
    """Return what stands in for the start of Spark where a test has a session already."""

    @contextmanager
    def job_session(settings: SessionSettings) -> Iterator[SparkSession]:
        try:
            yield spark
        except PySparkException as error:
            raise LoggedError(reason_of(error), Path("the-log")) from error

    return job_session


def use_session(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    """Let every command use a session that runs."""
    for name in ("job_session", "task_session"):
        monkeypatch.setattr(f"flintmq.spark.runtime.spark_session.{name}", shared_session(spark))
