"""The business of the tour: a shop that takes orders and payments, the same for the same seed."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from flintmq import Message

ORDERS: Final = "orders"
PAYMENTS: Final = "payments"
REMINDERS: Final = "reminders"

CITIES: Final = ("Berlin", "Lisbon", "Lyon", "Oslo", "Porto", "Riga", "Turin", "Vienna")
CHANNELS: Final = ("web", "web", "web", "app", "app", "store")
METHODS: Final = ("card", "card", "card", "invoice", "voucher")
PRICES: Final = {"apples": 240, "bread": 390, "cheese": 1290, "coffee": 890, "tea": 650}
CUSTOMER_COUNT: Final = 5000
DECLINED_EVERY: Final = 2000
"""One payment of so many is declined for good."""
REMIND_EVERY: Final = 20
"""One invoice of so many gets a reminder, some seconds later."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a customer wants."""

    number: int
    customer: int
    city: str
    channel: str
    items: dict[str, int]

    @property
    def amount(self) -> int:
        """What it costs, in cents."""
        return sum(PRICES[item] * count for item, count in self.items.items())

    @property
    def key(self) -> str:
        """The key to find it by."""
        return f"order-{self.number}"


def orders(count: int, *, seed: int = 7) -> Iterator[Order]:
    """Yield so many orders."""
    random = Random(seed)
    names = tuple(PRICES)
    for number in range(count):
        bought = random.choices(names, k=random.randint(1, 4))
        yield Order(
            number,
            customer=int(random.paretovariate(0.6)) % CUSTOMER_COUNT,
            city=random.choice(CITIES),
            channel=random.choice(CHANNELS),
            items={name: bought.count(name) for name in bought},
        )


def order_message(order: Order) -> Message:
    """Return the message of an order; those of a customer stay in order."""
    body = {
        "order": order.number,
        "customer": order.customer,
        "city": order.city,
        "items": order.items,
        "amount": order.amount,
    }
    return Message(
        topic=ORDERS,
        body=json.dumps(body).encode(),
        tag=order.channel,
        keys=[order.key, f"customer-{order.customer}"],
    )


def payment_messages(order: Order) -> Iterator[Message]:
    """Yield how an order is paid: a payment, and for some a reminder that comes later."""
    method = METHODS[order.number % len(METHODS)]
    is_declined = order.number % DECLINED_EVERY == DECLINED_EVERY - 1
    body = {"order": order.number, "amount": order.amount, "declined": is_declined}
    yield Message(topic=PAYMENTS, body=json.dumps(body).encode(), tag=method, keys=[order.key])
    if method == "invoice" and order.number // len(METHODS) % REMIND_EVERY == 0:
        yield Message(
            topic=REMINDERS,
            body=f"please pay order {order.number}".encode(),
            keys=[order.key],
            delay_level=2,
        )
