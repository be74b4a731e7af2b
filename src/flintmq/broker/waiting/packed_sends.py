"""Sends whose bodies are unpacked in a thread before they can be stored.

One body is unpacked at a time, and stored before the next one: so there is never more than one that
has grown.  Of a peer only one waits, since nothing that came behind it is handled before it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.remoting.peer import Peer

SIZE_MAX: Final = 64 << 20
"""Bytes of packed bodies that may wait."""

COUNT_MAX: Final = 1024
"""How many may wait.  They are unpacked one by one, and small bodies grow most: the last of very
many would be answered long after its producer has given up and sent it again."""


class PackedSends:
    """The sends that wait until their bodies are unpacked, in the order in which they came."""

    def __init__(self, *, dispatch: Callable[[], None]) -> None:
        self._dispatch = dispatch
        self._unpacking = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._size = 0
        self._is_closed = False

    @property
    def count(self) -> int:
        """How many sends wait."""
        return len(self._tasks)

    def hold(
        self,
        peer: Peer,
        size: int,
        unpack: Callable[[], bytes],
        store: Callable[[asyncio.Future[bytes]], None],
    ) -> bool:
        """Have a body unpacked in a thread; return False when too much waits already.

        ``store`` gets what has become of it, or why nothing has.  The peer's next request is
        handled after that: it may be a send to the same queue.
        """
        if self._is_closed or self.count >= COUNT_MAX or self._size + size > SIZE_MAX:
            return False
        self._size += size
        task = asyncio.get_running_loop().create_task(self._finish(unpack, store))
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._size -= size

        task.add_done_callback(ended)
        peer.wait_for(task)
        return True

    async def _finish(
        self, unpack: Callable[[], bytes], store: Callable[[asyncio.Future[bytes]], None]
    ) -> None:
        async with self._unpacking:
            running = asyncio.get_running_loop().run_in_executor(None, unpack)
            await asyncio.wait([running])
            store(running)
        self._dispatch()

    async def close(self) -> None:
        """Take no more, and wait until all that wait are stored."""
        self._is_closed = True
        if self._tasks:
            await asyncio.wait(self._tasks)
