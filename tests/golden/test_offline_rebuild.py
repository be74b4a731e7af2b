"""``rebuild`` makes the bytes of the Java broker, and of our engine."""

import shutil
from pathlib import Path

import pytest

from flintmq.cli.main import run
from flintmq.store.message_store import MessageStore
from tests.kits.golden.engine import config_of
from tests.kits.golden.golden_sets import STORE_SET_NAMES, GoldenSet, damaged_set, golden_set

RECOVERED = ("killed", "killed-early", "killed-recovered", "killed-early-recovered")


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def rebuilt(golden: GoldenSet, output: Path, *options: str) -> Path:
    assert run(["store", "rebuild", str(golden.store), "--out", str(output), *options]) == 0
    return output


@pytest.mark.parametrize("name", STORE_SET_NAMES)
def test_queues_are_those_of_the_java_broker(tmp_path: Path, name: str) -> None:
    golden = golden_set(name)
    output = rebuilt(golden, tmp_path / "out", "--queues")
    made = files_of(output / "consumequeue")
    kept = files_of(golden.store / "consumequeue")
    assert files_of(output / "consumequeue_ext") == files_of(golden.store / "consumequeue_ext")
    assert bool(files_of(output / "consumequeue_ext")) == (name == "extended")
    if not golden.store.joinpath("abort").exists():
        assert made == kept
        return
    # It was killed while the queues were behind the log.
    for file_name, content in kept.items():
        written = content.rstrip(b"\0")
        assert made[file_name].startswith(written)


@pytest.mark.parametrize("name", [name for name in STORE_SET_NAMES if name not in RECOVERED])
def test_the_index_is_that_of_the_java_broker(tmp_path: Path, name: str) -> None:
    golden = golden_set(name)
    made = files_of(rebuilt(golden, tmp_path / "out", "--index") / "index")
    assert list(made.values()) == list(files_of(golden.store / "index").values())
    # The broker names a file when it makes it, a moment after the message was stored.
    for ours, theirs in zip(made, files_of(golden.store / "index"), strict=True):
        assert abs(int(ours) - int(theirs)) < 1000 or ours[:12] == theirs[:12]


@pytest.mark.parametrize("name", STORE_SET_NAMES)
def test_views_are_those_our_engine_makes_of_the_log(tmp_path: Path, name: str) -> None:
    golden = golden_set(name)
    made = rebuilt(golden, tmp_path / "out", "--no-extension")
    root = tmp_path / "store"
    shutil.copytree(golden.store / "commitlog", root / "commitlog")
    expected = golden.expected()
    expected["config"].pop("enableConsumeQueueExt", None)
    with MessageStore.open(config_of(expected, root), background=False):
        pass
    assert not (made / "consumequeue_ext").exists()
    assert files_of(made / "consumequeue") == files_of(root / "consumequeue")
    ours, engine = files_of(made / "index"), files_of(root / "index")
    assert list(ours.values()) == list(engine.values())


@pytest.mark.parametrize("name", ["no-consumequeue", "only-commitlog", "consumequeue-behind"])
def test_what_was_lost_of_the_queues_is_made_again(tmp_path: Path, name: str) -> None:
    made = rebuilt(damaged_set(name), tmp_path / "out", "--queues", "--queue-file-size", "1280")
    assert files_of(made / "consumequeue") == files_of(golden_set("rolled").store / "consumequeue")
