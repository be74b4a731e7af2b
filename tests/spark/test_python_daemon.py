"""Workers of a local session load the installed PySpark, not the zip that Spark puts first."""

from pathlib import Path

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StringType, StructField, StructType

from flintmq.spark.python_daemon import installed_first

PACKAGE = Path(pyspark.__file__).parent
ZIP = str(PACKAGE / "python" / "lib" / "pyspark.zip")


def test_the_zip_goes_where_the_package_it_was_made_of_is_installed() -> None:
    site = str(PACKAGE.parent)
    assert installed_first(["", ZIP, "/other", site]) == ["", "/other", site]


def test_another_spark_keeps_its_zip() -> None:
    """Its Java half speaks to its own Python half."""
    path = ["/opt/spark/python/lib/pyspark.zip", str(PACKAGE.parent)]
    assert installed_first(path) == path


def test_a_zip_alone_is_used(tmp_path: Path) -> None:
    assert installed_first([ZIP, str(tmp_path)]) == [ZIP, str(tmp_path)]


def test_workers_have_the_installed_package(spark: SparkSession) -> None:
    def loaded_from(_: int) -> str:
        import pyspark

        return str(pyspark.__file__)

    found = spark.sparkContext.parallelize([0], 1).map(loaded_from).collect()
    assert found == [pyspark.__file__]


def test_workers_have_the_source_from_their_start_and_their_collector_passes_it_over(
    spark: SparkSession,
) -> None:
    """PySpark has the collector look at everything after each task."""

    def left_to_the_collector(_: int) -> tuple[bool, int]:
        import gc
        import sys

        return "flintmq.spark.source" in sys.modules, len(gc.get_objects())

    ((is_loaded, count),) = (
        spark.sparkContext.parallelize([0], 1).map(left_to_the_collector).collect()
    )
    assert is_loaded
    assert count < 30_000, count


class WherePlanned(DataSource):
    """A source whose only column is called what PySpark was loaded from."""

    def schema(self) -> StructType:
        return StructType([StructField(str(pyspark.__file__), StringType())])


def test_planning_of_tests_has_the_installed_package_too(spark: SparkSession) -> None:
    session = spark.newSession()
    session.dataSource.register(WherePlanned)
    assert session.read.format("WherePlanned").load().columns == [pyspark.__file__]
