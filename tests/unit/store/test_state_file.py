import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from flintmq.format import fastjson
from flintmq.store.errors import StoreError
from flintmq.store.files.interface import Files
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.state_file import LoadedState, StateFile, StateFileError
from flintmq.testing.simulated_files import ROOT, Fault, SimulatedCrash, SimulatedFiles

PATH = ROOT / "config" / "topics.json"
BACKUP = ROOT / "config" / "topics.json.bak"
TEMPORARY = ROOT / "config" / "topics.json.tmp"

IMAGES_PER_CUT = 12


def state(version: int) -> dict[str, Any]:
    """Return a state of several pages, so that a torn write really mixes two of them."""
    return {"version": version, "padding": str(version) * 10_000}


def text(version: int) -> bytes:
    return b'{"version":%d}' % version


def put(files: SimulatedFiles, path: Path, content: bytes, *, durable: bool = True) -> None:
    files.make_directory(path.parent)
    files.write(path, content)
    if durable:
        files.sync(path)
        files.sync_directory(path.parent)
        files.sync_directory(path.parent.parent)


def load(files: Files) -> LoadedState:
    return StateFile(PATH, files=files).load()


def test_there_is_no_state_at_first() -> None:
    assert load(SimulatedFiles()) == LoadedState(None, "none", None)


def test_what_was_saved_is_loaded() -> None:
    files = SimulatedFiles()
    state_file = StateFile(PATH, files=files)
    state_file.save({"offsetTable": {"T@G": {0: 12, 1: 9}}})
    assert load(files) == LoadedState({"offsetTable": {"T@G": {0: 12, 1: 9}}}, "file", None)
    assert not files.exists(BACKUP)
    assert not files.exists(TEMPORARY)


def test_the_backup_has_what_was_there_before() -> None:
    files = SimulatedFiles()
    for version in (1, 2, 3):
        StateFile(PATH, files=files).save(state(version))
    files.remove(PATH)
    assert load(files).value == state(2)


