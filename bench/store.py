"""Benchmarks of the store: ``make bench``.  Prints a table, and writes JSON where asked.

Each rate is given against the wall clock and against the processor time of this process; the
second says what one core does when nobody else wants it.
"""

import argparse
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from bench.workload import (
    HOST,
    QUEUE_COUNT,
    TOPIC,
    Rate,
    batch,
    measure,
    message,
    sends_of,
    sends_of_batches,
)
from flintmq.format.delay_levels import DelayLevels
from flintmq.offline.layout import find_store
from flintmq.offline.rebuild import rebuild
from flintmq.offline.verify.store_verify import verify
from flintmq.store.append_group.sends import Sends
from flintmq.store.appending.group_appender import NotAppended
from flintmq.store.config import StoreConfig
from flintmq.store.message_store import MessageStore
from flintmq.store.results import PutResult

_Put = TypeVar("_Put")

BATCH_SIZE = 32
GROUP_COUNT = 64
BATCH_GROUP_COUNT = 16
READ_COUNT = 32


def bench_put(root: Path, body_size: int, count: int, *, aim: int) -> Rate:
    """Put single messages with two keys each; dispatch included."""
    messages = [message(number, bytes(body_size)) for number in range(count)]
    with MessageStore.open(StoreConfig(root=root)) as store:

        def work() -> int:
            for one in messages:
                store.put(one)
            store.dispatch()
            return count

        return measure(f"put of {body_size} B, two keys", work, aim=aim)


