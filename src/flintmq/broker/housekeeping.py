"""What a broker does from time to time: expiry, samples, state files, delayed messages, checks."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from flintmq.format.delivery_time import DELAY_CLASS_COUNT
from flintmq.model.topics import WAITING_TOPIC
from flintmq.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from flintmq.broker.context import BrokerContext
    from flintmq.broker.turn_watchdog import TurnWatchdog
    from flintmq.model.steps import Steps

logger = logging.getLogger(__name__)

EXPIRY_SCAN_MS: Final = 10_000
SAMPLE_MS: Final = 10_000
PERSIST_FILTERS_MS: Final = 10_000
TICK_MS: Final = 100
DELIVER_COUNT_MAX: Final = 1000
"""Delayed messages that are delivered in one tick."""
DELIVER_STEP: Final = 25


def start_housekeeping(context: BrokerContext) -> Callable[[], Awaitable[None]]:
    """Start the jobs that are done from time to time; return how to stop them."""

    def expire() -> None:
        now_ms = context.clock.now_ms()
        context.consumers.expire(now_ms)
        context.producers.expire(now_ms)
        context.locks.expire(now_ms)

    jobs = {"expire": (expire, EXPIRY_SCAN_MS)}
    tasks = [
        asyncio.create_task(_repeat(job, interval_ms, context.watchdog), name=name)
        for name, (job, interval_ms) in jobs.items()
    ]
    tasks.append(asyncio.create_task(_sample_statistics(context), name="sample"))
    tasks.append(asyncio.create_task(_persist_offsets(context), name="persist offsets"))
    tasks.append(asyncio.create_task(_persist_filters(context), name="persist filters"))
    if not context.is_slave:
        tasks.append(asyncio.create_task(_deliver_delayed(context), name="deliver"))
        tasks.append(asyncio.create_task(_check_transactions(context), name="check transactions"))

    async def stop() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    return stop


async def _repeat(job: Callable[[], None], interval_ms: int, watchdog: TurnWatchdog) -> None:
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            with watchdog.measure(job.__name__):
                job()
        except Exception:
            # One failure must not end what has to go on for as long as the broker does.
            logger.exception("housekeeping failed: job=%s", job.__name__)


async def _sample_statistics(context: BrokerContext) -> None:
    def steps() -> Steps[None]:
        yield from context.statistics.sample()
        context.daily.sample()

    while True:
        await asyncio.sleep(SAMPLE_MS / 1000)
        try:
            await context.turns.run(steps(), "statistics")
        except Exception:
            logger.exception("statistics could not be sampled")


async def _persist_offsets(context: BrokerContext) -> None:
    while True:
        await asyncio.sleep(context.config.flush_offsets_interval_ms / 1000)
        try:
            await context.offsets.keeper.save_in_thread()
        except StoreError as error:
            # The error names the file and the reason; a full disk would repeat a traceback often.
            logger.error("consumer offsets could not be written: reason=%s", error)  # noqa: TRY400


async def _persist_filters(context: BrokerContext) -> None:
    while True:
        await asyncio.sleep(PERSIST_FILTERS_MS / 1000)
        try:
            context.filters.clean()
            await context.filters.keeper.save_in_thread()
        except StoreError as error:
            logger.error("SQL92 subscriptions could not be written: reason=%s", error)  # noqa: TRY400


async def _deliver_delayed(context: BrokerContext) -> None:
    while True:
        await asyncio.sleep(TICK_MS / 1000)
        try:
            while await context.turns.run(delivery_steps(context), "delayed messages"):
                pass
            if context.store.waiting.waiting_count:
                # Tools see what waits, as they see any topic.
                context.topics.ensure(WAITING_TOPIC, DELAY_CLASS_COUNT)
        except Exception:
            logger.exception("delayed messages could not be delivered")


def delivery_steps(context: BrokerContext) -> Steps[bool]:
    """Deliver what is due, some messages between two interruptions; return whether more is due."""
    store = context.store
    for _ in range(DELIVER_COUNT_MAX // DELIVER_STEP):
        delivered = store.schedule.deliver_due(DELIVER_STEP) + store.waiting.step(DELIVER_STEP)
        context.dispatch()
        if not delivered:
            return False
        yield
    return True


async def _check_transactions(context: BrokerContext) -> None:
    await asyncio.sleep(context.config.transaction_check_interval_ms / 1000)
    # It is loaded when it is needed first: clients need not wait for it at the start.
    from flintmq.broker.transactions.transaction_check import TransactionCheck

    check = TransactionCheck(context)
    while True:
        try:
            await context.turns.run(check.steps(), "check transactions")
        except Exception:
            logger.exception("transactions could not be checked")
        await asyncio.sleep(context.config.transaction_check_interval_ms / 1000)
