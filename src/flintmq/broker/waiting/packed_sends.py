"""Sends whose bodies are unpacked in a thread before they can be stored.

One body is unpacked at a time, and stored before the next one: so there is never more than one that
has grown.  Of a peer only one waits, since nothing that came behind it is handled before it.

A body that has to be refused costs as much as one that is stored, and whoever sends such bodies on
purpose sends many.  The thread that unpacks them would take a processor from the loop and from the
clients of this machine.  So whoever had some refused goes the slow way: of all such addresses
together one body is unpacked in a second.  Bodies that can be stored lead back from there.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from flintmq.broker.waiting.waiting_sends import WaitingSends
from flintmq.format.errors import CompressionError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from flintmq.remoting.peer import Peer

FAULTS_FREE: Final = 3
"""Bodies that may be refused to an address before it goes the slow way."""
FAULTS_MAX: Final = 10
"""How many count; each body that is stored makes it one less."""
ADDRESSES_MAX: Final = 1024
"""Addresses whose refused bodies are known."""
SLOW_PAUSE_S: Final = 1.0
"""How long the slow way rests after a body was refused."""
SLOW_COUNT_MAX: Final = 4
"""Sends that may wait on the slow way: the last of them waits for some seconds."""


class SlowWay:
    """Who goes slowly, since what he sent was refused, and when the next may go."""

    def __init__(self) -> None:
        self._next = asyncio.Lock()
        self.count = 0
        """How many go this way now."""
        self._faults: dict[str, int] = {}
        """Bodies that were refused, by address; the address that had one last comes last."""
        self._free_at = 0.0
        self._is_open = asyncio.Event()

    def __contains__(self, address: str) -> bool:
        return self._faults.get(address, 0) >= FAULTS_FREE

    def note(self, address: str, *, is_refused: bool) -> None:
        """Note what has become of a body of an address."""
        faults = self._faults.pop(address, 0)
        faults = min(faults + 1, FAULTS_MAX) if is_refused else faults - 1
        if faults > 0:
            self._faults[address] = faults
        if len(self._faults) > ADDRESSES_MAX:
            del self._faults[next(iter(self._faults))]
        if is_refused:
            self._free_at = asyncio.get_running_loop().time() + SLOW_PAUSE_S

    def turn(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Return the turn of one more, which waits until its body may be unpacked.

        Nobody else goes this way meanwhile.
        """
        self.count += 1
        return self._turn()

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        try:
            async with self._next:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(self._free_at):
                        await self._is_open.wait()
                yield
        finally:
            self.count -= 1

    def open(self) -> None:
        """Let nobody wait any more: a broker that stops does not."""
        self._is_open.set()


class PackedSends(WaitingSends):
    """The sends that wait until their bodies are unpacked, in the order in which they came."""

    def __init__(
        self, *, dispatch: Callable[[], None], stored: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__()
        self._dispatch = dispatch
        self._batches_stored = stored
        """Waits for what was given to be stored and has to be prepared first."""
        self._unpacking = asyncio.Lock()
        self._slow_way = SlowWay()

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
        if not self.has_room(size):
            return False
        address, slow_way = peer.peer[0], self._slow_way
        is_slow = address in slow_way
        if is_slow and slow_way.count >= SLOW_COUNT_MAX:
            return False
        turn = slow_way.turn() if is_slow else contextlib.nullcontext()
        self._wait(peer, size, self._finish(address, turn, unpack, store))
        return True

    async def _finish(
        self,
        address: str,
        turn: contextlib.AbstractAsyncContextManager[None],
        unpack: Callable[[], bytes],
        store: Callable[[asyncio.Future[bytes]], None],
    ) -> None:
        async with turn, self._unpacking:
            running = asyncio.get_running_loop().run_in_executor(None, unpack)
            await asyncio.wait([running])
            refused = isinstance(running.exception(), CompressionError)
            self._slow_way.note(address, is_refused=refused)
            store(running)
            await self._batches_stored()
        self._dispatch()

    async def close(self) -> None:
        """Take no more, and wait until all that wait are stored."""
        self._slow_way.open()
        await super().close()
