"""Jobs give their stages names, and a running stage is known by its name."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from flintmq.spark.runtime.stage_names import RunningStage, running_stages, stage_name

DEADLINE_S = 60


def wait_for_file(path: str) -> None:
    """Be a task that goes on until there is a file."""
    deadline = time.monotonic() + DEADLINE_S
    while not Path(path).exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_running_stage_is_told_by_the_name_of_its_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    context, go = spark.sparkContext, tmp_path / "go"

    def work() -> None:
        with stage_name(context, "waiting for a file"):
            context.parallelize([str(go)], 1).foreach(wait_for_file)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not (running := running_stages(context)) and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        go.touch()
        worker.join()
    (stage,) = running
    assert stage == RunningStage(number=stage.number, name="waiting for a file", done=0, total=1)


def test_a_name_lasts_as_long_as_its_block(spark: SparkSession) -> None:
    context = spark.sparkContext
    before = context.getLocalProperty("spark.job.description")
    with stage_name(context, "outer"):
        with stage_name(context, "inner"):
            assert context.getLocalProperty("spark.job.description") == "inner"
        assert context.getLocalProperty("spark.job.description") == "outer"
    assert context.getLocalProperty("spark.job.description") == before


@pytest.mark.parametrize(
    "error",
    [Py4JError("no such stage"), Py4JNetworkError("Java is gone"), ConnectionRefusedError()],
)
def test_where_spark_cannot_tell_no_stage_runs(error: Exception) -> None:
    def ask() -> None:
        raise error

    context: Any = SimpleNamespace(_jsc=SimpleNamespace(sc=ask))
    assert running_stages(context) == []
