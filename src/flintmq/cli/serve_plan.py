"""What ``flintmq serve`` runs: which brokers, on which ports, with which settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flintmq.broker import BrokerConfig, read_settings
from flintmq.namesrv import NamesrvConfig
from flintmq.settings import write_properties
from flintmq.settings.durable_file import replace_durably

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from flintmq.broker import StoreConfig

PORT_STEP: Final = 10
"""Between the ports of two brokers; each also needs the port two below."""

SMALL_STORE: Final = {
    "mappedFileSizeCommitLog": str(128 << 20),
    "mappedFileSizeConsumeQueue": str(30_000 * 20),
    "maxHashSlotNum": "1000000",
    "maxIndexNum": "4000000",
}
"""Smaller files than RocketMQ's: two of the log and one of the index take 340 MB at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServePlan:
    """One group of a name server and brokers, kept in one directory."""

    data: Path
    host: str
    namesrv_port: int
    broker_port: int
    count: int
    settings: Mapping[str, str]

    def namesrv_config(self) -> NamesrvConfig:
        """Return the settings of the name server."""
        return NamesrvConfig(
            listen_port=self.namesrv_port,
            bind_address=self.host,
            kv_config_path=self.data / "namesrv" / "kvConfig.json",
            config_store_path=self.data / "namesrv" / "namesrv.properties",
        )

    def directory(self, index: int) -> Path:
        """Return where a broker keeps everything; the first one at the top."""
        return self.data if index == 0 else self.data / self.name(index)

    @staticmethod
    def name(index: int) -> str:
        """Return the name of a broker: broker-a, broker-b and so on."""
        return f"broker-{chr(ord('a') + index)}"

    def properties(self, index: int, namesrv: str) -> dict[str, str]:
        """Return the settings of a broker by RocketMQ's names."""
        port = self.broker_port + PORT_STEP * index if self.broker_port else 0
        return {
            **SMALL_STORE,
            "brokerName": self.name(index),
            "namesrvAddr": namesrv,
            "listenPort": str(port),
            "bindAddress": self.host,
            "storePathRootDir": str(self.directory(index) / "store"),
            **self.settings,
        }

    def broker_settings(self, index: int, namesrv: str) -> tuple[BrokerConfig, StoreConfig]:
        """Return the settings of a broker and its store."""
        return read_settings(self.properties(index, namesrv))

    def keep_settings(self, index: int, broker: BrokerConfig, store: StoreConfig) -> Path:
        """Write the settings down, so that a broker can be started on them by itself."""
        wanted = self.properties(index, "").keys() | {
            "brokerClusterName",
            "brokerId",
            "brokerIP1",
            "brokerRole",
            "flushDiskType",
            "storePathCommitLog",
        }
        known = broker.to_properties() | store.to_properties(java_only=False)
        known.setdefault("storePathCommitLog", str(store.root / "commitlog"))
        kept = {key: known[key] for key in sorted(wanted) if key in known}
        path = self.directory(index) / "broker.conf"
        replace_durably(path, write_properties(kept))
        return path

    def ready_line(self, namesrv: str, brokers: Sequence[str]) -> str:
        """Return the line that says that clients can connect."""
        listed = " ".join(f"broker={address}" for address in brokers)
        return f"ready: namesrv={namesrv} {listed} data={self.data}"
