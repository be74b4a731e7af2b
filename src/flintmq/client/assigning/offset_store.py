"""Offset stores: consumers keep their progress at the broker, or in a file (`local_offsets`)."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Final, Protocol

from flintmq.client.errors import NotFoundError, UsageError
from flintmq.client.wall_clock import monotonic_ms
from flintmq.errors import FlintError
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.offsets import (
    OffsetResponse,
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from flintmq.model.message_queue import MessageQueue
from flintmq.remoting.errors import RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from flintmq.client.instance import ClientInstance

logger = logging.getLogger(__name__)

TIMEOUT_MS: Final = 5000
NOTHING_COMMITTED: Final = -1
OFFSET_MAX: Final = (1 << 63) - 1

KNOWN_FOR_MS: Final = 30_000
"""How long a member relies on what a broker has told it of the group's progress."""


def check_offset(offset: int) -> None:
    """Raise UsageError for what cannot be the offset of a message that a user wants next."""
    if not isinstance(offset, int) or not 0 <= offset <= OFFSET_MAX:
        raise UsageError(f"an offset to be committed is a number from 0 on, not {offset!r}")


class OffsetStore(Protocol):
    """Keeps the offset of the next message wanted, by queue."""

    async def load(self) -> None:
        """Load what was stored before."""
        ...

    async def read(self, queue: MessageQueue) -> int | None:
        """Return what was committed; None if nothing was.

        Raises:
            ClientError, RemotingError: the broker could not be asked.
        """
        ...

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Note an offset; it is committed by `persist`.

        Without ``increase_only`` it is committed even if the group has come further.
        """
        ...

    def lower(self, queue: MessageQueue, offset: int) -> None:
        """Note an offset if the group has come further: its queue ends there now."""
        ...

    def noted(self, queue: MessageQueue) -> int | None:
        """Return the offset noted last."""
        ...

    def carried(self, queue: MessageQueue) -> int | None:
        """Return the offset that a pull may commit along the way; None if it must not."""
        ...

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Commit the offsets of ``queues``; failures are logged and tried again."""
        ...

    async def commit(
        self, queue: MessageQueue, offset: int, *, increase_only: bool = False
    ) -> None:
        """Commit one offset, whatever was noted; a failure is raised.

        With ``increase_only`` nothing is done if the group has come further.
        """
        ...

    def forget(self, queue: MessageQueue) -> None:
        """Drop what was noted of a queue."""
        ...


class NotedOffsets:
    """Offsets in memory."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Note an offset."""
        known = self._offsets.get(queue)
        if known is None or not increase_only or offset > known:
            self._offsets[queue] = offset

    def lower(self, queue: MessageQueue, offset: int) -> None:
        """Note an offset if a higher one is noted."""
        known = self.noted(queue)
        if known is not None and known > offset:
            self.update(queue, offset, increase_only=False)

    def noted(self, queue: MessageQueue) -> int | None:
        """Return the offset noted last."""
        return self._offsets.get(queue)

    def carried(self, queue: MessageQueue) -> int | None:
        """Return None: pulls commit nothing."""
        return None

    def forget(self, queue: MessageQueue) -> None:
        """Drop what was noted of a queue."""
        self._offsets.pop(queue, None)


