"""``flintmq serve`` as tests start it: its command line, and the line by which it is ready."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

READY: Final = "ready: namesrv="
SMALL_FILES: Final[Mapping[str, object]] = {
    "mappedFileSizeCommitLog": 4 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
}


class Ready(NamedTuple):
    """Where a group of servers listens."""

    namesrv: str
    brokers: list[str]

    @classmethod
    def parse(cls, line: str) -> "Ready":
        """Return what the line tells that starts with READY."""
        pairs = [word.split("=", 1) for word in line.split()[1:]]
        namesrv = next(value for key, value in pairs if key == "namesrv")
        return cls(namesrv, [value for key, value in pairs if key == "broker"])


def command(*arguments: str) -> list[str]:
    """Return the command line of a ``flintmq`` command."""
    return [sys.executable, "-m", "flintmq", *arguments]


def serve_arguments(
    data: Path,
    *more: str,
    settings: Mapping[str, object] = SMALL_FILES,
    namesrv: str = "",
    broker: str = "",
) -> list[str]:
    """Return how ``data`` is served, on the ports of addresses or on free ones."""
    ports = ("--namesrv-port", _port(namesrv), "--broker-port", _port(broker))
    sets = (f"--set={key}={value}" for key, value in settings.items())
    return ["serve", "--data", str(data), *ports, *sets, *more]


def _port(address: str) -> str:
    """Return the port of an address; of none, that which asks for a free one."""
    return address.rpartition(":")[2] or "0"
