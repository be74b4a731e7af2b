"""A driver that copies a topic by a streaming query, slowly enough to be killed meanwhile."""

import sys

from pyspark.sql import SparkSession

from tests.kits.spark.light_spark import light_java


def copy(spark: SparkSession, namesrv: str, checkpoint: str, *, rate: str) -> None:
    """Run the query until everything was copied that is there at its start."""
    source = (
        spark.readStream.format("flintmq")
        .option("namesrv", namesrv)
        .option("subscribe", "source")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "150")
        .option("dropRepeats", "true")
        .load()
    )
    query = (
        source.selectExpr("body", "keys AS shardingKey", "properties")
        .writeStream.format("flintmq")
        .option("namesrv", namesrv)
        .option("topic", "target")
        .option("checkpointLocation", checkpoint)
        .option("maxMessagesPerSecond", rate)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(namesrv: str, checkpoint: str, rate: str) -> None:
    """Copy in a session of this process."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", light_java())
        .config("spark.python.daemon.module", "flintmq.spark.python_daemon")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    copy(spark, namesrv, checkpoint, rate=rate)


if __name__ == "__main__":
    main(*sys.argv[1:])
