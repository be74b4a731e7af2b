"""Topics deleted, queues cleaned and files expired while messages come, and crashes in between.

A workload is cut before each of its file calls and between its steps.  What was acknowledged and
not deleted is delivered by whatever starts on the files that are left, and every queue takes and
delivers further messages.
"""

from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from random import Random
from typing import Final, NamedTuple

import pytest

from flintmq.store.files import unsynced
from flintmq.testing import SimulatedCrash, SimulatedFiles
from tests.kits.store.admin_workload import AdminDriver, assert_delivered
from tests.kits.store.store_ledger import fingerprint
from tests.kits.store.store_workload import VARIANTS, Variant

STEP_COUNT: Final = 48
RANDOM_IMAGES: Final = 2
STATES_LEAST: Final = 150
KILLED: Final = "killed"
NOTHING_UNSYNCED: Final = "nothing unsynced"
SHARDS: Final = [
    ("async", 31),
    ("async", 32),
    ("sync", 33),
    ("sync", 34),
    ("sync-written-back", 35),
    ("pool", 36),
    ("pool", 37),
    ("ext", 38),
]
SYNCED_AT_ONCE: Final = [("async", 39), ("sync", 40), ("ext", 41)]
"""Shards whose queues are synced by one call for the file system."""


class Cut(NamedTuple):
    """Where a workload stops: before a file call, or after a step."""

    call: int | None = None
    step: int | None = None


class State(NamedTuple):
    """One thing a restart may find, and up to where the log must be in it."""

    name: str
    files: SimulatedFiles
    below: int


def run_to(variant: Variant, seed: int, cut: Cut) -> AdminDriver:
    """Run the workload until the cut; with even seeds, queues go when nothing waits."""
    files = variant.new_files()
    files.crash_at = cut.call
    driver = AdminDriver(variant, files, seed=seed, removes_at_rest=seed % 2 == 0)
    with suppress(SimulatedCrash):
        driver.run(STEP_COUNT, stop_after=cut.step)
    return driver


def cuts_of(variant: Variant, seed: int) -> list[Cut]:
    files = run_to(variant, seed, Cut()).files
    calls = [Cut(call=number) for number in files.change_numbers()]
    return [*calls, *(Cut(step=number) for number in range(STEP_COUNT)), Cut()]


def states_of(driver: AdminDriver, seed: int) -> Iterator[State]:
    """Yield what a killed process and what a power failure may leave."""
    promises = driver.promises
    in_kernel = promises.committed if driver.variant.has_pool else 1 << 62
    yield State(KILLED, driver.files.process_crash_image(), in_kernel)
    images = driver.files.crash_images(Random(seed), RANDOM_IMAGES)
    for number, image in enumerate(images):
        name = NOTHING_UNSYNCED if number == 0 else f"random {number}"
        yield State(name, image, promises.flushed)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), [*SHARDS, *SYNCED_AT_ONCE])
def test_what_was_not_deleted_survives_every_crash(
    monkeypatch: pytest.MonkeyPatch, name: str, seed: int
) -> None:
    if (name, seed) in SYNCED_AT_ONCE:
        monkeypatch.setattr(unsynced, "SYNC_EACH_MAX", 0)
    variant = VARIANTS[name]
    checked: set[tuple[int, int]] = set()
    for number, cut in enumerate(cuts_of(variant, seed)):
        crashed = run_to(variant, seed, cut)
        for state in states_of(crashed, number):
            key = fingerprint(state.files), state.below
            if key in checked:
                continue
            checked.add(key)
            driver = AdminDriver(variant, state.files, seed=number)
            driver.promises = deepcopy(crashed.promises)
            try:
                is_torn = state.name not in (KILLED, NOTHING_UNSYNCED)
                driver.restart(state.files, below=state.below, is_torn=is_torn)
                driver.assert_sound()
                driver.assert_goes_on()
            except Exception as error:
                error.add_note(f"{name}, seed {seed}: {cut}, {state.name}")
                raise
    assert len(checked) >= STATES_LEAST


@pytest.mark.parametrize("name", ["async", "sync", "pool", "ext"])
def test_what_was_not_deleted_is_delivered_whatever_came_between(name: str) -> None:
    variant = VARIANTS[name]
    for seed in range(60):
        driver = AdminDriver(variant, variant.new_files(), seed=seed)
        try:
            driver.open()
            for _ in range(STEP_COUNT):
                driver.step()
                driver.assert_sound()
            driver.flush()
            driver.dispatch()
            assert_delivered(driver.opened, driver.promises, below=driver.promises.flushed)
            driver.assert_goes_on()
        except Exception as error:
            error.add_note(f"{name}, seed {seed}")
            raise
