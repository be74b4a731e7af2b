"""The benchmarks of the pipeline have a row for each job, and those on stores work."""

from pathlib import Path

from pyspark.sql import SparkSession

from bench.generate_store import StoreShape, generate
from bench.pipeline_archive import archive_cases
from bench.pipeline_case import BenchStore, measure
from bench.pipeline_live import live_cases
from bench.pipeline_reports import report_cases
from bench.pipeline_topics import topic_cases

MESSAGES = 2000
CASES = {case.name.partition(",")[0]: case for case in (*report_cases(), *archive_cases()[:2])}


def test_there_is_a_row_for_each_job() -> None:
    assert CASES.keys() == {"stats", "query", "archive", "restore"}
    assert any("copy" in case.name for case in live_cases())


def test_few_and_many_topics_have_a_row_for_each_job_on_them() -> None:
    assert {case.name for case in topic_cases()} == {
        f"{job} of {count} {kind}"
        for count in ("5", "10,000")
        for job, kind in (
            ("archive", "topics"),
            ("restore", "topics"),
            ("stats", "topics"),
            ("archive", "live topics"),
        )
    }


def test_a_row_of_live_topics_tells_what_was_used_and_made(
    spark: SparkSession, tmp_path: Path
) -> None:
    live = next(case for case in topic_cases() if case.name == "archive of 5 live topics")
    result = measure(live, spark, BenchStore(tmp_path / "store", MESSAGES))
    assert result.done == MESSAGES
    # A file for each topic, in one task or in several.
    assert 5 <= (result.file_count or 0) <= 5 * spark.sparkContext.defaultParallelism
    assert result.server_seconds > 0


def test_a_row_counts_all_messages(spark: SparkSession, tmp_path: Path) -> None:
    store = BenchStore(tmp_path / "store", MESSAGES)
    generate(store.root, StoreShape(messages=MESSAGES, log_file_size=1 << 20))
    assert CASES["restore"].run(spark, store).messages == MESSAGES
