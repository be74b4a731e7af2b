"""Store directories as Spark tables: ``spark.read.format("flintmq").load(DIRECTORY)``.

This package needs the extra ``spark``; nothing else of FlintMQ imports it.  The data source is
loaded when it is asked for: a task of a job, in a fresh Python process, has no use for it.
"""

from typing import TYPE_CHECKING, Any

from flintmq.spark.errors import (
    ArchiveError,
    ColumnError,
    CorruptLogError,
    DataLossError,
    OptionError,
    SparkSourceError,
    SplitError,
    StateError,
)

if TYPE_CHECKING:
    from flintmq.spark.source import FlintSource

__all__ = [
    "ArchiveError",
    "ColumnError",
    "CorruptLogError",
    "DataLossError",
    "FlintSource",
    "OptionError",
    "SparkSourceError",
    "SplitError",
    "StateError",
]


def __getattr__(name: str) -> Any:
    if name == "FlintSource":
        from flintmq.spark.source import FlintSource

        return FlintSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
