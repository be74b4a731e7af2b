"""Sends beside a consumer that reads what is not in memory: ``make bench-cold``.

A broker is filled and stopped, and its files leave the page cache.  Then sends are measured three
ways in turn: alone, beside a reader of what the page cache has, and beside a reader of what only
the disk has, both as fast as they can.  The second shows what a reader costs at all, the third what
the disk adds.  Prints a table with the p99 of each round.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from bench.broker_load import GoLoad, Loaded, Sending
from bench.broker_servers import Server, our_server

OLD_TOPIC: Final = "ColdTopic"
NEW_TOPIC: Final = "BenchTopic"
FILLING: Final = Sending(1024, 4, 8, 32)
SENDING: Final = Sending(1024, 16, 1)
WARM_SECONDS: Final = 4.0
ALONE, WARM, COLD = "alone", "beside a reader from memory", "beside a reader from the disk"


class Beside(NamedTuple):
    """What was measured in one round of one way."""

    sends: Loaded
    reads: float
    """Messages a second that the reader got."""


def forget_pages(store: Path) -> None:
    """Have the kernel drop what the page cache has of a store that no process has open."""
    os.sync()
    for path in store.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def fill(work: Path, load: GoLoad, seconds: float) -> None:
    """Store messages for a while."""
    with our_server(work) as server:
        load.send(server.address, OLD_TOPIC, FILLING, seconds)


def measure(server: Server, load: GoLoad, seconds: float, *, has_reader: bool) -> Beside:
    """Send for a while, with a reader beside it or without."""
    if not has_reader:
        return Beside(load.send(server.address, NEW_TOPIC, SENDING, seconds), 0)
    with ThreadPoolExecutor(1) as pool:
        # It begins before the sends and ends after them.
        reads = pool.submit(load.pull, server.address, OLD_TOPIC, seconds + 1)
        sends = load.send(server.address, NEW_TOPIC, SENDING, seconds)
        return Beside(sends, reads.result().per_second)


def rounds_of(
    work: Path, load: GoLoad, rounds: int, seconds: float
) -> Iterator[tuple[str, Beside]]:
    """Measure all three ways, round by round; each time with a broker that has read nothing."""
    for number in range(rounds):
        ways = (ALONE, WARM, COLD) if number % 2 == 0 else (COLD, WARM, ALONE)
        for way in ways:
            forget_pages(work / "data")
            with our_server(work) as server:
                load.send(server.address, NEW_TOPIC, SENDING, WARM_SECONDS)
                if way is WARM:
                    load.pull(server.address, OLD_TOPIC, seconds)
                yield way, measure(server, load, seconds, has_reader=way is not ALONE)


def table_of(found: dict[str, list[Beside]]) -> Table:
    """Return the medians, and the p99 of each round."""
    table = Table("sends of 1 KiB, 16 x 1", "a second", "p50, µs", "p99, µs", "to alone", "reads")
    alone = statistics.median(one.sends.p99_us for one in found[ALONE])
    for way, rounds in found.items():
        p99 = statistics.median(one.sends.p99_us for one in rounds)
        each = ", ".join(f"{one.sends.p99_us:,.0f}" for one in rounds)
        table.add_row(
            way,
            f"{statistics.median(one.sends.per_second for one in rounds):,.0f}",
            f"{statistics.median(one.sends.p50_us for one in rounds):,.0f}",
            f"{p99:,.0f} ({each})",
            f"{p99 / alone:.2f}",
            f"{statistics.median(one.reads for one in rounds):,.0f}",
        )
    return table


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fill", type=float, default=20, help="seconds of filling (20)")
    parser.add_argument("--seconds", type=float, default=3, help="of each sample (3)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="on the disk that is to be measured")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flintmq-cold-", dir=options.directory) as name:
        work = Path(name)
        load = GoLoad(work)
        fill(work, load, options.fill)
        size = sum(one.stat().st_size for one in (work / "data").rglob("commitlog/*"))
        found: dict[str, list[Beside]] = {ALONE: [], WARM: [], COLD: []}
        for way, beside in rounds_of(work, load, options.rounds, options.seconds):
            found[way].append(beside)
    console = Console(width=160)
    console.print(f"{size / (1 << 30):.1f} GiB of old messages")
    console.print(table_of(found))


if __name__ == "__main__":
    main()
