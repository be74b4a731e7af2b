"""How a client finds its cluster and speaks to it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypedDict

from flintmq.client.errors import UsageError
from flintmq.client.field_types import check_field_types
from flintmq.format.errors import HostError
from flintmq.format.host import parse_address

if TYPE_CHECKING:
    import ssl

    from flintmq.remoting.tls_files import TlsFiles

NAMESRV_ENVIRONMENT: Final = "NAMESRV_ADDR"
ACCESS_KEY: Final = "FLINTMQ_ACCESS_KEY"
SECRET_KEY: Final = "FLINTMQ_SECRET_KEY"
SECURITY_TOKEN: Final = "FLINTMQ_SECURITY_TOKEN"
_SEPARATOR: Final = re.compile(r"[;,\s]+")
_NAME: Final = re.compile(r"[%|A-Za-z0-9_-]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The keys with which requests are signed; the secret ones are never shown."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_field_types(self)


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
    """Unless given, FLINTMQ_ACCESS_KEY and FLINTMQ_SECRET_KEY of the environment count."""
    use_tls: bool | None = None
    """Unless given, true if ``tls`` is there, else what FLINTMQ_USE_TLS of the environment says."""
    tls: TlsFiles | ssl.SSLContext | None = None
    """Whom the client trusts by TLS; unless given, FLINTMQ_TLS_CA_FILE and the like count."""
    vip_channel: bool = False
    """Whether sends go to the port two below the broker's."""
    binary_headers: bool = False
    """Whether requests have RocketMQ's binary headers, which are shorter, instead of JSON."""
    route_interval_ms: int = 30_000
    heartbeat_interval_ms: int = 30_000
    offset_interval_ms: int = 5000
    request_timeout_ms: int = 3000
    connect_timeout_ms: int = 3000

    def __post_init__(self) -> None:
        check_field_types(self)
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
        """The addresses of the name servers that were given, without repeats."""
        text = self.namesrv or os.environ.get(NAMESRV_ENVIRONMENT, "")
        return tuple(dict.fromkeys(filter(None, _SEPARATOR.split(text))))

    @property
    def signing_credentials(self) -> Credentials | None:
        """The keys that requests are signed with; UsageError if the environment has but one."""
        if self.credentials is not None:
            return self.credentials
        access_key, secret_key = os.environ.get(ACCESS_KEY), os.environ.get(SECRET_KEY)
        if not access_key and not secret_key:
            return None
        if not access_key or not secret_key:
            raise UsageError(f"{ACCESS_KEY} and {SECRET_KEY} in the environment belong together")
        return Credentials(
            access_key=access_key,
            secret_key=secret_key,
            security_token=os.environ.get(SECURITY_TOKEN),
        )


class ClientKeywords(TypedDict, total=False):
    """The fields of `ClientOptions` as single keywords."""

    namesrv: str | None
    discovery_url: str | None
    instance_name: str | None
    client_ip: str | None
    unit_name: str | None
    namespace: str | None
    credentials: Credentials | None
    use_tls: bool | None
    tls: TlsFiles | ssl.SSLContext | None
    vip_channel: bool
    binary_headers: bool
    route_interval_ms: int
    heartbeat_interval_ms: int
    offset_interval_ms: int
    request_timeout_ms: int
    connect_timeout_ms: int


def checked_group(group: str) -> str:
    """Return the name of a group; UsageError if it cannot be one."""
    if not isinstance(group, str):
        raise UsageError(f"group must be str, not {type(group).__name__}")
    if _NAME.fullmatch(group) is None or group in ("DEFAULT_PRODUCER", "DEFAULT_CONSUMER"):
        raise UsageError(f"not the name of a group: {group!r}")
    return group
