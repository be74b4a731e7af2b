"""Every file call fails once: nothing is acknowledged that is not there, and nothing false is.

The workload of the crash tests runs on while its Nth call fails with EIO, ENOSPC or a short
write.  Whatever the store answers then must be honest, and after the fault (with and without a
power failure) a restart must find all that was acknowledged.
"""

from collections.abc import Callable
from random import Random
from typing import Final

import pytest

from flintmq.store.errors import StoreError
from flintmq.store.results import PutResult, PutStatus
from flintmq.testing import Fault, SimulatedFiles
from tests.kits.store.store_ledger import assert_true
from tests.kits.store.store_workload import VARIANTS, Driver, Variant

STEP_COUNT: Final = 36
WRITES: Final = ("write", "region_write")


class FaultyDriver(Driver):
    """Goes on when the store refuses something, and takes only real answers for real."""

    refused = 0
    failed_waits = 0

    def step(self) -> None:
        self._try(super().step)

    def open(self) -> None:
        self._try(super().open)
        if self.store is None:
            # The fault hit the start, which must have undone what it did: the next one works.
            super().open()

    def close(self) -> None:
        store = self._store()
        self._try(store.close)
        self.store = None

    def reopen(self) -> None:
        self.close()
        self.open()
        assert_true(self._store(), self.ledger, least=self.ledger.acknowledged)

    def _try(self, call: Callable[[], object]) -> None:
        try:
            call()
        except StoreError:
            self.refused += 1
        self.collect_in_flight()

    def _answered(self, result: PutResult) -> None:
        if result.status is PutStatus.PUT_OK:
            super()._answered(result)
            return
        self.refused += 1
        assert result.reason
        self.collect_in_flight()

    def _flushed(self, end: int, status: PutStatus, reason: str) -> None:
        if status is PutStatus.PUT_OK:
            super()._flushed(end, status, reason)
        else:
            self.failed_waits += 1
            assert reason


def assert_survives(variant: Variant, driver: FaultyDriver, files: SimulatedFiles) -> None:
    """Assert that a restart finds what was promised, after a kill and after a power failure."""
    ledger = driver.ledger
    in_kernel = ledger.acknowledged
    on_disk = ledger.count_below(ledger.flushed)
    if variant.has_pool:
        in_kernel = min(in_kernel, ledger.count_below(ledger.committed))
    assert_true(variant.open(files.process_crash_image()), ledger, least=in_kernel)
    for image in files.crash_images(Random(0), 1):
        assert_true(variant.open(image), ledger, least=on_disk)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fault", "seed"),
    [
        ("sync", Fault.EIO, 31),
        ("async", Fault.EIO, 32),
        ("async", Fault.ENOSPC, 33),
        ("ext", Fault.ENOSPC, 34),
        ("pool", Fault.SHORT_WRITE, 35),
        ("deleting", Fault.SHORT_WRITE, 36),
    ],
)
def test_whatever_call_fails_the_store_stays_honest(name: str, fault: Fault, seed: int) -> None:
    variant = VARIANTS[name]
    files = variant.new_files()
    Driver(variant, files, seed=seed).run(STEP_COUNT)
    numbers = [
        number
        for number, call in enumerate(files.calls)
        if fault is not Fault.SHORT_WRITE or call.operation in WRITES
    ]
    refused = 0
    for number in numbers:
        files = variant.new_files()
        files.fail(number, fault)
        driver = FaultyDriver(variant, files, seed=seed)
        try:
            driver.run(STEP_COUNT, stop_after=STEP_COUNT - 1)
            assert_survives(variant, driver, files)
            driver.reopen()
            driver.put()
            driver.close()
            assert_survives(variant, driver, files)
        except Exception as error:
            error.add_note(f"{name}, seed {seed}: call {number} failed: {files.calls[number]}")
            raise
        refused += driver.refused
    assert refused > 0
