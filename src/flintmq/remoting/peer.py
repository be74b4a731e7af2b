"""The other side of a connection, as processors see it."""

from typing import Any, Protocol

from flintmq.format.command import Command
from flintmq.format.headers.codec import Header


class Peer(Protocol):
    """Whoever sent a request; `Connection` is one, and tests have others."""

    context: Any
    """A place for its owner, who may keep there what belongs to the peer."""
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

    def close(self) -> None:
        """Close after what was written has left."""
        ...
