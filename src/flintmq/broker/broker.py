"""A running broker: its parts, from the disk outwards."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from flintmq.broker.clients import ConsumerGroup, ConsumerTable, ProducerTable
from flintmq.broker.config import EDITABLE, SETTINGS, BrokerConfig
from flintmq.broker.daily_totals import DailyTotals
from flintmq.broker.durable_puts import DurablePuts
from flintmq.broker.groups import GroupTable
from flintmq.broker.held_pulls import HeldPulls
from flintmq.broker.hosts import packed_host
from flintmq.broker.offsets import OffsetTable
from flintmq.broker.parts import BrokerParts
from flintmq.broker.processors.table import processor_table
from flintmq.broker.pull_lanes import PullLanes
from flintmq.broker.queue_locks import QueueLocks
from flintmq.broker.registration import Registration
from flintmq.broker.send_runs import SendRuns
from flintmq.broker.statistics import BrokerStatistics
from flintmq.broker.topics import TopicTable
from flintmq.broker.transaction_check import TransactionCheck
from flintmq.format.codes import RequestCode
from flintmq.format.headers.clients import ConsumerGroupRequest
from flintmq.remoting import BindError, ConnectionLostError, Limits, RemotingServer, bind
from flintmq.settings.live_config import LiveConfig
from flintmq.store.errors import StoreError
from flintmq.store.message_store import MessageStore
from flintmq.store.state_file import StateFile

if TYPE_CHECKING:
    from pathlib import Path

    from flintmq.remoting import Connection
    from flintmq.store.clock import Clock
    from flintmq.store.config import StoreConfig
    from flintmq.store.files import Files

logger = logging.getLogger(__name__)

EXPIRY_SCAN_MS: Final = 10_000
SAMPLE_MS: Final = 10_000
TICK_MS: Final = 100
PORT_ATTEMPTS_MAX: Final = 50
DRAIN_TIMEOUT_MS: Final = 6000


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that accepts connections."""

    parts: BrokerParts
    server: RemotingServer

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self.server.ports[0]

    @property
    def address(self) -> str:
        """Where clients find it."""
        return self.parts.address


@asynccontextmanager
async def run_broker(
    config: BrokerConfig,
    store_config: StoreConfig,
    *,
    clock: Clock | None = None,
    files: Files | None = None,
    overlay: Path | None = None,
) -> AsyncIterator[Broker]:
    """Start a broker and yield it once it accepts connections and is registered.

    Parts start from the disk outwards and stop in reverse, so no request can reach a store that
    is closed, and everything accepted is on the disk before this returns.
    """
    async with AsyncExitStack() as stack:
        sockets = _bind_ports(config)
        for bound in sockets:
            stack.callback(bound.close)
        config = replace(config, listen_port=sockets[0].getsockname()[1])
        store = stack.enter_context(MessageStore(store_config, clock=clock, files=files))
        parts = _make_parts(config, store, overlay)
        stack.push_async_callback(_persist_finally, parts)
        registration = Registration(
            parts.topics,
            config=lambda: parts.config,
            address=parts.address,
            ha_address=f"{config.ip2}:{config.listen_port + 1}",
        )
        stack.push_async_callback(_run_housekeeping(parts))
        server = await stack.enter_async_context(_listen(parts, sockets))
        stack.push_async_callback(_drain_puts, parts)
        stack.callback(parts.held.close)
        parts.topics.on_change = registration.trigger
        stack.push_async_callback(registration.stop)
        await registration.start()
        logger.info("broker ready: address=%s store=%s", parts.address, store_config.root)
        yield Broker(parts, server)


def _bind_ports(config: BrokerConfig) -> list[socket.socket]:
    """Bind the port and, two below it, that of the fast channel."""
    for _ in range(PORT_ATTEMPTS_MAX):
        main = bind(config.bind_address, config.listen_port)
        try:
            fast = bind(config.bind_address, main.getsockname()[1] - 2)
        except (BindError, OverflowError):
            main.close()
            if config.listen_port != 0:
                raise
            continue  # Someone else has the lower port of the pair that the system chose.
        return [main, fast]
    raise BindError(config.bind_address, "no two free ports were found")


