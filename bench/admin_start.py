"""How long ``flintmq admin`` takes: to show its help, to load a command, to ask a cluster.

``python -m bench.admin_start`` prints medians; nothing is asserted.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from flintmq.testing import EmbeddedCluster


def seconds_of(arguments: Sequence[str], rounds: int) -> float:
    """Return the median of how long a command takes; the first round warms the files up."""
    samples = []
    for number in range(rounds + 1):
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "flintmq", "admin", *arguments],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        if number:
            samples.append(time.perf_counter() - began)
    return statistics.median(samples)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    table = Table("command", "median of seconds", title=f"flintmq admin, {rounds} rounds")
    with EmbeddedCluster() as cluster:
        for arguments in (
            ("--help",),
            ("topicList", "--help"),
            ("-n", cluster.namesrv, "topicList"),
            ("-n", cluster.namesrv, "doctor"),
        ):
            shown = " ".join(one for one in arguments if one != cluster.namesrv)
            table.add_row(shown, f"{seconds_of(arguments, rounds):.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
