"""Store directories as Spark tables: ``spark.read.format("flintmq").load(DIRECTORY)``.

This package needs the extra ``spark``, save for errors, reports and settings, which the command
line reads.  The data source is loaded when it is asked for: a task of a job, in a fresh Python
process, has no use for it.
"""

from typing import TYPE_CHECKING

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
else:
    from flintmq.spark.lazy_exports import lazy_exports

    __getattr__ = lazy_exports(__name__, {"source": ("FlintSource",)})

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
    "errors",
    "jobs",
    "options",
    "parallel_log",
    "runtime",
    "sink",
    "stored",
]
