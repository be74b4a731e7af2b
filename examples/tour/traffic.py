"""The live part of the tour: producers fill the topics, consumers empty them."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from examples.tour import shop
from flintmq import AsyncProducer, AsyncPushConsumer, ConsumeFrom, Message, ReceivedMessage

BATCH_COUNT: Final = 500
IN_FLIGHT_COUNT: Final = 512
TRIES_MAX: Final = 2
"""How often a payment that failed is tried again."""
WAIT_S: Final = 300


@dataclass(slots=True)
class Sent:
    """How many messages went where."""

    orders: int = 0
    payments: int = 0
    reminders: int = 0
    declined: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.orders + self.payments + self.reminders


async def send_orders(namesrv: str, count: int) -> int:
    """Send orders in batches; return how many."""
    async with AsyncProducer(namesrv=namesrv, group="shop") as producer:
        messages = map(shop.order_message, shop.orders(count))
        while batch := list(itertools.islice(messages, BATCH_COUNT)):
            await producer.send_batch(batch)
    return count


async def send_payments(namesrv: str, count: int) -> Sent:
    """Send the payments of the first orders one by one, many in flight at a time."""
    sent = Sent()
    async with AsyncProducer(namesrv=namesrv, group="bank") as producer:
        messages = itertools.chain.from_iterable(map(shop.payment_messages, shop.orders(count)))
        while some := list(itertools.islice(messages, IN_FLIGHT_COUNT)):
            await asyncio.gather(*map(producer.send, some))
            _count(sent, some)
    return sent


def _count(sent: Sent, messages: Iterable[Message]) -> None:
    for message in messages:
        if message.topic == shop.REMINDERS:
            sent.reminders += 1
        else:
            sent.payments += 1
            sent.declined += json.loads(message.body)["declined"]


@dataclass(slots=True)
class Consumed:
    """What the consumers of the shop have seen."""

    orders: int = 0
    payments: int = 0
    reminders: int = 0
    tries_of_declined: int = 0
    cents: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, sent: Sent) -> None:
        """Wait until everything was seen, and what is declined was tried for the last time."""
        wanted = sent.declined * (TRIES_MAX + 1)
        async with asyncio.timeout(WAIT_S):
            while (
                self.orders < sent.orders
                or self.payments < sent.payments - sent.declined
                or self.reminders < sent.reminders
                or self.tries_of_declined < wanted
            ):
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def consumers(namesrv: str) -> AsyncIterator[Consumed]:
    """Run the warehouse, the accounting and the post office of the shop."""
    consumed = Consumed()

    async def pack(messages: list[ReceivedMessage]) -> None:
        consumed.orders += len(messages)
        consumed.changed.set()

    async def book(message: ReceivedMessage) -> bool:
        payment = json.loads(message.body)
        consumed.changed.set()
        if payment["declined"]:
            consumed.tries_of_declined += 1
            return False
        consumed.payments += 1
        consumed.cents += payment["amount"]
        return True

    async def remind(message: ReceivedMessage) -> None:
        consumed.reminders += 1
        consumed.changed.set()

    def consumer(group: str, topic: str, handler: object, **more: object) -> AsyncPushConsumer:
        return AsyncPushConsumer(
            namesrv=namesrv,
            group=group,
            subscriptions={topic: "*"},
            handler=handler,  # type: ignore[arg-type]
            consume_from=ConsumeFrom.FIRST_OFFSET,
            **more,  # type: ignore[arg-type]
        )

    async with (
        consumer("warehouse", shop.ORDERS, pack, batch_size=32),
        consumer("accounting", shop.PAYMENTS, book, reconsume_times_max=TRIES_MAX),
        consumer("post-office", shop.REMINDERS, remind),
    ):
        yield consumed
