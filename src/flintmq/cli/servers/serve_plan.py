"""What ``flintmq serve`` runs: which brokers, on which ports, with which settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.broker import BrokerConfig, read_settings
from flintmq.format.stored.index_file import file_size
from flintmq.model.value_class import Value, value_class
from flintmq.namesrv import NamesrvConfig
from flintmq.settings import from_properties, write_properties
from flintmq.settings.durable_file import replace_durably
from flintmq.settings.metrics_settings import METRICS_SETTINGS, metrics_at
from flintmq.settings.tls_settings import PASSWORD_SUFFIX, TLS_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from flintmq.broker import StoreConfig

PORT_STEP: Final = 10
"""Between the ports of two brokers; each also needs the port two below and the one above."""

SMALL_STORE: Final = {
    "mappedFileSizeCommitLog": str(128 << 20),
    "mappedFileSizeConsumeQueue": str(30_000 * 20),
    "maxHashSlotNum": "1000000",
    "maxIndexNum": "4000000",
}
"""Smaller files than RocketMQ's: two of the log and one of the index take 340 MB at the start."""

JAVA_SLOT_COUNT: Final = 5_000_000
JAVA_ENTRY_COUNT: Final = 20_000_000
_NAME_LENGTH: Final = 20
"""Digits in the names of the files of log and queues."""

SPLITTER_KEY: Final = "rocketmq.broker.multiPathSplitter"
DIRECTORY_KEYS: Final = frozenset(
    {
        "readOnlyCommitLogStorePaths",
        "storePathCommitLog",
        "storePathDLedgerCommitLog",
        "storePathRootDir",
    }
)
"""Settings that name directories; no two brokers can have the same one."""


class Member(NamedTuple):
    """One broker of a group: a master, or one of its slaves."""

    group_index: int
    """Which master of the group, from 0 on."""
    replica: int = 0
    """Which slave of that master, from 1 on; 0 is the master itself."""

    @property
    def broker_name(self) -> str:
        """The name that a master shares with its slaves: broker-a, broker-b and so on."""
        return f"broker-{chr(ord('a') + self.group_index)}"

    @property
    def name(self) -> str:
        """The name of the process and of its directory."""
        return f"{self.broker_name}-slave-{self.replica}" if self.replica else self.broker_name


def found_sizes(root: Path, *log_directories: Path) -> dict[str, str]:
    """Return the sizes of the files that a store has already: Java's are larger than ours.

    The log of a store that was made with other sizes could not be opened.  It may lie in
    directories of its own.
    """
    found: dict[str, str] = {}
    logs = log_directories or (root / "commitlog",)
    if not any(directory.exists() for directory in (root, *logs)):
        return found  # Looking for files takes a while, and there are none.
    for key, files in (
        ("mappedFileSizeCommitLog", _files_in(logs)),
        ("mappedFileSizeConsumeQueue", _files_in(root.glob("consumequeue/*/*"))),
    ):
        file = next(files, None)
        if file is not None and (size := file.stat().st_size):
            found[key] = str(size)
    index = next(root.glob("index/[0-9]*"), None)
    if index is not None and index.stat().st_size == file_size(JAVA_SLOT_COUNT, JAVA_ENTRY_COUNT):
        found |= {"maxHashSlotNum": str(JAVA_SLOT_COUNT), "maxIndexNum": str(JAVA_ENTRY_COUNT)}
    return found


def _files_in(directories: Iterable[Path]) -> Iterator[Path]:
    """Yield the files of log or queues in some directories, those of them that are there."""
    for directory in directories:
        for path in directory.iterdir() if directory.is_dir() else ():
            if len(path.name) == _NAME_LENGTH and path.name.isdecimal():
                yield path


