"""The watchdog counts and logs turns that take long, with what held them."""

import asyncio
import gc
import sys
import threading
import time
from pathlib import Path

import pytest

from flintmq.broker.turn_watchdog import (
    CAUSE_COUNT_MAX,
    COLLECTION,
    HELD_BUSY,
    HELD_IDLE,
    HELD_START,
    LOG_INTERVAL_S,
    LOG_START,
    NOT_OURS,
    OTHER_CAUSES,
    TurnWatchdog,
    place_of,
)
from flintmq.format.wire.codes import RequestCode
from tests.kits.broker.broker_kit import site


class Seconds:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.value = 100.0

    def __call__(self) -> float:
        return self.value


@pytest.fixture
def now() -> Seconds:
    return Seconds()


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if text.startswith(LOG_START)]


async def test_work_is_counted_only_if_it_takes_long(now: Seconds) -> None:
    watchdog = TurnWatchdog(50, now=now)
    with watchdog.measure("quick"):
        now.value += 0.049
    for seconds in (0.06, 0.08, 0.07):
        with watchdog.measure("slow"):
            now.value += seconds
    assert {name: (one.count, one.worst_ms) for name, one in watchdog.by_cause.items()} == {
        "slow": (3, 80)
    }
    info = watchdog.runtime_info()
    assert (info["longTurnCount"], info["longTurnWorstMillis"]) == ("3", "80")
    assert info["longTurnCauses"] == "slow: 3, worst 80 ms"


async def test_with_a_threshold_of_zero_nothing_is_long(now: Seconds) -> None:
    watchdog = TurnWatchdog(0, now=now)
    threads = threading.active_count()
    with watchdog.watching(), watchdog.measure("slow"):
        now.value += 60
        assert threading.active_count() == threads
    assert watchdog.count == 0


async def test_a_flood_of_long_turns_does_not_flood_the_log(
    now: Seconds, caplog: pytest.LogCaptureFixture
) -> None:
    watchdog = TurnWatchdog(50, now=now)

    def spend(seconds: float) -> None:
        with watchdog.measure("slow"):
            now.value += seconds

    for _ in range(5):
        spend(0.06)
    assert logged(caplog) == [f"{LOG_START}: cause=slow ms=60 count=1 unlogged=0"]
    now.value += LOG_INTERVAL_S
    spend(0.06)
    assert logged(caplog)[1:] == [f"{LOG_START}: cause=slow ms=60 count=6 unlogged=4"]
    # What is very long is always said.
    spend(1.5)
    spend(1.5)
    assert len(logged(caplog)) == 4


async def test_the_table_of_causes_is_bounded(now: Seconds) -> None:
    watchdog = TurnWatchdog(50, now=now)
    for number in range(3 * CAUSE_COUNT_MAX):
        with watchdog.measure(f"cause {number}"):
            now.value += 1
    assert len(watchdog.by_cause) == CAUSE_COUNT_MAX + 1
    assert watchdog.by_cause[OTHER_CAUSES].count == 2 * CAUSE_COUNT_MAX
    assert watchdog.count == 3 * CAUSE_COUNT_MAX


async def test_a_loop_that_shows_life_late_is_noted_with_the_place_it_was_in(
    now: Seconds,
) -> None:
    watchdog = TurnWatchdog(50, now=now)
    watchdog.look()
    await asyncio.sleep(0)
    assert watchdog.count == 0
    watchdog.look()
    now.value += 0.3
    # The loop's own thread looks here: what it is doing is looking.
    watchdog.look()
    await asyncio.sleep(0)
    assert list(watchdog.by_cause) == ["broker.turn_watchdog.look"]
    assert watchdog.worst_ms == 300


@pytest.mark.parametrize(("computed", "cause"), [(0.25, HELD_BUSY), (0.01, HELD_IDLE)])
async def test_a_turn_in_which_nobody_could_look_is_told_by_its_processor_time(
    now: Seconds, computed: float, cause: str
) -> None:
    processor_time = Seconds()
    watchdog = TurnWatchdog(50, now=now, processor_time=processor_time)
    watchdog.look()
    now.value += 0.3
    processor_time.value += computed
    await asyncio.sleep(0)
    assert list(watchdog.by_cause) == [cause]


async def test_the_garbage_collector_is_a_cause_of_its_own(now: Seconds) -> None:
    watchdog = TurnWatchdog(50, now=now)

    class Slow:
        """Takes time when it is collected."""

        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            now.value += 0.3

    Slow()
    with watchdog.watching():
        gc.collect()
    assert COLLECTION in watchdog.by_cause
    assert watchdog._collects not in gc.callbacks


async def test_a_loop_that_is_held_is_told_of_before_it_goes_on(
    now: Seconds, caplog: pytest.LogCaptureFixture
) -> None:
    """A call that never returns, on a disk that is gone, would else be told by nobody."""
    watchdog = TurnWatchdog(50, now=now)
    watchdog.look()
    for _ in range(80):
        now.value += 0.1
        watchdog.look()
    # The loop's own thread looks here: what it is doing is looking.
    place = "broker.turn_watchdog.look"
    assert [text for text in caplog.messages if text.startswith(HELD_START)] == [
        f"{HELD_START}: cause={place} ms={ms}" for ms in (1000, 2000, 4000, 8000)
    ]
    assert watchdog.count == 0, "it is counted when it is over"
    await asyncio.sleep(0)
    assert logged(caplog) == [f"{LOG_START}: cause={place} ms=8000 count=1 unlogged=0"]
    # The next one is told of as early as this one.
    watchdog.look()
    now.value += 1
    watchdog.look()
    assert caplog.messages[-1] == f"{HELD_START}: cause={place} ms=1000"


async def test_what_was_measured_by_its_name_is_not_counted_twice(
    now: Seconds,
) -> None:
    watchdog = TurnWatchdog(50, now=now)
    watchdog.look()
    with watchdog.measure("slow"):
        now.value += 0.3
    await asyncio.sleep(0)
    assert list(watchdog.by_cause) == ["slow"]


async def test_the_thread_looks_at_a_loop_that_is_held() -> None:
    watchdog = TurnWatchdog(1)
    deadline = time.monotonic() + 20
    with watchdog.watching():
        # On a crowded machine the loop may be held elsewhere, too.
        while NOT_OURS not in watchdog.by_cause and time.monotonic() < deadline:
            # This holds the loop until the thread has seen it.
            while watchdog._place is None and time.monotonic() < deadline:
                pass
            await asyncio.sleep(0)
    assert NOT_OURS in watchdog.by_cause
    assert not [one for one in threading.enumerate() if one.name == "flintmq-turn-watchdog"]


def test_a_stack_without_us_is_told_as_such() -> None:
    assert place_of(None) == NOT_OURS
    assert place_of(sys._getframe()) == NOT_OURS


async def test_long_requests_are_in_the_runtime_info_of_their_broker(tmp_path: Path) -> None:
    async with site(tmp_path, longTurnMillis=5000) as place:
        wire = await place.client()
        turns = place.broker.server.turns
        assert turns is not None
        seconds = turns.now()
        turns.now = lambda: seconds
        for took, code in ((6, RequestCode.PULL_MESSAGE), (7, 4711), (1, RequestCode.SEND_MESSAGE)):
            turns.begin()
            seconds += took
            turns.end(code)
        info = (await wire.ask(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
        assert info["longTurnCount"] == "2"
        causes = [one.partition(":")[0] for one in info["longTurnCauses"].split("; ")]
        assert causes == ["unknown request", "PULL_MESSAGE"]
