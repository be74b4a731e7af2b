"""The benchmarks of the pipeline have a row for each job, and those on stores work."""

from pathlib import Path

from pyspark.sql import SparkSession

from bench.generate_store import StoreShape, generate
from bench.pipeline_archive import archive_cases
from bench.pipeline_case import BenchStore
from bench.pipeline_live import live_cases
from bench.pipeline_reports import report_cases

MESSAGES = 2000
CASES = {case.name.partition(",")[0]: case for case in (*report_cases(), *archive_cases()[:2])}


def test_there_is_a_row_for_each_job() -> None:
    assert CASES.keys() == {"stats", "query", "archive", "restore"}
    assert any("copy" in case.name for case in live_cases())


def test_a_row_counts_all_messages(spark: SparkSession, tmp_path: Path) -> None:
    store = BenchStore(tmp_path / "store", MESSAGES)
    generate(store.root, StoreShape(messages=MESSAGES, log_file_size=1 << 20))
    assert CASES["restore"].run(spark, store).messages == MESSAGES
