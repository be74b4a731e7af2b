"""What the processors of a broker share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.broker.clients import ConsumerTable, ProducerTable
    from flintmq.broker.config import BrokerConfig
    from flintmq.broker.daily_totals import DailyTotals
    from flintmq.broker.durable_puts import DurablePuts
    from flintmq.broker.groups import GroupTable
    from flintmq.broker.held_pulls import HeldPulls
    from flintmq.broker.offsets import OffsetTable
    from flintmq.broker.queue_locks import QueueLocks
    from flintmq.broker.statistics import BrokerStatistics
    from flintmq.broker.topics import TopicTable
    from flintmq.settings.live_config import LiveConfig
    from flintmq.store.clock import Clock
    from flintmq.store.message_store import MessageStore


@dataclass(slots=True, kw_only=True)
class BrokerParts:
    """The tables and services of one broker."""

    live_config: LiveConfig[BrokerConfig]
    clock: Clock
    store: MessageStore
    puts: DurablePuts
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    consumers: ConsumerTable
    producers: ProducerTable
    locks: QueueLocks
    held: HeldPulls
    statistics: BrokerStatistics
    daily: DailyTotals
    store_host: bytes
    """Address and port of this broker as records have them."""
    address: str
    """The same as clients are told."""

    def dispatch(self) -> None:
        """Bring what was stored into the queues and answer the pulls that waited for it."""
        self.store.dispatch()
        self.held.wake()

    @property
    def config(self) -> BrokerConfig:
        """The settings as they are now."""
        return self.live_config.current