@value_class
class ServePlan(Value):
    """One group of name servers and brokers, kept in one directory."""

    data: Path
    host: str
    namesrv_port: int
    broker_port: int
    count: int
    settings: Mapping[str, str]
    replica_count: int = 0
    """Slaves of each master."""
    namesrv_count: int = 1
    metrics_port: int | None = None
    """Where the first broker shows its metrics; 0: on a free port, None: nowhere."""

    def namesrv_configs(self) -> list[NamesrvConfig]:
        """Return the settings of the name servers, whose ports follow each other.

        Of the settings that were given they have what concerns TLS, metrics and the log.
        """
        return [
            NamesrvConfig(
                **from_properties(TLS_SETTINGS, self.settings),
                **from_properties(
                    METRICS_SETTINGS,
                    {**self.settings, **self._metrics(len(self.members()) + number)},
                ),
                listen_port=self.namesrv_port + number if self.namesrv_port else 0,
                bind_address=self.host,
                kv_config_path=directory / "kvConfig.json",
                config_store_path=directory / "namesrv.properties",
            )
            for number in range(self.namesrv_count)
            for directory in [self.data / ("namesrv" if not number else f"namesrv-{number + 1}")]
        ]

    def members(self) -> list[Member]:
        """Return all brokers, masters first."""
        return [
            Member(index, replica)
            for replica in range(self.replica_count + 1)
            for index in range(self.count)
        ]

    def directory(self, member: Member) -> Path:
        """Return where a broker keeps everything; the first one at the top."""
        return self.data if member == Member(0) else self.data / member.name

    def properties(self, member: Member, namesrv: str) -> dict[str, str]:
        """Return the settings of a broker by RocketMQ's names."""
        given = self._given(member, namesrv)
        logs = given.get("storePathCommitLog", "").split(given.get(SPLITTER_KEY, ","))
        found = found_sizes(
            Path(given["storePathRootDir"]), *(Path(one.strip()) for one in logs if one.strip())
        )
        return {**SMALL_STORE, **found, **given}

    def _given(self, member: Member, namesrv: str) -> dict[str, str]:
        """Return the settings of a broker but for the sizes of its files, unless those are set."""
        place = self.count * member.replica + member.group_index
        port = self.broker_port + PORT_STEP * place if self.broker_port else 0
        settings = dict(self.settings)
        if place:
            splitter = settings.get(SPLITTER_KEY, ",")
            for key in DIRECTORY_KEYS & settings.keys():
                settings[key] = splitter.join(
                    self._own(directory, member) for directory in settings[key].split(splitter)
                )
        if member.replica:
            settings |= {"brokerRole": "SLAVE", "brokerId": str(member.replica)}
        settings |= self._metrics(place)
        return {
            "brokerName": member.broker_name,
            "namesrvAddr": namesrv,
            "listenPort": str(port),
            "bindAddress": self.host,
            "storePathRootDir": str(self.directory(member) / "store"),
            **settings,
        }

    def _metrics(self, number: int) -> dict[str, str]:
        """Return the settings of the metrics of one server, of which brokers come first."""
        port = self.metrics_port
        return {} if port is None else metrics_at(port + number if port else 0)

    def overlay(self, member: Member) -> Path:
        """Return where changes at run time are kept, also by a broker that runs by itself."""
        return self.directory(member) / "broker.conf.changes"

    def left_out(self) -> list[str]:
        """Return the brokers that were started here before and are not among the members."""
        wanted = {self.directory(member) for member in self.members()}
        there = (path.parent for path in self.data.glob("*/broker.conf"))
        return sorted(path.name for path in there if path not in wanted)

    def _own(self, directory: str, member: Member) -> str:
        """Return the directory of a broker beside the one that the first broker has."""
        return f"{directory.strip().rstrip('/')}-{member.name}" if directory.strip() else ""

    def broker_settings(
        self, member: Member, namesrv: str, *, port: int | None = None
    ) -> tuple[BrokerConfig, StoreConfig]:
        """Return the settings of a broker and its store; ``port`` is one that it had before."""
        properties = self.properties(member, namesrv)
        if port is not None:
            properties["listenPort"] = str(port)
        return read_settings(properties)

    def keep_settings(self, member: Member, broker: BrokerConfig, store: StoreConfig) -> Path:
        """Write the settings down, so that a broker can be started on them by itself."""
        wanted = {
            *SMALL_STORE,
            *self._given(member, ""),
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
        path = self.directory(member) / "broker.conf"
        has_secret = any(key.endswith(PASSWORD_SUFFIX) for key in kept)
        replace_durably(path, write_properties(kept), mode=0o600 if has_secret else None)
        return path

    def ready_line(
        self, namesrv: str, addresses: Sequence[str], metrics: Sequence[str | None]
    ) -> str:
        """Return the line that says that clients can connect.

        The addresses are of all members; metrics are those of members, then of name servers.
        """
        listed = " ".join(
            f"{'slave' if member.replica else 'broker'}={address}"
            for member, address in zip(self.members(), addresses, strict=True)
        )
        shown = ",".join(filter(None, metrics))
        told = f" metrics={shown}" if shown else ""
        return f"ready: namesrv={namesrv} {listed}{told} data={self.data}"
