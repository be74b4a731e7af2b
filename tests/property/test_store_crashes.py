"""Every crash of a recorded workload: what a restart finds is true, and none of it is lost.

A workload is cut before each of its file calls and between its steps.  What was not synced is
kept, dropped or torn; the store is recovered from each such state and compared with the ledger of
what was put, acknowledged and flushed.
"""

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Final, NamedTuple

import pytest

from flintmq.store.files import unsynced
from flintmq.testing import SimulatedCrash, SimulatedFiles
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


class Cut(NamedTuple):
    """Where a workload stops: before a file call, or after a step."""

    call: int | None = None
    step: int | None = None


class State(NamedTuple):
    """One thing a restart may find, and how many entries of the ledger must be in it."""

    name: str
    files: SimulatedFiles
    least: int


def run_to(variant: Variant, seed: int, cut: Cut) -> tuple[Driver, SimulatedFiles]:
    """Run the workload until the cut."""
    files = variant.new_files()
    files.crash_at = cut.call
    driver = Driver(variant, files, seed=seed)
    with suppress(SimulatedCrash):
        driver.run(STEP_COUNT, stop_after=cut.step)
    driver.collect_in_flight()
    return driver, files


def cuts_of(variant: Variant, seed: int) -> list[Cut]:
    _, files = run_to(variant, seed, Cut())
    calls = [Cut(call=number) for number in files.change_numbers()]
    return [*calls, *(Cut(step=number) for number in range(STEP_COUNT)), Cut()]


def states_of(
    variant: Variant, ledger: Ledger, files: SimulatedFiles, seed: int
) -> Iterator[State]:
    """Yield what a killed process and what a power failure may leave."""
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


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), SHARDS)
def test_every_crash_leaves_a_true_store(name: str, seed: int) -> None:
    variant = VARIANTS[name]
    seen: set[int] = set()
    checked: set[tuple[int, int]] = set()
    known: set[tuple[int, int, int, int]] = set()
    for number, cut in enumerate(cuts_of(variant, seed)):
        driver, files = run_to(variant, seed, cut)
        for state in states_of(variant, driver.ledger, files, number):
            content = fingerprint(state.files)
            if (content, state.least) in checked:
                continue
            seen.add(content)
            checked.add((content, state.least))
            try:
                assert_recovers(state.files, driver.ledger, variant, least=state.least, known=known)
            except Exception as error:
                error.add_note(f"{name}, seed {seed}: {cut}, {state.name}")
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
    cuts = cuts_of(variant, seed)
    for cut in rng.sample(cuts, 4):
        driver, files = run_to(variant, seed, cut)
        state = rng.choice(list(states_of(variant, driver.ledger, files, seed)))
        whole = state.files.process_crash_image()
        variant.open(whole)
        for call in whole.change_numbers():
            again = state.files.process_crash_image()
            again.crash_at = call
            with suppress(SimulatedCrash):
                variant.open(again)
            on_disk = driver.ledger.count_below(driver.ledger.flushed)
            images = [(again.process_crash_image(), state.least)]
            images += [(image, on_disk) for image in again.crash_images(Random(call), 1)]
            for image, least in images:
                try:
                    assert_true(variant.open(image), driver.ledger, least=least)
                except Exception as error:
                    error.add_note(f"{name}, seed {seed}: {cut}, {state.name}, recovery {call}")
                    raise
