"""Jobs on a real cluster: the package comes with the job, and a worker may be lost."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.golden.golden_sets import damaged_set, golden_set
from tests.spark import cluster_driver
from tests.spark.cluster import Cluster, spark_cluster
from tests.spark.pipeline_kit import light_session

STORE = str(golden_set("rolled").store)
OTHER = str(damaged_set("last-commitlog-file-lost").store)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def test_a_cluster_gives_what_one_machine_gives_even_if_it_loses_a_worker(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    log_file = tmp_path / "driver.log"
    environment = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(cluster.python)}
    driver = subprocess.Popen(
        [sys.executable, cluster_driver.__file__, cluster.url, STORE, OTHER, str(log_file)],
        env=os.environ | environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    answers: dict[str, Any] = {}
    assert driver.stdout is not None
    with driver, driver.stdout as lines:
        for line in lines:
            name, value = json.loads(line)
            answers[name] = value
            if name == "first task":
                cluster.workers[0].kill()
    assert driver.returncode == 0, log_file.read_text()
    done, total = answers.pop("first task")
    assert 0 < done < total
    session = light_session(spark)
    here = {name: job() for name, job in cluster_driver.jobs(session, STORE, OTHER).items()}
    expected = json.loads(json.dumps(here | {"after the loss": here["query"]}))
    assert answers == expected
