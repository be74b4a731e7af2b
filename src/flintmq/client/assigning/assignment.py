"""The queues that a member of a group has: taken up, given up and restarted."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from flintmq.client.assigning.assigned_queue import AssignedQueue
from flintmq.client.assigning.consume_from import QueueBounds
from flintmq.client.assigning.process_queue import NOTHING
from flintmq.client.assigning.rebalance import decide
from flintmq.client.assigning.sharing import SharingRules, share
from flintmq.client.wall_clock import monotonic_ms
from flintmq.errors import FlintError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from flintmq.client.assigning.broker_locks import BrokerLocks
    from flintmq.client.assigning.offset_store import OffsetStore
    from flintmq.client.closing_time import ClosingTime
    from flintmq.client.instance import ClientInstance
    from flintmq.client.messaging.messages import ReceivedMessage
    from flintmq.model.message_queue import MessageQueue

logger = logging.getLogger(__name__)

RENEW_INTERVAL_MS: Final = 20_000
RENEW_RETRY_MS: Final = 1000
RETRY_MIN_MS: Final = 250
RETRY_MAX_MS: Final = 16_000


class QueueUser(Protocol):
    """Pulls from assigned queues and consumes their messages."""

    def begin(self, one: AssignedQueue) -> None:
        """Pull from a queue and consume it."""
        ...

    async def settle(self, one: AssignedQueue) -> bool:
        """Wait for handlers that must finish before a dropped queue goes to another member.

        Return whether they did; otherwise a handler is still running.
        """
        ...


class Assignment:
    """The queues of one member of a group.

    With ``locks`` a queue is taken up only after its broker has locked it for this client, and
    its lock is given back only after the running batch has ended.  With ``commits_start`` the
    offset at which the group starts on a queue that is new to it is committed at once.
    """

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        rules: SharingRules,
        *,
        user: QueueUser,
        offsets: OffsetStore,
        locks: BrokerLocks | None = None,
        commits_start: bool = True,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._client = client
        self._group = group
        self._rules = rules
        self._user = user
        self._offsets = offsets
        self._locks = locks
        self._commits_start = commits_start
        self._now_ms = now_ms
        self._bounds = QueueBounds(client)
        self.queues: dict[MessageQueue, AssignedQueue] = {}
        self._handing_over: dict[MessageQueue, AssignedQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Notices of brokers, resets and corrected offsets may come at any time; they take turns.
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

    async def leave_topics(self, kept: Collection[str]) -> None:
        """Give up the queues of all topics but those."""
        if all(queue.topic in kept for queue in self.queues):
            return
        async with self._changing:
            await self._give_up([queue for queue in self.queues if queue.topic not in kept])

    def _plan_retry(self, *, is_complete: bool) -> None:
        """Rebalance again soon if a topic, a broker or a lock was missing."""
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
        """Return whether a queue changed, and whether all new queues were taken up."""
        change = decide(
            topic,
            {queue: one.held for queue, one in self.queues.items()},
            assigned,
            now_ms=self._now_ms(),
            needs_lock=self._locks is not None,
        )
        await self._give_up(change.dropped)
        added = [queue for queue in change.added if queue not in self._handing_over]
        locked_ms = self._now_ms()
        if self._locks is not None and added:
            granted = (await self._locks.lock(added)).granted
            added = [queue for queue in added if queue in granted]
        taken = await asyncio.gather(*(self._take_up(queue, locked_ms) for queue in added))
        return bool(change.dropped) or any(taken), sum(taken) == len(change.added)

    async def _take_up(self, queue: MessageQueue, locked_ms: int) -> bool:
        """Begin where the group has come to; a lock of the queue was asked for at a time."""
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
        if committed is None and self._commits_start:
            # A member that takes the queue over before the first commit would begin at the end
            # of that time, and skip what came in between.
            self._offsets.update(queue, start, increase_only=False)
            await self._offsets.persist([queue])
        if self._is_closed:
            if self._locks is not None:
                await self._locks.unlock([queue])
            return False
        self._begin(queue, start, locked_ms=locked_ms)
        return True

    def _begin(self, queue: MessageQueue, offset: int, *, locked_ms: int | None) -> None:
        one = AssignedQueue(queue, offset, now_ms=self._now_ms())
        if self._locks is not None and locked_ms is not None:
            one.held.lock(now_ms=locked_ms)
        self.queues[queue] = one
        self._user.begin(one)
        logger.debug("queue taken up: group=%s queue=%s offset=%d", self._group, queue, offset)

    def hold(
        self, one: AssignedQueue, messages: Iterable[ReceivedMessage], *, next_offset: int
    ) -> None:
        """Hold what a pull has brought, and note how far the queue may be committed now."""
        offset = one.held.put(messages, next_offset=next_offset)
        if offset != NOTHING:
            self._offsets.update(one.queue, offset, increase_only=True)

    def may_commit(self, one: AssignedQueue) -> bool:
        """Return whether the progress of a queue may be committed: nobody else has its lock."""
        return self._locks is None or one.held.has_lock(self._now_ms())

    def committable(self) -> list[MessageQueue]:
        """Return the queues whose progress may be committed."""
        return [queue for queue, one in self.queues.items() if self.may_commit(one)]

    # -- giving up ---------------------------------------------------------------------------

    async def _give_up(self, queues: Collection[MessageQueue]) -> None:
        """Give queues up, side by side: a broker that does not answer takes its time only once."""
        dropped = [self.queues.pop(queue) for queue in queues]
        for one in dropped:
            one.drop()
        if self._locks is None:
            await asyncio.gather(*map(self._hand_over, dropped))
            return
        # A running batch may take long, and other queues must not wait for it.
        for one in dropped:
            self._handing_over[one.queue] = one
            task = asyncio.create_task(self._hand_over(one), name=f"hand over {one.queue}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _hand_over(self, one: AssignedQueue) -> None:
        """Commit and unlock, so that the next owner starts behind what was handled here."""
        queue = one.queue
        try:
            is_settled = await self._user.settle(one)
            if self.may_commit(one):
                # Without the lock another member may be ahead already.
                await self._offsets.persist([queue])
            self._offsets.forget(queue)
            if self._locks is not None and is_settled:
                await self._locks.unlock([queue])
        finally:
            self._handing_over.pop(queue, None)

    # -- restarting --------------------------------------------------------------------------

    async def assign(self, queues: Collection[MessageQueue]) -> None:
        """Take up exactly these queues, whatever other members have."""
        async with self._changing:
            await self._give_up([queue for queue in self.queues if queue not in queues])
            new, now_ms = sorted(set(queues) - self.queues.keys()), self._now_ms()
            await asyncio.gather(*(self._take_up(queue, now_ms) for queue in new))

    async def move(self, offsets: Mapping[MessageQueue, int], *, persist: bool = True) -> None:
        """Restart queues at given offsets and drop the messages that are held of them.

        Queues that this member does not have are left alone.  Without ``persist`` the progress
        that is noted stays as it is.
        """
        async with self._changing:
            for queue, offset in offsets.items():
                one = self.queues.get(queue)
                if one is None or self._is_closed:
                    continue
                one.drop()
                await self._user.settle(one)
                if self._is_closed:
                    return
                if persist:
                    self._offsets.forget(queue)
                    self._offsets.update(queue, offset, increase_only=False)
                    await self._offsets.persist([queue])
                self._begin(queue, offset, locked_ms=_lock_time(one))

    async def correct(self, one: AssignedQueue, offset: int, *, persist: bool = True) -> None:
        """Restart a queue whose end is at ``offset`` now, before the next message to be pulled.

        Its broker has lost the last messages.  Where those were there may be others by now, so
        what is held of the queue is fetched again, from the oldest message on.
        """
        async with self._changing:
            if self._is_closed or self.queues.get(one.queue) is not one:
                return
            if self._locks is not None and not one.held.is_lock_valid(self._now_ms()):
                # Another member may have the queue: it is for that one to correct its progress.
                self._client.wake_rebalance()
                return
            one.drop()
            await self._user.settle(one)
            if self._is_closed:
                return
            oldest = one.held.oldest
            if persist:
                self._offsets.lower(one.queue, offset)
                await self._offsets.persist([one.queue])
            start = offset if oldest is None else min(offset, oldest)
            self._begin(one.queue, start, locked_ms=_lock_time(one))

    # -- locks -------------------------------------------------------------------------------

    async def renew_locks_forever(self) -> None:
        """Renew the locks in time; a queue whose lock is lost is taken up again."""
        assert self._locks is not None
        while True:
            is_complete = await self._renew_locks()
            pause_ms = RENEW_INTERVAL_MS if is_complete else RENEW_RETRY_MS
            await asyncio.sleep(pause_ms / 1000)

    async def _renew_locks(self) -> bool:
        assert self._locks is not None
        # Queues that are being handed over keep their locks while their last batch is running.
        asked, asked_ms = self._handing_over | self.queues, self._now_ms()
        try:
            answer = await self._locks.lock(asked)
        except FlintError as error:
            logger.warning("locks not renewed: group=%s reason=%s", self._group, error)
            return False
        now_ms = self._now_ms()
        for queue, one in asked.items():
            if queue in answer.granted:
                one.held.renew_lock(asked_ms=asked_ms, now_ms=now_ms)
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
        """Take up no further queue, and stop pulling."""
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        # Whoever changes queues at this moment may wait for a broker or for a handler; it looks
        # afterwards whether this is closed, so nobody has to wait for it here.
        pulling = [one.pulling for one in self.queues.values() if one.pulling is not None]
        for one in self.queues.values():
            one.leave()
        await asyncio.gather(*pulling, return_exceptions=True)

    async def release(self, closing: ClosingTime, *, busy: Collection[MessageQueue] = ()) -> None:
        """Commit what was handled and give all queues back.

        ``busy`` queues keep their locks until these expire: their handlers are still running.
        """
        await closing.step("queues that change hands", self._wait_for_changes())
        queues, own = list(self.queues), self.committable()
        for one in self.queues.values():
            one.drop()
        await closing.step("offsets to be committed", self._offsets.persist(own))
        if self._locks is not None:
            free = [queue for queue in queues if queue not in busy]
            await closing.step("locks to be given back", self._locks.unlock(free))
        self.queues.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _wait_for_changes(self) -> None:
        async with self._changing:
            await asyncio.gather(*self._tasks, return_exceptions=True)


def _lock_time(one: AssignedQueue) -> int | None:
    """Return when the lock of a queue was asked for; None if there is none."""
    return one.held.locked_ms if one.held.is_locked else None
