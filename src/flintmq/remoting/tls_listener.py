"""Accepting connections that may begin with a TLS handshake.

The first byte decides.  A TLS handshake begins with 0x16; a frame begins with its length, which is
below 16 MiB, so with 0.  That byte is looked at and left in the socket, and only then a transport
is made, with TLS or without.  Whoever has sent nothing yet, or half the first record of a
handshake, costs a socket and a task.  Few connections are accepted in a turn of the loop, and few
are looked at and made.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
import socket
import struct
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flintmq.format.wire.frame import TLS_HANDSHAKE
from flintmq.remoting.paced_log import PacedLog
from flintmq.remoting.refusal_counts import FAILED_HANDSHAKES

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.remoting.connection import Connection
    from flintmq.remoting.limits import Limits
    from flintmq.remoting.refusal_counts import RefusalCounts
    from flintmq.remoting.tls_files import WatchedContext

logger = logging.getLogger(__name__)

SHUTDOWN_TIMEOUT_S: Final = 2.0
"""How long a peer may take to agree that a connection ends."""
_ACCEPT_COUNT_MAX: Final = 4
"""Connections accepted in one turn of the loop."""
_GREETED_COUNT_MAX: Final = 2
"""Connections that are looked at in one turn of the loop, and made if they are ready: to begin a
handshake takes some tenths of a millisecond."""
_HANDSHAKE_S_MIN: Final = 0.001
"""Given to a handshake whose time is over just as it begins; none at all is not allowed."""
_RECORD_HEAD: Final = struct.Struct(
    ">"
    "3x"  # type and version
    "H"  # bytes that follow
)
_RECORD_SIZE_MAX: Final = 16_384
"""Bytes of a record that are waited for; a handshake that claims more fails."""
_RETRY_S: Final = 1.0
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """TLS at a listener: the context of its connections, and whether there are others."""

    context: WatchedContext
    is_enforced: bool
    """Whether connections without TLS are closed."""


class TlsListener:
    """Accepts connections on one socket and makes those it has let in by ``make``.

    ``has_room`` tells whether one more is allowed.  `count` are those that are not made yet.
    """

    def __init__(
        self,
        bound: socket.socket,
        tls: ServerTls,
        *,
        limits: Limits,
        make: Callable[[], Connection],
        has_room: Callable[[str], bool],
        refused: RefusalCounts,
    ) -> None:
        self._bound = bound
        self._tls = tls
        self._limits = limits
        self._make = make
        self._has_room = has_room
        self._loop = asyncio.get_running_loop()
        self._greetings: set[asyncio.Task[None]] = set()
        self._handshake_count = 0
        self._retry: asyncio.TimerHandle | None = None
        self._refused = refused
        self.waiting: Counter[str] = Counter()
        """Connections that are not made yet, by address."""
        self._log: PacedLog[str] = PacedLog()
        self._pace = GreetingPace(_GREETED_COUNT_MAX)

    @property
    def count(self) -> int:
        """Connections that were accepted and are not made yet."""
        return len(self._greetings)

    def start(self) -> None:
        """Listen."""
        self._bound.listen(self._limits.backlog)
        self._bound.setblocking(False)
        self._loop.add_reader(self._bound, self._accept)

    async def close(self) -> None:
        """Accept nothing more, and give up what is not made yet."""
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._bound)
        self._bound.close()
        greetings = list(self._greetings)
        for task in greetings:
            task.cancel()
        await asyncio.gather(*greetings, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(_ACCEPT_COUNT_MAX):
            try:
                accepted, peer = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                logger.error("no connection can be accepted: reason=%s", error.strerror)  # noqa: TRY400
                self._loop.remove_reader(self._bound)
                self._retry = self._loop.call_later(_RETRY_S, self._accept_again)
                return
            accepted.setblocking(False)
            host, text = peer[0], f"{peer[0]}:{peer[1]}"
            if not self._has_room(host):
                accepted.close()
                continue
            self.waiting[host] += 1
            greeting = self._loop.create_task(self._greet(accepted, text), name=f"greet {text}")
            greeting.add_done_callback(functools.partial(self._greeted, host))
            self._greetings.add(greeting)
            greeting.add_done_callback(self._greetings.discard)

    def _greeted(self, host: str, _: asyncio.Task[None]) -> None:
        self.waiting[host] -= 1
        if not self.waiting[host]:
            del self.waiting[host]

    def _accept_again(self) -> None:
        self._loop.add_reader(self._bound, self._accept)

    async def _greet(self, accepted: socket.socket, peer: str) -> None:
        """Make a connection of a socket, or close it."""
        is_made = False
        try:
            async with asyncio.timeout(self._limits.idle_timeout_ms / 1000):
                first = await self._peek(accepted, 1)
            if not first:
                return
            if first[0] == TLS_HANDSHAKE:
                is_made = await self._shake_hands(accepted)
            elif self._tls.is_enforced:
                self._failed(peer, "it speaks without TLS, and tls.server.mode is enforcing")
            else:
                await self._loop.connect_accepted_socket(self._make, accepted)
                is_made = True
        except TimeoutError:
            self._failed(peer, "it was silent for too long")
        except OSError as error:
            self._failed(peer, getattr(error, "reason", None) or str(error))
        finally:
            if not is_made:
                accepted.close()

    async def _peek(self, accepted: socket.socket, size: int) -> bytes:
        """Return the first ``size`` bytes of a peer and leave them; fewer if it has gone before."""
        # A reader would be called for ever by bytes that are left, if fewer were enough for it.
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
        has_turn = self._loop.create_future()

        def readable() -> None:
            self._loop.remove_reader(accepted)
            self._pace.add(has_turn)

        self._loop.add_reader(accepted, readable)
        try:
            await has_turn
        finally:
            self._loop.remove_reader(accepted)
        try:
            return accepted.recv(size, socket.MSG_PEEK)
        except ConnectionError:
            return b""

    async def _shake_hands(self, accepted: socket.socket) -> bool:
        """Make a connection with TLS; return whether the peer was still there."""
        if self._handshake_count >= self._limits.handshake_count_max:
            raise OSError(f"{self._handshake_count} handshakes are under way")
        self._handshake_count += 1
        until = self._loop.time() + self._limits.handshake_timeout_ms / 1000
        try:
            async with asyncio.timeout_at(until):
                if not await self._has_hello(accepted):
                    return False
                context = await self._tls.context.current()
            await self._loop.connect_accepted_socket(
                self._make,
                accepted,
                ssl=context,
                ssl_handshake_timeout=max(until - self._loop.time(), _HANDSHAKE_S_MIN),
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        finally:
            self._handshake_count -= 1
        return True

    async def _has_hello(self, accepted: socket.socket) -> bool:
        """Wait for the whole first record of a handshake; return whether it came.

        What TLS needs for a connection is made only then, and the costly part of a handshake comes
        when the connection has its turn, not when many peers send the rest of theirs at once.
        """
        head = await self._peek(accepted, _RECORD_HEAD.size)
        if len(head) < _RECORD_HEAD.size:
            return False
        (record_size,) = _RECORD_HEAD.unpack(head)
        size: int = _RECORD_HEAD.size + min(record_size, _RECORD_SIZE_MAX)
        has_all = len(await self._peek(accepted, size)) == size
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        return has_all

    def _failed(self, peer: str, reason: str) -> None:
        """Count a connection that was not made; one a second is logged."""
        count = self._refused.note(FAILED_HANDSHAKES)
        if self._log.passes(FAILED_HANDSHAKES) is not None:
            logger.warning("connection not made: peer=%s reason=%s failed=%d", peer, reason, count)


class GreetingPace:
    """Lets so many go on in one turn of the loop, in the order in which they came."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    def add(self, future: asyncio.Future[None]) -> None:
        """Have a future done in a turn of the loop in which one more may go on."""
        self._waiting.append(future)
        self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._let_go_on)

    def _let_go_on(self) -> None:
        self._is_scheduled = False
        count = self._count
        while self._waiting and count:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1
        self._schedule()
