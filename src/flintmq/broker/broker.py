"""A running broker: what it consists of, started from the disk outwards."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flintmq.broker.broker_registrar import BrokerRegistrar
from flintmq.broker.config import EDITABLE, SETTINGS, BrokerConfig, bloom_filter
from flintmq.broker.context import BrokerContext
from flintmq.broker.hosts import packed_host
from flintmq.broker.housekeeping import start_housekeeping
from flintmq.broker.listening_ports import bind_ports
from flintmq.broker.live_store_settings import changed_while_open, live_values, with_live_values
from flintmq.broker.measuring.exposed_broker import expose_broker
from flintmq.broker.own_requests import own_requests
from flintmq.broker.processors.table import request_table
from flintmq.broker.replication.ha_server import HaServer
from flintmq.broker.replication.slave_table import SlaveTable
from flintmq.broker.statistics.broker_statistics import BrokerStatistics
from flintmq.broker.statistics.daily_totals import DailyTotals
from flintmq.broker.tables.client_tables import ConsumerGroup, ConsumerTable, ProducerTable
from flintmq.broker.tables.filter_table import FilterTable
from flintmq.broker.tables.group_table import GroupTable
from flintmq.broker.tables.offset_table import OffsetTable
from flintmq.broker.tables.queue_lock_table import QueueLocks
from flintmq.broker.tables.topic_table import TopicTable
from flintmq.broker.turn_watchdog import TurnWatchdog
from flintmq.broker.waiting.cold_loads import ColdLoads
from flintmq.broker.waiting.durable_puts import DurablePuts
from flintmq.broker.waiting.held_pulls import HeldPulls
from flintmq.broker.waiting.large_batches import LargeBatches
from flintmq.broker.waiting.late_sends import LateSends
from flintmq.broker.waiting.packed_sends import PackedSends
from flintmq.filter.filter_entries import FILE_NAME as FILTER_FILE_NAME
from flintmq.format.errors import CorruptRecordError
from flintmq.format.stored.record import read_record_properties, read_record_topic
from flintmq.format.wire.bodies.dialect import BodyError
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.clients import ConsumerGroupRequest
from flintmq.model.property_names import REAL_TOPIC
from flintmq.model.topics import DUE_TIME_TOPICS, TRACE_TOPIC, TRANS_HALF_TOPIC
from flintmq.model.value_class import Value, value_class
from flintmq.remoting import ConnectionLostError, RemotingServer
from flintmq.remoting.fair_turns import FairTurns
from flintmq.remoting.refusal_counts import RefusalCounts
from flintmq.remoting.request_latencies import RequestLatencies
from flintmq.remoting.server_limits import server_limits
from flintmq.remoting.tls_setup import outgoing_tls, server_tls
from flintmq.settings import ConfigError
from flintmq.settings.access_settings import access_file
from flintmq.settings.live_config import LiveConfig
from flintmq.settings.log_levels import LogLevels
from flintmq.store.clock import SystemClock
from flintmq.store.config import BrokerRole
from flintmq.store.errors import StoreError
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.state_file import StateFile
from flintmq.store.message_store import MessageStore
from flintmq.store.recovery.recovery_progress import RecoveryProgress
from flintmq.store.upkeep.waiting_state import WaitingStateError

if TYPE_CHECKING:
    from flintmq.access.access_control import AccessControl
    from flintmq.broker.replication.replica import Replica
    from flintmq.format.wire.bodies.delays import DelayProgress
    from flintmq.remoting import Connection
    from flintmq.remoting.tls_listener import ServerTls
    from flintmq.store.clock import Clock
    from flintmq.store.config import StoreConfig
    from flintmq.store.files.interface import Files

logger = logging.getLogger(__name__)

ROLL_WAIT_MS: Final = 2
"""How long the loop waits for the next file of the log; sends wait without it afterwards."""
DRAIN_TIMEOUT_MS: Final = 6000


@value_class
class Broker(Value):
    """A broker that accepts connections."""

    context: BrokerContext
    server: RemotingServer
    metrics_address: str | None
    """Where its metrics are; None: nowhere."""

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self.server.ports[0]

    @property
    def address(self) -> str:
        """Where clients find it."""
        return self.context.address


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

    Everything starts from the disk outwards and stops in reverse.  So no request can reach a store
    that is closed, and everything accepted is on the disk before this returns.
    """
    async with AsyncExitStack() as stack:
        tls = server_tls(config)
        *sockets, for_slaves = bind_ports(config, store_config)
        for bound in (*sockets, for_slaves):
            stack.callback(bound.close)
        config = replace(config, listen_port=sockets[0].getsockname()[1])
        store_config = replace(store_config, ha_listen_port=for_slaves.getsockname()[1])
        files, clock = files or LocalFiles(), clock or SystemClock()
        live = _live_config(config, store_config, overlay)
        store_config = with_live_values(store_config, live.current)
        filters = _filter_table(config, store_config, files, clock)
        progress = RecoveryProgress(clock)
        exposed = await stack.enter_async_context(expose_broker(config, progress))
        notes = store_config.calculate_filter_bit_map and store_config.enable_consume_queue_ext
        open_store = functools.partial(
            MessageStore.open,
            store_config,
            clock=clock,
            files=files,
            filter_bitmap=filters.bitmap if notes else None,
            roll_wait_ms=ROLL_WAIT_MS,
            progress=progress,
        )
        store = stack.enter_context(await _opened(open_store))
        levels = stack.enter_context(LogLevels.kept())
        context = _make_context(live, store, filters, levels)
        store.dispatcher.run_limit.is_stepwise = not context.is_slave
        stack.push_async_callback(_persist_finally, context)
        if config.acl_enable:
            context.access = await stack.enter_async_context(_access_control(context))
        stack.callback(context.cold_loads.close)
        registrar = BrokerRegistrar(
            context.topics,
            config=lambda: context.config,
            address=context.address,
            ha_address=f"{config.ip2}:{store_config.ha_listen_port}",
            turns=context.turns,
            prepare=own_requests(config),
            tls=outgoing_tls(config, use_tls=config.use_tls),
        )
        context.ha_server = await stack.enter_async_context(_serve_slaves(context, for_slaves, tls))
        stack.push_async_callback(start_housekeeping(context))
        stack.enter_context(context.watchdog.watching())
        server = await stack.enter_async_context(_listen(context, sockets, tls))
        await stack.enter_async_context(exposed.showing(context, server, registrar))
        stack.push_async_callback(_drain_puts, context)
        stack.callback(context.late_sends.close)
        stack.push_async_callback(_store_prepared, context)
        stack.callback(context.held.close)
        if context.is_slave:
            context.replica = await stack.enter_async_context(_follow_master(context))
            registrar.master_told = context.replica.master_told
        context.topics.on_change = registrar.trigger
        stack.push_async_callback(registrar.stop)
        await registrar.start()
        logger.info("broker ready: address=%s store=%s", context.address, store_config.root)
        yield Broker(context=context, server=server, metrics_address=exposed.address)


