"""Pulling from an assigned queue for as long as it is assigned."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from flintmq.client.errors import (
    FlowControlError,
    SubscriptionNotExistError,
    SubscriptionNotLatestError,
)
from flintmq.client.pulling.puller import (
    PULL_COUNT,
    SUSPEND_TIMEOUT_MS,
    Puller,
    PullResult,
    PullStatus,
)
from flintmq.errors import FlintError
from flintmq.remoting import ConnectError, ConnectionLostError

if TYPE_CHECKING:
    from flintmq.client.assigning.assigned_queue import AssignedQueue
    from flintmq.client.instance import ClientInstance
    from flintmq.model.message_queue import MessageQueue
    from flintmq.model.subscription import Subscription

logger = logging.getLogger(__name__)

ERROR_PAUSE_MS: Final = 1000
FLOW_PAUSE_MS: Final = 50
BUSY_PAUSE_MS: Final = 20


class PullOwner(Protocol):
    """The consumer for which queues are pulled: it takes the messages and sets the limits."""

    def subscription(self, topic: str) -> Subscription | None:
        """Return the subscription to a topic."""
        ...

    def commit_offset(self, queue: MessageQueue) -> int | None:
        """Return the offset that a pull commits along the way; None if it commits nothing."""
        ...

    def is_paused(self, queue: MessageQueue) -> bool:
        """Return whether pulling from a queue is suspended."""
        ...

    def is_full(self, one: AssignedQueue) -> bool:
        """Return whether so much is held of a queue that pulling has to pause."""
        ...

    def arrived(self, one: AssignedQueue, result: PullResult) -> None:
        """Take the messages of a pull; the next offset of the queue is set already."""
        ...

    def moved(self, one: AssignedQueue, offset: int) -> None:
        """Restart a queue that ends before the offset that was asked for."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRules:
    """How queues are pulled from."""

    count: int = PULL_COUNT
    suspend_ms: int = SUSPEND_TIMEOUT_MS
    is_lite: bool = False
    """Whether each pull carries its subscription, as those of a lite pull consumer do."""


class QueuePulling:
    """Pulls for a consumer: one task for each queue, one request at a time."""

    def __init__(
        self, client: ClientInstance, group: str, owner: PullOwner, rules: PullRules
    ) -> None:
        self._client = client
        self._owner = owner
        self._rules = rules
        self._puller = Puller(client, group)
        self._beat: asyncio.Task[None] | None = None

    def begin(self, one: AssignedQueue) -> None:
        """Pull from a queue until its task is cancelled."""
        one.pulling = asyncio.create_task(self._pull_forever(one), name=f"pull {one.queue}")

    async def _pull_forever(self, one: AssignedQueue) -> None:
        while not one.leaving.is_set():
            one.held.last_pull_ms = self._client.now_ms()
            if self._owner.is_paused(one.queue):
                pause_ms = ERROR_PAUSE_MS
            elif self._owner.is_full(one):
                pause_ms = FLOW_PAUSE_MS
            else:
                try:
                    pause_ms = await self._pull(one)
                except Exception:
                    # The queue must not fall silent, whatever is wrong.
                    logger.exception("pull failed: queue=%s", one.queue)
                    pause_ms = ERROR_PAUSE_MS
            if pause_ms:
                await asyncio.sleep(pause_ms / 1000)

    async def _pull(self, one: AssignedQueue) -> int:
        """Pull once; return how long to wait before the next time."""
        subscription = self._owner.subscription(one.queue.topic)
        if subscription is None:
            return ERROR_PAUSE_MS
        rules = self._rules
        try:
            result = await self._puller.pull(
                one.queue,
                one.next_offset,
                subscription,
                count_max=rules.count,
                commit_offset=self._owner.commit_offset(one.queue),
                suspend_ms=rules.suspend_ms,
                with_subscription=rules.is_lite,
                is_lite=rules.is_lite,
            )
        except FlowControlError:
            return BUSY_PAUSE_MS
        except (SubscriptionNotExistError, SubscriptionNotLatestError):
            # A broker that was started again knows no member before a heartbeat.
            await self._heartbeat()
            return FLOW_PAUSE_MS
        except FlintError as error:
            logger.info("pull failed: queue=%s reason=%s", one.queue, error)
            if isinstance(error, ConnectError | ConnectionLostError):
                await self._client.routes.fetch_again(one.queue.topic)
            return ERROR_PAUSE_MS
        if one.leaving.is_set():
            return 0
        if result.status is PullStatus.OFFSET_ILLEGAL:
            return await self._correct(one, result)
        one.next_offset = result.next_offset
        self._owner.arrived(one, result)
        return 0

    async def _correct(self, one: AssignedQueue, result: PullResult) -> int:
        """Go on where the broker says; return how long to wait before the next pull."""
        offset, corrected = one.next_offset, result.next_offset
        logger.warning("offset corrected: queue=%s from=%d to=%d", one.queue, offset, corrected)
        if corrected < offset:
            self._owner.moved(one, corrected)
            await one.leaving.wait()
            return 0
        # The oldest messages were deleted.  Those of them that are held can still be handled.
        one.next_offset = corrected
        self._owner.arrived(one, result)
        return 0 if corrected > offset else ERROR_PAUSE_MS

    async def _heartbeat(self) -> None:
        """Send a heartbeat; all queues that need one at a time share it."""
        if self._beat is None or self._beat.done():
            self._beat = asyncio.create_task(self._client.heartbeat(), name="heartbeat")
        await asyncio.shield(self._beat)

    async def close(self) -> None:
        """Give up a heartbeat that is still under way."""
        if self._beat is not None:
            self._beat.cancel()
            await asyncio.gather(self._beat, return_exceptions=True)
