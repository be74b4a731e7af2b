"""A Java server as a child process: started until it says so, stopped for certain."""

import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

BOOT_TIMEOUT_S: Final = 60
STOP_TIMEOUT_S: Final = 30
LOG_TAIL_SIZE: Final = 6000


class JavaProcessError(AssertionError):
    """A Java process ended, or did not get ready, before its time."""


class JavaProcess:
    """One server process in a group of its own; its output goes to ``log``."""

    @classmethod
    def until(cls, text: str, command: list[str], *, log: Path) -> tuple[Self, str]:
        """Start a process, and wait for a line that holds ``text``; return both."""
        process = cls(command, log=log, environment={})
        process.__enter__()
        try:
            return process, process.wait_for(text)
        except BaseException:
            process.kill()
            raise

    def __init__(self, command: list[str], *, log: Path, environment: dict[str, str]) -> None:
        self._command = command
        self._log = log
        self._environment = environment
        self._is_over = False
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            env=os.environ | self._environment,
        )
        self._reader = threading.Thread(target=self._copy_output, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def wait_for(self, text: str, *, timeout_s: float = BOOT_TIMEOUT_S) -> str:
        """Wait until a line of output holds ``text``; return that line."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                raise self._failure(f"did not say {text!r} within {timeout_s} s") from None
            if line is None:
                raise self._failure(f"ended before it said {text!r}")
            if text in line:
                return line

    def stop(self) -> None:
        """Let the process shut down in order; kill what is still there after the time-out."""
        if self._is_over:
            return
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise self._failure(f"did not stop within {STOP_TIMEOUT_S} s") from None
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process at once: no shutdown hook runs."""
        if self._is_over:
            return
        self._is_over = True
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _copy_output(self) -> None:
        assert self._process.stdout is not None
        with self._log.open("w") as log:
            for line in self._process.stdout:
                log.write(line)
                log.flush()
                self._lines.put(line)
        self._lines.put(None)

    def _failure(self, reason: str) -> JavaProcessError:
        tail = self._log.read_text()[-LOG_TAIL_SIZE:] if self._log.exists() else ""
        return JavaProcessError(f"{self._log.stem} {reason}; its output ends:\n{tail}")
