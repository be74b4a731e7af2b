"""Sessions find the data source where the environment of this Python is not activated."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from flintmq.spark.source_registration import prefer_this_python, register
from tests.kits.golden.golden_sets import golden_set
from tests.kits.spark.light_spark import light_java

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
STORE = str(golden_set("basic").store)
MESSAGES = len([*golden_set("basic").messages()])

LATE_IMPORT = """
import sys, threading
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
import flintmq.spark

print(spark.read.format("flintmq").load(sys.argv[1]).count())
other = spark.newSession()
flintmq.spark.register(other)
flintmq.spark.register(other)

def stream():
    table = other.readStream.format("flintmq").load(sys.argv[1])
    writer = table.writeStream.format("noop").option("checkpointLocation", sys.argv[2])
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    print(sum(one["numInputRows"] for one in query.recentProgress))

thread = threading.Thread(target=stream)
thread.start()
thread.join()
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Give the environment of a process in which python3 is a Python that can do nothing."""
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        "spark.master local[1]\nspark.ui.enabled false\nspark.log.level OFF\n"
        "spark.driver.host 127.0.0.1\nspark.driver.bindAddress 127.0.0.1\n"
        f"spark.sql.shuffle.partitions 1\nspark.driver.extraJavaOptions {light_java()}\n"
    )
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "PYTHONPATH") if name in os.environ}
    java = Path(shutil.which("java") or "/usr/bin/java").parent
    return kept | {
        "HOME": str(tmp_path),
        "PATH": f"{other.parent}:/usr/bin:/bin:{java}",
        "SPARK_CONF_DIR": str(conf),
    }


def output_of(program: str, environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environment,
        cwd=environment["HOME"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_lines_of_the_page_work_where_nothing_is_activated(
    environment: dict[str, str],
) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    program = found[1].replace("/data/store", STORE).replace("'orders'", "'golden-orders'")
    assert re.findall(r"\| *(\w+)\| *(\w+)\|", output_of(program, environment))[0] == (
        "queueId",
        "count",
    )


def test_a_session_that_was_there_before_the_import_knows_the_source(
    environment: dict[str, str], tmp_path: Path
) -> None:
    said = output_of(LATE_IMPORT, environment, STORE, str(tmp_path / "checkpoint"))
    assert said.split() == [str(MESSAGES), str(MESSAGES)]


@pytest.mark.parametrize(
    "chosen",
    [
        {"PYSPARK_PYTHON": "/mine/python3"},
        {"PYSPARK_DRIVER_PYTHON": "/mine/python3"},
        {"PYSPARK_GATEWAY_PORT": "1"},
    ],
)
def test_a_python_that_somebody_has_chosen_stays(chosen: dict[str, str]) -> None:
    environ = chosen | {"PATH": "/nowhere"}
    prefer_this_python(environ, sys.executable)
    assert environ == chosen | {"PATH": "/nowhere"}


def test_an_activated_environment_is_left_as_it_is(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "python3").touch(mode=0o755)
    environ = {"PATH": str(tmp_path / "a")}
    prefer_this_python(environ, str(tmp_path / "a" / "python"))
    assert environ == {"PATH": str(tmp_path / "a")}
    prefer_this_python(environ, str(tmp_path / "b" / "python"))
    assert environ["PYSPARK_PYTHON"] == str(tmp_path / "b" / "python")


class FakeConnectSession:
    """A session as Spark Connect has it: sources can be registered, and there is no context."""

    def __init__(self) -> None:
        self.registered: list[type] = []

    @property
    def dataSource(self) -> "FakeConnectSession":
        return self

    def register(self, kind: type) -> None:
        self.registered.append(kind)

    @property
    def sparkContext(self) -> object:
        raise AttributeError("[JVM_ATTRIBUTE_NOT_SUPPORTED] sparkContext")


def test_a_session_of_spark_connect_is_told_without_its_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FakeConnectSession, "__module__", "pyspark.sql.connect.session")
    session = FakeConnectSession()
    register(cast(SparkSession, session))
    assert [kind.__name__ for kind in session.registered] == ["FlintSource"]