async def _store_prepared(context: BrokerContext) -> None:
    """Have batches stored that are still unpacked or prepared."""
    await context.packed_sends.close()
    await context.large_batches.close()


async def _opened(open_store: Callable[[], MessageStore]) -> MessageStore:
    """Open a store in a thread: a recovery may take long, and others want to know how far it is.

    It cannot be interrupted; who gives up meanwhile leaves no store open.
    """
    opening = asyncio.get_running_loop().run_in_executor(None, open_store)
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await asyncio.wait([opening])
        if opening.exception() is None:
            opening.result().close()
        raise


def _filter_table(
    config: BrokerConfig, store_config: StoreConfig, files: Files, clock: Clock
) -> FilterTable:
    """Return the SQL92 subscriptions; a store needs them when it recovers, to note who matches."""
    filters = FilterTable(
        StateFile(store_config.root / "config" / FILTER_FILE_NAME, files=files),
        bloom=bloom_filter(store_config),
        now_ms=clock.now_ms,
        clean_span_ms=config.filter_clean_span_ms,
    )
    filters.load()
    if config.property_filter:
        filters.make_filters()
    return filters


def _live_config(
    config: BrokerConfig, store_config: StoreConfig, overlay: Path | None
) -> LiveConfig[BrokerConfig]:
    """Return the settings with what was changed in earlier runs."""
    config = replace(config, **live_values(store_config))
    live = LiveConfig(
        config,
        SETTINGS,
        editable=EDITABLE,
        overlay=overlay,
        black_listed=lambda config: config.black_listed_keys,
    )
    live.check = lambda config: with_live_values(store_config, config)
    live.load()
    return live


def _follow_settings(
    live: LiveConfig[BrokerConfig], store: MessageStore, levels: LogLevels
) -> None:
    """Have settings obeyed that are changed while the broker runs."""

    def changed(config: BrokerConfig, _: frozenset[str]) -> None:
        store.reconfigure(with_live_values(store.config, config))
        levels.apply(config.log_levels)

    levels.apply(live.current.log_levels)
    live.on_change = changed
    live.check = lambda config: changed_while_open(store.config, config)


