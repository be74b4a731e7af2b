"""What the processes below this one have used: Spark's Java process and its Python workers."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
SAMPLE_SECONDS = 0.1


class _Process(NamedTuple):
    number: int
    parent: int
    is_java: bool
    seconds: float
    """Of the process itself and of its children that have ended."""
    own_seconds: float
    is_worker: bool = False
    """Whether a Java process has started it, or the one that has."""


class Usage(NamedTuple):
    """Seconds of processor time so far."""

    java: float
    python: float

    def since(self, before: "Usage") -> "Usage":
        return Usage(self.java - before.java, self.python - before.python)


def _processes() -> Iterator[_Process]:
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            # The name stands in parentheses and may hold anything.
            text = (entry / "stat").read_text()
            name = text[text.index("(") + 1 : text.rindex(")")]
            fields = text.rpartition(")")[2].split()
            own, ended = (sum(map(int, fields[at : at + 2])) / _TICKS for at in (11, 13))
            yield _Process(int(entry.name), int(fields[1]), name == "java", own + ended, own)


def _below() -> list[_Process]:
    every = {process.number: process for process in _processes()}
    found = []
    for process in every.values():
        parent, is_worker = process.parent, False
        while parent in every and parent != os.getpid():
            is_worker |= every[parent].is_java
            parent = every[parent].parent
        if parent == os.getpid():
            found.append(process._replace(is_worker=is_worker))
    return found


def usage() -> Usage:
    """Return what the processes below this one have used."""
    below = _below()
    # The seconds of a Python process that has ended count for Java, which started it.
    return Usage(
        java=sum(process.seconds for process in below if process.is_java),
        python=sum(process.seconds for process in below if not process.is_java),
    )


class TreeWatch:
    """Watches the processes below this one for a while.

    Memory is what Spark's Python workers have of their own: pages of a log are the kernel's, and a
    broker is none of them.  Seconds are summed up by process, since Spark's workers hand theirs to
    nobody when they end.
    """

    def __init__(self) -> None:
        self.peak_mib = 0
        self._before = {process.number: process.own_seconds for process in _below()}
        self._seconds: dict[int, float] = {}
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="tree-watch")

    @property
    def cpu_seconds(self) -> float:
        """Seconds of processor time of all of them, but for the last moment of each."""
        return sum(
            seconds - self._before.get(number, 0) for number, seconds in self._seconds.items()
        )

    def _watch(self) -> None:
        while not self._is_over.wait(SAMPLE_SECONDS):
            for process in _below():
                self._seconds[process.number] = process.own_seconds
                self.peak_mib = max(self.peak_mib, _own_mib(process))

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._watcher.join()


def _own_mib(process: _Process) -> int:
    if process.is_worker:
        with contextlib.suppress(OSError):
            for line in (_PROC / str(process.number) / "status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) // 1024
    return 0
