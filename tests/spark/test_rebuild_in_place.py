"""A rebuild in place: the views are switched whole, whatever happens meanwhile."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flintmq.format.stored.checkpoint import decode_checkpoint, encode_checkpoint
from flintmq.offline.errors import OutputError, RequestError, StoreInUseError
from flintmq.offline.rebuild import QueueWriter
from flintmq.spark.errors import RebuildError
from flintmq.spark.jobs.rebuild import rebuild_stages, switch
from flintmq.spark.jobs.rebuild.build_directory import (
    IN_PLACE_NAME,
    old_directory,
    views_directory,
    within,
)
from flintmq.spark.jobs.rebuild.parallel_rebuild import rebuild
from flintmq.spark.jobs.rebuild.switch import exchange_directories, finish_interrupted, switch_views
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.golden.engine import assert_serves, config_of, copy_store
from tests.kits.golden.golden_sets import golden_set
from tests.kits.spark.inline_spark import inline_spark
from tests.kits.spark.light_spark import light_java
from tests.kits.store.lock_holder import held_by_another_process
from tests.kits.store.offline_stores import (
    START_MS,
    check,
    content,
    index_file,
    make_store,
    overwrite,
    problems,
    put,
    queue_file,
    small_config,
)

WAIT_S = 120


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def views(root: Path) -> dict[str, bytes]:
    """Return the files of queues and index, those of the index by number.

    The engine names an index file when it dispatches, which may be later than its first record.
    """
    queues = {path: data for path, data in content(root).items() if path.startswith("consumeq")}
    indexes = content(root / "index").values()
    return queues | {f"index/{number}": data for number, data in enumerate(indexes)}


def harm(root: Path) -> None:
    """Damage the views of a store."""
    overwrite(queue_file(root, 0), 40, b"\xee" * 60)
    queue_file(root, 1, 1).unlink()
    overwrite(index_file(root, 0), 300, b"\xee" * 5)


def test_damaged_views_become_whole_and_the_engine_trusts_them(store: Path) -> None:
    before = views(store)
    harm(store)
    report = rebuild(inline_spark(), store, in_place=True, split_size=2000)
    assert report.in_place
    assert report.output == store
    assert views(store) == before
    assert not (store / IN_PLACE_NAME).exists()
    assert problems(check(store)) == {}
    clock = ManualClock(START_MS + 10_000_000)
    with MessageStore.open(small_config(store), clock=clock, background=False) as engine:
        assert engine.recovery_report.problems == []
        assert engine.recovery_report.start_reason == "exact marks"
        assert engine.recovery_report.records_scanned == 0
        put(engine, clock, 5, first=100)
    assert problems(check(store)) == {}


@pytest.mark.parametrize("name", ["killed", "kinds"])
def test_what_java_wrote_opens_without_distrust(tmp_path: Path, name: str) -> None:
    golden = golden_set(name)
    root = copy_store(golden, tmp_path, abort=name == "killed")
    rebuild(inline_spark(), root, in_place=True)
    assert problems(check(root)) == {}
    with MessageStore.open(config_of(golden.expected(), root), background=False) as engine:
        assert engine.recovery_report.problems == []
        assert engine.recovery_report.start_reason == "exact marks"
        assert_serves(engine, golden.messages())


def test_views_on_another_file_system_are_refused(store: Path, tmp_path: Path) -> None:
    (store / "index").rename(tmp_path / "elsewhere")
    (store / "index").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="another file system"):
        rebuild(inline_spark(), store, in_place=True)
    assert not (store / IN_PLACE_NAME).exists()


@pytest.mark.parametrize("kept", ["index", "consumequeue"])
def test_only_what_is_asked_for_is_replaced(store: Path, kept: str) -> None:
    overwrite(queue_file(store, 0), 40, b"\xee" * 60)
    overwrite(index_file(store, 0), 300, b"\xee" * 5)
    before = content(store / kept)
    rebuild(inline_spark(), store, in_place=True, queues=kept == "index", index=kept != "index")
    assert content(store / kept) == before
    assert problems(check(store)) != {}
    clock = ManualClock(START_MS + 10_000_000)
    with MessageStore.open(small_config(store), clock=clock, background=False) as engine:
        assert engine.recovery_report.start_reason == "exact marks"
        assert engine.recovery_report.problems == []


def test_marks_that_did_not_reach_the_end_do_not_vouch_for_what_was_kept(store: Path) -> None:
    page = decode_checkpoint((store / "checkpoint").read_bytes())
    assert page.marks is not None
    behind = replace(page, marks=page.marks._replace(dispatched=0))
    (store / "checkpoint").write_bytes(encode_checkpoint(behind))
    rebuild(inline_spark(), store, in_place=True, index=False)
    after = decode_checkpoint((store / "checkpoint").read_bytes())
    assert after == replace(page, marks=None)


@pytest.fixture
def extended(tmp_path: Path) -> Path:
    return copy_store(golden_set("extended"), tmp_path / "extended", abort=False)


def harm_extension(root: Path) -> None:
    """Damage the queues of a store and what their units lead to."""
    for folder in ("consumequeue", "consumequeue_ext"):
        for path in (root / folder).rglob("*"):
            if path.is_file():
                overwrite(path, 0, b"\xee" * 30)


def test_filter_bits_are_made_anew_with_the_queues(extended: Path) -> None:
    before = views(extended)
    assert any(path.startswith("consumequeue_ext") for path in before)
    harm_extension(extended)
    rebuild(inline_spark(), extended, in_place=True, split_size=1000)
    assert views(extended) == before
    assert problems(check(extended)) == {}


def test_units_that_lead_to_an_extension_go_with_it(extended: Path) -> None:
    rebuild(inline_spark(), extended, in_place=True, extension=False)
    assert not (extended / "consumequeue_ext").exists()
    assert problems(check(extended)) == {}


def test_queues_that_stay_keep_their_extension(extended: Path) -> None:
    before = views(extended)
    rebuild(inline_spark(), extended, in_place=True, queues=False)
    assert views(extended) == before


@pytest.mark.parametrize("rename_count", range(4))
def test_no_unit_ever_leads_to_another_extension(
    extended: Path, rename_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = views(extended)
    build = built(extended, "consumequeue", "index", "consumequeue_ext")
    harm_extension(extended)
    rename = Path.rename
    done: list[Path] = []

    def rename_some(path: Path, target: Path) -> Path:
        if len(done) == rename_count:
            raise KeyboardInterrupt
        done.append(path)
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename_some)
        with pytest.raises(KeyboardInterrupt):
            switch_views(extended, build)
    # A broker that starts now makes queues and extension anew; or the old ones are still there.
    assert (extended / "consumequeue").exists() == (rename_count == 0)
    assert finish_interrupted(extended, [build]) == (["consumequeue"] if rename_count else [])
    switch_views(extended, build)
    assert views(extended) == before


@pytest.mark.parametrize("in_place", [True, False])
def test_a_store_that_a_broker_holds_is_refused(
    store: Path, tmp_path: Path, *, in_place: bool
) -> None:
    before = content(store)
    out = None if in_place else tmp_path / "out"
    with held_by_another_process(store), pytest.raises(StoreInUseError):
        rebuild(inline_spark(), store, out=out, in_place=in_place)
    assert content(store) == before
    assert not (tmp_path / "out").exists()
    rebuild(inline_spark(), store, out=out, in_place=in_place)


def test_a_store_that_this_process_runs_is_refused_and_stays_locked(store: Path) -> None:
    with (
        MessageStore.open(small_config(store), clock=ManualClock(START_MS), background=False),
        pytest.raises(StoreInUseError),
    ):
        rebuild(inline_spark(), store, in_place=True)


def test_an_output_that_is_taken_or_in_the_store_is_refused(store: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    for output in (tmp_path / "taken", store / "new"):
        with pytest.raises(OutputError):
            rebuild(inline_spark(), store, out=output)
    with pytest.raises(RequestError):
        rebuild(inline_spark(), store)
    with pytest.raises(RequestError):
        rebuild(inline_spark(), store, out=tmp_path / "out", in_place=True)


def test_a_fault_in_what_was_written_keeps_the_old_views(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harm(store)
    before = views(store)
    finish = QueueWriter.finish

    def finish_wrongly(writer: QueueWriter) -> None:
        finish(writer)
        made = next(iter(writer._made.values()))
        overwrite(next(iter(made)), 0, b"\xdd")

    monkeypatch.setattr(QueueWriter, "finish", finish_wrongly)
    with pytest.raises(RebuildError, match="read back"):
        rebuild(inline_spark(), store, in_place=True)
    assert views(store) == before
    assert not (store / IN_PLACE_NAME).exists()


def test_attempts_of_one_task_do_not_meet(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = views(store)
    harm(store)
    call = rebuild_stages.WriteStage.__call__

    def call_twice(
        stage: rebuild_stages.WriteStage, task: rebuild_stages.ViewTask
    ) -> rebuild_stages.ViewFiles:
        first, second = call(stage, task), call(stage, task)
        assert first != second
        return second

    monkeypatch.setattr(rebuild_stages.WriteStage, "__call__", call_twice)
    rebuild(inline_spark(), store, in_place=True)
    assert views(store) == before


def cannot_exchange(first: Path, second: Path) -> bool:
    return False


def built(root: Path, *names: str) -> Path:
    """Leave finished views in the build directory of a store, as before the switch."""
    build = within(root) / "run"
    for name in names or ("consumequeue", "index"):
        shutil.copytree(root / name, views_directory(build) / name)
    old_directory(build).mkdir()
    return build


@pytest.mark.parametrize("exchange", [exchange_directories, cannot_exchange])
def test_a_switch_replaces_whole_directories(store: Path, exchange: switch.Exchange) -> None:
    before = views(store)
    build = built(store)
    harm(store)
    (store / "consumequeue" / "stale").mkdir()
    switch_views(store, build, exchange=exchange)
    assert views(store) == before
    assert not (store / "consumequeue" / "stale").exists()


def test_a_switch_that_was_cut_off_between_two_renames_is_completed(store: Path) -> None:
    before = views(store)
    build = built(store)
    harm(store)
    (store / "consumequeue").rename(old_directory(build) / "consumequeue")
    assert finish_interrupted(store, [build]) == ["consumequeue"]
    switch_views(store, build)
    assert views(store) == before


def test_old_views_come_back_when_there_are_no_new_ones(store: Path) -> None:
    before = views(store)
    build = built(store)
    shutil.rmtree(views_directory(build) / "index")
    (store / "index").rename(old_directory(build) / "index")
    assert finish_interrupted(store, [build]) == ["index"]
    assert views(store) == before


CHILD = """
import os, sys, time
from pathlib import Path
from flintmq.spark.jobs.rebuild import parallel_rebuild as job
from tests.kits.golden.engine import assert_serves, config_of, copy_store
from tests.kits.golden.golden_sets import golden_set
from tests.kits.spark.inline_spark import inline_spark
from tests.kits.store.lock_holder import held_by_another_process