def _make_context(
    live: LiveConfig[BrokerConfig], store: MessageStore, filters: FilterTable, levels: LogLevels
) -> BrokerContext:
    directory, clock, config = store.config.root / "config", store.clock, live.current

    def dispatch() -> None:
        context.dispatch()

    _follow_settings(live, store, levels)

    def state(name: str) -> StateFile:
        return StateFile(directory / name, files=store.files)

    refused = RefusalCounts()
    topics = TopicTable(
        state("topics.json"),
        refused=refused,
        has_light_queues=store.config.enable_lmq,
        config=lambda: live.current,
        now_ms=clock.now_ms,
        delay_level_count=store.delay_levels.max_level,
    )
    groups = GroupTable(
        state("subscriptionGroup.json"),
        config=lambda: live.current,
        now_ms=clock.now_ms,
        has_light_queues=store.config.enable_lmq,
    )
    offsets = _make_offsets(state, has_light_queues=store.config.enable_lmq)
    for table in (topics, groups, offsets):
        table.load()
    held = HeldPulls(store, refused=refused, count_max=lambda: live.current.held_pull_count_max)
    slaves = SlaveTable(lag_size_max=store.config.ha_slave_lag_size_max)
    watchdog = TurnWatchdog(config.long_turn_ms)
    turns = _watched_turns(watchdog)
    statistics = BrokerStatistics(
        cluster=config.cluster, now_ms=clock.now_ms, has_queues=config.detail_statistics
    )
    context = BrokerContext(
        live_config=live,
        clock=clock,
        store=store,
        puts=_make_puts(store, slaves, dispatch),
        topics=topics,
        groups=groups,
        offsets=offsets,
        filters=filters,
        consumers=ConsumerTable(
            on_change=lambda group: _notify_members(context, group), on_empty=filters.unregister
        ),
        producers=ProducerTable(),
        locks=QueueLocks(config.lock_expiry_ms),
        held=held,
        cold_loads=ColdLoads(),
        late_sends=LateSends(store, dispatch=dispatch),
        packed_sends=PackedSends(dispatch=dispatch, stored=lambda: context.large_batches.stored()),
        large_batches=LargeBatches(turns, store, dispatch=dispatch),
        slaves=slaves,
        statistics=statistics,
        daily=DailyTotals(statistics, now_ms=clock.now_ms),
        watchdog=watchdog,
        turns=turns,
        latencies=RequestLatencies(turns),
        refused=refused,
        store_host=packed_host(config.ip1, config.listen_port),
        address=f"{config.ip1}:{config.listen_port}",
    )
    return context


def _make_offsets(state: Callable[[str], StateFile], *, has_light_queues: bool) -> OffsetTable:
    """Return the table of offsets; with light queues it has a file of its own, as in RocketMQ."""
    if has_light_queues:
        older = state("consumerOffset.json")
        return OffsetTable(state("lmqConsumerOffset.json"), older=older)
    return OffsetTable(state("consumerOffset.json"))


def _make_puts(
    store: MessageStore, slaves: SlaveTable, dispatch: Callable[[], None]
) -> DurablePuts:
    if store.config.broker_role is BrokerRole.SYNC_MASTER:
        # Only such a broker waits for slaves.
        from flintmq.broker.waiting.replicated_puts import ReplicatedPuts

        return ReplicatedPuts(store, slaves, dispatch=dispatch)
    return DurablePuts(store, dispatch=dispatch)


def _serve_slaves(
    context: BrokerContext, bound: socket.socket, tls: ServerTls | None
) -> AbstractAsyncContextManager[HaServer]:
    if context.config.ha_use_tls and tls is None:
        raise ConfigError("haUseTLS", "true", "false, unless tls.server.certPath is set")
    config = context.config
    is_closed = config.ha_use_tls or config.ha_slave_addresses or _is_loopback(bound)
    if config.acl_enable and not is_closed:
        logger.warning(
            "whoever connects to the replication port gets every message, whatever accounts "
            "may do: port=%d; see haUseTLS and haSlaveAddresses",
            bound.getsockname()[1],
        )
    return HaServer.listen(
        bound,
        context.store,
        context.slaves,
        cold_loads=context.cold_loads,
        now_ms=lambda: int(context.clock.monotonic() * 1000),
        tls=tls.context if tls is not None and context.config.ha_use_tls else None,
        may_follow=_slave_addresses(context.config),
    )


def _is_loopback(bound: socket.socket) -> bool:
    return bool(ipaddress.ip_address(bound.getsockname()[0]).is_loopback)


