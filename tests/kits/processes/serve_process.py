"""``flintmq serve`` and its parts as real processes."""

import contextlib
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from flintmq.broker.turn_watchdog import LOG_START
from tests.kits.processes.serve_command import READY, SMALL_FILES, Ready, command, serve_arguments

_LONG_TURN: Final = re.compile(rf"{LOG_START}: .* ms=(\d+)")
_said: Final[list[str]] = []
"""What all processes so far have said of turns of their loops that took long."""

START_TIMEOUT_S: Final = 60
END_TIMEOUT_S: Final = 60


def take_long_turns(ms: int) -> list[str]:
    """Return what processes have said, since the last call, of turns of at least ``ms``."""
    lines, _said[:] = list(_said), []
    found = [(line, _LONG_TURN.search(line)) for line in lines]
    return [line for line, match in found if match is not None and int(match[1]) >= ms]


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def complaints(self) -> list[str]:
        """What it said to the user, without the log."""
        return [line for line in self.err.splitlines() if line.startswith("flintmq: ")]


class ServeProcess:
    """A ``flintmq`` command that runs until it is stopped."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._out: list[str] = []
        self._err: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_out, daemon=True),
            threading.Thread(target=self._read_err, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_out(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._out.append(line)
            self._lines.put(line)
        self._lines.put(None)

    def _read_err(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._err.append(line)
            if LOG_START in line:
                _said.append(line)

    def wait_for(self, start: str) -> str:
        """Return the first line of output that starts so."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            line = self._lines.get(timeout=max(deadline - time.monotonic(), 0))
            assert line is not None, f"ended too early:\n{''.join(self._err)}"
            if line.startswith(start):
                return line.rstrip("\n")

    def has_logged(self, text: str) -> bool:
        """Return whether some line of the log so far has a text."""
        return any(text in line for line in self._err)

    def stop(self) -> Ended:
        """Ask the process to stop, and tell how it did."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> Ended:
        """Wait for the end of the process."""
        code = self.process.wait(END_TIMEOUT_S)
        for reader in self._readers:
            reader.join(END_TIMEOUT_S)
        return Ended(code, "".join(self._out), "".join(self._err))

    def close(self) -> None:
        """Leave nothing behind."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join(END_TIMEOUT_S)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


class Group:
    """A running ``flintmq serve``."""

    def __init__(self, process: ServeProcess) -> None:
        self.serve = process
        self.ready_line = process.wait_for(READY)
        self.namesrv, self.brokers = Ready.parse(self.ready_line)
        words = [word.split("=", 1) for word in self.ready_line.split() if "=" in word]
        self.slaves = [value for key, value in words if key == "slave"]

    @property
    def pid(self) -> int:
        return self.serve.process.pid

    def stop(self) -> Ended:
        return self.serve.stop()


@contextlib.contextmanager
def serving(data: Path, *arguments: str, small: bool = True) -> Iterator[Group]:
    """Run a group on free ports until the context ends."""
    files = SMALL_FILES if small else {}
    process = ServeProcess(*serve_arguments(data, *arguments, settings=files))
    try:
        yield Group(process)
    finally:
        process.close()


def run(*arguments: str) -> Ended:
    """Run a command to its end."""
    done = subprocess.run(
        command(*arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=END_TIMEOUT_S,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)
