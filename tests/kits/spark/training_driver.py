"""A driver that does a little of all that tests do with Spark, so that Java can keep its classes.

python training_driver.py JAVA_OPTIONS
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def train(spark: SparkSession, work: Path) -> None:
    """Ask, write and read files, run tasks of Python, and run a query that goes on."""
    rows = spark.createDataFrame(
        [(1, "a", b"x"), (2, "b", b"y")], "n int, name string, body binary"
    )
    rows.createOrReplaceTempView("rows")
    spark.sql(
        "SELECT a.name, count(*), sum(crc32(a.body)), max(map(a.name, a.n)['a']) FROM rows a "
        "JOIN rows b ON a.n = b.n WHERE a.name LIKE '%' GROUP BY 1 ORDER BY 2 DESC LIMIT 5"
    ).collect()
    parquet = str(work / "parquet")
    rows.repartition(2).write.partitionBy("name").parquet(parquet)
    spark.read.parquet(parquet).groupBy("name").count().toArrow()
    spark.sparkContext.parallelize([1, 2], 2).map(str).collect()
    rows.mapInArrow(lambda batches: batches, rows.schema).collect()
    source = spark.readStream.schema("n int, body binary").parquet(parquet)
    query = (
        source.writeStream.format("parquet")
        .option("path", str(work / "landed"))
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(java_options: str) -> None:
    """Train one Java process, and let it end by itself: then it writes its archive."""
    with tempfile.TemporaryDirectory() as work:
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", work)
            .config("spark.python.daemon.module", "flintmq.spark.python_daemon")
            .config("spark.driver.extraJavaOptions", java_options)
            .getOrCreate()
        )
        gateway: Any = spark.sparkContext._gateway
        train(spark, Path(work))
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


if __name__ == "__main__":
    main(sys.argv[1])
