"""What a process has loaded that plans a query: it is started for it, and loading is what it does.

No clock is read here.  A module that is not needed is named, with those it brings.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.kits.store.offline_stores import make_store

IMPORTED: Final = """
import sys
from flintmq.spark.source import FlintSource, load_readers
"""
PLANNED: Final = """
import pickle
source = FlintSource({"path": PATH, "topic": "orders"})
reader = source.reader(source.schema())
splits = reader.partitions()
assert splits
pickle.dumps((reader, splits))
"""
READ: Final = """
rows = sum(batch.num_rows for split in splits for batch in reader.read(split))
assert rows
"""
OTHERS: Final = """
for name in ("queues", "index", "offsets", "topics", "groups"):
    table = FlintSource({"path": PATH, "source": name})
    table_reader = table.reader(table.schema())
    for split in table_reader.partitions():
        list(table_reader.read(split))
stream = FlintSource({"path": PATH})
stream_reader = stream.streamReader(stream.schema())
stream_reader.initialOffset()
live = FlintSource({"namesrv": "127.0.0.1:1", "subscribe": "orders"})
live.reader(live.schema())
live.streamReader(live.schema())
"""
REPORT: Final = """
print("loaded:", *sys.modules)
"""

NEEDLESS: Final = frozenset(
    {
        # For what is read, not for what is planned
        "numba",
        "llvmlite",
        "flintmq.kernels.compiled",
        "flintmq.spark.rows.row_batches",
        "flintmq.spark.stored.split_scan",
        "pyarrow.compute",
        # For live topics
        "asyncio",
        "ssl",
        "flintmq.client",
        "flintmq.remoting",
        "flintmq.spark.live.live_options",
        "flintmq.spark.live.live_reader",
        # For other tables, for streams and for writing
        "flintmq.spark.stored.log_stream",
        "flintmq.spark.stored.tables",
        "flintmq.spark.sink",
        # For trying a start
        "flintmq.store.message_store",
        # Nobody's need
        "pandas",
    }
)


def loaded_by(*steps: str, store: Path | None = None) -> list[frozenset[str]]:
    """Return the modules that a process has loaded at each report."""
    program = f"PATH = {str(store)!r}\n" + "".join(steps)
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True
    )
    lines = done.stdout.splitlines()
    return [frozenset(line.split()[1:]) for line in lines if line.startswith("loaded: ")]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("light") / "store", 100)


def test_the_source_is_loaded_without_what_reads() -> None:
    (loaded,) = loaded_by(IMPORTED, REPORT)
    assert "flintmq.spark.source" in loaded
    needless = NEEDLESS | {"flintmq.offline", "flintmq.store", "flintmq.kernels", "flintmq.format"}
    assert loaded & needless == set()


def test_a_scan_of_a_store_is_planned_without_what_reads(store: Path) -> None:
    (loaded,) = loaded_by(IMPORTED, PLANNED, REPORT, store=store)
    assert "flintmq.spark.stored.log_reader" in loaded
    assert loaded & NEEDLESS == set()


def test_a_module_that_was_loaded_is_seen(store: Path) -> None:
    (loaded,) = loaded_by(IMPORTED, PLANNED, READ, REPORT, store=store)
    assert {"numba", "flintmq.kernels.compiled"} <= loaded


def test_workers_that_were_forked_load_nothing_more(store: Path) -> None:
    """A task would load it anew each time."""
    steps = ("load_readers()\n", REPORT, PLANNED, READ, OTHERS, REPORT)
    before, after = loaded_by(IMPORTED, *steps, store=store)
    assert "flintmq.spark.sink.writer" in before
    assert {name for name in after - before if name.startswith("flintmq.")} == set()
