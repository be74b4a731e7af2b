"""The subscriptions of a consumer: what it wants of which topics."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from flintmq.client.errors import ResponseError, UsageError
from flintmq.client.namespaces import wrap
from flintmq.client.wall_clock import wall_ms
from flintmq.errors import FlintError
from flintmq.format.subscription import ExpressionError, build_subscription
from flintmq.format.wire.bodies.dialect import Members, dumps_body, loads_body
from flintmq.format.wire.bodies.heartbeat import subscription_from_json, subscription_to_json
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.clients import ConsumerGroupRequest
from flintmq.model.subscription import EVERYTHING, TAG, Subscription

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flintmq.client.instance import ClientInstance

logger = logging.getLogger(__name__)


class Subscriptions:
    """Subscriptions by topic; topics have the names that the cluster knows."""

    def __init__(self, namespace: str | None) -> None:
        self._namespace = namespace
        self._by_topic: dict[str, Subscription] = {}

    def add(self, topic: str, expression: str = EVERYTHING, expression_type: str = TAG) -> None:
        """Subscribe to a topic; UsageError if the expression is not valid."""
        one = self._make(topic, expression, expression_type)
        self._by_topic[one.topic] = one

    def _make(self, topic: str, expression: str, expression_type: str) -> Subscription:
        name = wrap(self._namespace, topic)
        try:
            return build_subscription(name, expression, expression_type, version=wall_ms())
        except ExpressionError as error:
            raise UsageError(f"{topic}: {error}") from error

    async def subscribe(
        self, client: ClientInstance, group: str, topic: str, expression: str, expression_type: str
    ) -> None:
        """Subscribe to a topic if a broker can serve that; otherwise all stays as it was.

        Raises:
            UsageError: the expression is not valid.
            ResponseError: a broker cannot serve it; the remark says why.
            ClientError, RemotingError: no broker could be asked.
        """
        one = self._make(topic, expression, expression_type)
        await self._check(one, client, group)
        before = self._by_topic.get(one.topic)
        if before is not None:
            one = dataclasses.replace(one, version=max(one.version, before.version + 1))
        self._by_topic[one.topic] = one

    def remove(self, topic: str) -> Subscription | None:
        """Take a subscription out and return it; None if there was none."""
        return self._by_topic.pop(wrap(self._namespace, topic), None)

    def get(self, topic: str) -> Subscription | None:
        """Return the subscription to a topic."""
        return self._by_topic.get(topic)

    @property
    def names(self) -> list[str]:
        """The topics."""
        return list(self._by_topic)

    def __iter__(self) -> Iterator[Subscription]:
        return iter(list(self._by_topic.values()))

    def renew(self) -> None:
        """Raise the versions: brokers go by the subscription with the highest one."""
        version = wall_ms()
        self._by_topic = {
            topic: dataclasses.replace(one, version=max(version, one.version + 1))
            for topic, one in self._by_topic.items()
        }

    async def check(self, client: ClientInstance, group: str) -> None:
        """Get the routes, and ask a broker whether it can serve expressions that are no tags.

        Raises:
            ResponseError: it cannot; the remark says why.
            ClientError, RemotingError: no broker could be asked.
        """
        for one in self:
            await self._check(one, client, group)

    @staticmethod
    async def _check(one: Subscription, client: ClientInstance, group: str) -> None:
        await client.routes.subscribe_queues(one.topic)
        if one.is_tag:
            return
        address = client.routes.any_broker(one.topic)
        if address is None:
            return  # The topic is not there yet.
        body = {
            "clientId": client.client_id,
            "group": group,
            "subscriptionData": subscription_to_json(one),
        }
        await client.call(address, RequestCode.CHECK_CLIENT_CONFIG, None, dumps_body(body))

    async def compare(self, client: ClientInstance, group: str) -> None:
        """Warn if members of the group have different subscriptions, as far as brokers know.

        A broker serves all members by the subscription that it was told last.  Where they differ,
        messages go to members that drop them, and are lost for the group.
        """
        for one in self:
            address = client.routes.any_broker(one.topic)
            if address is None:
                continue
            try:
                told = await _told_subscriptions(client, address, group)
            except FlintError as error:
                logger.debug("subscriptions not compared: group=%s reason=%s", group, error)
                continue
            for other in told.values():
                own = self._by_topic.get(other.topic)
                if own is None or own.expression.strip() != other.expression.strip():
                    logger.warning(
                        "members of a group want different things, messages will be missed: "
                        "group=%s topic=%s here=%s elsewhere=%s",
                        group,
                        other.topic,
                        None if own is None else own.expression,
                        other.expression,
                    )
            return


async def _told_subscriptions(
    client: ClientInstance, address: str, group: str
) -> dict[str, Subscription]:
    """Return the subscriptions of a group that a broker knows; none if no member is connected."""
    header = ConsumerGroupRequest(consumer_group=group)
    try:
        answer = await client.call(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
    except ResponseError:
        return {}
    table = Members(loads_body(answer.body), "connections of a group").get("subscriptionTable")
    found = map(subscription_from_json, dict(table or {}).values())
    return {one.topic: one for one in found}
