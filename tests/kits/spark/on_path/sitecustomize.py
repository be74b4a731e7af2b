"""Run by each Python below a Spark of tests before anything else: the installed PySpark goes first.

Spark starts a process for each step of planning a read of a Python source.  `python_daemon` does
not reach these; they would compile PySpark from its zip each, more than half of what they cost.
"""

import contextlib
import sys

if any(entry.endswith("pyspark.zip") for entry in sys.path):
    # A Python of a cluster may be without FlintMQ.
    with contextlib.suppress(ImportError):
        from flintmq.spark.python_daemon import installed_first

        sys.path[:] = installed_first(sys.path)
