"""What the processes below this one have used: Spark's Java process and its Python workers."""

import contextlib
import os
import resource
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


class Usage(NamedTuple):
    """Seconds of processor time so far."""

    java: float
    python: float
    ended: float
    """Of processes that this one has started and seen end, and of theirs."""

    def since(self, before: "Usage") -> "Usage":
        return Usage(
            self.java - before.java, self.python - before.python, self.ended - before.ended
        )


def _processes() -> Iterator[_Process]:
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            # The name stands in parentheses and may hold anything.
            text = (entry / "stat").read_text()
            name = text[text.index("(") + 1 : text.rindex(")")]
            fields = text.rpartition(")")[2].split()
            seconds = sum(map(int, fields[11:15])) / _TICKS
            yield _Process(int(entry.name), int(fields[1]), name == "java", seconds)


def _below() -> list[_Process]:
    every = {process.number: process for process in _processes()}
    found = []
    for process in every.values():
        parent = process.parent
        while parent in every and parent != os.getpid():
            parent = every[parent].parent
        if parent == os.getpid():
            found.append(process)
    return found


def usage() -> Usage:
    """Return what all processes below this one have used, those that have ended too."""
    below = _below()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    # The seconds of a Python process that has ended count for Java, which started it.
    return Usage(
        java=sum(process.seconds for process in below if process.is_java),
        python=sum(process.seconds for process in below if not process.is_java),
        ended=ended.ru_utime + ended.ru_stime,
    )


class PeakMemory:
    """Watches the memory of Python workers that is their own: pages of a log are the kernel's."""

    def __init__(self) -> None:
        self.mib = 0
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="peak-memory")

    def _watch(self) -> None:
        while not self._is_over.wait(SAMPLE_SECONDS):
            self.mib = max([self.mib, *map(_own_mib, _below())])

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._watcher.join()


def _own_mib(process: _Process) -> int:
    if not process.is_java:
        with contextlib.suppress(OSError):
            for line in (_PROC / str(process.number) / "status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) // 1024
    return 0
