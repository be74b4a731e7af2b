"""Measuring a cluster as a client sees it: how fast it takes messages, gives them, and how soon.

The load is made by this process alone, so the figures have it in them: one process of ours reaches
the limit of a core before a broker does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from flintmq.admin.admin_errors import is_denial
from flintmq.admin.topic_tail import TOOLS_GROUP, TopicTail, existing_queues
from flintmq.client.errors import UsageError
from flintmq.client.messaging.messages import Message
from flintmq.client.producing.producer import AsyncProducer
from flintmq.client.pulling.pull_consumer import AsyncPullConsumer
from flintmq.errors import FlintError
from flintmq.metrics.histograms import LatencyHistogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.client.instance import ClientInstance
    from flintmq.model.message_queue import MessageQueue

PRODUCER_GROUP: Final = "flintmq_bench"
RUN_PROPERTY: Final = "flintmq_bench_run"
NUMBER_PROPERTY: Final = "flintmq_bench_number"
FAILURES_IN_A_ROW_MAX: Final = 100
"""After so many a cluster is taken for broken."""
STRAGGLERS_S: Final = 10.0
"""How long messages that were sent are waited for at the end."""
IN_FLIGHT_MAX: Final = 4096
SECONDS_MAX: Final = 86_400
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """What is done, and for how long: until the time is over or so many messages are done."""

    topic: str
    seconds: float = 10.0
    count_max: int | None = None
    size: int = 128
    """Bytes of a body."""
    in_flight: int = 64
    """Requests that wait for their answers at a time."""
    batch_count: int = 1
    """Messages of one request."""
    rate: float | None = None
    """Messages a second; as many as there can be unless set."""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("seconds", 0.0, SECONDS_MAX),
            ("size", 0, 4 << 20),
            ("in_flight", 1, IN_FLIGHT_MAX),
            ("batch_count", 1, 1024),
        ):
            if not low <= getattr(self, name) <= high:
                raise UsageError(f"{name} must be from {low} to {high}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """How long something took, in milliseconds."""

    mean: float
    p50: float
    p90: float
    p99: float
    p999: float
    max: float

    @classmethod
    def of(cls, histogram: LatencyHistogram) -> Latencies:
        """Return the figures of a histogram."""
        fractions = (0.5, 0.9, 0.99, 0.999)
        found = [round(histogram.percentile_us(one) / 1000, 3) for one in fractions]
        mean, most = round(histogram.mean_us / 1000, 3), round(histogram.max_us / 1000, 3)
        return cls(mean=mean, p50=found[0], p90=found[1], p99=found[2], p999=found[3], max=most)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchFigures:
    """What was measured."""

    operation: str
    messages: int
    failed: int
    seconds: float
    rate: float
    """Messages a second."""
    mib_per_second: float
    latency: Latencies
    """Of a send until its answer, of a pull until its answer, or of a message until it is there."""


@dataclass(slots=True)
class BenchMeter:
    """Counts while a benchmark runs; others may look at it."""

    operation: str
    now: Callable[[], float] = time.monotonic
    messages: int = 0
    failed: int = 0
    size: int = 0
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    began: float = 0.0
    ended: float | None = None
    last_error: FlintError | None = None
    """Why the last request that failed did."""
    _failures_in_a_row: int = 0

    def begin(self) -> None:
        """Begin to measure."""
        self.began = self.now()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning, or until the end."""
        return (self.now() if self.ended is None else self.ended) - self.began

    def note(self, count: int, size: int, elapsed_s: float) -> None:
        """Count what one request has done."""
        self.messages += count
        self.size += size
        self.latency.record(max(round(elapsed_s * 1_000_000), 0))
        self._failures_in_a_row = 0

    def note_failure(self, count: int, error: FlintError) -> None:
        """Count what one request has not done; raise the error if that goes on."""
        self.failed += count
        self.last_error = error
        self._failures_in_a_row += 1
        is_hopeless = isinstance(error, UsageError) or is_denial(error)
        if is_hopeless or self._failures_in_a_row >= FAILURES_IN_A_ROW_MAX:
            raise error

    def figures(self) -> BenchFigures:
        """Return what was measured so far."""
        seconds = max(self.elapsed_s, 1e-9)
        return BenchFigures(
            operation=self.operation,
            messages=self.messages,
            failed=self.failed,
            seconds=round(seconds, 3),
            rate=round(self.messages / seconds, 1),
            mib_per_second=round(self.size / _MIB / seconds, 3),
            latency=Latencies.of(self.latency),
        )


class _Pace:
    """Hands out numbers, no faster than the plan says, until the plan is fulfilled."""

    def __init__(self, plan: BenchPlan, meter: BenchMeter) -> None:
        self._plan = plan
        self._meter = meter
        self._handed_out = 0

    async def take(self, count: int) -> int | None:
        """Return the first of some numbers when it is time for them; None at the end."""
        plan, meter, first = self._plan, self._meter, self._handed_out
        if plan.count_max is not None and first + count > plan.count_max:
            return None
        self._handed_out += count
        due = meter.began + (0.0 if plan.rate is None else first / plan.rate)
        if due >= meter.began + plan.seconds:
            return None
        if due > meter.now():
            await asyncio.sleep(due - meter.now())
        return None if meter.elapsed_s >= plan.seconds else first


