"""Large batches that are prepared in slices, in turn with connections, before they are stored.

One is prepared at a time, and a peer has only one: what came behind it is not handled before.  Then
a thread has the place ready where it will stand in the log: to wait for a file, or for pages that
were never written, is not for the loop.  To store it takes a good part of a turn, which it has for
itself.  The ids of its messages, which the answer names, are made in slices again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, TypeAlias

from flintmq.broker.waiting.waiting_sends import WaitingSends
from flintmq.store.appending.batch_preparation import PreparedBatch
from flintmq.store.results import NAMED_COUNT_MAX, PutResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.model.message import MessageBatch
    from flintmq.remoting.fair_turns import FairTurns
    from flintmq.remoting.peer import Peer
    from flintmq.store.message_store import MessageStore

logger = logging.getLogger(__name__)

Preparing: TypeAlias = asyncio.Future[PreparedBatch | PutResult]
"""A batch that can be stored when this is done, or why it is refused."""

_WORK: Final = "large batch"
_NAMING: Final = "ids of a large batch"


class LargeBatches(WaitingSends):
    """The batches that are being prepared, in the order in which they came."""

    def __init__(
        self, turns: FairTurns, store: MessageStore, *, dispatch: Callable[[], None]
    ) -> None:
        super().__init__()
        self._turns = turns
        self._store = store
        self._dispatch = dispatch
        self._one_by_one = asyncio.Lock()
        self._naming: set[asyncio.Future[None]] = set()

    def hold(self, peer: Peer, batch: MessageBatch, store: Callable[[Preparing], None]) -> bool:
        """Have a batch prepared and then stored; return False when too much waits already.

        One with few messages is stored at once.  Otherwise the peer's next request is handled after
        that: it may be a send to the same queue.
        """
        size = len(batch.body)
        if not self.has_room(size):
            return False
        begun = None if self.count else self._begin(batch)
        if begun is not None and begun.done():
            store(begun)
            return True
        self._wait(peer, size, self._finish(batch, begun, store))
        return True

    def _begin(self, batch: MessageBatch) -> Preparing:
        return self._turns.run(self._store.prepare_batch(batch), _WORK)

    async def _finish(
        self, batch: MessageBatch, begun: Preparing | None, store: Callable[[Preparing], None]
    ) -> None:
        # The next one is prepared when this one is stored: prepared, it takes more memory.
        async with self._one_by_one:
            preparing = begun or self._begin(batch)
            await asyncio.wait([preparing])
            if preparing.exception() is None:
                await self._make_ready(preparing.result())
            await self._turns.run_alone(lambda: store(preparing), _WORK)
        asyncio.get_running_loop().call_soon(self._dispatch)

    async def _make_ready(self, prepared: PreparedBatch | PutResult) -> None:
        """Have the place of a batch in the log ready, unless it is refused.

        Where sends wait for a file that is late, it waits with them: with a disk that is stuck,
        those behind it would have to wait as long each.
        """
        if isinstance(prepared, PutResult) or self._store.is_next_file_late:
            return
        size = len(prepared.records)
        try:
            await asyncio.to_thread(self._store.log.make_ready, size)
        except Exception:
            # Whoever stores it is told the same, and can tell the peer, who must be answered.
            logger.exception("no place could be made ready for a large batch: size=%d", size)

    def name(self, result: PutResult, answer: Callable[[], None]) -> None:
        """Call ``answer`` when it takes no time to name the messages that were stored."""
        if result.message_count <= NAMED_COUNT_MAX or self._is_closed:
            answer()
            return
        naming = self._turns.run(result.name_messages(), _NAMING)
        self._naming.add(naming)

        def named(naming: asyncio.Future[None]) -> None:
            self._naming.discard(naming)
            answer()

        naming.add_done_callback(named)

    async def close(self) -> None:
        """Take no more, and wait until all that wait are stored, and those named that are."""
        await super().close()
        if self._naming:
            await asyncio.wait(set(self._naming))
