import logging
import threading

import pytest

from flintmq.store.errors import DiskFullError, StoreError
from flintmq.store.upkeep.services import Service
from flintmq.store.wake_up import WakeUp
from flintmq.testing import ROOT

WAIT_SECONDS = 10
NEVER_MS = 10_000_000


class Step:
    """A step that notes its calls, and fails as it is told."""

    def __init__(self, *failures: Exception | None) -> None:
        self._failures = list(failures)
        self.called = threading.Semaphore(0)
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        self.called.release()
        failure = self._failures.pop(0) if self._failures else None
        if failure is not None:
            raise failure

    def wait(self) -> None:
        assert self.called.acquire(timeout=WAIT_SECONDS)


def is_alive(name: str) -> bool:
    return any(thread.name == name for thread in threading.enumerate())


def join(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(WAIT_SECONDS)


def test_a_service_steps_again_and_again() -> None:
    step = Step()
    service = Service("test-again", step, interval_ms=1)
    for _ in range(3):
        step.wait()
    service.stop()
    assert not is_alive("test-again")


def test_a_service_can_be_woken_before_its_time() -> None:
    step = Step()
    wake = WakeUp()
    service = Service("test-wake", step, interval_ms=NEVER_MS, wake=wake)
    wake.set()
    step.wait()
    service.stop()
    assert step.count == 1


def test_a_wake_up_is_taken_by_who_waits_for_it_however_often_it_was_set() -> None:
    wake = WakeUp()
    assert not wake.is_set()
    assert not wake.wait(0)
    wake.set()
    wake.set()
    assert wake.is_set()
    assert wake.wait(0)
    assert not wake.is_set()
    assert not wake.wait(0)


def test_wake_ups_from_many_threads_are_never_lost() -> None:
    wake, count = WakeUp(), 200
    threads = [threading.Thread(target=wake.set) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wake.wait(WAIT_SECONDS)
    assert not wake.is_set()


def test_a_service_that_is_stopped_takes_no_further_step() -> None:
    step = Step()
    Service("test-stop", step, interval_ms=NEVER_MS).stop()
    assert step.count == 0


def test_a_step_that_fails_for_good_ends_its_service(caplog: pytest.LogCaptureFixture) -> None:
    step = Step(StoreError("for good"))
    service = Service("test-failed", step, interval_ms=1)
    step.wait()
    join("test-failed")
    assert not is_alive("test-failed")
    assert "service gave up: test-failed" in caplog.text
    service.stop()


def test_a_full_disk_is_waited_out(caplog: pytest.LogCaptureFixture) -> None:
    step = Step(DiskFullError(ROOT, 1), None)
    with caplog.at_level(logging.WARNING):
        service = Service("test-full", step, interval_ms=1)
        step.wait()
        step.wait()
        service.stop()
    assert "service waits: test-full" in caplog.text


def test_a_mistake_of_ours_is_told_and_does_not_stop_the_service(
    caplog: pytest.LogCaptureFixture,
) -> None:
    step = Step(ValueError("a mistake"), None)
    service = Service("test-mistake", step, interval_ms=1)
    step.wait()
    step.wait()
    service.stop()
    assert "service failed: test-mistake" in caplog.text
