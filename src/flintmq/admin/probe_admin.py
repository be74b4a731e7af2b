"""Probes: test messages that tell how long brokers take to store one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flintmq.admin.message_admin import ADMIN_GROUP
from flintmq.admin.statistics_admin import StatisticsAdmin
from flintmq.client.errors import UsageError
from flintmq.client.messaging.messages import Message
from flintmq.client.producing.producer import AsyncProducer
from flintmq.errors import FlintError
from flintmq.model.message_queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Iterable

PROBE_COUNT_MAX: Final = 100_000
PROBE_SIZE_MAX: Final = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SendProbe:
    """How long one test message took."""

    broker: str
    queue_id: int
    is_ok: bool
    elapsed_ms: float
    offset_message_id: str | None = None
    error: FlintError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRoundTrip:
    """How long one broker takes to store messages."""

    cluster: str
    broker: str
    average_ms: float | None
    ok_count: int
    failed_count: int


class ProbeAdmin(StatisticsAdmin):
    """Operations that send test messages."""

    async def probe_topic(
        self, topic: str, *, count: int = 100, size: int = 128
    ) -> list[SendProbe]:
        """Send test messages to the queues of a topic in turn; the first one opens connections."""
        _check(count, size)
        async with AsyncProducer(group=ADMIN_GROUP, client=self.client) as producer:
            queues = await producer.queues(topic)
            if not queues:
                raise UsageError(f"no queue of {topic!r} can be written to")
            wanted = [queues[number % len(queues)] for number in range(count)]
            return await _probe(producer, wanted, size)

    async def probe_broker(
        self, broker: str, *, count: int = 50, size: int = 128
    ) -> list[SendProbe]:
        """Send test messages to the topic that is named after a broker."""
        _check(count, size)
        async with AsyncProducer(group=ADMIN_GROUP, client=self.client) as producer:
            await self.client.routes.fetch(broker)
            return await _probe(producer, [MessageQueue(broker, broker, 0)] * count, size)

    async def probe_cluster(
        self, *, cluster: str | None = None, count: int = 100, size: int = 128
    ) -> list[BrokerRoundTrip]:
        """Send test messages to each broker of a cluster, or of all clusters."""
        _check(count, size)
        if cluster is not None:
            await self.places(cluster=cluster, masters_only=False)
        info = await self.cluster_info()
        rows = []
        for name, brokers in sorted(info.clusters.items()):
            for broker in sorted(brokers) if cluster in (None, name) else ():
                probes = await self.probe_broker(broker, count=count, size=size)
                good = [one.elapsed_ms for one in probes if one.is_ok]
                rows.append(
                    BrokerRoundTrip(
                        cluster=name,
                        broker=broker,
                        average_ms=sum(good) / len(good) if good else None,
                        ok_count=len(good),
                        failed_count=len(probes) - len(good),
                    )
                )
        return rows


def _check(count: int, size: int) -> None:
    if not 0 < count <= PROBE_COUNT_MAX:
        raise UsageError(f"from 1 to {PROBE_COUNT_MAX} messages, not {count}")
    if not 0 < size <= PROBE_SIZE_MAX:
        raise UsageError(f"bodies of 1 to {PROBE_SIZE_MAX} bytes, not {size}")


async def _probe(
    producer: AsyncProducer, queues: Iterable[MessageQueue], size: int
) -> list[SendProbe]:
    probes, body = [], b"x" * size
    for queue in queues:
        began = time.perf_counter()
        try:
            result = await producer.send(Message(topic=queue.topic, body=body), queue=queue)
        except FlintError as error:
            probes.append(_probe_row(queue, began, error=error))
        else:
            probes.append(_probe_row(queue, began, offset_id=result.offset_message_id))
    return probes


def _probe_row(
    queue: MessageQueue,
    began: float,
    *,
    offset_id: str | None = None,
    error: FlintError | None = None,
) -> SendProbe:
    return SendProbe(
        broker=queue.broker_name,
        queue_id=queue.queue_id,
        is_ok=error is None,
        elapsed_ms=(time.perf_counter() - began) * 1000,
        offset_message_id=offset_id,
        error=error,
    )
