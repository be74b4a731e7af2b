"""Requests that threads send by themselves, on a connection whose loop is that of the test."""

import asyncio
import socket

from flintmq.format.wire.command import Command, encode_command
from flintmq.remoting import EncodedRequest
from flintmq.remoting.client_connection import ClientConnection
from tests.kits.broker.remoting_kit import ECHO, PATIENT_MS


def encoded(connection: ClientConnection, body: bytes) -> EncodedRequest:
    opaque = connection.next_opaque()
    command = Command(code=ECHO, opaque=opaque, body=body)
    return EncodedRequest(ECHO, opaque, encode_command(command))


def ask(
    connection: ClientConnection, body: bytes = b"", *, timeout_ms: int = PATIENT_MS
) -> Command | None:
    """Ask from the calling thread; None if the loop has to do it."""
    return connection.exchange_in_thread(encoded(connection, body), timeout_ms=timeout_ms)


async def open_to_threads(connection: ClientConnection) -> None:
    """Wait until threads may send on a connection."""
    while await asyncio.to_thread(ask, connection) is None:
        # An answer shows that what was sent before has left.
        await connection.call(ECHO, timeout_ms=PATIENT_MS)


def keep_little(connection: ClientConnection) -> None:
    """Have the system keep so few bytes for the peer that large frames leave in parts."""
    assert connection._transport is not None
    sock = connection._transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
