"""Our producers and our consumer: they work as long as a run lasts, whatever happens."""

import asyncio
import contextlib
import random
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from flintmq import (
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeFrom,
    FlintError,
    Message,
    ReceivedMessage,
    SendResult,
    TransactionState,
)
from flintmq.model.message_queue import MessageQueue
from soak.measures import Measures
from soak.oracle import MessageId, Oracle, Place, Queue
from soak.servers import BROKER_NAME
from soak.topics import DELAYED, DELETED, FOLLOWED, OURS, PLAIN, QUEUE_COUNTS

SEND_TIMEOUT_MS: Final = 3000
PAUSE_AFTER_FAILURE_S: Final = 0.2
GIVEN_BACK_EVERY: Final = 97
"""Of so many messages of a producer, one is given back once and has to come again."""
LARGE_EVERY: Final = 200
BODY_SIZES: Final = (40, 1200)
LARGE_BODY_SIZE: Final = 100_000


class Lane(NamedTuple):
    """A producer that sends one message after the other."""

    name: str
    topic: str
    pause_s: float
    queue_id: int | None = None
    delay_level: int = 0
    is_transactional: bool = False


LANES: Final = (
    *(Lane(f"queue-{number}", PLAIN, 0.03, queue_id=number) for number in range(4)),
    *(Lane(f"turn-{number}", PLAIN, 0.03) for number in range(2)),
    *(Lane(f"deleted-{number}", DELETED, 0.02, queue_id=number) for number in range(2)),
    Lane("delayed", DELAYED, 0.2, delay_level=1),
    Lane("transactions", PLAIN, 0.2, is_transactional=True),
)


class Committed:
    """Decides every transaction for the message."""

    def execute(self, message: Message, argument: object) -> TransactionState:
        """Run the local part, of which there is none."""
        return TransactionState.COMMIT

    def check(self, message: ReceivedMessage) -> TransactionState:
        """Tell a broker that did not hear how it ended."""
        return TransactionState.COMMIT


class Load:
    """The lanes and the push consumer of a run."""

    def __init__(
        self, namesrv: str, oracle: Oracle, measures: Measures, *, random_numbers: random.Random
    ) -> None:
        self._namesrv = namesrv
        self._oracle = oracle
        self._measures = measures
        self._random = random_numbers
        self._is_over = asyncio.Event()
        self._may_close = asyncio.Event()

    def end_sending(self) -> None:
        """Let each lane end after the send that is under way."""
        self._is_over.set()

    def close(self) -> None:
        """Let the producer go, which until now tells how its transactions ended."""
        self._may_close.set()

    async def send(self) -> None:
        """Send until `end_sending` is called, then wait for `close`."""
        async with AsyncProducer(
            namesrv=self._namesrv,
            group="soak-producers",
            retries=0,
            send_timeout_ms=SEND_TIMEOUT_MS,
            route_interval_ms=2000,
            heartbeat_interval_ms=2000,
            transaction_listener=Committed(),
        ) as producer:
            async with asyncio.TaskGroup() as tasks:
                for lane in LANES:
                    tasks.create_task(self._run(producer, lane), name=lane.name)
            await self._may_close.wait()

    async def _run(self, producer: AsyncProducer, lane: Lane) -> None:
        for number, body_size in enumerate(self._body_sizes()):
            if self._is_over.is_set():
                return
            one = MessageId(lane.name, number)
            message = Message(
                topic=lane.topic,
                body=f"{one.text} ".ljust(body_size, "x").encode(),
                tag="soak",
                keys=[one.text],
                delay_level=lane.delay_level,
            )
            self._oracle.sending(one, lane.topic)
            pause_s = lane.pause_s
            began = time.monotonic()
            try:
                place = await self._send(producer, lane, message)
            except FlintError:
                self._oracle.failed(one)
                self._measures.send_failed(OURS)
                pause_s = PAUSE_AFTER_FAILURE_S
            else:
                self._oracle.acknowledged(one, place)
                self._measures.sent(OURS, time.monotonic() - began)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_over.wait(), pause_s)

    async def _send(self, producer: AsyncProducer, lane: Lane, message: Message) -> Place | None:
        """Send a message; return its place, or None if it is to be moved to another one."""
        if lane.is_transactional:
            ended = await producer.send_in_transaction(message, None)
            _check(ended.sent)
            return None
        queue = None
        if lane.queue_id is not None:
            queue = MessageQueue(lane.topic, BROKER_NAME, lane.queue_id)
        result = await producer.send(message, queue=queue)
        _check(result)
        if lane.delay_level:
            return None
        return Place(Queue(lane.topic, result.queue.queue_id), result.queue_offset)

    def _body_sizes(self) -> Iterator[int]:
        while True:
            is_large = self._random.randrange(LARGE_EVERY) == 0
            yield LARGE_BODY_SIZE if is_large else self._random.randint(*BODY_SIZES)

    def consumer(self) -> AsyncPushConsumer:
        """Return the push consumer; it gives some messages back, and has to get them again."""
        return AsyncPushConsumer(
            namesrv=self._namesrv,
            group="soak-consumers",
            subscriptions=dict.fromkeys(FOLLOWED, "*"),
            handler=self._handle,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            offset_interval_ms=1000,
            route_interval_ms=2000,
            heartbeat_interval_ms=2000,
        )

    async def _handle(self, message: ReceivedMessage) -> bool:
        try:
            one = MessageId.parse(message.body.decode())
        except ValueError as error:
            self._oracle.broken("message that nobody sent", str(error))
            return True
        if one.number % GIVEN_BACK_EVERY == 1 and not message.reconsume_times:
            return False
        self._oracle.delivered(OURS, one)
        return True


class NotStoredSafelyError(FlintError):
    """A broker took a message, but could not sync it in time."""


def _check(result: SendResult) -> None:
    if not result.ok:
        raise NotStoredSafelyError(result.status.value)


def all_queues() -> list[Queue]:
    """Return the queues of all topics of a run."""
    return [
        Queue(topic, queue_id) for topic, count in QUEUE_COUNTS.items() for queue_id in range(count)
    ]
