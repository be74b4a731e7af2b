"""Large batches that are prepared in slices, in turn with connections, before they are stored.

One is prepared at a time, and a peer has only one: what came behind it is not handled before.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from flintmq.broker.waiting.waiting_sends import WaitingSends
from flintmq.store.appending.batch_preparation import PreparedBatch
from flintmq.store.results import PutResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.model.message import MessageBatch
    from flintmq.model.steps import Steps
    from flintmq.remoting.fair_turns import FairTurns
    from flintmq.remoting.peer import Peer

Preparing: TypeAlias = asyncio.Future[PreparedBatch | PutResult]
"""A batch that can be stored when this is done, or why it is refused."""


class LargeBatches(WaitingSends):
    """The batches that are being prepared, in the order in which they came."""

    def __init__(
        self,
        turns: FairTurns,
        prepare: Callable[[MessageBatch], Steps[PreparedBatch | PutResult]],
        *,
        dispatch: Callable[[], None],
    ) -> None:
        super().__init__()
        self._turns = turns
        self._prepare = prepare
        self._dispatch = dispatch

    def hold(self, peer: Peer, batch: MessageBatch, store: Callable[[Preparing], None]) -> bool:
        """Have a batch prepared and then stored; return False when too much waits already.

        One with few messages is stored at once.  Otherwise the peer's next request is handled after
        that: it may be a send to the same queue.
        """
        size = len(batch.body)
        if not self.has_room(size):
            return False
        preparing = self._turns.run(self._prepare(batch), "large batch")
        if preparing.done():
            store(preparing)
            return True
        self._wait(peer, size, self._finish(preparing, store))
        return True

    async def _finish(self, preparing: Preparing, store: Callable[[Preparing], None]) -> None:
        await asyncio.wait([preparing])
        store(preparing)
        # To store it took a good part of this turn.
        asyncio.get_running_loop().call_soon(self._dispatch)
