"""What the processors of a broker share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flintmq.broker.tables.fetched_table import FetchedOffsets
from flintmq.store.config import BrokerRole

if TYPE_CHECKING:
    from flintmq.access.access_control import AccessControl
    from flintmq.broker.config import BrokerConfig
    from flintmq.broker.replication.ha_server import HaServer
    from flintmq.broker.replication.replica import Replica
    from flintmq.broker.replication.slave_table import SlaveTable
    from flintmq.broker.statistics.broker_statistics import BrokerStatistics
    from flintmq.broker.statistics.daily_totals import DailyTotals
    from flintmq.broker.tables.client_tables import ConsumerTable, ProducerTable
    from flintmq.broker.tables.filter_table import FilterTable
    from flintmq.broker.tables.group_table import GroupTable
    from flintmq.broker.tables.offset_table import OffsetTable
    from flintmq.broker.tables.queue_lock_table import QueueLocks
    from flintmq.broker.tables.topic_table import TopicTable
    from flintmq.broker.turn_watchdog import TurnWatchdog
    from flintmq.broker.waiting.cold_loads import ColdLoads
    from flintmq.broker.waiting.durable_puts import DurablePuts
    from flintmq.broker.waiting.held_pulls import HeldPulls
    from flintmq.broker.waiting.late_sends import LateSends
    from flintmq.remoting.fair_turns import FairTurns
    from flintmq.remoting.refusal_counts import RefusalCounts
    from flintmq.remoting.request_latencies import RequestLatencies
    from flintmq.settings.live_config import LiveConfig
    from flintmq.store.clock import Clock
    from flintmq.store.message_store import MessageStore


@dataclass(slots=True, kw_only=True)
class BrokerContext:
    """The tables and services of one broker."""

    live_config: LiveConfig[BrokerConfig]
    clock: Clock
    store: MessageStore
    puts: DurablePuts
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    filters: FilterTable
    consumers: ConsumerTable
    producers: ProducerTable
    locks: QueueLocks
    held: HeldPulls
    cold_loads: ColdLoads
    late_sends: LateSends
    slaves: SlaveTable
    statistics: BrokerStatistics
    daily: DailyTotals
    watchdog: TurnWatchdog
    turns: FairTurns
    latencies: RequestLatencies
    """How long requests took until they were answered."""
    store_host: bytes
    """Address and port of this broker as records have them."""
    address: str
    """Address and port of this broker as clients are told them."""
    refused: RefusalCounts
    """What was refused because there was too much of it."""
    fetched: FetchedOffsets = field(default_factory=FetchedOffsets)
    access: AccessControl | None = None
    """Whose requests are handled; None: everybody's."""

    ha_server: HaServer | None = None
    """Streams the log to slaves; None before the broker listens for them."""
    replica: Replica | None = None
    """What a slave does to follow its master; None on a master."""

    def dispatch(self) -> None:
        """Enter stored messages into their queues and answer the pulls that waited for them.

        Slaves get what has become readable.
        """
        self.store.dispatch()
        self.held.wake()
        if self.ha_server is not None and self.slaves.links:
            self.ha_server.wake()

    @property
    def is_slave(self) -> bool:
        """Whether this broker follows a master, and takes no messages."""
        return self.store.config.broker_role is BrokerRole.SLAVE

    @property
    def config(self) -> BrokerConfig:
        """The settings as they are now."""
        return self.live_config.current
