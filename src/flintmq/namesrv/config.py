"""Settings of a name server."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Final, Self

from flintmq.model.value_class import value_class
from flintmq.remoting.addresses import LOOPBACK
from flintmq.settings import (
    Owner,
    Setting,
    check_ranges,
    from_properties,
    number,
    settings_of,
    switch,
    text,
    to_properties,
)
from flintmq.settings.access_settings import AccessSettings, access_file
from flintmq.settings.log_levels import KEY as LOG_LEVELS_KEY
from flintmq.settings.setting import Codec

_FILE: Final = Codec(Path, str, "a file")


@value_class
class NamesrvConfig(AccessSettings):
    """Settings of one name server.  Times are milliseconds.

    Settings that steer Java's own network layer are read, checked and printed, so that tools find
    the keys they know; the name server ignores them.
    """

    listen_port: int = number("listenPort", 9876, maximum=65535, owner=Owner.SERVER)
    bind_address: str = text("bindAddress", LOOPBACK, owner=Owner.FLINTMQ)
    kv_config_path: Path = field(
        default_factory=lambda: Path.home() / "namesrv" / "kvConfig.json",
        metadata={"setting": Setting("kvConfigPath", _FILE, Owner.NAMESRV)},
    )
    config_store_path: Path = field(
        default_factory=lambda: Path.home() / "namesrv" / "namesrv.properties",
        metadata={"setting": Setting("configStorePath", _FILE, Owner.NAMESRV)},
    )
    rocketmq_home: str = text("rocketmqHome", "", owner=Owner.NAMESRV)
    product_env_name: str = text("productEnvName", "center", owner=Owner.NAMESRV)
    cluster_test: bool = switch("clusterTest", owner=Owner.NAMESRV)
    order_message_enable: bool = switch("orderMessageEnable", owner=Owner.NAMESRV)
    broker_timeout_ms: int = number("brokerTimeoutMillis", 120_000, minimum=1, owner=Owner.FLINTMQ)
    scan_interval_ms: int = number(
        "scanNotActiveBrokerInterval", 10_000, minimum=1, owner=Owner.FLINTMQ
    )

    acl_enable: bool = switch("aclEnable", owner=Owner.FLINTMQ)

    def __post_init__(self) -> None:
        check_ranges(SETTINGS, self)
        if self.acl_enable:
            access_file(self.acl_file, self.rocketmq_home)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read the settings out of a name server's properties."""
        return cls(**from_properties(SETTINGS, properties))

    def to_properties(self) -> dict[str, str]:
        """Return RocketMQ key → text."""
        return to_properties(SETTINGS, self)


SETTINGS: Final[Mapping[str, Setting]] = settings_of(NamesrvConfig)

EDITABLE: Final = frozenset({"orderMessageEnable", "clusterTest", "productEnvName", LOG_LEVELS_KEY})
"""The settings that may be changed while a name server runs: no path, port or address is one."""
