"""Store directories as Spark tables: ``spark.read.format("flintmq").load(DIRECTORY)``.

This package needs the extra ``spark``, save for errors, reports and settings, which the command
line reads.  The data source is loaded when it is asked for: a task of a job, in a fresh Python
process, has no use for it.

Whoever imports the package has a Spark that finds the source: sessions to come start this Python,
and with a session that runs already the source is registered.
"""

import os
import sys
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
from flintmq.spark.source_registration import prefer_this_python, register, register_with_active

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
    "register",
    "runtime",
    "sink",
    "source_registration",
    "stored",
]

prefer_this_python(os.environ, sys.executable)
register_with_active()
