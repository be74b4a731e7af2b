"""Spark for one job: what is set, and where Spark's own words go.

Spark's driver is a Java process which this one starts.  Its output, and that of the Python workers
below it, goes into a log file, so that an answer on the terminal is nothing but the answer.
"""

import logging
import os
import shutil
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no type hints
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from flintmq.spark.runtime.failures import LoggedError, reason_of
from flintmq.spark.runtime.java_runtime import is_ending, known_java, require_java
from flintmq.spark.runtime.session_settings import SessionError, SessionSettings, is_local
from flintmq.spark.runtime.shipping import ship, ship_modules

_LOGS_KEPT: Final = 20
_END_SECONDS_MAX: Final = 120
ANSWER_SECONDS_MAX: Final = 10.0
"""How long Java may take to answer over a connection that is made to stop it."""
_LOG_PREFIX: Final = "pipeline-"
# These write each error with its stack to stderr before it is raised.
_CHATTY_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


class TaskSession(Protocol):
    """What a job needs whose tasks are Python alone.  Every SparkSession is a TaskSession."""

    @property
    def sparkContext(self) -> SparkContext:
        """What hands out tasks."""
        ...


@dataclass(frozen=True, slots=True)
class _Tasks:
    """Hands out tasks.  Spark's SQL, which takes seconds to start, is not there."""

    sparkContext: SparkContext


@contextmanager
def job_session(settings: SessionSettings) -> Iterator[SparkSession]:
    """Start Spark, yield a session whose executors know this package, and stop Spark.

    What Spark raises meanwhile becomes a LoggedError of one line that names the log file.
    """
    with _running(settings, settings.spark_conf()) as context:
        with _ended_by_interrupt(context):
            session = SparkSession(context)
        try:
            with _ended_by_interrupt(context):
                ship(session)
                yield session
        finally:
            _stop_by(session.stop, context)


@contextmanager
def task_session(settings: SessionSettings) -> Iterator[TaskSession]:
    """Start Spark without its SQL for a job whose tasks are Python alone, and stop it in the end.

    Errors become a LoggedError, as in `job_session`.
    """
    with _running(settings, settings.task_conf()) as context, _ended_by_interrupt(context):
        ship_modules(context)
        yield _Tasks(context)


@contextmanager
def _running(settings: SessionSettings, conf: Mapping[str, str]) -> Iterator[SparkContext]:
    if SparkContext._active_spark_context is not None:
        raise SessionError("this process has a Spark session; hand that one to the job's function")
    require_java()
    log_file = settings.log_file or _new_log_file()
    is_told = False
    try:
        with ExitStack() as stack:
            with _reported("Spark does not start: ", log_file):
                context = _start(settings, conf, log_file, stack)
            with _reported("", log_file):
                yield context
    except LoggedError:
        is_told = True
        raise
    finally:
        # Unless an error names it, nobody misses what Spark said.
        if settings.log_file is None and not is_told:
            log_file.unlink(missing_ok=True)


