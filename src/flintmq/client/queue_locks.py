"""Locks of queues that are consumed in order: asked for at their brokers, renewed in time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from flintmq.client.errors import ClientError
from flintmq.format.bodies.dialect import Members, dumps_body, loads_body, queue_from
from flintmq.format.codes import RequestCode
from flintmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flintmq.client.instance import ClientInstance
    from flintmq.model.message_queue import MessageQueue

logger = logging.getLogger(__name__)

TIMEOUT_MS: Final = 1000
RENEW_INTERVAL_MS: Final = 20_000


class ClientQueueLocks:
    """Locks for one group of one client."""

    def __init__(self, client: ClientInstance, group: str) -> None:
        self._client = client
        self._group = group

    def _body(self, queues: Iterable[MessageQueue]) -> bytes:
        return dumps_body(
            {
                "clientId": self._client.client_id,
                "consumerGroup": self._group,
                "mqSet": list(queues),
            }
        )

    async def lock(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Return which of the queues are locked for this client now."""
        granted: set[MessageQueue] = set()
        for broker_name, own in _by_broker(queues).items():
            address = self._client.routes.master(broker_name)
            if address is None:
                continue
            try:
                answer = await self._client.call(
                    address,
                    RequestCode.LOCK_BATCH_MQ,
                    None,
                    self._body(own),
                    timeout_ms=TIMEOUT_MS,
                )
            except (ClientError, RemotingError) as error:
                logger.warning("queues not locked: broker=%s reason=%s", broker_name, error)
                continue
            found = Members(loads_body(answer.body), "locked queues").items("lockOKMQSet")
            granted.update(map(queue_from, found))
        return granted

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back."""
        for broker_name, own in _by_broker(queues).items():
            address = self._client.routes.master(broker_name)
            if address is None:
                continue
            try:
                await self._client.call(
                    address,
                    RequestCode.UNLOCK_BATCH_MQ,
                    None,
                    self._body(own),
                    timeout_ms=TIMEOUT_MS,
                )
            except (ClientError, RemotingError) as error:
                logger.warning("queues not unlocked: broker=%s reason=%s", broker_name, error)


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found
