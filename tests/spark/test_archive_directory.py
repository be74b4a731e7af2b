"""The files of an archive: whatever is interrupted or lost, nothing that was archived goes away."""

import contextlib
import json
from pathlib import Path

import pytest

from flintmq.spark.errors import ArchiveError
from flintmq.spark.jobs.archive.archive_manifest import (
    ArchivedFile,
    ArchiveDirectory,
    Manifest,
    StoreRun,
    file_sha256,
)

STEPS_MAX = 12


class KilledError(Exception):
    """The process has ended here."""


def store_run(name: str, start: int, end: int) -> StoreRun:
    return StoreRun(
        name=name,
        path=f"/{name}",
        broker_name=None,
        start=start,
        end=end,
        record_count=1,
        record_bytes=end - start,
        checksum=0,
        last=None,
        log_file_size=1 << 20,
        queue_file_size=1 << 10,
        hash_slots=None,
        index_entries=None,
        state_files={"topics.json": "0" * 64},
    )


def add_run(target: ArchiveDirectory) -> int:
    """Add a run of one file; return its number."""
    known = target.prepare()
    run = target.next_run()
    task = target.pending / "tasks" / "0"
    path = task / "topic=t" / "day=none" / "part.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"rows of run %d" % run)
    file = ArchivedFile(
        path="topic=t/day=none/part.parquet",
        store="s",
        topic="t",
        day="none",
        size=path.stat().st_size,
        rows=1,
        record_bytes=1,
        checksum=0,
        last=0,
        sha256=file_sha256(path),
    )
    files = (target.collect(task, file, run),)
    target.keep_state(0, {"topics.json": b"{}"})
    manifest = Manifest(
        run=run,
        created_ms=0,
        topics=None,
        on_corrupt="fail",
        stores=(store_run("s", len(known), len(known) + 1),),
        files=files,
    )
    target.publish(manifest)
    return run


def contents(target: ArchiveDirectory) -> list[bytes]:
    """Return the rows that readers find, run by run."""
    return [
        (target.root / file.path).read_bytes()
        for manifest in target.manifests()
        for file in manifest.files
    ]


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("step", range(STEPS_MAX))
def test_a_run_that_is_killed_at_any_step_counts_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, step: int
) -> None:
    target = ArchiveDirectory(tmp_path)
    for _ in range(before):
        add_run(target)
    wanted = contents(target) if before else []
    renames = [0]
    rename = Path.rename

    def killed_rename(self: Path, to: Path) -> Path:
        # Even steps end before a rename, odd ones behind it.
        if renames[0] * 2 == step:
            raise KilledError
        moved = rename(self, to)
        if renames[0] * 2 + 1 == step:
            raise KilledError
        renames[0] += 1
        return moved

    with monkeypatch.context() as patch, contextlib.suppress(KilledError):
        patch.setattr(Path, "rename", killed_rename)
        add_run(target)
    try:
        assert contents(target) in (wanted, [*wanted, b"rows of run %d" % (before + 1)])
    except ArchiveError:
        assert not before
    # The next run finishes it, or does it again; a reader never sees a number twice.
    add_run(target)
    found = contents(target)
    assert found[: len(wanted)] == wanted
    assert len(found) == len(set(found))
    assert len(found) in (before + 1, before + 2)
    assert not list(target.strays())
    assert not target.pending.exists()
    for manifest in target.manifests():
        assert (target.state_directory(manifest.run, 0) / "topics.json").read_bytes() == b"{}"


@pytest.mark.parametrize("text", [None, "{", "[]", '{"runs": 1}', '{"version": 1, "runs": [1]}'])
def test_recovery_names_every_run_that_has_a_manifest(tmp_path: Path, text: str | None) -> None:
    target = ArchiveDirectory(tmp_path)
    for _ in range(3):
        add_run(target)
    wanted = contents(target)
    current = target.own / "current.json"
    current.unlink()
    if text is not None:
        current.write_text(text)
    assert target.recover() == [1, 2, 3]
    assert contents(target) == wanted
    assert add_run(target) == 4


def test_what_no_manifest_names_stays_and_its_number_is_not_used_again(tmp_path: Path) -> None:
    target = ArchiveDirectory(tmp_path)
    add_run(target)
    add_run(target)
    (target.own / "run-000002.json").unlink()
    with pytest.raises(ArchiveError, match=r"run-000002\.json: cannot be read"):
        add_run(target)
    # An older list of runs, as a backup may have it: the rows of run 2 are nobody's, and stay.
    (target.own / "current.json").write_text(json.dumps({"version": 1, "runs": [1]}))
    assert list(target.strays()) == ["messages/run=000002"]
    assert add_run(target) == 3
    assert contents(target) == [b"rows of run 1", b"rows of run 3"]
    assert any(target.run_directory(2).rglob("*.parquet"))


def test_recovery_refuses_a_manifest_whose_rows_are_gone(tmp_path: Path) -> None:
    target = ArchiveDirectory(tmp_path)
    with pytest.raises(ArchiveError, match="no manifest to recover from"):
        target.recover()
    add_run(target)
    (path,) = target.messages.rglob("*.parquet")
    path.unlink()
    (target.own / "current.json").unlink()
    with pytest.raises(ArchiveError, match="is not there as the manifest of run 1 says"):
        target.recover()


def test_a_manifest_under_a_number_that_is_not_its_own_is_refused(tmp_path: Path) -> None:
    target = ArchiveDirectory(tmp_path)
    add_run(target)
    path = target.own / "run-000001.json"
    path.rename(target.own / "run-000002.json")
    (target.own / "current.json").unlink()
    with pytest.raises(ArchiveError, match="is the manifest of run 1"):
        target.recover()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"version": 1, "runs": [1, 1, 2, 3]}', "is not what a run writes"),
        ('{"version": 1, "runs": [3, 2, 1]}', "is not what a run writes"),
        ('{"version": 9, "runs": [1, 2, 3]}', "is not what a run writes"),
        ('{"version": 1, "runs": [true, 2, 3]}', "does not tell the runs"),
        ('{"version": 1, "runs": [1, 3]}', "does not name run 2, which has a manifest"),
    ],
)
def test_a_list_that_names_runs_twice_or_leaves_one_out_is_refused(
    tmp_path: Path, text: str, words: str
) -> None:
    target = ArchiveDirectory(tmp_path)
    for _ in range(3):
        add_run(target)
    wanted = contents(target)
    (target.own / "current.json").write_text(text)
    with pytest.raises(ArchiveError, match=rf"{words} .*check-archive --recover"):
        target.manifests()
    assert target.recover() == [1, 2, 3]
    assert contents(target) == wanted


@pytest.mark.parametrize("harm", ["lose", "cut", "copy"])
def test_files_that_are_not_those_of_the_manifests_are_told(tmp_path: Path, harm: str) -> None:
    target = ArchiveDirectory(tmp_path)
    add_run(target)
    target.require_files(target.manifests())
    (path,) = target.messages.rglob("*.parquet")
    if harm == "lose":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.with_name("other.parquet").write_bytes(path.read_bytes())
    with pytest.raises(ArchiveError, match=r"\.parquet: the manifest has "):
        target.require_files(target.manifests())