moment, root = sys.argv[1], Path(sys.argv[2])

def stop(*_):
    Path(sys.argv[3]).touch()
    while True:
        time.sleep(60)

if moment == "building":
    job._Rebuild._collect = stop
elif moment == "built":
    job._switch_in_place = stop
else:
    job._Rebuild.marks = stop
job.rebuild(inline_spark(), root, in_place=True, split_size=1000)
"""


@pytest.mark.parametrize("moment", ["building", "built", "switched"])
def test_a_rebuild_that_is_killed_leaves_whole_views(
    store: Path, tmp_path: Path, moment: str
) -> None:
    whole = views(store)
    overwrite(queue_file(store, 0), 40, b"\xee" * 60)
    old = views(store)
    reached = tmp_path / "reached"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, moment, str(store), str(reached)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        deadline = time.monotonic() + WAIT_S
        while not reached.exists():
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert (store / IN_PLACE_NAME).exists()
    assert views(store) == (whole if moment == "switched" else old)
    if moment == "switched":
        assert decode_checkpoint((store / "checkpoint").read_bytes()).marks is None
    rebuild(inline_spark(), store, in_place=True)
    assert views(store) == whole
    assert not (store / IN_PLACE_NAME).exists()


DRIVER = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from flintmq.spark.jobs.rebuild.parallel_rebuild import rebuild

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1")
builder = builder.config("spark.driver.extraJavaOptions", sys.argv[2])
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
rebuild(spark, Path(sys.argv[1]), in_place=True, split_size=800)
"""


def test_a_driver_that_is_killed_leaves_the_old_views(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    whole = views(store)
    harm(store)
    old = views(store)
    with (tmp_path / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(store), light_java()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=log,
            stderr=log,
        )
    deadline = time.monotonic() + WAIT_S
    while not any(within(store).glob("*/spool/*")):
        assert driver.poll() is None, (tmp_path / "driver.log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    driver.send_signal(signal.SIGKILL)
    assert driver.wait() == -signal.SIGKILL
    assert views(store) == old
    rebuild(spark, store, in_place=True)
    assert views(store) == whole
    assert problems(check(store)) == {}


def test_a_leftover_beside_an_output_is_removed(store: Path, tmp_path: Path) -> None:
    leftover = tmp_path / "out.rebuild"
    (leftover / "tasks" / "half").mkdir(parents=True)
    (leftover / "tasks" / "half" / "file").touch()
    rebuild(inline_spark(), store, out=tmp_path / "out")
    assert not leftover.exists()
    assert views(tmp_path / "out").keys() == views(store).keys()
