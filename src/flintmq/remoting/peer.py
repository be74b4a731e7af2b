"""The other side of a connection, as processors see it."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from flintmq.format.buffer import Buffer
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.codec import Header


class Peer(Hashable, Protocol):
    """Whoever sent a request; `Connection` is one, and tests have others."""

    peer: tuple[str, int]
    """Address and port of the other side."""
    local: tuple[str, int]

    @property
    def peer_text(self) -> str:
        """The other side as RocketMQ writes addresses."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether nothing more can be sent."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether the peer has read enough to be sent more than it just asked for."""
        ...

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call back once the peer has read enough; never if the connection ends before."""
        ...

    def wait_for(self, work: asyncio.Future[None]) -> None:
        """Handle nothing that the peer has sent since before some work for it is done."""
        ...

    async def call(
        self, code: int, header: Header | None = None, body: bytes = b"", *, timeout_ms: int
    ) -> Command:
        """Send a request and return the answer, whatever its code."""
        ...

    def tell(self, code: int, header: Header | None = None, body: bytes = b"") -> None:
        """Send a one-way request."""
        ...

    def send(self, frame: bytes) -> None:
        """Send a whole frame."""
        ...

    def send_pieces(self, pieces: Sequence[Buffer]) -> None:
        """Send a whole frame in pieces, which need not be good any more when this returns."""
        ...

    def close(self) -> None:
        """Close after what was written has left."""
        ...
