"""Heartbeats: which groups a client takes part in, and what it subscribes to."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from flintmq.format.wire.bodies.dialect import BodyError, Members, dumps_body, loads_body
from flintmq.model.subscription import EVERYTHING, TAG, Subscription
from flintmq.model.value_class import Value, value_class

CONSUME_TYPES: Final = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY")
MESSAGE_MODELS: Final = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM: Final = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)

GROUP_COUNT_MAX: Final = 10_000
SUBSCRIPTION_COUNT_MAX: Final = 10_000


@value_class
class ConsumerData(Value):
    """One consumer group of a client."""

    group: str
    consume_type: str = CONSUME_TYPES[1]
    message_model: str = MESSAGE_MODELS[1]
    consume_from: str = CONSUME_FROM[0]
    subscriptions: tuple[Subscription, ...] = ()
    unit_mode: bool = False


@value_class
class Heartbeat(Value):
    """What a client says of itself every half minute."""

    client_id: str
    producer_groups: tuple[str, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()


def decode_heartbeat(body: bytes, *, loads: Callable[[bytes], Any] = loads_body) -> Heartbeat:
    """Return the heartbeat in ``body``, of whatever client, read by the parser ``loads``."""
    members = Members(loads(body), "a heartbeat")
    producers, consumers = members.items("producerDataSet"), members.items("consumerDataSet")
    if len(producers) + len(consumers) > GROUP_COUNT_MAX:
        raise BodyError(f"a heartbeat of more than {GROUP_COUNT_MAX} groups")
    return Heartbeat(
        client_id=members.name("clientID"),
        producer_groups=tuple(Members(one, "a producer").name("groupName") for one in producers),
        consumers=tuple(map(_consumer, consumers)),
    )


def _consumer(value: Any) -> ConsumerData:
    members = Members(value, "a consumer")
    subscriptions = members.items("subscriptionDataSet")
    if len(subscriptions) > SUBSCRIPTION_COUNT_MAX:
        raise BodyError(f"a consumer of more than {SUBSCRIPTION_COUNT_MAX} topics")
    return ConsumerData(
        group=members.name("groupName"),
        consume_type=members.choice("consumeType", CONSUME_TYPES, CONSUME_TYPES[1]),
        message_model=members.choice("messageModel", MESSAGE_MODELS, MESSAGE_MODELS[1]),
        consume_from=members.choice("consumeFromWhere", CONSUME_FROM, CONSUME_FROM[0]),
        subscriptions=tuple(map(subscription_from_json, subscriptions)),
        unit_mode=members.truth("unitMode", default=False),
    )


def subscription_from_json(value: Any) -> Subscription:
    """Return a subscription; Go sends the codes as text, C++ leaves out what is empty."""
    members = Members(value, "a subscription")
    try:
        codes = frozenset(map(int, members.items("codeSet")))
    except (TypeError, ValueError):
        raise BodyError("a subscription: codeSet holds what is no integer") from None
    return Subscription(
        topic=members.name("topic"),
        expression=members.name("subString", EVERYTHING) or EVERYTHING,
        expression_type=members.name("expressionType", TAG) or TAG,
        tags=frozenset(map(str, members.items("tagsSet"))),
        codes=codes,
        version=members.integer("subVersion", 0),
        class_filter_mode=members.truth("classFilterMode", default=False),
    )


def subscription_to_json(subscription: Subscription) -> dict[str, Any]:
    """Return the JSON members of a subscription."""
    return {
        "classFilterMode": subscription.class_filter_mode,
        "codeSet": sorted(subscription.codes),
        "expressionType": subscription.expression_type,
        "subString": subscription.expression,
        "subVersion": subscription.version,
        "tagsSet": sorted(subscription.tags),
        "topic": subscription.topic,
    }


def encode_heartbeat(heartbeat: Heartbeat) -> bytes:
    """Return the body of a heartbeat."""
    return dumps_body(
        {
            "clientID": heartbeat.client_id,
            "consumerDataSet": list(_consumers_to_json(heartbeat.consumers)),
            "producerDataSet": [{"groupName": group} for group in heartbeat.producer_groups],
        }
    )


def _consumers_to_json(consumers: Iterable[ConsumerData]) -> Iterable[dict[str, Any]]:
    for one in consumers:
        yield {
            "consumeFromWhere": one.consume_from,
            "consumeType": one.consume_type,
            "groupName": one.group,
            "messageModel": one.message_model,
            "subscriptionDataSet": [subscription_to_json(each) for each in one.subscriptions],
            "unitMode": one.unit_mode,
        }
