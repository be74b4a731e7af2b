"""Sends that cannot be stored at once: how many and how much may wait, and who waits for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from flintmq.remoting.peer import Peer

SIZE_MAX: Final = 64 << 20
"""Bytes of bodies that may wait."""
COUNT_MAX: Final = 1024
"""How many may wait.  They are stored one by one: the last of very many would be answered long
after its producer has given up and sent it again."""


class WaitingSends:
    """The sends of one kind that wait, in the order in which they came.

    Of a peer only one waits, since nothing that came behind it is handled before it: that may be a
    send to the same queue.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._size = 0
        self._is_closed = False

    @property
    def count(self) -> int:
        """How many wait."""
        return len(self._tasks)

    def has_room(self, size: int) -> bool:
        """Return whether a body of a size may wait too."""
        return not self._is_closed and self.count < COUNT_MAX and self._size + size <= SIZE_MAX

    def _wait(self, peer: Peer, size: int, storing: Coroutine[None, None, None]) -> None:
        """Let a peer wait until its send is stored."""
        self._size += size
        task = asyncio.get_running_loop().create_task(storing)
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._size -= size

        task.add_done_callback(ended)
        peer.wait_for(task)

    async def stored(self) -> None:
        """Wait until all that wait now are stored."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def close(self) -> None:
        """Take no more, and wait until all that wait are stored."""
        self._is_closed = True
        await self.stored()
