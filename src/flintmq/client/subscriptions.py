"""What a consumer wants of its topics."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from flintmq.client.errors import UsageError
from flintmq.client.namespaces import wrap
from flintmq.client.wall_clock import wall_ms
from flintmq.format.bodies.dialect import dumps_body
from flintmq.format.bodies.heartbeat import subscription_to_json
from flintmq.format.codes import RequestCode
from flintmq.format.subscription import ExpressionError, build_subscription
from flintmq.model.subscription import EVERYTHING, TAG, Subscription

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flintmq.client.instance import ClientInstance


class Subscriptions:
    """Subscriptions by topic, as the cluster knows it."""

    def __init__(self, namespace: str | None) -> None:
        self._namespace = namespace
        self._by_topic: dict[str, Subscription] = {}

    def add(self, topic: str, expression: str = EVERYTHING, expression_type: str = TAG) -> None:
        """Want a topic; UsageError if the expression makes no sense."""
        name = wrap(self._namespace, topic)
        try:
            self._by_topic[name] = build_subscription(
                name, expression, expression_type, version=wall_ms()
            )
        except ExpressionError as error:
            raise UsageError(f"{topic}: {error}") from error

    def remove(self, topic: str) -> str | None:
        """Want a topic no more; return its name in the cluster, None if it was not wanted."""
        name = wrap(self._namespace, topic)
        return None if self._by_topic.pop(name, None) is None else name

    def get(self, topic: str) -> Subscription | None:
        """Return what is wanted of a topic."""
        return self._by_topic.get(topic)

    @property
    def names(self) -> list[str]:
        """The topics."""
        return list(self._by_topic)

    def __iter__(self) -> Iterator[Subscription]:
        return iter(list(self._by_topic.values()))

    def renew(self) -> None:
        """Raise the versions: brokers take the latest for the one that counts."""
        version = wall_ms()
        self._by_topic = {
            topic: dataclasses.replace(one, version=max(version, one.version + 1))
            for topic, one in self._by_topic.items()
        }

    async def check(self, client: ClientInstance, group: str) -> None:
        """Get the routes, and ask a broker whether it can serve expressions that are no tags.

        Raises:
            ResponseError: it cannot; the remark tells why.
            ClientError, RemotingError: nobody could be asked.
        """
        for one in self:
            await client.routes.subscribe_queues(one.topic)
            if one.is_tag:
                continue
            address = client.routes.any_broker(one.topic)
            if address is None:
                continue  # The topic is not there yet.
            body = {
                "clientId": client.client_id,
                "group": group,
                "subscriptionData": subscription_to_json(one),
            }
            await client.call(address, RequestCode.CHECK_CLIENT_CONFIG, None, dumps_body(body))
