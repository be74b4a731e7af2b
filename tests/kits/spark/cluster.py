"""A real Spark cluster on this machine: one master and some workers, each a process of its own.

The Python of its executors sees the packages that FlintMQ uses, and not FlintMQ: what runs there
was brought by the job.
"""

import os
import re
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.kits.spark.light_spark import light_java

START_SECONDS_MAX = 60
_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_LOOPBACK = "127.0.0.1"


class Daemon:
    """A Java process of the cluster, known by what it says."""

    def __init__(self, class_name: str, *arguments: str, log_directory: Path) -> None:
        environment = _environment_without_us() | {
            "SPARK_LOCAL_IP": _LOOPBACK,
            "SPARK_LOG_DIR": str(log_directory),
            "SPARK_DAEMON_JAVA_OPTS": light_java(),
        }
        self._process = subprocess.Popen(
            [str(_SPARK_CLASS), class_name, "--host", _LOOPBACK, "--webui-port", "0", *arguments],
            env=environment,
            cwd=log_directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A group of its own, so that a worker dies together with its executors.
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return where the process has said something, once it has."""

        def found() -> re.Match[str] | None:
            return next(filter(None, (re.search(pattern, line) for line in self._lines)), None)

        with self._changed:
            match = self._changed.wait_for(found, START_SECONDS_MAX)
            assert match is not None, "".join(self._lines)
        return match

    @property
    def group(self) -> int:
        """The process group: the process, and all that it has started."""
        return self._process.pid

    def kill(self) -> None:
        """End the process and all it has started, at once."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()


class Cluster:
    """A running cluster.  Its workers have one core each."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        master = Daemon(_MASTER, "--port", "0", log_directory=directory)
        stack.callback(master.kill)
        self.url = master.wait_for(r"Starting Spark master at (spark://\S+)")[1]
        self.workers: list[Daemon] = []
        self.python = _python_without_us(directory / "python")

    def add_workers(self, count: int) -> None:
        """Start workers, and return when the master knows them."""
        new = []
        for number in range(len(self.workers), len(self.workers) + count):
            work = self._directory / f"worker-{number}"
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
            worker = Daemon(_WORKER, *size, self.url, log_directory=self._directory)
            self._stack.callback(worker.kill)
            new.append(worker)
        self.workers += new
        for worker in new:
            worker.wait_for("Successfully registered with master")


@contextmanager
def spark_cluster(directory: Path, *, worker_count: int = 2) -> Iterator[Cluster]:
    """Start a cluster, and end it."""
    with ExitStack() as stack:
        cluster = Cluster(directory, stack)
        cluster.add_workers(worker_count)
        yield cluster


def _python_without_us(directory: Path) -> Path:
    """Make a Python that has the installed packages of this one, but not FlintMQ.

    FlintMQ is installed by a ``.pth`` file beside the packages.  Such files are followed only in
    the directories of the environment itself, not in one that another such file names.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    packages = directory / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    own = packages / "site-packages" / "packages.pth"
    own.write_text(sysconfig.get_path("purelib") + "\n")
    python = directory / "bin" / "python"
    subprocess.run([python, "-c", "import pyspark, pyarrow"], check=True, cwd=directory)
    unknown = subprocess.run(
        [python, "-c", "import flintmq"],
        env=_environment_without_us(),
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'flintmq'" in unknown.stderr
    return python


def _environment_without_us() -> dict[str, str]:
    """Return the environment without the path on which sources may be found."""
    return {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
