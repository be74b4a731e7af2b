"""Locks of queues that are consumed in order: how long they count, and what is done without."""

import asyncio
import time
from pathlib import Path

import pytest

from flintmq import AsyncPushConsumer
from flintmq.client.assigning.offset_store import KNOWN_FOR_MS
from flintmq.client.assigning.process_queue import LOCK_VALID_MS
from flintmq.client.wall_clock import monotonic_ms
from tests.kits.broker.remoting_kit import eventually
from tests.kits.client.consumer_kit import GROUP, TOPIC, Collected, Site, got_count, queue, site

DAY_NS = 24 * 3600 * 10**9
PAUSE_MS = LOCK_VALID_MS + KNOWN_FOR_MS + 1
"""Longer than anything counts that a broker has said."""


class LateClock:
    """A clock that a test sets forward, as if the process had stood still."""

    def __init__(self) -> None:
        self.late_ms = 0

    def __call__(self) -> int:
        return monotonic_ms() + self.late_ms

    def wind(self, consumer: AsyncPushConsumer) -> None:
        """Have a consumer go by this clock."""
        consumer._assignment._now_ms = self
        consumer._consuming._now_ms = self
        consumer.offsets._now_ms = self  # type: ignore[attr-defined]


@pytest.mark.parametrize("jump_ns", [DAY_NS, -DAY_NS])
async def test_nobody_gives_queues_up_when_the_time_of_day_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_ns: int
) -> None:
    got = Collected()
    async with site(tmp_path) as here:
        await here.send(4)
        async with here.push(got, orderly=True) as consumer:
            await got_count(got.messages, 4)
            before = dict(consumer._assignment.queues)
            time_ns = time.time_ns
            monkeypatch.setattr(time, "time_ns", lambda: time_ns() + jump_ns)
            await consumer.rebalance()
            assert consumer._assignment.queues == before
            await here.send(4, start=4)
            await got_count(got.messages, 8)


async def stop_and_let_another_consume(
    here: Site, consumer: AsyncPushConsumer, clock: LateClock, *, up_to: int
) -> None:
    """Let the process stand still while another member takes the queue, consumes and leaves."""
    locks, now_ms = here.broker.context.locks, here.clock.now_ms()
    clock.late_ms += PAUSE_MS
    locks.unlock(GROUP, consumer.client.client_id, [queue(0)])
    assert locks.lock(GROUP, "other", [queue(0)], now_ms) == [queue(0)]
    here.broker.context.offsets.commit(GROUP, TOPIC, 0, up_to)
    locks.unlock(GROUP, "other", [queue(0)])


async def test_a_lock_that_lapsed_does_not_come_to_life_again(tmp_path: Path) -> None:
    """It was renewed, and what was held was handled although another member had done it."""

    got, go, clock = Collected(), asyncio.Event(), LateClock()

    async def handle(message) -> None:  # type: ignore[no-untyped-def]
        await got(message)
        await go.wait()

    async with site(tmp_path) as here:
        await here.send(6, queue_count=1)
        async with here.push(handle, orderly=True, offset_interval_ms=3_600_000) as consumer:
            clock.wind(consumer)
            await got_count(got.messages, 1)
            await eventually(lambda: consumer.held[queue(0)].count == 6)
            await stop_and_let_another_consume(here, consumer, clock, up_to=4)
            go.set()
            await consumer._assignment._renew_locks()
            await got_count(got.messages, 3)
        assert got.bodies == [b"0", b"4", b"5"]
        assert here.offsets()[0] == 6


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_member_that_stood_still_does_not_commit_less_than_the_group_has(
    tmp_path: Path, *, orderly: bool
) -> None:
    got, go, clock = Collected(), asyncio.Event(), LateClock()

    async def handle(message) -> None:  # type: ignore[no-untyped-def]
        await got(message)
        if message.body == b"2":
            await go.wait()

    async with site(tmp_path) as here:
        await here.send(5, queue_count=1)
        options = {"orderly": orderly, "offset_interval_ms": 3_600_000}
        async with here.push(handle, stop_timeout_ms=0, **options) as consumer:
            clock.wind(consumer)
            await eventually(lambda: b"2" in got.bodies)
            await stop_and_let_another_consume(here, consumer, clock, up_to=4)
            assert consumer.offsets.noted(queue(0)) == 2
            assert consumer.commit_offset(queue(0)) is None
            await consumer.persist_offsets()
            assert here.offsets()[0] == 4
            # What is handled further on counts.
            go.set()
            if orderly:
                await consumer._assignment._renew_locks()
            await eventually(lambda: got.bodies[-1] == b"4")
            await eventually(lambda: consumer.offsets.noted(queue(0)) == 5)
            await consumer.persist_offsets()
            assert here.offsets()[0] == 5
