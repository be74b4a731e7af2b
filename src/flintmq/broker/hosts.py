"""Addresses of peers as records have them."""

from __future__ import annotations

import functools
import ipaddress
from typing import TYPE_CHECKING, Final

from flintmq.format.host import pack_host

if TYPE_CHECKING:
    from flintmq.remoting.peer import Peer

_CACHE_SIZE: Final = 65_536


@functools.lru_cache(maxsize=_CACHE_SIZE)
def packed_host(address: str, port: int) -> bytes:
    """Return an address and port as records have them; an IPv4 address mapped to IPv6 is IPv4."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return pack_host(str(parsed), port)


def packed_peer(connection: Peer) -> bytes:
    """Return the address and port of the other side of a connection as records have them."""
    address, port = connection.peer
    # A peer that was gone when its connection was accepted has no address.
    return packed_host(address or "0.0.0.0", port)
