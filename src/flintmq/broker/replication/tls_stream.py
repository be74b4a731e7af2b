"""The replication stream by TLS: a socket that never waits, and encrypts what goes over it.

Loaded only where ``haUseTLS`` asks for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable

RECORD_SIZE: Final = 16 << 10
"""Bytes that one record of TLS holds; of more, none or all would count as sent."""
_NOT_NOW: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsStream:
    """A connection after its handshake, with as much of a socket as the stream needs."""

    def __init__(self, wrapped: ssl.SSLSocket) -> None:
        self._wrapped = wrapped

    def fileno(self) -> int:
        """Return the descriptor, for a loop to watch."""
        return self._wrapped.fileno()

    def recv(self, size: int) -> bytes:
        """Return what has come, of so many bytes at most."""
        buffer = bytearray(size)
        return bytes(buffer[: self.recv_into(memoryview(buffer))])

    def recv_into(self, buffer: memoryview) -> int:
        """Fill a buffer with all that has come, or as much of it as there is room for.

        What is decrypted and stays behind is not seen by the loop: who gets a full buffer asks
        again.
        """
        size = 0
        while size < len(buffer):
            try:
                count = self._wrapped.recv_into(buffer[size:])
            except _NOT_NOW:
                if not size:
                    raise BlockingIOError from None
                break
            if not count:
                break
            size += count
        return size

    def send(self, data: bytes) -> int:
        """Send some bytes; return how many."""
        return self.sendmsg([memoryview(data)])

    def sendmsg(self, buffers: Iterable[memoryview]) -> int:
        """Send buffers one after the other, as far as the socket takes them; return how much.

        What was not taken has to come again as it was: so each piece is a record of its own.
        """
        sent = 0
        for buffer in buffers:
            for at in range(0, len(buffer), RECORD_SIZE):
                try:
                    sent += self._wrapped.send(buffer[at : at + RECORD_SIZE])
                except _NOT_NOW:
                    if not sent:
                        raise BlockingIOError from None
                    return sent
        return sent

    def close(self) -> None:
        """Close the connection."""
        self._wrapped.close()


async def shake_hands(
    connected: socket.socket, context: ssl.SSLContext, *, host: str | None = None
) -> TlsStream:
    """Make a stream of a connected socket, which then belongs to it; OSError if that fails.

    ``host`` is whom a slave wants to speak to; without one this side is the master.
    """
    wrapped = context.wrap_socket(
        connected,
        server_side=host is None,
        server_hostname=host,
        do_handshake_on_connect=False,
    )
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        stack.callback(wrapped.close)
        while True:
            try:
                wrapped.do_handshake()
            except ssl.SSLWantReadError:
                await _ready(wrapped.fileno(), loop.add_reader, loop.remove_reader)
            except ssl.SSLWantWriteError:
                await _ready(wrapped.fileno(), loop.add_writer, loop.remove_writer)
            else:
                stack.pop_all()
                return TlsStream(wrapped)


async def _ready(
    descriptor: int,
    add: Callable[[int, Callable[[], None]], object],
    remove: Callable[[int], object],
) -> None:
    """Wait until the loop says that a descriptor can be read or written."""
    is_ready = asyncio.get_running_loop().create_future()
    add(descriptor, lambda: None if is_ready.done() else is_ready.set_result(None))
    try:
        await is_ready
    finally:
        remove(descriptor)