class RemoteOffsets(NotedOffsets):
    """Offsets of a clustering group, kept by the brokers.

    Less than the group has committed is committed only if that was asked for.  A member that has
    committed nothing for a while, perhaps because its process stood still, therefore asks the
    broker first: another member may have come further.

    A Java broker makes a table for each topic of a group at the first commit, without a lock.  Of
    two first commits that come together it forgets one and answers both with success.  The first
    one therefore goes alone.
    """

    def __init__(
        self, client: ClientInstance, group: str, *, now_ms: Callable[[], int] = monotonic_ms
    ) -> None:
        super().__init__()
        self._client = client
        self._group = group
        self._now_ms = now_ms
        self._committed: dict[MessageQueue, int] = {}
        """What this member has committed last."""
        self._known: dict[MessageQueue, tuple[int, int]] = {}
        """What the brokers have, and when that was so."""
        self._lowered: set[MessageQueue] = set()
        """Queues whose next commit may be less than the brokers have."""
        self._lowered_count: defaultdict[MessageQueue, int] = defaultdict(int)
        """How often that was said: a commit that was on its way already does not count for it."""
        # An offset on its way must not overtake a later one, above all not that of a hand-over.
        self._turns: defaultdict[MessageQueue, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._begun: set[tuple[str, str]] = set()
        """Topics and brokers that have a table of this group's offsets."""
        self._first_turns: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._unanswered: dict[tuple[str, str], RemotingError] = {}
        """Why the last of those that went alone had no answer."""

    async def load(self) -> None:
        """There is nothing to load."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Note an offset."""
        super().update(queue, offset, increase_only=increase_only)
        if not increase_only:
            self._lowered.add(queue)
            self._lowered_count[queue] += 1

    def lower(self, queue: MessageQueue, offset: int) -> None:
        """Note an offset if a higher one is noted, or the broker has a higher one."""
        committed, _ = self._known.get(queue, (NOTHING_COMMITTED, 0))
        if max(committed, self._offsets.get(queue, NOTHING_COMMITTED)) > offset:
            self.update(queue, offset, increase_only=False)

    def carried(self, queue: MessageQueue) -> int | None:
        """Return the offset noted, if the broker had no higher one a moment ago."""
        offset = self._offsets.get(queue)
        if offset is None or queue in self._lowered or not self._is_known(queue):
            return None
        if (queue.topic, queue.broker_name) not in self._begun:
            return None
        return offset if offset >= self._known[queue][0] else None

    def _is_known(self, queue: MessageQueue) -> bool:
        known = self._known.get(queue)
        return known is not None and self._now_ms() - known[1] <= KNOWN_FOR_MS

    async def read(self, queue: MessageQueue) -> int | None:
        """Ask the broker."""
        asked_ms = self._now_ms()
        header = QueryConsumerOffsetRequest(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            broker_name=queue.broker_name,
        )
        address = await self._client.routes.home(queue)
        try:
            answer = await self._client.call(
                address, RequestCode.QUERY_CONSUMER_OFFSET, header, timeout_ms=TIMEOUT_MS
            )
        except NotFoundError:
            self._known[queue] = NOTHING_COMMITTED, asked_ms
            return None
        offset = OffsetResponse.decode(answer.ext_fields).offset
        self._known[queue] = offset, asked_ms
        if offset > 0:
            # A broker answers 0 for a young queue too, without a table.
            self._begun.add((queue.topic, queue.broker_name))
        return offset

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Send the offsets that have changed to the brokers, side by side.

        RocketMQ 4.9 has no request for several queues at once.
        """
        await asyncio.gather(*map(self._persist, queues))

    async def _persist(self, queue: MessageQueue) -> None:
        async with self._turns[queue]:
            offset, lowered_count = self._offsets.get(queue), self._lowered_count[queue]
            try:
                if offset is not None and await self._is_ahead(queue, offset):
                    await self._commit(queue, offset, lowered_count)
            except FlintError as error:
                logger.warning("offset not committed: queue=%s reason=%s", queue, error)

    async def _is_ahead(self, queue: MessageQueue, offset: int) -> bool:
        """Return whether an offset is to be committed: it is new and the group is not further."""
        if self._committed.get(queue) == offset:
            return False
        if queue in self._lowered:
            return True
        if not self._is_known(queue):
            await self.read(queue)
        return offset >= self._known[queue][0]

    async def commit(
        self, queue: MessageQueue, offset: int, *, increase_only: bool = False
    ) -> None:
        """Commit one offset and wait until the broker has it; a failure is raised.

        With ``increase_only`` nothing is done if the group has come further.
        """
        async with self._turns[queue]:
            lowered_count = self._lowered_count[queue]
            if increase_only and not await self._is_ahead(queue, offset):
                return
            if await self._commit(queue, offset, lowered_count):
                super().update(queue, offset, increase_only=False)

    async def _commit(self, queue: MessageQueue, offset: int, lowered_count: int) -> bool:
        """Send an offset; return whether no lower one was noted since it was chosen."""
        header = UpdateConsumerOffsetRequest(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            broker_name=queue.broker_name,
        )
        asked_ms = self._now_ms()
        await self._send_after_the_first(queue, header)
        self._committed[queue] = offset
        self._known[queue] = offset, asked_ms
        is_last_word = self._lowered_count[queue] == lowered_count
        if is_last_word:
            self._lowered.discard(queue)
        return is_last_word

    async def _send_after_the_first(
        self, queue: MessageQueue, header: UpdateConsumerOffsetRequest
    ) -> None:
        """Send an offset alone if it is the first of its table, else beside others.

        If a broker does not answer the first, those that have waited for it are not sent: each of
        them would wait for as long, and a close for all.
        """
        table = queue.topic, queue.broker_name
        if table not in self._begun:
            unanswered = self._unanswered.get(table)
            async with self._first_turns[table]:
                # Who has waited here for the first need not wait for the second too.
                if table not in self._begun:
                    since = self._unanswered.get(table)
                    if since is not None and since is not unanswered:
                        raise since
                    await self._send_first(table, queue, header)
                    return
        await self._send(queue, header)

    async def _send_first(
        self, table: tuple[str, str], queue: MessageQueue, header: UpdateConsumerOffsetRequest
    ) -> None:
        try:
            await self._send(queue, header)
        except RemotingError as error:
            self._unanswered[table] = error.with_traceback(None)
            raise
        self._begun.add(table)
        self._unanswered.pop(table, None)

    async def _send(self, queue: MessageQueue, header: UpdateConsumerOffsetRequest) -> None:
        address = await self._client.routes.home(queue)
        await self._client.call(
            address, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_ms=TIMEOUT_MS
        )

    def forget(self, queue: MessageQueue) -> None:
        """Drop what was noted of a queue."""
        super().forget(queue)
        self._committed.pop(queue, None)
        self._known.pop(queue, None)
        self._lowered.discard(queue)
