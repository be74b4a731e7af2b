"""Jobs on a real cluster: the package comes with the job, and workers may be lost."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.kits.golden.golden_sets import damaged_set, golden_set
from tests.kits.spark import cluster_driver
from tests.kits.spark.cluster import Cluster, spark_cluster
from tests.kits.spark.cluster_driver import Jobs
from tests.kits.spark.pipeline_kit import light_session

STORE = str(golden_set("rolled").store)
OTHER = str(damaged_set("last-commitlog-file-lost").store)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def run_driver(cluster: Cluster, work: Path) -> Iterator[tuple[str, Any]]:
    """Yield the answers of the driver by name, as it gives them."""
    log_file = work / "driver.log"
    environment = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(cluster.python)}
    driver = subprocess.Popen(
        [
            *(sys.executable, cluster_driver.__file__),
            *(cluster.url, STORE, OTHER, str(work), str(log_file)),
        ],
        env=os.environ | environment,
        cwd=work,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    with driver, driver.stdout as lines:
        for line in lines:
            name, value = json.loads(line)
            yield name, value
    assert driver.returncode == 0, log_file.read_text()


def test_a_cluster_gives_what_one_machine_gives_even_if_it_loses_workers(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    answers: dict[str, Any] = {}
    loss_count = 0
    there = tmp_path / "there"
    there.mkdir()
    for name, value in run_driver(cluster, there):
        if name != "first task":
            answers[name] = value
            continue
        done, total = value
        assert 0 < done < total
        # A worker is lost, and another comes: the second loss is that of the one that was left.
        cluster.workers[loss_count].kill()
        loss_count += 1
        if loss_count == 1:
            cluster.add_workers(1)
    jobs = Jobs(light_session(spark), STORE, OTHER, tmp_path / "here")
    here = {name: job() for name, job in jobs.whole().items()}
    losses = {f"{name} and a loss": here[name] for name in ("query", "rebuild")}
    assert answers == json.loads(json.dumps(here | losses))
    assert loss_count == len(losses)
