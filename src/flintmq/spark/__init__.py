"""Store directories as Spark tables: ``spark.read.format("flintmq").load(DIRECTORY)``.

This package needs the extra ``spark``; nothing else of FlintMQ imports it.
"""

from flintmq.spark.errors import (
    ColumnError,
    CorruptLogError,
    OptionError,
    SparkSourceError,
    SplitError,
)
from flintmq.spark.source import FlintSource

__all__ = [
    "ColumnError",
    "CorruptLogError",
    "FlintSource",
    "OptionError",
    "SparkSourceError",
    "SplitError",
]
