"""Topics deleted, queues cleaned and files expired while messages come, and crashes in between.

A workload is cut before each of its file calls and between its steps.  What was acknowledged and
not deleted is delivered by whatever starts on the files that are left, and every queue takes and
delivers further messages.
"""

from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Final, NamedTuple

import pytest

from flintmq.store.files import unsynced
from flintmq.testing import SimulatedFiles
from tests.kits.store.admin_workload import AdminDriver, Promises, assert_delivered
from tests.kits.store.recorded_cuts import Moment, moments_of
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


class State(NamedTuple):
    """One thing a restart may find, and up to where the log must be in it."""

    name: str
    files: SimulatedFiles
    below: int


def promises_of(variant: Variant, seed: int) -> list[Moment[Promises]]:
    """Return each cut of the workload; with even seeds, queues go when nothing waits."""
    files = variant.new_files()
    driver = AdminDriver(variant, files, seed=seed, removes_at_rest=seed % 2 == 0)
    return moments_of(
        files,
        lambda tell: driver.run(STEP_COUNT, after_step=tell),
        lambda: deepcopy(driver.promises),
    )


def states_of(variant: Variant, moment: Moment[Promises], seed: int) -> Iterator[State]:
    """Yield what a killed process and what a power failure may leave."""
    promises = moment.said
    in_kernel = promises.committed if variant.has_pool else 1 << 62
    yield State(KILLED, moment.files.process_crash_image(), in_kernel)
    images = moment.files.crash_images(Random(seed), RANDOM_IMAGES)
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
    for number, moment in enumerate(promises_of(variant, seed)):
        for state in states_of(variant, moment, number):
            key = fingerprint(state.files), state.below
            if key in checked:
                continue
            checked.add(key)
            driver = AdminDriver(variant, state.files, seed=number)
            driver.promises = deepcopy(moment.said)
            try:
                is_torn = state.name not in (KILLED, NOTHING_UNSYNCED)
                driver.restart(state.files, below=state.below, is_torn=is_torn)
                driver.assert_sound()
                driver.assert_goes_on()
            except Exception as error:
                error.add_note(f"{name}, seed {seed}: {moment.cut}, {state.name}")
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
