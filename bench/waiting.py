"""Messages that wait for the time they name: ``make bench-waiting``.

It puts so many messages whose times lie within an hour, opens the store again, and delivers some of
them.  Beside each rate stands the private memory of the process: mapped files, which the kernel
takes back when it needs the room, are not in it.
"""

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.workload import HOST
from flintmq.model.message import PutMessage
from flintmq.model.property_names import DELIVER_AT, UNIQ_KEY
from flintmq.store.clock import SystemClock
from flintmq.store.config import StoreConfig
from flintmq.store.message_store import MessageStore

SPAN_MS: Final = 3_600_000
BODY: Final = bytes(100)
DISPATCH_EVERY: Final = 1000


class TurnedClock(SystemClock):
    """The clock of the machine, set forward by hand."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        """Return the wall clock, set forward."""
        return super().now_ms() + self.ahead_ms


def private_memory() -> int:
    """Return the bytes of memory that are this process's own."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise OSError("the kernel does not tell the private memory of a process")


class Rows:
    """The table of results."""

    def __init__(self) -> None:
        self.table = Table("what", "messages", "seconds", "a second", "private memory")
        self._memory_before = private_memory()

    @contextmanager
    def row(self, name: str, count: int) -> Iterator[None]:
        """Measure the block and add its row."""
        began = time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        more = (private_memory() - self._memory_before) / (1 << 20)
        self.table.add_row(
            name, f"{count:,}", f"{seconds:.1f}", f"{count / seconds:,.0f}", f"+{more:.0f} MiB"
        )


def put_all(store: MessageStore, count: int, first_due_ms: int) -> None:
    """Put messages whose times are spread over the span."""
    rng = random.Random(1)
    for number in range(count):
        due_ms = first_due_ms + rng.randrange(SPAN_MS)
        properties = {UNIQ_KEY: f"{number:032X}", DELIVER_AT: str(due_ms)}
        message = PutMessage(
            topic="reminders",
            queue_id=0,
            body=BODY,
            properties=properties,
            born_host=HOST,
            store_host=HOST,
        )
        result = store.put(message)
        assert result.ok, result.reason
        if number % DISPATCH_EVERY == 0:
            store.dispatch()
            store.waiting.step()


def read_all(store: MessageStore) -> None:
    """Find out what is due next, as a broker does in steps."""
    while store.waiting.step():
        pass


def run(root: Path, count: int, deliver_count: int) -> Table:
    """Measure and return the table."""
    rows, clock = Rows(), TurnedClock()
    config = StoreConfig(root=root)
    first_due_ms = clock.now_ms() + SPAN_MS
    with MessageStore.open(config, clock=clock) as store:
        with rows.row("put, each with a time", count):
            put_all(store, count, first_due_ms)
            read_all(store)
        assert store.waiting.waiting_count == count
    with MessageStore.open(config, clock=clock) as store:
        with rows.row("found again after a restart", count):
            read_all(store)
        assert store.waiting.waiting_count == count
        clock.ahead_ms = 2 * SPAN_MS + (first_due_ms - clock.now_ms())
        with rows.row("delivered, all are due", deliver_count):
            while store.waiting.delivered_count < deliver_count:
                assert store.waiting.step()
    return rows.table


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--deliver", type=int, default=200_000)
    parser.add_argument("--directory", type=Path, default=None)
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="flintmq-waiting-", dir=given.directory))
    try:
        Console().print(run(root, given.count, min(given.deliver, given.count)))
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
