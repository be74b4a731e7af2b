"""Run by each Python below a Spark of tests before anything else: the installed PySpark goes first.

Spark starts a process for each step of planning a read of a Python source.  `python_daemon` does
not reach these; they would compile PySpark from its zip each, more than half of what they cost.
The data source is loaded before they fork, as `python_daemon` does it.
"""

import contextlib
import gc
import sys
from importlib import import_module
from importlib.machinery import PathFinder

# As `installed_first` has it, which a Python of a cluster may be without.
_others = [entry for entry in sys.path if not entry.endswith("pyspark.zip")]
if len(_others) < len(sys.path) and PathFinder.find_spec("pyspark", _others) is not None:
    sys.path[:] = _others

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    with contextlib.suppress(ImportError):
        import_module("flintmq.spark.source").load_readers()
        # PySpark looks for garbage after each step.
        gc.freeze()
