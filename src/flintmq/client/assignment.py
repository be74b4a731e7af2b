"""The queues a member of a group has: taken up, given up and begun anew."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from flintmq.client.assigned_queue import AssignedQueue
from flintmq.client.consume_from import QueueBounds
from flintmq.client.rebalance import decide
from flintmq.client.sharing import SharingRules, share
from flintmq.client.wall_clock import wall_ms
from flintmq.errors import FlintError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from flintmq.client.instance import ClientInstance
    from flintmq.client.offset_store import OffsetStore
    from flintmq.client.queue_locks import ClientQueueLocks
    from flintmq.model.message_queue import MessageQueue

logger = logging.getLogger(__name__)

RENEW_INTERVAL_MS: Final = 20_000
RENEW_RETRY_MS: Final = 1000
RETRY_MIN_MS: Final = 250
RETRY_MAX_MS: Final = 16_000


class QueueUser(Protocol):
    """Who pulls from assigned queues and consumes what comes."""

    def begin(self, one: AssignedQueue) -> None:
        """Pull from a queue and consume it."""
        ...

    async def settle(self, one: AssignedQueue) -> bool:
        """Wait for what has to end before a dropped queue may be handed over.

        Return whether it did; otherwise a handler is still at work there.
        """
        ...


class Assignment:
    """The queues of one member, by which it takes part in its group.

    With ``locks`` a queue is taken up only after its broker has locked it for this client, and
    its lock is given back only after the batch at work has ended.
    """

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        rules: SharingRules,
        *,
        user: QueueUser,
        offsets: OffsetStore,
        locks: ClientQueueLocks | None = None,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._client = client
        self._group = group
        self._rules = rules
        self._user = user
        self._offsets = offsets
        self._locks = locks
        self._now_ms = now_ms
        self._bounds = QueueBounds(client)
        self.queues: dict[MessageQueue, AssignedQueue] = {}
        self._handing_over: dict[MessageQueue, AssignedQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Notices of brokers, resets and corrected offsets may come at any time; one at a time.
        self._changing = asyncio.Lock()
        self._is_closed = False
        self._retry_ms = RETRY_MIN_MS
        self._retry: asyncio.TimerHandle | None = None

    # -- sharing -----------------------------------------------------------------------------

    async def rebalance(self, topics: Iterable[str]) -> bool:
        """Take up and give up queues as the members share them; return whether any changed."""
        async with self._changing:
            changed, is_complete = False, True
            for topic in topics:
                if self._is_closed:
                    return changed
                try:
                    assigned = await share(self._client, self._group, topic, self._rules)
                except FlintError as error:
                    logger.info("queues not shared out: topic=%s reason=%s", topic, error)
                    assigned = None
                if assigned is None:
                    is_complete = False
                    continue
                topic_changed, topic_complete = await self._apply(topic, assigned)
                changed |= topic_changed
                is_complete &= topic_complete
            self._plan_retry(is_complete=is_complete)
            return changed

    def _plan_retry(self, *, is_complete: bool) -> None:
        """Look again soon for what was not there: a new topic, a broker, a lock."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if is_complete:
            self._retry_ms = RETRY_MIN_MS
            return
        loop = asyncio.get_running_loop()
        self._retry = loop.call_later(self._retry_ms / 1000, self._client.wake_rebalance)
        self._retry_ms = min(2 * self._retry_ms, RETRY_MAX_MS)

    async def _apply(self, topic: str, assigned: Collection[MessageQueue]) -> tuple[bool, bool]:
        """Return whether a queue changed, and whether all is as it should be."""
        change = decide(
            topic,
            {queue: one.held for queue, one in self.queues.items()},
            assigned,
            now_ms=self._now_ms(),
            needs_lock=self._locks is not None,
        )
        for queue in change.dropped:
            await self._give_up(queue)
        added = [queue for queue in change.added if queue not in self._handing_over]
        if self._locks is not None and added:
            granted = (await self._locks.lock(added)).granted
            added = [queue for queue in added if queue in granted]
        taken = [queue for queue in added if await self._take_up(queue)]
        return bool(change.dropped or taken), len(taken) == len(change.added)

    async def _take_up(self, queue: MessageQueue) -> bool:
        locked_ms = self._now_ms()
        self._offsets.forget(queue)
        rules = self._rules
        try:
            committed = await self._offsets.read(queue)
            start = await self._bounds.start(
                queue, committed, rules.consume_from, rules.consume_timestamp_ms
            )
        except FlintError as error:
            logger.warning("queue not taken up: queue=%s reason=%s", queue, error)
            if self._locks is not None:
                await self._locks.unlock([queue])
            return False
        if committed is None and rules.commits_start:
            # A member that takes the queue over before the first commit would begin at the end
            # of that time, and skip what came in between.
            self._offsets.update(queue, start, increase_only=False)
            await self._offsets.persist([queue])
        self._begin(queue, start, locked_ms=locked_ms)
        return True

    def _begin(self, queue: MessageQueue, offset: int, *, locked_ms: int) -> None:
        one = AssignedQueue(queue, offset, now_ms=self._now_ms())
        if self._locks is not None:
            one.held.lock(now_ms=locked_ms)
        self.queues[queue] = one
        self._user.begin(one)
        logger.debug("queue taken up: group=%s queue=%s offset=%d", self._group, queue, offset)

    # -- giving up ---------------------------------------------------------------------------

    async def _give_up(self, queue: MessageQueue) -> None:
        one = self.queues.pop(queue)
        one.drop()
        if self._locks is None:
            await self._hand_over(one)
            return
        # A batch at work may take long, and other queues must not wait for it.
        self._handing_over[queue] = one
        task = asyncio.create_task(self._hand_over(one), name=f"hand over {queue}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hand_over(self, one: AssignedQueue) -> None:
        """Commit and unlock; the next owner starts behind what was handled here."""
        queue = one.queue
        try:
            is_settled = await self._user.settle(one)
            if self._locks is None or one.held.is_lock_valid(self._now_ms()):
                # Without the lock another member may be ahead already.
                await self._offsets.persist([queue])
            self._offsets.forget(queue)
            if self._locks is not None and is_settled:
                await self._locks.unlock([queue])
        finally:
            self._handing_over.pop(queue, None)

    async def unsubscribe(self, topic: str) -> None:
        """Give all queues of a topic up."""
        async with self._changing:
            for queue in [queue for queue in self.queues if queue.topic == topic]:
                await self._give_up(queue)

    # -- beginning anew ----------------------------------------------------------------------

    async def assign(self, queues: Collection[MessageQueue]) -> None:
        """Have exactly these queues, whatever other members have."""
        async with self._changing:
            for queue in [queue for queue in self.queues if queue not in queues]:
                await self._give_up(queue)
            for queue in sorted(set(queues) - self.queues.keys()):
                await self._take_up(queue)

    async def move(
        self,
        offsets: Mapping[MessageQueue, int],
        *,
        only: AssignedQueue | None = None,
        persist: bool = True,
    ) -> None:
        """Begin queues anew at given offsets; what is held of them is let go.

        Queues of others are left alone; with ``only``, so is a queue that was taken up anew
        since.
        """
        async with self._changing:
            for queue, offset in offsets.items():
                one = self.queues.get(queue)
                if one is None or self._is_closed or (only is not None and one is not only):
                    continue
                one.drop()
                await self._user.settle(one)
                self._offsets.forget(queue)
                if persist:
                    self._offsets.update(queue, offset, increase_only=False)
                    await self._offsets.persist([queue])
                self._begin(queue, offset, locked_ms=one.held.locked_ms)

    # -- locks -------------------------------------------------------------------------------

    async def renew_locks_forever(self) -> None:
        """Renew the locks in time; a queue whose lock is lost is taken up anew."""
        assert self._locks is not None
        while True:
            is_complete = await self._renew_locks()
            pause_ms = RENEW_INTERVAL_MS if is_complete else RENEW_RETRY_MS
            await asyncio.sleep(pause_ms / 1000)

    async def _renew_locks(self) -> bool:
        assert self._locks is not None
        # Queues that are being handed over keep their locks while their last batch is at work.
        asked = self._handing_over | self.queues
        try:
            answer = await self._locks.lock(asked)
        except FlintError as error:
            logger.warning("locks not renewed: group=%s reason=%s", self._group, error)
            return False
        now_ms = self._now_ms()
        for queue, one in asked.items():
            if queue in answer.granted:
                one.held.lock(now_ms=now_ms)
                one.changed.set()
            elif queue in answer.refused:
                one.held.is_locked = False
        if not all(one.held.is_lock_valid(now_ms) for one in self.queues.values()):
            self._client.wake_rebalance()
        given_back = answer.granted - self.queues.keys() - self._handing_over.keys()
        if given_back:
            # They were handed over while this request was under way.
            await self._locks.unlock(given_back)
        return answer.granted >= asked.keys()

    # -- the end -----------------------------------------------------------------------------

    async def stop_pulling(self) -> None:
        """Take up nothing more and pull nothing more."""
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        async with self._changing:
            pulling = [one.pulling for one in self.queues.values() if one.pulling is not None]
            for one in self.queues.values():
                one.leave()
            await asyncio.gather(*pulling, return_exceptions=True)

    async def release(self, *, busy: Collection[MessageQueue] = ()) -> None:
        """Commit what was handled and give everything back.

        ``busy`` queues keep their locks until these expire: handlers are still at work there.
        """
        async with self._changing:
            queues = list(self.queues)
            for one in self.queues.values():
                one.drop()
            await self._offsets.persist(queues)
            if self._locks is not None:
                await self._locks.unlock([queue for queue in queues if queue not in busy])
            self.queues.clear()
        await asyncio.gather(*self._tasks, return_exceptions=True)
