"""Ctrl-C and SIGTERM in jobs that run as processes of their own, on a terminal."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flintmq.testing.embedded import EmbeddedCluster
from tests.kits.golden.golden_sets import golden_set
from tests.kits.spark.light_spark import light_java, light_python
from tests.kits.spark.live_kit import until

END_S = 180


class Terminal:
    """What a process has written to the terminal that is its stderr."""

    def __init__(self) -> None:
        self._master, self.slave = os.openpty()
        self._written = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        # Linux ends the reading with an error when the last writer is gone.
        while True:
            try:
                part = os.read(self._master, 4096)
            except OSError:
                return
            if not part:
                return
            self._written += part

    @property
    def text(self) -> str:
        return self._written.decode().replace("\r\n", "\n")

    def close(self) -> None:
        self._reader.join(END_S)
        os.close(self._master)


@contextmanager
def job(
    *arguments: str, home: Path, term: str = "dumb"
) -> Iterator[tuple["subprocess.Popen[bytes]", Terminal]]:
    """Run ``flintmq pipeline`` in a process group of its own, as a shell does."""
    terminal = Terminal()
    java = ("--conf", f"spark.driver.extraJavaOptions={light_java()}", "--parallelism", "1")
    process = subprocess.Popen(
        [sys.executable, "-m", "flintmq", "pipeline", *arguments, *java],
        env=os.environ | light_python() | {"XDG_STATE_HOME": str(home), "TERM": term},
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=terminal.slave,
        start_new_session=True,
    )
    os.close(terminal.slave)
    try:
        yield process, terminal
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        terminal.close()


def wait_for(words: str, process: "subprocess.Popen[bytes]", terminal: Terminal) -> None:
    """Wait until a job has said something."""

    def is_said() -> bool:
        is_running = process.poll() is None
        assert is_running or words in terminal.text, "the job has ended"
        return words in terminal.text

    try:
        until(is_said, timeout_s=END_S, pause_s=0.05)
    except AssertionError as error:
        raise AssertionError(f"{words!r} was not said: {terminal.text!r}") from error


def interrupt_after(words: str, process: "subprocess.Popen[bytes]", terminal: Terminal) -> int:
    """Send Ctrl-C to the whole group once the job has said something; return its exit code."""
    wait_for(words, process, terminal)
    os.killpg(process.pid, signal.SIGINT)
    return process.wait(END_S)


ENDLESS = (
    "SELECT count(*) FROM messages a, messages b, messages c, messages d, messages e, messages f"
)


def test_a_batch_that_is_interrupted_says_so_in_one_line(tmp_path: Path) -> None:
    store = str(golden_set("basic").store)
    with job("query", store, ENDLESS, home=tmp_path) as (process, terminal):
        code = interrupt_after("starting Spark", process, terminal)
    assert code == 130, terminal.text
    assert terminal.text.splitlines() == [
        "starting Spark…",
        "interrupted: the job did not come to its end",
    ]


def test_ctrl_c_ends_a_job_whose_tasks_run(tmp_path: Path) -> None:
    store = str(golden_set("basic").store)
    # The bar, which tells that tasks run, needs a terminal that can move its cursor.
    with job("query", store, ENDLESS, home=tmp_path, term="xterm") as (process, terminal):
        code = interrupt_after("query: answering", process, terminal)
    assert code == 130, terminal.text
    assert "Traceback" not in terminal.text, terminal.text
    assert terminal.text.splitlines()[-1].endswith("interrupted: the job did not come to its end")


@pytest.mark.parametrize("to_all", [False, True])
def test_sigterm_ends_a_job_whose_tasks_run_and_nothing_temporary_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to_all: bool
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    store = str(golden_set("basic").store)
    with job("query", store, ENDLESS, home=tmp_path, term="xterm") as (process, terminal):
        wait_for("query: answering", process, terminal)
        assert list(temporary.glob("flintmq-job-*"))
        (os.killpg if to_all else os.kill)(process.pid, signal.SIGTERM)
        assert process.wait(END_S) == 128 + signal.SIGTERM, terminal.text
    assert "Traceback" not in terminal.text, terminal.text
    assert not list(temporary.glob("flintmq-job-*"))


def test_a_stream_that_is_interrupted_has_stopped_well(tmp_path: Path) -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders")
        arguments = ("stream", cluster.namesrv, "--topic", "orders", "--to", "console")
        with job(*arguments, home=tmp_path) as (process, terminal):
            code = interrupt_after("reading from", process, terminal)
    assert code == 0, terminal.text
    said = terminal.text.splitlines()
    assert said[:2] == [
        "starting Spark…",
        "reading from the latest message, so new ones only; Ctrl-C stops",
    ]
    assert said[2].startswith("stopped: ")
    assert len(said) == 3