async def _together(*works: asyncio.Task[None]) -> None:
    """Wait for all; the first error ends the others."""
    try:
        await asyncio.gather(*works)
    finally:
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)


async def bench_producer(client: ClientInstance, plan: BenchPlan, meter: BenchMeter) -> None:
    """Send messages to a topic, and measure each send until it is answered."""
    body = b"x" * plan.size

    async with AsyncPullConsumer(group=TOOLS_GROUP, client=client) as consumer:
        await existing_queues(consumer, plan.topic)  # A bench makes no topic.
    async with AsyncProducer(group=PRODUCER_GROUP, client=client) as producer:
        await producer.queues(plan.topic)  # The route is not measured.
        meter.begin()
        pace = _Pace(plan, meter)

        async def work() -> None:
            while await pace.take(plan.batch_count) is not None:
                began = meter.now()
                try:
                    if plan.batch_count == 1:
                        await producer.send(Message(topic=plan.topic, body=body))
                    else:
                        batch = [Message(topic=plan.topic, body=body)] * plan.batch_count
                        await producer.send_batch(batch)
                except FlintError as error:
                    meter.note_failure(plan.batch_count, error)
                else:
                    size = plan.size * plan.batch_count
                    meter.note(plan.batch_count, size, meter.now() - began)

        await _together(*(asyncio.create_task(work()) for _ in range(plan.in_flight)))
        meter.ended = meter.now()


async def bench_consumer(client: ClientInstance, plan: BenchPlan, meter: BenchMeter) -> None:
    """Pull what a topic has, from its oldest messages on, and measure each pull."""
    async with AsyncPullConsumer(group=TOOLS_GROUP, client=client) as consumer:
        queues = await existing_queues(consumer, plan.topic)
        begins = await asyncio.gather(*map(consumer.begin_offset, queues))
        ends = await asyncio.gather(*map(consumer.end_offset, queues))
        meter.begin()

        async def work(queue: MessageQueue, offset: int, end: int) -> None:
            while offset < end and meter.elapsed_s < plan.seconds:
                if plan.count_max is not None and meter.messages >= plan.count_max:
                    return
                began = meter.now()
                try:
                    pulled = await consumer.pull(queue, offset, count_max=plan.batch_count)
                except FlintError as error:
                    meter.note_failure(0, error)
                    continue
                size = sum(message.stored_body_size for message in pulled.messages)
                meter.note(len(pulled.messages), size, meter.now() - began)
                if pulled.next_offset <= offset:
                    return
                offset = pulled.next_offset

        places = zip(queues, begins, ends, strict=True)
        await _together(*(asyncio.create_task(work(*place)) for place in places))
        meter.ended = meter.now()


async def bench_latency(client: ClientInstance, plan: BenchPlan, meter: BenchMeter) -> None:
    """Send messages and receive them; measure each from the call of send until it is there.

    Messages of others in the topic are left out.
    """
    run, body, numbers = uuid.uuid4().hex, b"x" * plan.size, itertools.count()
    sent_at: dict[int, float] = {}
    all_there = asyncio.Event()
    async with (
        AsyncProducer(group=PRODUCER_GROUP, client=client) as producer,
        TopicTail.following(client, plan.topic) as tail,
    ):
        meter.begin()
        pace = _Pace(plan, meter)

        async def send() -> None:
            while await pace.take(1) is not None:
                number = next(numbers)
                marks = {RUN_PROPERTY: run, NUMBER_PROPERTY: str(number)}
                sent_at[number] = meter.now()
                try:
                    await producer.send(Message(topic=plan.topic, body=body, properties=marks))
                except FlintError as error:
                    sent_at.pop(number, None)
                    meter.note_failure(1, error)

        async def receive() -> None:
            while True:
                message = await tail.next()
                if message is None or message.properties.get(RUN_PROPERTY) != run:
                    continue
                began = sent_at.pop(int(message.properties[NUMBER_PROPERTY]), None)
                if began is not None:
                    meter.note(1, plan.size, meter.now() - began)
                if not sent_at:
                    all_there.set()

        def ended(task: asyncio.Task[None]) -> None:
            all_there.set()  # Nobody receives any more.

        receiving = asyncio.create_task(receive())
        receiving.add_done_callback(ended)
        try:
            await _together(*(asyncio.create_task(send()) for _ in range(plan.in_flight)))
            meter.ended = meter.now()
            if sent_at and not receiving.done():
                all_there.clear()  # It may have been so once before.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STRAGGLERS_S):
                        await all_there.wait()
            meter.failed += len(sent_at)
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
        if not receiving.cancelled() and (error := receiving.exception()) is not None:
            raise error
