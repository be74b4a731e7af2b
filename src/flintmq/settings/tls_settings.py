"""Settings of TLS, which brokers and name servers have alike.

RocketMQ has them as system properties of its JVM.  Here they stand with the other settings, under
the same names, or in a file of their own (``tls.config.file``), which goes before.
"""

from dataclasses import field, replace
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar

from flintmq.model.value_class import value_class
from flintmq.settings.property_files import ConfigError, read_properties
from flintmq.settings.server_settings import ServerSettings
from flintmq.settings.setting import (
    OPTIONAL,
    Owner,
    Setting,
    choice,
    optional,
    settings_of,
    switch,
)
from flintmq.settings.tables import from_properties, unknown_keys

USUAL_TLS_FILE: Final = Path("/etc/rocketmq/tls.properties")
"""Where RocketMQ looks for the file; it need not be there."""
PASSWORD_SUFFIX: Final = "Password"
"""Ends the keys of settings that nobody is shown."""


class TlsMode(Enum):
    """Which connections a server takes."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class TlsClientAuth(Enum):
    """Whether a server asks clients for certificates."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


def _password(key: str) -> str | None:
    setting = Setting(key, OPTIONAL, Owner.SYSTEM)
    found: str | None = field(default=None, repr=False, metadata={"setting": setting})
    return found


@value_class
class TlsSettings(ServerSettings):
    """How a server speaks TLS, and how it does when it asks other servers."""

    tls_mode: TlsMode = field(
        default=TlsMode.PERMISSIVE,
        metadata=choice("tls.server.mode", TlsMode, owner=Owner.SYSTEM),
    )
    tls_enable: str | None = optional("tls.enable", owner=Owner.SYSTEM)
    """Whether other servers are asked by TLS; unless set, if the mode is enforcing."""
    tls_config_file: str | None = optional("tls.config.file", owner=Owner.SYSTEM)
    tls_test_mode: bool = switch("tls.test.mode.enable", owner=Owner.SYSTEM)
    tls_need_client_auth: TlsClientAuth = field(
        default=TlsClientAuth.NONE,
        metadata=choice("tls.server.need.client.auth", TlsClientAuth, owner=Owner.SYSTEM),
    )
    tls_server_key_path: str | None = optional("tls.server.keyPath", owner=Owner.SYSTEM)
    tls_server_key_password: str | None = _password("tls.server.keyPassword")
    tls_server_cert_path: str | None = optional("tls.server.certPath", owner=Owner.SYSTEM)
    tls_server_auth_client: bool = switch("tls.server.authClient", owner=Owner.SYSTEM)
    tls_server_trust_cert_path: str | None = optional(
        "tls.server.trustCertPath", owner=Owner.SYSTEM
    )
    tls_client_key_path: str | None = optional("tls.client.keyPath", owner=Owner.SYSTEM)
    tls_client_key_password: str | None = _password("tls.client.keyPassword")
    tls_client_cert_path: str | None = optional("tls.client.certPath", owner=Owner.SYSTEM)
    tls_client_auth_server: bool = switch("tls.client.authServer", True, owner=Owner.SYSTEM)
    tls_client_check_host: bool = switch("tls.client.checkHostname", True, owner=Owner.FLINTMQ)
    tls_client_trust_cert_path: str | None = optional(
        "tls.client.trustCertPath", owner=Owner.SYSTEM
    )


TLS_SETTINGS: Final = {
    name: setting
    for name, setting in settings_of(TlsSettings).items()
    if setting.key.startswith("tls.")
}
_NOT_IN_FILE: Final = frozenset({"tls.server.mode", "tls.enable", "tls.config.file"})

_Settings = TypeVar("_Settings", bound=TlsSettings)


def with_tls_file(settings: _Settings) -> _Settings:
    """Return settings with those of the file for TLS, if there is one, in their place."""
    named = settings.tls_config_file
    path = Path(named) if named else USUAL_TLS_FILE
    try:
        properties = read_properties(path.read_bytes())
    except OSError as error:
        if named is None:
            return settings
        allowed = f"a file that can be read: {error.strerror}"
        raise ConfigError("tls.config.file", path, allowed) from error
    wanted = {key: value for key, value in properties.items() if key not in _NOT_IN_FILE}
    for key, nearest in unknown_keys(wanted, [TLS_SETTINGS]).items():
        allowed = f"a key that is known there, such as {nearest or 'tls.server.certPath'}"
        raise ConfigError(f"{path}: {key}", "…", allowed)
    return replace(settings, **from_properties(TLS_SETTINGS, wanted))


def check_tls(settings: TlsSettings) -> None:
    """Raise ConfigError for settings of TLS that contradict each other."""
    if settings.tls_test_mode:
        raise ConfigError(
            "tls.test.mode.enable", "true", "false: there is no key that everybody knows"
        )
    if settings.tls_enable is not None and settings.tls_enable.lower() not in ("true", "false"):
        raise ConfigError("tls.enable", settings.tls_enable, "true or false")
    has_cert = settings.tls_server_cert_path is not None
    if has_cert != (settings.tls_server_key_path is not None):
        key = "tls.server.keyPath" if has_cert else "tls.server.certPath"
        raise ConfigError(key, "", "a PEM file: certPath and keyPath belong together")
    if settings.tls_mode is TlsMode.ENFORCING and not has_cert:
        allowed = "a mode without TLS, unless tls.server.certPath and tls.server.keyPath are set"
        raise ConfigError("tls.server.mode", "enforcing", allowed)
    asks = settings.tls_need_client_auth is not TlsClientAuth.NONE
    if asks != settings.tls_server_auth_client:
        # RocketMQ would ask and trust anybody, or trust nobody and never ask.
        raise ConfigError(
            "tls.server.authClient",
            str(settings.tls_server_auth_client).lower(),
            f"{str(asks).lower()} with tls.server.need.client.auth="
            f"{settings.tls_need_client_auth.value}",
        )
    if asks and settings.tls_server_trust_cert_path is None:
        allowed = "a PEM file with the certificates that clients are trusted by"
        raise ConfigError("tls.server.trustCertPath", "", allowed)
