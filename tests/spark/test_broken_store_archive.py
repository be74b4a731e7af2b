"""The steps of docs/operating/broken-store.md with jobs: what is there, and what an archive has."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flintmq.cli.main import run
from tests.kits.spark.pipeline_kit import light_session, use_session
from tests.kits.store.offline_stores import check
from tests.kits.store.runbook import break_store, commands, whole_store


def test_what_is_lost_is_in_the_archive(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    use_session(monkeypatch, light_session(spark))
    root = whole_store(tmp_path / "store")
    assert run(["pipeline", "archive", str(root), "--to", str(tmp_path / "archive")]) == 0
    break_store(root)
    exits = {"archive": 0, "pipeline exit 1": 1}
    for kind, arguments in commands(tmp_path):
        if kind in exits:
            assert run(arguments) == exits[kind], (arguments, capsys.readouterr())
    assert check(tmp_path / "restored").record_count == 100
