"""A client program in a process of its own that tells facts as JSON, one object a line."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

WAIT_TIMEOUT_S: Final = 120
_LOOK_AGAIN_S: Final = 1

Line = dict[str, Any]


class LineProcess:
    """A program whose lines can be read while it runs; leaving the context kills it."""

    def __init__(
        self,
        command: list[str],
        *,
        home: Path,
        environment: Mapping[str, str] | None = None,
        sink: list[Line] | None = None,
    ) -> None:
        """``sink`` gets the lines too; several programs may share one."""
        home.mkdir(exist_ok=True)
        self._command = command
        # Clients keep logs and offsets in the home directory.
        self._environment = os.environ | {"HOME": str(home)} | dict(environment or {})
        self._errors = home / f"errors-{time.monotonic_ns()}.txt"
        self._news = threading.Condition()
        self._sink = sink
        self.lines: list[Line] = []

    def __enter__(self) -> Self:
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self._environment,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def all(self, kind: str, **wanted: object) -> list[Line]:
        """Return the lines of a kind that say what is wanted."""
        return [
            line
            for line in list(self.lines)
            if line["kind"] == kind and all(line.get(key) == it for key, it in wanted.items())
        ]

    def wait_for(self, kind: str, count: int = 1, **wanted: object) -> list[Line]:
        """Wait until there are so many such lines, and return them."""
        self.wait_until(lambda: len(self.all(kind, **wanted)) >= count, f"{count} x {kind}")
        return self.all(kind, **wanted)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the lines are as wanted."""
        deadline = time.monotonic() + WAIT_TIMEOUT_S
        with self._news:
            while not condition():
                if not self._reader.is_alive():
                    raise AssertionError(f"ended before {what}: {self._said()}")
                if time.monotonic() > deadline:
                    raise AssertionError(f"waited too long for {what}: {self._said()}")
                self._news.wait(_LOOK_AGAIN_S)

    def kill(self) -> None:
        """End the program by SIGKILL; what it has told is kept."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def signal(self, number: int) -> None:
        """Send the program a signal."""
        self._process.send_signal(number)

    def end_input(self) -> None:
        """Let the program find the end of its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            # Libraries may print something of their own in between.
            if text.startswith("{"):
                with self._news:
                    self.lines.append(json.loads(text))
                    if self._sink is not None:
                        self._sink.append(self.lines[-1])
                    self._news.notify_all()

    def _said(self) -> str:
        return f"{self.lines[-3:]}\n{self._errors.read_text()[-4000:]}"
