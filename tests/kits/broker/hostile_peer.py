"""A peer that sends anything, and an account of what a server owes it."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, Final

from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command, decode_command, encode_command
from flintmq.format.wire.frame import FrameDecoder
from flintmq.format.wire.remoting_errors import RemoteProtocolError
from flintmq.remoting import Connection, RemotingServer
from flintmq.remoting.turn_inbox import TurnInbox

PEER_HOST: Final = "127.0.0.1"


class MemoryTransport(asyncio.Transport):
    """Keeps what is written; closing it ends the connection in the next turn of the loop."""

    def __init__(self, protocol: Connection, port: int, *, host: str = PEER_HOST) -> None:
        super().__init__({"peername": (host, port), "sockname": (host, 1)})
        self._protocol = protocol
        self._is_closing = False
        self._is_reading = True
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Note it: nothing is read but what a test feeds."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Note it."""
        self._is_reading = True

    def is_reading(self) -> bool:
        return self._is_reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever left unread."""

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    abort = close


def fed_connection(server: RemotingServer) -> Connection:
    """Return a connection that handles what it is fed at once, without taking turns."""
    server.turns = server.inbox = None
    return Connection(server)


def inbox_connection(server: RemotingServer) -> Connection:
    """Return a connection whose reads wait in the inbox of its server, which takes no turns."""
    server.turns, server.inbox = None, server.inbox or TurnInbox(server)
    return Connection(server)


class HostilePeer:
    """One connection of a server, fed with bytes as a socket would.

    It reads its own bytes along with the server, to know which requests are owed an answer, and
    answers what the server asks.
    """

    def __init__(self, server: RemotingServer, port: int) -> None:
        self.connection = fed_connection(server)
        self._transport = MemoryTransport(self.connection, port)
        self._sent = FrameDecoder()
        self._received = FrameDecoder()
        self.owed: Counter[int] = Counter()
        """Opaque numbers of requests without an answer yet."""
        self._welcome: Counter[int] = Counter()
        """Opaque numbers of requests that need not be answered."""
        self.connection.connection_made(self._transport)

    @property
    def is_closed(self) -> bool:
        return self._transport.is_closing()

    @property
    def is_in_mid_frame(self) -> bool:
        """Whether the server waits for the rest of a frame."""
        return self._sent.pending_size > 0

    def feed(self, wire: bytes) -> None:
        """Let the server read some bytes, and look at what it wrote."""
        try:
            for frame in self._sent.frames(wire):
                command = decode_command(frame)
                self._note(command)
        except RemoteProtocolError:
            self.connection.data_received(wire)
            assert self.is_closed, "what is no frame ends the connection"
            return
        self.connection.data_received(wire)
        assert not self.is_closed, "a whole frame does not end the connection"
        self.read()

    def _note(self, command: Command) -> None:
        if command.is_response or command.is_one_way:
            return
        # Nobody answers a producer that does not know how its transaction ended.
        is_owed = command.code != RequestCode.END_TRANSACTION
        (self.owed if is_owed else self._welcome)[command.opaque] += 1

    def read(self) -> None:
        """Take what the server has written."""
        written, self._transport.written = self._transport.written, []
        for frame in self._received.frames(b"".join(written)):
            command = decode_command(frame)
            if command.is_response:
                account = self.owed if self.owed[command.opaque] else self._welcome
                assert account[command.opaque] > 0, "an answer to nothing"
                account[command.opaque] -= 1
            elif not command.is_one_way:
                answer = command.answer(ResponseCode.SUCCESS)
                asyncio.get_running_loop().call_soon(self._reply, answer)
        self.owed = +self.owed

    def _reply(self, answer: Command) -> None:
        if not self.is_closed and not self.is_in_mid_frame:
            self.connection.data_received(encode_command(answer))

    def close(self) -> None:
        self._transport.close()


def own_memory_kib() -> int:
    """Return the memory of this process that no file stands behind."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise AssertionError("no RssAnon in /proc/self/status")
