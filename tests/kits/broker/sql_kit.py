"""Consumers that choose messages by SQL92, as tests have them."""

import json
from typing import Any, Final

from flintmq.format.subscription import build_subscription
from flintmq.format.wire.bodies.heartbeat import ConsumerData
from flintmq.format.wire.codes import RequestCode
from flintmq.model.subscription import Subscription
from tests.kits.broker.broker_kit import Wire

ON: Final = {"enablePropertyFilter": "true"}


def sql(topic: str, expression: str, *, version: int = 1) -> Subscription:
    return build_subscription(topic, expression, "SQL92", version=version)


def group_of(*subscriptions: Subscription, group: str = "consumers") -> ConsumerData:
    return ConsumerData(group=group, subscriptions=subscriptions)


async def send_numbers(wire: Wire, count: int, topic: str = "orders") -> None:
    for number in range(count):
        color = {"color": "red"} if number % 2 else {}
        await wire.send(topic, b"%d" % number, properties={"n": str(number)} | color)


async def check(wire: Wire, expression: str, kind: str = "SQL92") -> tuple[int, str | None]:
    data = {"topic": "orders", "subString": expression, "expressionType": kind}
    body = {"clientId": "c", "group": "g", "subscriptionData": data}
    answer = await wire.call(RequestCode.CHECK_CLIENT_CONFIG, None, json.dumps(body).encode())
    return answer.code, answer.remark


async def bodies(wire: Wire, topic: str = "orders", **more: Any) -> list[bytes]:
    return [bytes(record.body) for record in await wire.pull(topic, **more)]