def bench_batches(root: Path, body_size: int, count: int, *, aim: int) -> Rate:
    """Put batches; dispatch included."""
    batches = [batch(number, bytes(body_size), BATCH_SIZE) for number in range(count // BATCH_SIZE)]
    with MessageStore.open(StoreConfig(root=root)) as store:

        def work() -> int:
            for one in batches:
                store.put_batch(one)
            store.dispatch()
            return len(batches) * BATCH_SIZE

        return measure(f"put in batches of {BATCH_SIZE}, {body_size} B", work, aim=aim)


def bench_groups(root: Path, body_size: int, count: int, *, aim: int) -> Rate:
    """Put single messages as a broker does that gets many in one read."""
    messages = [message(number, bytes(body_size)) for number in range(count)]
    name = f"put of {body_size} B, two keys, in groups of {GROUP_COUNT}"
    with MessageStore.open(StoreConfig(root=root, machine_code=False)) as store:
        return _bench_groups(store, messages, sends_of, store.put, GROUP_COUNT, name, aim=aim)


def bench_batch_groups(root: Path, body_size: int, count: int, *, aim: int) -> Rate:
    """Put batches as a broker does that gets several in one read."""
    batches = [batch(number, bytes(body_size), BATCH_SIZE) for number in range(count // BATCH_SIZE)]
    name = f"put in batches of {BATCH_SIZE}, {body_size} B, in groups of {BATCH_GROUP_COUNT}"
    with MessageStore.open(StoreConfig(root=root, machine_code=False)) as store:
        return _bench_groups(
            store, batches, sends_of_batches, store.put_batch, BATCH_GROUP_COUNT, name, aim=aim
        )


def _bench_groups(
    store: MessageStore,
    puts: Sequence[_Put],
    prepare: Callable[[Sequence[_Put]], Sends],
    put: Callable[[_Put], PutResult],
    group_count: int,
    name: str,
    *,
    aim: int,
) -> Rate:
    groups = [
        (puts[at : at + group_count], prepare(puts[at : at + group_count]))
        for at in range(0, len(puts), group_count)
    ]

    def work() -> int:
        for singles, together in groups:
            if isinstance(store.append_group(together, HOST), NotAppended):
                # As a broker: where something is not plain, they go one by one.
                for one in singles:
                    put(one)
                store.dispatch()
        return store.statistics.put_count

    return measure(name, work, aim=aim)


def bench_reads(root: Path, *, aim: int) -> Rate:
    """Read every queue of the store from end to end."""
    with MessageStore.open(StoreConfig(root=root)) as store:

        def work() -> int:
            count = 0
            for queue_id in range(QUEUE_COUNT):
                offset = 0
                while True:
                    result = store.get_messages(TOPIC, queue_id, offset, READ_COUNT)
                    assert result is not None
                    if not result.messages:
                        break
                    count += len(result.messages)
                    offset = result.next_begin_offset
                    result.release()
            return count

        work()  # The pages are in memory afterwards, as those of a live topic are.
        return measure(f"get_messages of {READ_COUNT}", work, aim=aim)


def bench_recovery(root: Path, *, aim: int) -> Rate:
    """Start after a crash that left the log alone: check every record, build queues and index."""
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    (root / "checkpoint").unlink()
    (root / "abort").touch()

    def work() -> int:
        with MessageStore.open(StoreConfig(root=root)) as store:
            return store.recovery_report.records_scanned

    return measure("recovery with queues and index lost", work, aim=aim)


def bench_verify(root: Path, *, aim: int) -> Rate:
    """Verify log, queues and index."""

    def work() -> int:
        report = verify(find_store(root), delay_levels=_levels(root))
        assert report.is_sound, report
        return report.record_count

    return measure("verify log, queues and index", work, aim=aim)


def bench_rebuild(root: Path, output: Path, *, aim: int) -> Rate:
    """Rebuild queues and index beside the store."""

    def work() -> int:
        layout = find_store(root)
        report = rebuild(layout, output, queues=True, index=True, delay_levels=_levels(root))
        return report.record_count

    return measure("rebuild of queues and index", work, aim=aim)


def _levels(root: Path) -> DelayLevels:
    return DelayLevels.parse(StoreConfig(root=root).delay_levels)


def run(scale: int, progress: Callable[[str], None]) -> list[Rate]:
    """Run everything in a temporary directory; ``scale`` is the number of messages."""
    rates = []
    with tempfile.TemporaryDirectory(prefix="flintmq-bench-") as name:
        work = Path(name)
        steps: list[Callable[[], Rate]] = [
            lambda: bench_put(work / "a", 128, scale, aim=100_000),
            lambda: bench_put(work / "b", 1024, scale // 2, aim=0),
            lambda: bench_batches(work / "c", 128, scale, aim=300_000),
            lambda: bench_groups(work / "d", 128, scale, aim=0),
            lambda: bench_batch_groups(work / "e", 128, scale, aim=0),
            lambda: bench_reads(work / "a", aim=1_000_000),
            lambda: bench_verify(work / "a", aim=0),
            lambda: bench_rebuild(work / "a", work / "rebuilt", aim=0),
            lambda: bench_recovery(work / "a", aim=1_000_000),
        ]
        for step in steps:
            rate = step()
            progress(f"{rate.name}: {rate.per_second:,.0f}/s")
            rates.append(rate)
    return rates


def _table(rates: list[Rate]) -> Table:
    table = Table(title=f"store, Python {platform.python_version()}, {os.cpu_count()} cores")
    table.add_column("what")
    for heading in ("count", "per second", "per second of one core", "aim"):
        table.add_column(heading, justify="right")
    for rate in rates:
        table.add_row(
            rate.name,
            f"{rate.done:,}",
            f"{rate.per_second:,.0f}",
            f"{rate.per_cpu_second:,.0f}",
            f"{rate.aim:,}" if rate.aim else "",
        )
    return table


def main() -> None:
    """Run the benchmarks as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200_000, help="messages (default: 200,000)")
    parser.add_argument("--json", type=Path, help="also write the rates to this file")
    options = parser.parse_args()
    console, errors = Console(), Console(stderr=True)
    rates = run(options.count, errors.print)
    console.print(_table(rates))
    if options.json is not None:
        rows = [
            rate._asdict() | {"per_second": rate.per_second, "per_cpu_second": rate.per_cpu_second}
            for rate in rates
        ]
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
