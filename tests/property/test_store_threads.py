"""A store with its threads at work: whatever moment is caught, a restart finds a true store.

The order of the threads differs from run to run; what must hold does not.
"""

from dataclasses import replace
from random import Random
from typing import Final

import pytest

from flintmq.store.clock import SystemClock
from flintmq.store.config import StoreConfig
from flintmq.store.files.interface import Files
from flintmq.store.message_store import MessageStore
from flintmq.testing import SimulatedFiles
from tests.kits.store.store_ledger import assert_true
from tests.kits.store.store_workload import VARIANTS, Driver, Variant, bitmap_of

STEP_COUNT: Final = 120
IMAGE_SHARE: Final = 0.25


class BusyVariant(Variant):
    """A variant whose services run all the time, and checkpoint every time."""

    def new_files(self) -> SimulatedFiles:
        return SimulatedFiles(clock=SystemClock())

    def open(self, files: Files) -> MessageStore:
        assert isinstance(files, SimulatedFiles)
        return self._open(files, background=True)

    def reopen(self, files: SimulatedFiles) -> MessageStore:
        """Open what a crash has left, without threads."""
        return self._open(files, background=False)

    def _open(self, files: SimulatedFiles, *, background: bool) -> MessageStore:
        return MessageStore.open(
            self.config,
            files=files,
            clock=files.clock,
            background=background,
            filter_bitmap=bitmap_of if self.config.enable_consume_queue_ext else None,
        )


def busy(config: StoreConfig) -> StoreConfig:
    return replace(
        config,
        flush_interval_ms=1,
        flush_least_pages=0,
        flush_thorough_interval_ms=0,
        flush_queue_interval_ms=1,
        flush_queue_least_pages=0,
        flush_queue_thorough_interval_ms=0,
        commit_interval_ms=1,
        commit_least_pages=0,
        commit_thorough_interval_ms=0,
    )


class BusyDriver(Driver):
    """Turns no clock: time passes by itself."""

    def step(self) -> None:
        self.rng.choice(self._steps)()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["async", "sync", "pool", "ext", "multi"])
def test_whatever_the_threads_do_a_crash_leaves_a_true_store(name: str) -> None:
    variant = BusyVariant(name, busy(VARIANTS[name].config))
    files = variant.new_files()
    driver = BusyDriver(variant, files, seed=61)
    driver.open()
    ledger = driver.ledger
    rng = Random(62)
    for number in range(STEP_COUNT):
        driver.step()
        if rng.random() >= IMAGE_SHARE:
            continue
        # Sampled before the image is taken: threads may promise more meanwhile.
        on_disk = ledger.count_below(ledger.flushed)
        in_kernel = ledger.count_below(ledger.committed)
        killed = files.process_crash_image()
        dark = list(files.crash_images(Random(number), 1))
        assert_true(
            variant.reopen(killed),
            ledger,
            least=in_kernel if variant.has_pool else ledger.acknowledged,
        )
        for image in dark:
            assert_true(variant.reopen(image), ledger, least=on_disk)
    driver.reopen()
    driver.close()
