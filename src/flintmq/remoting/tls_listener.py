"""Accepting connections that may begin with a TLS handshake.

The first byte decides.  A TLS handshake begins with 0x16; a frame begins with its length, which is
below 16 MiB, so with 0.  That byte is looked at and left in the socket, and only then a transport
is made, with TLS or without.  Whoever has sent nothing yet costs a socket and a task.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
import socket
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flintmq.format.wire.frame import TLS_HANDSHAKE
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
_ACCEPT_COUNT_MAX: Final = 64
"""Connections accepted in one turn of the loop."""
_RETRY_S: Final = 1.0
_LOG_INTERVAL_S: Final = 1.0
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
        self._next_log = 0.0

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
            first = await self._first_byte(accepted)
            if first == TLS_HANDSHAKE:
                await self._shake_hands(accepted)
                is_made = True
            elif first is None:
                return
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

    async def _first_byte(self, accepted: socket.socket) -> int | None:
        """Return the byte that a peer begins with; None if it has gone before."""
        is_readable = self._loop.create_future()

        def readable() -> None:
            if not is_readable.done():
                is_readable.set_result(None)

        self._loop.add_reader(accepted, readable)
        try:
            async with asyncio.timeout(self._limits.idle_timeout_ms / 1000):
                await is_readable
        finally:
            self._loop.remove_reader(accepted)
        try:
            first = accepted.recv(1, socket.MSG_PEEK)
        except ConnectionError:
            return None
        return first[0] if first else None

    async def _shake_hands(self, accepted: socket.socket) -> None:
        if self._handshake_count >= self._limits.handshake_count_max:
            raise OSError(f"{self._handshake_count} handshakes are under way")
        self._handshake_count += 1
        try:
            await self._loop.connect_accepted_socket(
                self._make,
                accepted,
                ssl=await self._tls.context.current(),
                ssl_handshake_timeout=self._limits.handshake_timeout_ms / 1000,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        finally:
            self._handshake_count -= 1

    def _failed(self, peer: str, reason: str) -> None:
        """Count a connection that was not made; one a second is logged."""
        count = self._refused.note(FAILED_HANDSHAKES)
        now = self._loop.time()
        if now >= self._next_log:
            self._next_log = now + _LOG_INTERVAL_S
            logger.warning("connection not made: peer=%s reason=%s failed=%d", peer, reason, count)
