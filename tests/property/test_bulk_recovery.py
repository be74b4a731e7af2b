"""Recovery leaves the same files and tells the same, record by record and in machine code."""

import contextlib
import dataclasses
import sys
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flintmq.errors import FlintError
from flintmq.format.stored.consume_queue import UNIT_SIZE
from flintmq.store.message_store import MessageStore
from flintmq.store.recovery import bulk_records, fast_walk, recovery
from flintmq.store.views import consume_queue, key_index_file
from flintmq.testing import ROOT, SimulatedFiles
from tests.kits.store.damaged_stores import Damage, damages, paths_of, stopped
from tests.kits.store.store_workload import VARIANTS, Variant

VIEWS: Final = ("consumequeue", "index", "checkpoint")


@pytest.fixture(autouse=True)
def machine_code_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "SINGLE_RECORDS_MAX", 0)
    monkeypatch.setattr(fast_walk, "COMPILE_SIZE_MIN", 0)
    monkeypatch.setattr(fast_walk, "WHOLE_FILE_SIZE", 0)
    monkeypatch.setattr(bulk_records, "ROWS_MAX", 7)  # Many tables for few records.
    monkeypatch.setattr(consume_queue, "WRITTEN_SIZE_MIN", 2 * UNIT_SIZE)
    monkeypatch.setattr(key_index_file, "ENTRIES_AT_ONCE_MAX", 5)


def recovered(
    variant: Variant, files: SimulatedFiles, *, machine_code: bool
) -> tuple[object, dict[Path, bytes]]:
    """Return what recovery says, or why it refuses, and all files after it."""
    config = dataclasses.replace(variant.config, machine_code=machine_code)
    report: object
    try:
        store = dataclasses.replace(variant, config=config).open(files)
    except FlintError as error:
        report = str(error)
    else:
        # Which queue is dealt with first is not promised.
        said = dataclasses.replace(store.recovery_report, duration_ms=0)
        said.problems.sort()
        report = said
    return report, {path: files.read(path) for path in paths_of(files, ROOT)}


def assert_same(variant: Variant, files: SimulatedFiles) -> None:
    one_by_one = recovered(variant, files.process_crash_image(), machine_code=False)
    assert recovered(variant, files.process_crash_image(), machine_code=True) == one_by_one


@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(
    name=st.sampled_from(sorted(VARIANTS)),
    cleanly=st.booleans(),
    harm=st.lists(damages, max_size=3),
    lost=st.sets(st.sampled_from(VIEWS)),
)
def test_recovery_is_the_same_whatever_is_damaged(
    name: str, cleanly: bool, harm: list[Damage], lost: set[str]
) -> None:
    found = stopped(name, cleanly=cleanly)
    files = found.harmed(harm)
    for path in found.paths:
        if path.relative_to(ROOT).parts[0] in lost:
            files.remove(path, missing_ok=True)
    assert_same(found.variant, files)


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_machine_code_is_really_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    add_many = recovery._add_many

    def counted(records: object, *arguments: object) -> bool:
        done = add_many(records, *arguments)  # type: ignore[arg-type]
        counts.append(len(records) if done else 0)  # type: ignore[arg-type]
        return done

    monkeypatch.setattr(recovery, "_add_many", counted)
    found = stopped(name, cleanly=False)
    files = found.files.process_crash_image()
    for path in found.paths:
        if path.relative_to(ROOT).parts[0] in VIEWS:
            files.remove(path)
    store: MessageStore = found.variant.open(files)
    is_single = store.config.enable_consume_queue_ext
    assert (sum(counts) > 0) is not is_single
    assert_same(found.variant, files.process_crash_image())


def test_recoveries_of_several_threads_leave_the_switch_interval_as_it_was() -> None:
    """The second one took the short interval of the first for the usual one, and left it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    try:
        first, second = fast_walk.short_switch_interval(), fast_walk.short_switch_interval()
        with contextlib.ExitStack() as stack_of_second:
            with first:
                stack_of_second.enter_context(second)
                assert sys.getswitchinterval() == pytest.approx(fast_walk.SWITCH_INTERVAL_S)
            assert sys.getswitchinterval() == pytest.approx(0.005)
        assert sys.getswitchinterval() == pytest.approx(0.005)
    finally:
        sys.setswitchinterval(before)
