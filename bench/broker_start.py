"""How long a broker takes from its command to the line that says that clients can connect."""

import shutil
import statistics
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, TypeAlias

from bench.broker_servers import Server

Start: TypeAlias = Callable[[Path], AbstractContextManager[Server]]


class Started(NamedTuple):
    """The medians of the starts of one server."""

    seconds: float
    cpu_seconds: float


def measure_starts(servers: Mapping[str, Start], work: Path, *, rounds: int) -> dict[str, Started]:
    """Start the servers in turn, each time with an empty store.

    One start of each comes before those that count: an installed package has its modules
    compiled, and both find their files in memory.
    """
    samples: dict[str, list[Started]] = {name: [] for name in servers}
    for number in range(rounds + 1):
        # Whoever comes first in one round comes last in the next.
        order = list(servers) if number % 2 == 0 else list(servers)[::-1]
        for name in order:
            store = work / "start"
            with servers[name](store) as server:
                sample = Started(server.start_seconds, server.cpu_seconds())
            shutil.rmtree(store)
            if number > 0:
                samples[name].append(sample)
    return {name: _median(starts) for name, starts in samples.items()}


def _median(starts: list[Started]) -> Started:
    return Started(
        statistics.median(start.seconds for start in starts),
        statistics.median(start.cpu_seconds for start in starts),
    )