def _make_parts(config: BrokerConfig, store: MessageStore, overlay: Path | None) -> BrokerParts:
    directory, clock = store.config.root / "config", store.clock

    def changed(config: BrokerConfig, _: frozenset[str]) -> None:
        store.retention.file_reserved_hours = config.file_reserved_hours

    config = replace(config, file_reserved_hours=store.config.file_reserved_hours)
    live = LiveConfig(config, SETTINGS, editable=EDITABLE, overlay=overlay, on_change=changed)
    live.load()

    def state(name: str) -> StateFile:
        return StateFile(directory / name, files=store.files)

    topics = TopicTable(
        state("topics.json"),
        config=lambda: live.current,
        now_ms=clock.now_ms,
        delay_level_count=store.delay_levels.max_level,
    )
    groups = GroupTable(
        state("subscriptionGroup.json"), config=lambda: live.current, now_ms=clock.now_ms
    )
    offsets = OffsetTable(state("consumerOffset.json"))
    for table in (topics, groups, offsets):
        table.load()
    held = HeldPulls(store)

    def dispatch() -> None:
        store.dispatch()
        held.wake()

    statistics = BrokerStatistics(cluster=config.cluster, now_ms=clock.now_ms)
    parts = BrokerParts(
        live_config=live,
        clock=clock,
        store=store,
        puts=DurablePuts(store, dispatch=dispatch),
        topics=topics,
        groups=groups,
        offsets=offsets,
        consumers=ConsumerTable(on_change=lambda group: _notify_members(parts, group)),
        producers=ProducerTable(),
        locks=QueueLocks(),
        held=held,
        statistics=statistics,
        daily=DailyTotals(statistics, now_ms=clock.now_ms),
        store_host=packed_host(config.ip1, config.listen_port),
        address=f"{config.ip1}:{config.listen_port}",
    )
    return parts


def _notify_members(parts: BrokerParts, group: ConsumerGroup) -> None:
    """Let all members of a group share its queues out anew."""
    config = parts.groups.look(group.name)
    if not parts.config.notify_ids_changed or (
        config is not None and not config.notify_ids_changed_enable
    ):
        return
    header = ConsumerGroupRequest(consumer_group=group.name)
    for connection in list(group.members):
        with contextlib.suppress(ConnectionLostError):
            connection.tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)


def _listen(
    parts: BrokerParts, sockets: list[socket.socket]
) -> AbstractAsyncContextManager[RemotingServer]:
    def closed(connection: Connection) -> None:
        parts.consumers.lost(connection)
        parts.producers.lost(connection)

    return RemotingServer.listen(
        processor_table(parts),
        sockets=sockets,
        limits=Limits(idle_timeout_ms=parts.config.idle_timeout_s * 1000),
        gatherer=PullLanes(parts, SendRuns(parts)),
        on_close=closed,
        on_end_of_read=parts.dispatch,
    )


# -- housekeeping ------------------------------------------------------------------------------


def _run_housekeeping(parts: BrokerParts) -> Callable[[], Awaitable[None]]:
    """Start what happens by the clock; return how to stop it."""

    def deliver() -> None:
        parts.store.schedule.deliver_due()
        parts.dispatch()

    def expire() -> None:
        now_ms = parts.clock.now_ms()
        parts.consumers.expire(now_ms)
        parts.producers.expire(now_ms)
        parts.locks.expire(now_ms)
        parts.held.drop_gone()

    def sample() -> None:
        parts.statistics.sample()
        parts.daily.sample()

    jobs = {
        "deliver": (deliver, TICK_MS),
        "expire": (expire, EXPIRY_SCAN_MS),
        "sample": (sample, SAMPLE_MS),
    }
    tasks = [
        asyncio.create_task(_repeat(job, interval_ms), name=name)
        for name, (job, interval_ms) in jobs.items()
    ]
    tasks.append(asyncio.create_task(_persist_offsets(parts), name="persist offsets"))
    tasks.append(asyncio.create_task(_check_transactions(parts), name="check transactions"))

    async def stop() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    return stop


async def _repeat(job: Callable[[], None], interval_ms: int) -> None:
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            job()
        except Exception:
            # One failure must not end what has to go on for as long as the broker does.
            logger.exception("housekeeping failed: job=%s", job.__name__)


async def _persist_offsets(parts: BrokerParts) -> None:
    while True:
        await asyncio.sleep(parts.config.flush_offsets_interval_ms / 1000)
        try:
            await parts.offsets.persist_in_thread()
        except StoreError:
            logger.exception("consumer offsets could not be written")


async def _check_transactions(parts: BrokerParts) -> None:
    check = TransactionCheck(parts)
    while True:
        await asyncio.sleep(parts.config.transaction_check_interval_ms / 1000)
        try:
            check.run()
        except Exception:
            logger.exception("transactions could not be checked")


async def _drain_puts(parts: BrokerParts) -> None:
    """Let the answers that wait for the disk leave before connections are closed."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_TIMEOUT_MS / 1000):
            await parts.puts.idle()


async def _persist_finally(parts: BrokerParts) -> None:
    parts.offsets.persist()
