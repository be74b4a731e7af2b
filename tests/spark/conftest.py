import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IS_CI = os.environ.get("CI") == "true"

# Without the extra the modules cannot even be imported; where it is required, they shall fail.
if importlib.util.find_spec("pyspark") is None and not IS_CI:
    collect_ignore_glob = ["test_*.py"]


def pytest_report_header() -> list[str]:
    """Say in clear words that these tests are left out."""
    if "collect_ignore_glob" in globals():
        return ["tests/spark: left out, the extra 'spark' is not installed"]
    return []


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests with a session in two processes: one for stores, one for live topics."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            group = "spark-live" if item.path.parent.name == "live" else "spark"
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """Give the one Spark session of all tests of this process."""
    from pyspark.sql import SparkSession

    from flintmq.spark.runtime.spark_session import hushed
    from tests.kits.spark.light_spark import LIGHT_SETTINGS, light_java, light_python

    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        reason = "Spark needs Java 17, and there is no java (make java installs it)"
        if IS_CI:
            pytest.fail(reason)
        pytest.skip(reason)
    # The executors must run the same Python as the driver.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("flintmq-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.daemon.module", "flintmq.spark.python_daemon")
        .config("spark.driver.extraJavaOptions", light_java())
        .config("spark.sql.shuffle.partitions", "2")
        .config(map={**LIGHT_SETTINGS})
        .config("spark.sql.python.filterPushdown.enabled", "true")
    )
    with pytest.MonkeyPatch.context() as patch:
        # For Java and the processes that it starts, not for those of other tests.
        for name, value in light_python().items():
            patch.setenv(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    # As in a job: PySpark would write to the stderr of whichever test came first.
    with hushed():
        yield session
    session.stop()
