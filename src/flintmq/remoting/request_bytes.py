"""Bytes of requests that are worked on for several turns of the loop, which are bounded too.

Most processors let go of what a request brought.  Some cannot: a reply is kept until its client has
it, a large registration until a thread has read it.  A peer may send thousands of them at once.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from flintmq.remoting.refusal_counts import PEER_REQUEST_BYTES, REQUEST_BYTES

if TYPE_CHECKING:
    from flintmq.remoting.refusal_counts import RefusalCounts


class RequestBytes:
    """How many bytes of requests under way a server keeps, for each of its peers and in all."""

    def __init__(self, *, size_max: int, peer_size_max: int, refused: RefusalCounts) -> None:
        self._size_max = size_max
        self._peer_size_max = peer_size_max
        self._refused = refused
        self._by_peer: dict[Hashable, int] = {}
        self.total_size = 0

    def take(self, peer: Hashable, size: int) -> str | None:
        """Count a request in; return why it must be refused if there is too much."""
        own = self._by_peer.get(peer, 0)
        if own + size > self._peer_size_max:
            self._refused.note(PEER_REQUEST_BYTES)
            return f"[OVERLOAD]{own} bytes of requests of this peer are under way"
        if self.total_size + size > self._size_max:
            self._refused.note(REQUEST_BYTES)
            return f"[OVERLOAD]{self.total_size} bytes of requests are under way"
        self.total_size += size
        if size:
            self._by_peer[peer] = own + size
        return None

    def give_back(self, peer: Hashable, size: int) -> None:
        """Count a request out."""
        if not size:
            return
        self.total_size -= size
        left = self._by_peer[peer] - size
        if left:
            self._by_peer[peer] = left
        else:
            del self._by_peer[peer]
