"""A loop stays awake only for a client whose next request comes at once, and not for long."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from flintmq.remoting import active_wait as module
from flintmq.remoting.active_wait import KEPT_COUNT, QUICK_COUNT, TRIED_COUNT, ActiveWait

WAIT_S = 0.0001


class HandLoop:
    """An event loop that goes round by hand, and a clock."""

    def __init__(self) -> None:
        self.ready: list[Callable[[], None]] = []
        self.time = 1000.0

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.ready.append(callback)

    def now(self) -> float:
        return self.time

    @property
    def is_awake(self) -> bool:
        """Whether it would ask its sockets without waiting for them."""
        return bool(self.ready)

    def go_round(self) -> None:
        ready, self.ready = self.ready, []
        for callback in ready:
            callback()


class Here:
    def __init__(self, wait_s: float = WAIT_S) -> None:
        self.loop = HandLoop()
        loop = cast("asyncio.AbstractEventLoop", self.loop)
        self.wait = ActiveWait(loop, wait_s, now=self.loop.now)

    def request(self, *, after_s: float) -> None:
        """Have a request come so long after the last answer, and be answered."""
        self.loop.time += after_s
        self.wait.came(self.loop.time)
        self.wait.answered()

    def quick_requests(self, count: int = QUICK_COUNT + 1) -> None:
        for _ in range(count):
            self.request(after_s=WAIT_S / 2)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_core_count", lambda: 2)


def test_the_loop_stays_awake_while_requests_come_at_once() -> None:
    here = Here()
    here.quick_requests(QUICK_COUNT)
    assert not here.loop.is_awake, "the first of them had nothing before it"
    for _ in range(100):
        here.request(after_s=WAIT_S / 2)
        here.loop.go_round()
        assert here.loop.is_awake
        assert len(here.loop.ready) == 1, "one request more is no wait more"


def test_a_loop_that_has_waited_in_vain_sleeps_until_several_come_quickly_again() -> None:
    here = Here()
    here.quick_requests()
    here.loop.time += WAIT_S
    here.loop.go_round()
    assert not here.loop.is_awake
    here.quick_requests(QUICK_COUNT - 1)
    assert not here.loop.is_awake
    here.quick_requests(2)
    assert here.loop.is_awake


def test_the_loop_is_never_kept_awake_for_a_client_that_takes_its_time() -> None:
    here = Here()
    for _ in range(100):
        here.request(after_s=module.QUICK_FACTOR * WAIT_S * 1.01)
        assert not here.loop.is_awake
    for _ in range(3):
        here.quick_requests(QUICK_COUNT - 1)
        here.request(after_s=module.QUICK_FACTOR * WAIT_S * 1.01)
        assert not here.loop.is_awake, "what was quick has to be so in succession"


def test_the_loop_sleeps_as_soon_as_others_come() -> None:
    here = Here()
    here.quick_requests()
    here.wait.end()
    here.loop.go_round()
    assert not here.loop.is_awake


@pytest.mark.parametrize("does_it_pay", [True, False])
def test_the_loop_waits_where_requests_are_answered_sooner_by_it(does_it_pay: bool) -> None:
    here = Here()
    here.quick_requests(QUICK_COUNT + 1)
    awake_counts = []
    for count in (TRIED_COUNT, TRIED_COUNT, KEPT_COUNT, TRIED_COUNT, TRIED_COUNT, KEPT_COUNT):
        awake_count = 0
        for _ in range(count):
            # A wait that pays saves the time in which a core wakes, any other keeps the client.
            is_fast = here.loop.is_awake is does_it_pay
            here.request(after_s=WAIT_S * (0.5 if is_fast else 0.6))
            here.loop.go_round()
            awake_count += here.loop.is_awake
        awake_counts.append(awake_count > count // 2)
    assert awake_counts == [True, False, does_it_pay] * 2


def test_on_one_core_or_without_a_length_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    without = Here(0.0)
    without.quick_requests(100)
    monkeypatch.setattr(module, "_core_count", lambda: 1)
    alone = Here()
    alone.quick_requests(100)
    assert not without.loop.is_awake
    assert not alone.loop.is_awake
