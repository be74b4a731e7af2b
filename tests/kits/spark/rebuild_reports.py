"""Rebuild reports of Spark and of the serial tool compared."""

from pathlib import Path

from flintmq.offline import find_store
from flintmq.offline.layout import SizeOptions
from flintmq.offline.rebuild import RebuildReport as SerialReport
from flintmq.offline.rebuild import rebuild as rebuild_serially
from flintmq.spark.jobs.rebuild.parallel_rebuild import ParallelRebuildReport
from tests.kits.store.offline_stores import LEVELS


def serially(store: Path, output: Path, sizes: SizeOptions | None = None) -> SerialReport:
    layout = find_store(store, sizes=sizes)
    return rebuild_serially(layout, output, queues=True, index=True, delay_levels=LEVELS)


def assert_equal_reports(ours: ParallelRebuildReport, serial: SerialReport) -> None:
    for name in (
        "record_count",
        "queue_count",
        "unit_count",
        "index_file_count",
        "index_entry_count",
    ):
        assert getattr(ours, name) == getattr(serial, name), name
    assert ours.findings.counts == serial.findings.counts
    assert sorted(map(str, ours.findings)) == sorted(map(str, serial.findings))
