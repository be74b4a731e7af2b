"""Requests to brokers for the locks of queues that are consumed in order."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.client.errors import ClientError
from flintmq.format.wire.bodies.dialect import Members, dumps_body, loads_body, queue_from
from flintmq.format.wire.codes import RequestCode
from flintmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flintmq.client.instance import ClientInstance
    from flintmq.model.message_queue import MessageQueue

logger = logging.getLogger(__name__)

TIMEOUT_MS: Final = 1000


class LockAnswer(NamedTuple):
    """Which queues are locked for this client now, and which others are not."""

    granted: set[MessageQueue]
    refused: set[MessageQueue]
    """Those of brokers that could not be asked are in neither set."""


class BrokerLocks:
    """Locks and unlocks queues for one group of one client."""

    def __init__(self, client: ClientInstance, group: str) -> None:
        self._client = client
        self._group = group

    async def lock(self, queues: Iterable[MessageQueue]) -> LockAnswer:
        """Ask for locks, or renew them."""
        answer = LockAnswer(set(), set())
        by_broker = _by_broker(queues)
        asking = (self._ask(RequestCode.LOCK_BATCH_MQ, *one) for one in by_broker.items())
        for own, body in zip(by_broker.values(), await asyncio.gather(*asking), strict=True):
            if body is None:
                continue
            found = Members(loads_body(body), "locked queues").items("lockOKMQSet")
            granted = set(map(queue_from, found)) & set(own)
            answer.granted.update(granted)
            answer.refused.update(set(own) - granted)
        return answer

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back; those that cannot be given back expire."""
        own = _by_broker(queues).items()
        await asyncio.gather(*(self._ask(RequestCode.UNLOCK_BATCH_MQ, *one) for one in own))

    async def _ask(self, code: int, broker_name: str, queues: list[MessageQueue]) -> bytes | None:
        address = self._client.routes.master(broker_name)
        if address is None:
            return None
        body = dumps_body(
            {
                "clientId": self._client.client_id,
                "consumerGroup": self._group,
                "mqSet": queues,
            }
        )
        try:
            answer = await self._client.call(address, code, None, body, timeout_ms=TIMEOUT_MS)
        except (ClientError, RemotingError) as error:
            logger.warning("locks not changed: broker=%s reason=%s", broker_name, error)
            return None
        return answer.body


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found
