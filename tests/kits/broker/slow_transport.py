"""A transport in memory whose other side reads as much as it is told to."""

import asyncio
from collections import deque
from typing import Any

from flintmq.remoting import Connection

PEER_HOST = "127.0.0.1"


class SlowTransport(asyncio.Transport):
    """Keeps what is written until the peer reads it, with the flow control of a real transport."""

    def __init__(self, protocol: Connection, port: int, *, read_size: int) -> None:
        super().__init__({"peername": (PEER_HOST, port), "sockname": (PEER_HOST, 1)})
        self._protocol = protocol
        self._read_size = read_size
        self._unread: deque[bytes] = deque()
        self._unread_size = 0
        self._high, self._low = 64 << 10, 16 << 10
        self._is_protocol_paused = False
        self._is_reading = True
        self._is_closing = False

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self._unread.append(bytes(data))
            self._unread_size += len(data)
            self._pause_if_full()

    def read(self) -> bytes:
        """Return what the peer reads in one turn, and let the server go on."""
        found, room = [], self._read_size
        while self._unread and room:
            piece = self._unread.popleft()
            if len(piece) > room:
                self._unread.appendleft(piece[room:])
                piece = piece[:room]
            found.append(piece)
            room -= len(piece)
            self._unread_size -= len(piece)
        if self._is_protocol_paused and self._unread_size <= self._low and not self._is_closing:
            self._is_protocol_paused = False
            self._protocol.resume_writing()
        return b"".join(found)

    def get_write_buffer_size(self) -> int:
        return self._unread_size

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 << 10 if high is None else high
        self._low = self._high // 4 if low is None else low
        self._pause_if_full()

    def _pause_if_full(self) -> None:
        if self._unread_size > self._high and not self._is_protocol_paused:
            self._is_protocol_paused = True
            self._protocol.pause_writing()

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._unread.clear()
            self._unread_size = 0
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    abort = close
