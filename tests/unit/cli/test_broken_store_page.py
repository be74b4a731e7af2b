"""Every step of docs/operating/broken-store.md runs; Spark's and the start are tested elsewhere."""

from pathlib import Path

import pytest

from flintmq.cli.main import run
from tests.kits.store.offline_stores import check, fingerprint
from tests.kits.store.runbook import break_store, commands, whole_store


def test_every_step_runs_and_ends_as_the_page_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = whole_store(tmp_path / "store")
    break_store(root)
    before = fingerprint(root)
    done = 0
    for kind, arguments in commands(tmp_path):
        if not kind.startswith("exit "):
            continue
        code = run(arguments)
        captured = capsys.readouterr()
        assert code == int(kind.removeprefix("exit ")), (arguments, captured)
        assert captured.out
        done += 1
    assert done == 11
    assert fingerprint(root) == before
    assert check(tmp_path / "saved" / "store").record_count == 99


def test_the_page_speaks_of_archive_and_start_once() -> None:
    kinds = [kind for kind, _ in commands(Path("/data"))]
    assert kinds.count("archive") == 3
    assert kinds.count("start") == 1
