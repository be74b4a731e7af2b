"""What is measured during a run: memory and descriptors of the servers, and how long sends take."""

import contextlib
import time
from collections import defaultdict
from pathlib import Path
from typing import Final, NamedTuple

BUCKET_SECONDS: Final = 10


class Sample(NamedTuple):
    """What a process used at one time."""

    second: float
    """Since the run began."""
    own_mib: float
    """Memory that no file stands behind: pages of the store are the kernel's."""
    descriptor_count: int


class Latency(NamedTuple):
    """How long the sends of one bucket took, in milliseconds."""

    second: float
    """Where the bucket begins, since the run began."""
    sent_count: int
    failed_count: int
    p50_ms: float
    p99_ms: float
    worst_ms: float

    @property
    def middle(self) -> float:
        """The time for which the bucket stands."""
        return self.second + BUCKET_SECONDS / 2


class Fault(NamedTuple):
    """Something that was done to the servers."""

    kind: str
    begin: float
    end: float
    note: str = ""


class Measures:
    """Collects samples; all times are seconds since the run began."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.began_at = time.time()
        self.samples: dict[str, list[Sample]] = defaultdict(list)
        self.faults: list[Fault] = []
        self._sends: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._failures: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def sample(self, name: str, pid: int | None) -> None:
        """Look at a process; one that is gone has no sample."""
        with contextlib.suppress(OSError):
            if pid is not None:
                self.samples[name].append(
                    Sample(self.now(), _own_mib(pid), len(list(Path(f"/proc/{pid}/fd").iterdir())))
                )

    def sent(self, who: str, seconds: float) -> None:
        """Note a send that was acknowledged after so long."""
        self._sends[who][int(self.now() // BUCKET_SECONDS)].append(seconds * 1000)

    def send_failed(self, who: str) -> None:
        """Note a send that was not acknowledged."""
        self._failures[who][int(self.now() // BUCKET_SECONDS)] += 1

    def latencies(self, who: str) -> list[Latency]:
        """Return one entry for each bucket with a send."""
        found = []
        for bucket in sorted(self._sends[who].keys() | self._failures[who].keys()):
            times = sorted(self._sends[who][bucket])
            found.append(
                Latency(
                    bucket * BUCKET_SECONDS,
                    len(times),
                    self._failures[who][bucket],
                    percentile(times, 0.5),
                    percentile(times, 0.99),
                    times[-1] if times else 0,
                )
            )
        return found

    def all_times(self, who: str) -> list[float]:
        """Return how long all sends took, in milliseconds, ascending."""
        return sorted(one for times in self._sends[who].values() for one in times)


def percentile(ascending: list[float], share: float) -> float:
    """Return the value below which a share of the values lies; 0 if there are none."""
    if not ascending:
        return 0
    return ascending[min(len(ascending) - 1, int(len(ascending) * share))]


def _own_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise OSError("no RssAnon: the process has ended")
