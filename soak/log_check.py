"""Reads the logs of servers: errors that nobody expected, and turns of the loop that took long."""

import datetime
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from flintmq.broker.turn_watchdog import LOG_START

LONG_TURN_MS: Final = 1000
_LINE: Final = re.compile(r"(\d{4}-\d\d-\d\dT[\d:.]+) (\w+) (\S+): (.*)")
_LONG_TURN: Final = re.compile(rf"{LOG_START}: cause=(.*) ms=(\d+)")
_TRACEBACK: Final = "Traceback (most recent call last)"
_DISK_FULL: Final = re.compile(r"no room|disk full|No space left|disk is full", re.IGNORECASE)
_SLACK_S: Final = {"stop": 2.0, "full disk": 15.0}
"""How long after a fault its consequences may still be logged: disks are measured every 10 s."""


class Window(NamedTuple):
    """A time in seconds since 1970 during which something is to be expected."""

    kind: str
    begin: float
    end: float


class LogFinding(NamedTuple):
    """Something in a log that should not be there."""

    kind: str
    text: str


def check_log(path: Path, windows: Sequence[Window]) -> Iterable[LogFinding]:
    """Yield what a server has logged that its faults do not explain."""
    last = ""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            found = _LINE.match(line)
            if found is None:
                if _TRACEBACK in line:
                    yield LogFinding("traceback", f"{path.name}: after: {last}")
                continue
            last = line.strip()
            at = datetime.datetime.fromisoformat(found[1]).timestamp()
            long_turn = _LONG_TURN.search(line)
            if long_turn is not None:
                seconds = int(long_turn[2]) / 1000
                if seconds * 1000 >= LONG_TURN_MS and not _was(windows, "stop", at - seconds, at):
                    yield LogFinding("turn over one second", f"{path.name}: {last}")
            elif found[2] in ("ERROR", "CRITICAL"):
                is_expected = _DISK_FULL.search(line) and _was(windows, "full disk", at, at)
                if not is_expected:
                    yield LogFinding("error in a log", f"{path.name}: {last}")


def _was(windows: Sequence[Window], kind: str, begin: float, end: float) -> bool:
    return any(
        window.kind == kind and window.begin <= end and begin <= window.end + _SLACK_S[kind]
        for window in windows
    )
