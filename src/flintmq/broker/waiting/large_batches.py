"""Large batches that are prepared in slices, in turn with connections, before they are stored.

One is prepared at a time, and a peer has only one: what came behind it is not handled before.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeAlias

from flintmq.store.appending.batch_preparation import PreparedBatch
from flintmq.store.results import PutResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.model.message import MessageBatch
    from flintmq.remoting.fair_turns import FairTurns, Steps
    from flintmq.remoting.peer import Peer

SIZE_MAX: Final = 64 << 20
COUNT_MAX: Final = 1024
"""Bytes of batches that may wait, and how many."""

Preparing: TypeAlias = asyncio.Future[PreparedBatch | PutResult]
"""A batch that can be stored when this is done, or why it is refused."""


class LargeBatches:
    """The batches that are being prepared, in the order in which they came."""

    def __init__(
        self,
        turns: FairTurns,
        prepare: Callable[[MessageBatch], Steps[PreparedBatch | PutResult]],
        *,
        dispatch: Callable[[], None],
    ) -> None:
        self._turns = turns
        self._prepare = prepare
        self._dispatch = dispatch
        self._tasks: set[asyncio.Task[None]] = set()
        self._size = 0
        self._is_closed = False

    @property
    def count(self) -> int:
        """How many wait."""
        return len(self._tasks)

    def hold(self, peer: Peer, batch: MessageBatch, store: Callable[[Preparing], None]) -> bool:
        """Have a batch prepared and then stored; return False when too much waits already.

        One with few messages is stored at once.  Otherwise the peer's next request is handled after
        that: it may be a send to the same queue.
        """
        size = len(batch.body)
        if self._is_closed or self.count >= COUNT_MAX or self._size + size > SIZE_MAX:
            return False
        preparing = self._turns.run(self._prepare(batch), "large batch")
        if preparing.done():
            store(preparing)
            return True
        self._size += size
        task = asyncio.get_running_loop().create_task(self._finish(preparing, store))
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._size -= size

        task.add_done_callback(ended)
        peer.wait_for(task)
        return True

    async def _finish(self, preparing: Preparing, store: Callable[[Preparing], None]) -> None:
        await asyncio.wait([preparing])
        store(preparing)
        # To store it took a good part of this turn.
        asyncio.get_running_loop().call_soon(self._dispatch)

    async def stored(self) -> None:
        """Wait until all that wait now are stored."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def close(self) -> None:
        """Take no more, and wait until all that wait are stored."""
        self._is_closed = True
        await self.stored()
