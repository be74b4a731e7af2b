"""Packed hosts: the address and port of the sender or the store inside a record.

The length tells the family; there is no other mark in the bytes themselves:

    at      size    field    meaning
     0   4 or 16    address  IPv4 or IPv6 address, network order
     4 or 16   4    port

In a record two bits of the sys flag say which length each host has.
"""

import ipaddress
import struct
from typing import Final

from flintmq.format.buffer import Buffer
from flintmq.format.errors import HostError

IPV4_HOST_SIZE: Final = 8
IPV6_HOST_SIZE: Final = 20
PORT_MAX: Final = 65535
_PORT: Final = struct.Struct(">i")
assert 4 + _PORT.size == IPV4_HOST_SIZE
assert 16 + _PORT.size == IPV6_HOST_SIZE


def pack_host(address: str, port: int) -> bytes:
    """Return the packed form of a numeric ``address`` and a ``port``."""
    try:
        packed = ipaddress.ip_address(address).packed
    except ValueError as error:
        raise HostError(f"not a numeric address: {address!r}") from error
    if not 0 <= port <= PORT_MAX:
        raise HostError(f"no such port: {port}")
    return packed + _PORT.pack(port)


def _split(data: Buffer) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    if len(data) not in (IPV4_HOST_SIZE, IPV6_HOST_SIZE):
        raise HostError(f"a host has 8 or 20 bytes, not {len(data)}")
    (port,) = _PORT.unpack_from(data, len(data) - _PORT.size)
    return ipaddress.ip_address(bytes(data[: -_PORT.size])), port


def unpack_host(data: Buffer) -> tuple[str, int]:
    """Return address and port of a packed host."""
    address, port = _split(data)
    return str(address), port


def host_text(data: Buffer) -> str:
    """Return a packed host as Java prints it: ``10.0.0.1:10911`` or ``[0:0:0:0:0:0:0:1]:10911``.

    Java writes all eight groups of an IPv6 address, and takes one that is mapped from IPv4 for
    the IPv4 address.
    """
    address, port = _split(data)
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            groups = (format(group, "x") for group in struct.unpack(">8H", address.packed))
            return f"[{':'.join(groups)}]:{port}"
        address = address.ipv4_mapped
    return f"{address}:{port}"


def is_ipv6(packed: Buffer) -> bool:
    """Return whether a packed host has the length of an IPv6 one."""
    return len(packed) == IPV6_HOST_SIZE


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``10.0.0.1:10911``, ``mq.example:9876`` or ``[::1]:10911``."""
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""  # An IPv6 address needs its brackets here.
    if not colon or not host or not (port.isascii() and port.isdigit()) or len(port) > 5:
        raise HostError(f"an address is HOST:PORT, not {text!r}")
    if int(port) > PORT_MAX:
        raise HostError(f"no such port: {port}")
    return host, int(port)