def test_it_works_on_the_file_system_of_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    state_file = StateFile(path, files=LocalFiles())
    state_file.save(state(1))
    state_file.save(state(2))
    assert StateFile(path, files=LocalFiles()).load().value == state(2)
    assert sorted(entry.name for entry in path.parent.iterdir()) == [
        "topics.json",
        "topics.json.bak",
    ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "topics.json: is missing"),
        (b"", "topics.json: is empty"),
        (b" \n", "topics.json: is empty"),
        (b'{"version":', "topics.json: cannot be decoded"),
        (b"\0" * 20, "topics.json: cannot be decoded"),
        (b'{"version":"\xff"}', "topics.json: cannot be decoded"),
    ],
)
def test_a_file_without_a_state_gives_way_to_its_backup(
    content: bytes | None, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = SimulatedFiles()
    put(files, BACKUP, text(1))
    if content is not None:
        put(files, PATH, content)
    with caplog.at_level(logging.WARNING):
        loaded = load(files)
    assert (loaded.value, loaded.origin) == ({"version": 1}, "backup")
    assert loaded.problem is not None
    assert loaded.problem.startswith(problem)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_missing_or_empty_backup_is_no_error() -> None:
    files = SimulatedFiles()
    put(files, PATH, b"")
    assert load(files) == LoadedState(None, "none", "topics.json: is empty")
    put(files, BACKUP, b"")
    assert load(files) == LoadedState(None, "none", "topics.json: is empty")


@pytest.mark.parametrize(
    ("content", "backup"), [(b"{", b"{"), (b"", b"{"), (None, b"{"), (b"{", b""), (b"{", None)]
)
def test_a_damaged_copy_is_refused_when_the_other_holds_nothing(
    content: bytes | None, backup: bytes | None
) -> None:
    files = SimulatedFiles()
    if content is not None:
        put(files, PATH, content)
    if backup is not None:
        put(files, BACKUP, backup)
    state_file = StateFile(PATH, files=files)
    with pytest.raises(StateFileError, match="cannot be decoded"):
        state_file.load()
    # Nor may it be overwritten: a person can perhaps repair it.
    with pytest.raises(StateFileError):
        state_file.save(state(1))
    assert not files.exists(TEMPORARY)


def test_a_state_beyond_the_limit_is_neither_written_nor_read() -> None:
    files = SimulatedFiles()
    state_file = StateFile(PATH, files=files, size_max=100)
    with pytest.raises(StateFileError, match="at most 100"):
        state_file.save(state(1))
    assert not files.exists(PATH)
    put(files, PATH, b" " * 99 + b"1")
    assert state_file.load().value == 1
    put(files, PATH, b" " * 100 + b"1")
    with pytest.raises(StateFileError, match="more than 100 bytes"):
        state_file.load()


def test_a_damaged_file_is_never_copied_over_its_backup() -> None:
    files = SimulatedFiles()
    put(files, BACKUP, text(1))
    put(files, PATH, b'{"ver')
    StateFile(PATH, files=files).save({"version": 2})
    assert files.read(BACKUP) == text(1)
    assert load(files) == LoadedState({"version": 2}, "file", None)


# -- power failures --------------------------------------------------------------------------


def saved_twice(files: SimulatedFiles) -> int:
    state_file = StateFile(PATH, files=files)
    state_file.save(state(1))
    state_file.save(state(2))
    return 2


def found_damaged(files: SimulatedFiles) -> int:
    put(files, BACKUP, text(2))
    put(files, PATH, b'{"ver')
    return 2


def found_missing(files: SimulatedFiles) -> int:
    put(files, BACKUP, text(2))
    return 2


def found_whole(files: SimulatedFiles) -> int:
    put(files, BACKUP, text(1))
    put(files, PATH, text(2))
    return 2


SITUATIONS = [saved_twice, found_damaged, found_missing, found_whole]
Situation = Callable[[SimulatedFiles], int]


def versions_after_cuts(prepare: Situation, saves: int) -> list[tuple[int, list[int]]]:
    """Cut ``saves`` further saves before every call; return what was acknowledged and loaded."""
    rehearsal = SimulatedFiles()
    prepare(rehearsal)
    begin = len(rehearsal.calls)
    state_file = StateFile(PATH, files=rehearsal)
    for version in range(3, 3 + saves):
        state_file.save(state(version))
    cuts = [number for number in rehearsal.change_numbers() if number >= begin]
    results = []
    for cut in [*cuts, len(rehearsal.calls)]:
        files = SimulatedFiles()
        acknowledged = prepare(files)
        files.crash_at = cut
        with contextlib.suppress(SimulatedCrash):
            state_file = StateFile(PATH, files=files)
            for version in range(3, 3 + saves):
                state_file.save(state(version))
                acknowledged = version
        images = files.crash_images(Random(cut), IMAGES_PER_CUT)
        results.append((acknowledged, [load(image).value["version"] for image in images]))
    return results


@pytest.mark.parametrize("prepare", SITUATIONS)
def test_no_cut_loses_what_was_acknowledged(prepare: Situation) -> None:
    results = versions_after_cuts(prepare, saves=3)
    assert len(results) > 10
    for acknowledged, versions in results:
        assert set(versions) <= {acknowledged, acknowledged + 1}
    # The last cut comes after everything.
    assert set(results[-1][1]) == {5}


@pytest.mark.parametrize("prepare", SITUATIONS)
def test_after_a_first_save_the_file_itself_survives_every_cut(prepare: Situation) -> None:
    rehearsal = SimulatedFiles()
    prepare(rehearsal)
    state_file = StateFile(PATH, files=rehearsal)
    state_file.save(state(3))
    begin = len(rehearsal.calls)
    state_file.save(state(4))
    for cut in range(begin, len(rehearsal.calls)):
        files = SimulatedFiles()
        prepare(files)
        state_file = StateFile(PATH, files=files)
        state_file.save(state(3))
        files.crash_at = cut
        with pytest.raises(SimulatedCrash):
            state_file.save(state(4))
        for image in files.crash_images(Random(cut), IMAGES_PER_CUT):
            assert load(image).origin == "file"


@pytest.mark.parametrize("prepare", [saved_twice, found_whole])
def test_after_a_save_the_backup_is_durable_too(prepare: Situation) -> None:
    files = SimulatedFiles()
    prepare(files)
    StateFile(PATH, files=files).save(state(3))
    for image in files.crash_images(Random(1), IMAGES_PER_CUT):
        image.remove(PATH)
        loaded = load(image)
        assert (loaded.value["version"], loaded.origin) == (2, "backup")


def found_unsynced(files: SimulatedFiles) -> int:
    """Leave what a killed Java broker leaves: a file the disk may not have yet."""
    put(files, BACKUP, text(1))
    put(files, PATH, fastjson.dumps(state(2)).encode(), durable=False)
    return 1


def test_a_state_nobody_synced_is_made_durable_before_its_backup_is_touched() -> None:
    for acknowledged, versions in versions_after_cuts(found_unsynced, saves=2):
        assert min(versions) >= acknowledged


def test_a_sync_that_failed_is_not_trusted_when_it_succeeds_later() -> None:
    rehearsal = SimulatedFiles()
    found_unsynced(rehearsal)
    begin = len(rehearsal.calls)
    StateFile(PATH, files=rehearsal).save(state(3))
    syncs = [n for n, call in enumerate(rehearsal.calls) if n >= begin and "sync" in call.operation]
    for number in syncs:
        for cut in range(number + 1, number + len(rehearsal.calls)):
            files = SimulatedFiles()
            found_unsynced(files)
            files.fail(number, Fault.EIO)
            files.crash_at = cut
            state_file = StateFile(PATH, files=files)
            with contextlib.suppress(SimulatedCrash):
                with pytest.raises(StoreError):
                    state_file.save(state(3))
                state_file.save(state(4))
            for image in files.crash_images(Random(cut), IMAGES_PER_CUT):
                assert load(image).value["version"] in (1, 2, 3, 4)


# -- failing calls ---------------------------------------------------------------------------


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("prepare", SITUATIONS)
def test_a_failed_save_keeps_the_state_and_the_next_one_succeeds(
    prepare: Situation, fault: Fault
) -> None:
    rehearsal = SimulatedFiles()
    prepare(rehearsal)
    begin = len(rehearsal.calls)
    StateFile(PATH, files=rehearsal).save(state(3))
    failing = [number for number in rehearsal.change_numbers() if number >= begin]
    assert failing
    for number in failing:
        files = SimulatedFiles()
        prepare(files)
        files.fail(number, fault)
        state_file = StateFile(PATH, files=files)
        with pytest.raises(StoreError):
            state_file.save(state(3))
        if files.calls[number].path == TEMPORARY and files.calls[number].operation != "rename":
            assert not files.exists(TEMPORARY)
        for image in files.crash_images(Random(number), IMAGES_PER_CUT):
            assert load(image).value["version"] in (2, 3)
        state_file.save(state(4))
        for image in files.crash_images(Random(number), IMAGES_PER_CUT):
            assert load(image) == LoadedState(state(4), "file", None)
