"""Every crash of a recorded workload: what a restart finds is true, and none of it is lost.

A workload is cut before each of its file calls and between its steps: it runs once, and at each
of these moments its disk is copied.  What was not synced is kept, dropped or torn; the store is
recovered from each such state and compared with the ledger of what was put, acknowledged and
flushed.
"""

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Final, NamedTuple

import pytest

from flintmq.store.files import unsynced
from flintmq.testing import SimulatedCrash, SimulatedFiles
from tests.kits.store.recorded_cuts import Moment, moments_of
from tests.kits.store.store_ledger import Ledger, assert_true, fingerprint
from tests.kits.store.store_workload import VARIANTS, Driver, Variant, assert_recovers

STEP_COUNT: Final = 56
RANDOM_IMAGES: Final = 3
STATES_LEAST: Final = 260
"""How many different states one shard must come to, so that the test cannot shrink unnoticed."""

SHARDS: Final = [
    ("async", 11),
    ("sync", 12),
    ("sync-written-back", 13),
    ("pages", 14),
    ("pool", 15),
    ("ext", 16),
    ("multi", 17),
    ("deleting", 18),
]
SYNCED_AT_ONCE: Final = [("async", 21), ("ext", 22), ("multi", 23)]
"""Shards whose queues are synced by one call for the file system."""


class State(NamedTuple):
    """One thing a restart may find, and how many entries of the ledger must be in it."""

    name: str
    files: SimulatedFiles
    least: int


def ledgers_of(variant: Variant, seed: int) -> list[Moment[Ledger]]:
    """Return each cut of the workload, with the ledger that holds there."""
    files = variant.new_files()
    driver = Driver(variant, files, seed=seed)
    return moments_of(
        files, lambda tell: driver.run(STEP_COUNT, after_step=tell), driver.ledger_now
    )


def states_of(variant: Variant, moment: Moment[Ledger], seed: int) -> Iterator[State]:
    """Yield what a killed process and what a power failure may leave."""
    ledger, files = moment.said, moment.files
    in_kernel = ledger.acknowledged
    if variant.has_pool:
        in_kernel = min(in_kernel, ledger.count_below(ledger.committed))
    yield State("killed", files.process_crash_image(), in_kernel)
    on_disk = ledger.count_below(ledger.flushed)
    for number, image in enumerate(files.crash_images(Random(seed), RANDOM_IMAGES)):
        name = ("nothing unsynced", "everything")[number] if number < 2 else f"random {number}"
        yield State(name, image, on_disk)


def test_the_shards_come_to_two_thousand_states_together() -> None:
    assert len(SHARDS) * STATES_LEAST >= 2000
    assert len({seed for _, seed in SHARDS}) == len(SHARDS)


@pytest.mark.parametrize(("name", "seed"), SHARDS)
def test_a_cut_is_what_a_run_that_stops_there_leaves(name: str, seed: int) -> None:
    variant = VARIANTS[name]
    moments = [moment for moment in ledgers_of(variant, seed) if moment.cut.call is not None]
    for moment in Random(seed).sample(moments, 4):
        files = variant.new_files()
        files.crash_at = moment.cut.call
        driver = Driver(variant, files, seed=seed)
        with pytest.raises(SimulatedCrash):
            driver.run(STEP_COUNT)
        driver.collect_in_flight()
        stopped = Moment(moment.cut, files, driver.ledger)
        assert driver.ledger == moment.said, moment.cut
        for one, other in zip(
            states_of(variant, stopped, seed), states_of(variant, moment, seed), strict=True
        ):
            assert (one.name, one.least) == (other.name, other.least)
            assert fingerprint(one.files) == fingerprint(other.files), (moment.cut, one.name)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), SHARDS)
def test_every_crash_leaves_a_true_store(name: str, seed: int) -> None:
    variant = VARIANTS[name]
    seen: set[int] = set()
    checked: set[tuple[int, int]] = set()
    known: set[tuple[int, int, int, int]] = set()
    for number, moment in enumerate(ledgers_of(variant, seed)):
        for state in states_of(variant, moment, number):
            content = fingerprint(state.files)
            if (content, state.least) in checked:
                continue
            seen.add(content)
            checked.add((content, state.least))
            try:
                assert_recovers(state.files, moment.said, variant, least=state.least, known=known)
            except Exception as error:
                error.add_note(f"{name}, seed {seed}: {moment.cut}, {state.name}")
                raise
    assert len(seen) >= STATES_LEAST


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), [*SHARDS, *SYNCED_AT_ONCE])
def test_a_crash_of_recovery_itself_leaves_a_true_store(
    monkeypatch: pytest.MonkeyPatch, name: str, seed: int
) -> None:
    if (name, seed) in SYNCED_AT_ONCE:
        monkeypatch.setattr(unsynced, "SYNC_EACH_MAX", 0)
    variant = VARIANTS[name]
    rng = Random(seed)
    for moment in rng.sample(ledgers_of(variant, seed), 4):
        ledger = moment.said
        state = rng.choice(list(states_of(variant, moment, seed)))
        whole = state.files.process_crash_image()
        variant.open(whole)
        for call in whole.change_numbers():
            again = state.files.process_crash_image()
            again.crash_at = call
            with suppress(SimulatedCrash):
                variant.open(again)
            on_disk = ledger.count_below(ledger.flushed)
            images = [(again.process_crash_image(), state.least)]
            images += [(image, on_disk) for image in again.crash_images(Random(call), 1)]
            for image, least in images:
                try:
                    assert_true(variant.open(image), ledger, least=least)
                except Exception as error:
                    error.add_note(
                        f"{name}, seed {seed}: {moment.cut}, {state.name}, recovery {call}"
                    )
                    raise