def _slave_addresses(config: BrokerConfig) -> Callable[[str], bool]:
    """Return what says whether a slave may come from an address."""
    if not config.ha_slave_addresses:
        return lambda host: True
    from flintmq.access.access_errors import AccessFileError
    from flintmq.access.address_patterns import parse_patterns

    try:
        return parse_patterns(config.ha_slave_addresses).match
    except AccessFileError as error:
        given = config.ha_slave_addresses
        raise ConfigError("haSlaveAddresses", given, "patterns of addresses") from error


def _follow_master(context: BrokerContext) -> AbstractAsyncContextManager[Replica]:
    # Only slaves need it.
    from flintmq.broker.replication.replica import Replica
    from flintmq.broker.replication.table_sync import FollowedTables

    store, config = context.store, context.config

    def follow_delays(progress: DelayProgress) -> None:
        store.schedule.follow(progress.levels)
        if progress.waiting is not None:
            try:
                store.waiting.progress.follow(progress.waiting)
            except WaitingStateError as error:
                raise BodyError(str(error)) from error

    return Replica.run(
        store,
        FollowedTables(context.topics, context.groups, context.offsets, follow_delays),
        dispatch=context.dispatch,
        turns=context.turns,
        prepare=own_requests(config),
        tls=outgoing_tls(config, use_tls=config.use_tls),
        stream_tls=outgoing_tls(config, use_tls=True) if config.ha_use_tls else None,
    )


def _access_control(context: BrokerContext) -> AbstractAsyncContextManager[AccessControl]:
    # Who has no access files needs no YAML either.
    from flintmq.access.access_start import run_access_control

    config, store = context.config, context.store

    def topic_at(offset: int) -> str | None:
        piece = store.select(offset) if offset >= 0 else None
        if piece is None:
            return None
        # The body is not read: it may be large, and on the disk only.
        with piece, contextlib.suppress(CorruptRecordError):
            topic = read_record_topic(piece.view)
            if topic in DUE_TIME_TOPICS or topic == TRANS_HALF_TOPIC:
                return read_record_properties(piece.view).get(REAL_TOPIC, topic)
            return topic
        return None

    return run_access_control(
        access_file(config.acl_file, config.rocketmq_home),
        white_list_grants=config.acl_white_list_grants,
        reload_interval_ms=config.acl_reload_interval_ms,
        now_ms=context.clock.now_ms,
        topic_at=topic_at,
        open_topics=frozenset({TRACE_TOPIC, config.trace_topic}),
    )


def _notify_members(context: BrokerContext, group: ConsumerGroup) -> None:
    """Tell all members of a group to share out its queues again."""
    config = context.groups.look(group.name)
    if not context.config.notify_ids_changed or (
        config is not None and not config.notify_ids_changed_enable
    ):
        return
    header = ConsumerGroupRequest(consumer_group=group.name)
    for connection in list(group.members):
        with contextlib.suppress(ConnectionLostError):
            connection.tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)


def _listen(
    context: BrokerContext, sockets: list[socket.socket], tls: ServerTls | None
) -> AbstractAsyncContextManager[RemotingServer]:
    def closed(connection: Connection) -> None:
        context.consumers.lost(connection)
        context.producers.lost(connection)
        context.held.drop(connection)

    return RemotingServer.listen(
        request_table(context),
        sockets=sockets,
        limits=server_limits(context.config),
        on_close=closed,
        on_end_of_read=context.dispatch,
        turns=context.turns,
        tls=tls,
        refused=context.refused,
        header_type=context.config.serialize_type.header_type,
    )


def _watched_turns(watchdog: TurnWatchdog) -> FairTurns:
    """Return turns whose long slices are noted, under the request that came last in them."""

    def ended(seconds: float, cause: int | str) -> None:
        if isinstance(cause, int):
            is_known = cause in RequestCode.__members__.values()
            cause = RequestCode(cause).name if is_known else "unknown request"
        watchdog.note(cause, seconds)

    turns = FairTurns()
    if watchdog.threshold_ms:
        turns.when_long(watchdog.threshold_ms / 1000, ended)
    return turns


async def _drain_puts(context: BrokerContext) -> None:
    """Let the answers that wait for the disk leave before connections are closed."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_TIMEOUT_MS / 1000):
            await context.puts.idle()


async def _persist_finally(context: BrokerContext) -> None:
    """Write what is not on the disk yet; one table that cannot be written keeps no other back."""
    for table in (context.topics, context.groups, context.offsets, context.filters):
        try:
            table.keeper.save_now()
        except StoreError as error:
            logger.error("state could not be written: reason=%s", error)  # noqa: TRY400
