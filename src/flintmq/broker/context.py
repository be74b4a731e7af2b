"""What the processors of a broker share."""

from __future__ import annotations

import logging
from dataclasses import field
from typing import TYPE_CHECKING, Final

from flintmq.broker.tables.fetched_table import FetchedOffsets
from flintmq.model.value_class import NamedFields, named_fields
from flintmq.store.config import BrokerRole

if TYPE_CHECKING:
    import asyncio

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
    from flintmq.broker.waiting.large_batches import LargeBatches
    from flintmq.broker.waiting.late_sends import LateSends
    from flintmq.broker.waiting.packed_sends import PackedSends
    from flintmq.format.stored.record import Record
    from flintmq.model.steps import Steps
    from flintmq.remoting.fair_turns import FairTurns
    from flintmq.remoting.peer import Peer
    from flintmq.remoting.refusal_counts import RefusalCounts
    from flintmq.remoting.request_latencies import RequestLatencies
    from flintmq.settings.live_config import LiveConfig
    from flintmq.store.clock import Clock
    from flintmq.store.message_store import MessageStore

logger = logging.getLogger(__name__)

UNDISPATCHED_SIZE_MAX: Final = 1 << 20
"""Bytes of the log that are not in their queues when whoever sends batches has to wait."""


@named_fields
class BrokerContext(NamedFields):
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
    packed_sends: PackedSends
    large_batches: LargeBatches
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

    is_dispatching: bool = False
    """Whether messages are entered into their queues in slices, since there are many."""
    dispatching: asyncio.Future[None] | None = None
    """Done when the last of those are, or were, in their queues."""

    ha_server: HaServer | None = None
    """Streams the log to slaves; None before the broker listens for them."""
    replica: Replica | None = None
    """What a slave does to follow its master; None on a master."""

    @property
    def dispatches_later(self) -> bool:
        """Whether what waits has turns of its own, in which it is entered slice by slice.

        A turn may bring hundreds of reads: with a slice for each nobody else would have his turn.
        """
        return self.is_dispatching and self.store.dispatcher.is_cut_short

    def dispatch(self) -> None:
        """Enter stored messages into their queues and answer the pulls that waited for them.

        Slaves get what has become readable.  What takes longer than a turn of the loop has time is
        gone on with in later ones.
        """
        self.store.dispatch()
        self.held.wake()
        if self.ha_server is not None and self.slaves.links:
            self.ha_server.wake()
        if self.store.dispatcher.is_cut_short and not self.is_dispatching:
            self.is_dispatching = True
            self.dispatching = self.turns.run(self._dispatch_steps(), "dispatch")
            self.dispatching.add_done_callback(_log_failure)

    def _dispatch_steps(self) -> Steps[None]:
        try:
            while self.store.dispatcher.is_cut_short:
                yield
                self.dispatch()
        finally:
            self.is_dispatching = False

    def hold_back(self, peer: Peer) -> None:
        """Have a peer that has sent many messages wait while too many are not in their queues.

        Otherwise producers with large batches would leave consumers ever further behind.
        """
        work = self.dispatching
        if self.is_dispatching and work and self.store.dispatcher.behind > UNDISPATCHED_SIZE_MAX:
            peer.wait_for(work)

    def look(self, physical_offset: int) -> Record | None:
        """Return the message that a client names by its place in the log.

        With access control it has to be one that a queue leads to: a sender could write into a body
        what looks like a record of a topic that he may read, and covers those of others.
        """
        record = self.store.look(physical_offset)
        is_message = record is not None and (self.access is None or self.store.is_entered(record))
        return record if is_message else None

    @property
    def is_slave(self) -> bool:
        """Whether this broker follows a master, and takes no messages."""
        return self.store.config.broker_role is BrokerRole.SLAVE

    @property
    def config(self) -> BrokerConfig:
        """The settings as they are now."""
        return self.live_config.current


def _log_failure(work: asyncio.Future[None]) -> None:
    if not work.cancelled() and (error := work.exception()) is not None:
        logger.error("messages were not entered into their queues", exc_info=error)
