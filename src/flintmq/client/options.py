"""How a client finds its cluster and speaks to it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from flintmq.client.errors import UsageError
from flintmq.format.errors import HostError
from flintmq.format.host import parse_address

if TYPE_CHECKING:
    import ssl

NAMESRV_ENVIRONMENT: Final = "NAMESRV_ADDR"
_SEPARATOR: Final = re.compile(r"[;,\s]+")
_NAME: Final = re.compile(r"[%|A-Za-z0-9_-]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What requests are signed with.  It is never shown."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Options that all producers and consumers of a client share.  Times are milliseconds.

    ``namesrv`` is ``host:port``, several with ``;`` between them; without it the environment
    variable NAMESRV_ADDR counts.  ``discovery_url`` is a page whose first line is such a list.
    """

    namesrv: str | None = None
    discovery_url: str | None = None
    instance_name: str | None = None
    """The second part of the client id; by default unique for every client."""
    client_ip: str | None = None
    unit_name: str | None = None
    namespace: str | None = None
    credentials: Credentials | None = None
    tls: ssl.SSLContext | None = None
    vip_channel: bool = False
    """Whether sends go to the port two below the broker's."""
    route_interval_ms: int = 30_000
    heartbeat_interval_ms: int = 30_000
    offset_interval_ms: int = 5000
    request_timeout_ms: int = 3000
    connect_timeout_ms: int = 3000

    def __post_init__(self) -> None:
        for name in (
            "route_interval_ms",
            "heartbeat_interval_ms",
            "offset_interval_ms",
            "request_timeout_ms",
            "connect_timeout_ms",
        ):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be positive")
        for address in self.name_servers:
            try:
                parse_address(address)
            except HostError as error:
                raise UsageError(f"namesrv: {error}") from error

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The name servers that are told, each once."""
        text = self.namesrv or os.environ.get(NAMESRV_ENVIRONMENT, "")
        return tuple(dict.fromkeys(filter(None, _SEPARATOR.split(text))))


def checked_group(group: str) -> str:
    """Return the name of a group; UsageError if it cannot be one."""
    if _NAME.fullmatch(group) is None or group in ("DEFAULT_PRODUCER", "DEFAULT_CONSUMER"):
        raise UsageError(f"not the name of a group: {group!r}")
    return group
