"""A socket to which threads and an event loop write, each of them whole frames.

The loop keeps it reserved while its transport holds bytes that have not left.  Otherwise any
thread may send a frame by itself, without waking the loop.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from functools import partial
from itertools import takewhile
from operator import call, eq, iadd
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

logger = logging.getLogger(__name__)

PATIENCE_S: Final = 0.001
"""How long one call waits for whoever is sending now: the system takes some microseconds."""
END_PATIENCE_S: Final = 1.0
"""How long the end of a connection waits for whoever is sending."""


class SharedSocket:
    """Lets one sender through at a time, and only between frames; it is reserved at first.

    `send` is for every thread but that of the loop, the other methods are for the loop.
    """

    def __init__(self, descriptor: int) -> None:
        # A descriptor of its own: nobody else closes it while a thread is sending.
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.setblocking(False)
        self._lock = threading.Lock()
        self._lock.acquire()
        self.is_reserved = True
        """Whether threads may not send now."""
        self._is_ended = False
        self._rest: bytes | None = None
        self._enter: Callable[[], object] = partial(self._lock.acquire, True, PATIENCE_S)

    @property
    def has_rest(self) -> bool:
        """Whether a thread could send a part of its frame only, and the rest has to leave first."""
        return self._rest is not None

    def send(self, frame: bytes) -> bool:
        """Send a frame; False if the socket is reserved.

        If there is no room for all of it, the loop has to send the rest before anything else.
        """
        if self.is_reserved:
            return False
        sent: list[int] = []
        # The steps are one call of C, in which no signal handler of Python can be run: one that
        # waits for the loop would wait for ever, because the loop would wait for the lock.
        steps: tuple[Callable[[], object], ...] = (
            self._enter,
            partial(iadd, sent, map(self._socket.send, (frame,))),
            partial(eq, sent, [len(frame)]),
            self._lock.release,
        )
        passed: list[object] = []
        try:
            passed.extend(takewhile(bool, map(call, steps)))
        except OSError:
            # There is no room, or the connection has ended, which the loop learns by itself.  But
            # whatever a signal handler raises comes before these steps or after them.
            if len(passed) != 1:
                raise
        finally:
            if len(passed) in {1, 2}:
                # In this order: whoever sees that it is reserved sees what has to be sent first.
                self._rest = frame[sum(sent) :]
                self.is_reserved = True
        return bool(passed)

    def reserve(self) -> bool:
        """Let no thread send any more; False if one is sending still."""
        # A thread that has no room sets this too, maybe while we wait for it.
        if not self.is_reserved and self._lock.acquire(timeout=PATIENCE_S):
            self.is_reserved = True
        return self.is_reserved

    def release(self) -> None:
        """Let threads send again, unless there is a rest, or this has ended."""
        if self.is_reserved and self._rest is None and not self._is_ended:
            self.is_reserved = False
            self._lock.release()

    def take_rest(self) -> bytes:
        """Return what a thread could not send, which has to be sent now; it must be reserved."""
        rest, self._rest = self._rest, None
        return rest or b""

    def close(self) -> bool:
        """Let no thread send any more, and give the descriptor back.

        False if a thread was stopped in mid-frame: then nothing may be sent behind that.
        """
        is_whole = self.is_reserved or self._lock.acquire(timeout=END_PATIENCE_S)
        self.is_reserved = self._is_ended = True
        self._socket.close()
        return is_whole


def share_socket(transport: asyncio.Transport) -> SharedSocket | None:
    """Return the socket of a transport for threads too; None if they cannot write to it.

    So it is with TLS, and where the process has no descriptor left.
    """
    sock = transport.get_extra_info("socket")
    if sys.platform == "win32" or sock is None or transport.get_extra_info("sslcontext"):
        return None
    try:
        return SharedSocket(sock.fileno())
    except OSError as error:
        logger.warning("only the loop sends on a connection: reason=%s", error)
        return None
