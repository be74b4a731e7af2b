"""How a Spark session finds the data source, also where the environment is not activated.

Spark starts Python by the name in ``PYSPARK_PYTHON``, else as ``python3`` of the search path.  In a
Jupyter kernel or a cron job that is often another Python, which has no FlintMQ.
"""

import os
import shutil
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHOSEN_BY: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT")
"""Where one of these is set, the user or ``spark-submit`` has said which Python it shall be."""

_CONNECT: Final = "pyspark.sql.connect."
"""Where PySpark keeps the session of a client of Spark Connect, which has no context."""


def prefer_this_python(environ: MutableMapping[str, str], executable: str) -> None:
    """Have Spark start this Python, unless somebody has chosen one or it would do so anyway."""
    if not executable or any(environ.get(name) for name in _CHOSEN_BY):
        return
    found = shutil.which("python3", path=environ.get("PATH", os.defpath))
    if found is None or Path(found).parent != Path(executable).parent:
        environ["PYSPARK_PYTHON"] = executable


def register(spark: "SparkSession") -> None:
    """Make a session that runs already know the data source ``flintmq``.

    The session may have been started before ``flintmq.spark`` was imported: what it does from now
    on in Python, it does with the Python that the environment names now.  A session of Spark
    Connect is told too; FlintMQ has to be installed where its server is.
    """
    from flintmq.spark.source import FlintSource

    if type(spark).__module__.startswith(_CONNECT):
        # The driver is elsewhere: which Python it starts is not ours to say.
        spark.dataSource.register(FlintSource)
        return
    context = spark.sparkContext
    context.pythonExec = os.environ.get("PYSPARK_PYTHON", context.pythonExec)
    with _as_active(spark):
        spark.dataSource.register(FlintSource)


@contextmanager
def _as_active(spark: "SparkSession") -> Iterator[None]:
    """Make a session the active one of this thread.

    Spark asks the active session whether a source exists, and refuses to register one which that
    session knows, with a session that does not know it.
    """
    jvm: Any = spark.sparkContext._jvm
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def register_with_active() -> None:
    """Register with the session of this process, if there is one; PySpark is not loaded for it."""
    pyspark = sys.modules.get("pyspark")
    context = getattr(getattr(pyspark, "SparkContext", None), "_active_spark_context", None)
    if context is not None and "pyspark.sql" in sys.modules:
        register(sys.modules["pyspark.sql"].SparkSession.active())