def _start(
    settings: SessionSettings, conf: Mapping[str, str], log_file: Path, stack: ExitStack
) -> SparkContext:
    scratch = Path(tempfile.mkdtemp(prefix="flintmq-job-"))
    stack.callback(shutil.rmtree, scratch, ignore_errors=True)
    spark_conf = SparkConf(loadDefaults=False).setMaster(settings.spark_master)
    spark_conf.setAppName(settings.app_name).setAll([*conf.items()])
    spark_conf.setIfMissing("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    stack.enter_context(_environment(_pythons(settings.master)))
    stack.enter_context(hushed())
    gateway = stack.enter_context(_java_process(spark_conf, log_file))
    with _sigint_kept():
        context = SparkContext(conf=spark_conf, gateway=gateway)
    stack.callback(_stop, context)
    log_errors(_accumulators_of(context), log_file)
    return context


def log_errors(server: socketserver.BaseServer, log_file: Path) -> None:
    """Write errors of a server into a file; by itself it prints them.

    PySpark's server for accumulators takes it for an error that Java is gone, and a signal at the
    terminal may end Java before this process hears of it.
    """

    def log(request: object, peer: object) -> None:
        with log_file.open("a") as output:
            traceback.print_exc(file=output)

    setattr(server, "handle_error", log)  # noqa: B010 - a method is not assigned to


@contextmanager
def _sigint_kept() -> Iterator[None]:
    """Leave it to the command what becomes of Ctrl-C: a context takes the signal for itself."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextmanager
def _ended_by_interrupt(context: SparkContext) -> Iterator[None]:
    """End the Java process when a signal ends the block: Ctrl-C, or one that exits.

    The call that was interrupted still has its answer to come, and every other call would wait
    for it.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        _end_java(_java_of(context))
        raise


def _stop(context: SparkContext) -> None:
    _stop_by(context.stop, context)
    if not _is_java_running(context):
        stopped: Any = context
        stopped._jsc = None  # Nobody would answer.
        context.stop()


def _stop_by(stop: Callable[[], None], context: SparkContext) -> None:
    """Stop Spark.  Where Java does not answer, a signal has told it to end, and it is waited for.

    Whatever the job had to do is done by then, or has failed with an error of its own.
    """
    java = _java_of(context)
    if is_ending(java):
        _end_java(java)
    if java.poll() is not None:
        return
    limit_answers(context._gateway)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # PySpark wonders where Java is.
            stop()
    except (Py4JError, OSError):
        _end_java(java)


def limit_answers(gateway: Any) -> None:
    """Wait for answers over new connections so long only.

    A Java that has stopped answering may still accept a connection, and never look at it.  Over
    the connection that a job has had, Spark may take its time to stop.
    """
    gateway.gateway_parameters.read_timeout = ANSWER_SECONDS_MAX


def _accumulators_of(context: SparkContext) -> socketserver.BaseServer:
    """Return the server that tasks send their counts to."""
    server: Any = context
    accumulators: socketserver.BaseServer = server._accumulatorServer
    return accumulators


def _java_of(context: SparkContext) -> "subprocess.Popen[bytes]":
    gateway: Any = context._gateway
    process: subprocess.Popen[bytes] = gateway.proc
    return process


def _is_java_running(context: SparkContext) -> bool:
    return _java_of(context).poll() is None


def _end_java(process: "subprocess.Popen[bytes]") -> None:
    """End Java so that it removes its temporary files; kill it if it takes too long."""
    process.terminate()
    try:
        process.wait(_END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _java_process(conf: SparkConf, log_file: Path) -> Iterator[Any]:
    """Start the Java process with its output in a file, and end it."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("ab") as output:
        launch: Any = launch_gateway
        gateway = launch(conf, {"stdout": output, "stderr": output})
    try:
        with known_java(gateway.proc):
            yield gateway
    finally:
        # The next session of this process has a Java process of its own.
        SparkContext._gateway = SparkContext._jvm = None
        if gateway.proc.poll() is None:
            gateway.shutdown()
        gateway.proc.stdin.close()
        try:
            gateway.proc.wait(_END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()


@contextmanager
def hushed() -> Iterator[None]:
    """Keep PySpark itself from writing to stderr."""
    loggers = [PySparkLogger.getLogger(name) for name in _CHATTY_LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    root = logging.getLogger()
    root.addFilter(_is_not_of_py4j)
    py4j = logging.getLogger("py4j")
    propagated, py4j.propagate = py4j.propagate, False
    try:
        yield
    finally:
        root.removeFilter(_is_not_of_py4j)
        py4j.propagate = propagated
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Whether a record of the root logger is somebody else's; py4j logs each Ctrl-C there."""
    return Path(record.pathname).parent.name != "py4j"


@contextmanager
def _reported(words: str, log_file: Path) -> Iterator[None]:
    """Turn an error of Spark into a LoggedError of one line that names the log file."""
    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise LoggedError(f"{words}{reason_of(error)}", log_file) from error


def _pythons(master: str) -> dict[str, str]:
    """Return the Python of driver and executors: this one, but a cluster may have its own."""
    executors = sys.executable
    if not is_local(master):
        executors = os.environ.get("PYSPARK_PYTHON", sys.executable)
    return {"PYSPARK_PYTHON": executors, "PYSPARK_DRIVER_PYTHON": sys.executable}


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment, which is how Spark is told; put the old ones back."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _new_log_file() -> Path:
    """Return the name of a new log file, and remove the oldest ones beside it."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    folder = Path(state) / "flintmq"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        old = sorted(folder.glob(f"{_LOG_PREFIX}*.log"))
        for path in old[: max(0, len(old) - _LOGS_KEPT + 1)]:
            path.unlink(missing_ok=True)
        handle, name = tempfile.mkstemp(prefix=f"{_LOG_PREFIX}{_now()}-", suffix=".log", dir=folder)
    except OSError:
        # A service may have no home that it can write to.
        handle, name = tempfile.mkstemp(prefix=f"flintmq-{_LOG_PREFIX}", suffix=".log")
    os.close(handle)
    return Path(name)


def _now() -> str:
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
