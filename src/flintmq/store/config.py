"""Settings of one store directory: Python names inside, RocketMQ's names at the edge.

Each field of ``StoreConfig`` carries a ``Setting``: the RocketMQ key, how its text is read and
printed, and what is allowed.  That is the only table; reading, printing, checking and the search
for misspelt keys all follow from it.
"""

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar, cast

import javaproperties

from flintmq.format import index_file
from flintmq.format.consume_queue import UNIT_SIZE
from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.format.errors import DelayLevelsError
from flintmq.store.errors import StoreError

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
PROPERTIES_SIZE_MAX: Final = 1 << 20

_WHOLE_NUMBER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_SPLITTER_KEY: Final = "rocketmq.broker.multiPathSplitter"


class ConfigError(StoreError):
    """A setting has a value that is not allowed."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        self.key = key
        self.value = value
        self.allowed = allowed
        super().__init__(f"{key}={value}: allowed is {allowed}")


class FlushMode(Enum):
    """When a message counts as stored."""

    SYNC = "SYNC_FLUSH"
    ASYNC = "ASYNC_FLUSH"


class BrokerRole(Enum):
    """What the broker is to its replicas."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class Owner(Enum):
    """Where a Java broker keeps a setting; only those of the store are printed as its own."""

    STORE = "MessageStoreConfig"
    BROKER = "BrokerConfig"
    SYSTEM = "system property"
    FLINTMQ = "FlintMQ"


class _Codec(NamedTuple):
    """One kind of value as text; ``parse`` raises ValueError, ``render`` gives None for unset."""

    parse: Callable[[str], Any]
    render: Callable[[Any], str | None]
    allowed: str


@dataclass(frozen=True, slots=True)
class Setting:
    """How one field stands in a RocketMQ property file."""

    key: str
    codec: _Codec
    owner: Owner = Owner.STORE
    minimum: float | None = None
    maximum: float | None = None
    printed_key: str = ""
    """The name Java prints, where its setter and its member are called differently."""

    @property
    def allowed(self) -> str:
        """What may stand in the file, in words."""
        if self.minimum is None:
            return self.codec.allowed
        return f"{self.codec.allowed} from {self.minimum} to {self.maximum}"

    def parse(self, text: str) -> Any:
        """Return the value written as ``text``; the range is checked by ``StoreConfig``."""
        try:
            return self.codec.parse(text.strip())
        except ValueError as error:
            raise ConfigError(self.key, text, self.allowed) from error

    def check(self, value: Any) -> None:
        """Raise ConfigError if ``value`` is out of range."""
        if self.minimum is None or self.maximum is None:
            return
        if not self.minimum <= value <= self.maximum:
            raise ConfigError(self.key, value, self.allowed)


def _parse_number(text: str) -> int:
    if not _WHOLE_NUMBER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _parse_switch(text: str) -> bool:
    # Java reads every other word as false; a misspelt "ture" should not switch a safeguard off.
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _parse_hours(text: str) -> tuple[int, ...]:
    return tuple(_parse_number(item.strip()) for item in text.split(";") if item.strip())


def _parse_paths(text: str, splitter: str = ",") -> tuple[Path, ...]:
    return tuple(Path(item.strip()) for item in text.split(splitter) if item.strip())


def _render_paths(paths: tuple[Path, ...], splitter: str = ",") -> str | None:
    return splitter.join(map(str, paths)) or None


_NUMBER: Final = _Codec(_parse_number, str, "a whole number")
_RATIO: Final = _Codec(float, str, "a number")
_SWITCH: Final = _Codec(_parse_switch, lambda value: str(value).lower(), "true or false")
_TEXT: Final = _Codec(str, str, "text")
_OPTIONAL: Final = _Codec(lambda text: text or None, lambda value: value, "text")
_HOURS: Final = _Codec(
    _parse_hours, lambda hours: ";".join(f"{hour:02d}" for hour in hours), "hours 0 to 23, as 04;16"
)
_PATHS: Final = _Codec(_parse_paths, _render_paths, "directories, at least one of them writable")
_ROOT: Final = _Codec(Path, str, "a directory")

_Value = TypeVar("_Value")


def _setting(default: _Value, setting: Setting) -> _Value:
    """Return a dataclass field, typed as the value it will hold."""
    return field(default=default, metadata={"setting": setting})


def _number(
    key: str,
    default: int,
    *,
    minimum: int = 0,
    maximum: int = INT_MAX,
    owner: Owner = Owner.STORE,
) -> int:
    return _setting(default, Setting(key, _NUMBER, owner, minimum, maximum))


def _switch(
    key: str, default: bool = False, *, owner: Owner = Owner.STORE, printed_key: str = ""
) -> bool:
    return _setting(default, Setting(key, _SWITCH, owner, printed_key=printed_key))


def _ratio(key: str, default: float) -> float:
    return _setting(default, Setting(key, _RATIO, Owner.SYSTEM, 0.0, 1.0))


def _text(key: str, default: str, *, owner: Owner = Owner.STORE) -> str:
    return _setting(default, Setting(key, _TEXT, owner))


def _optional(key: str) -> str | None:
    return _setting(cast("str | None", None), Setting(key, _OPTIONAL))


def _paths(key: str) -> tuple[Path, ...]:
    return _setting(cast("tuple[Path, ...]", ()), Setting(key, _PATHS))


def _choice(key: str, kind: type[Enum]) -> dict[str, Setting]:
    codec = _Codec(kind, lambda member: str(member.value), " or ".join(m.value for m in kind))
    return {"setting": Setting(key, codec)}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Settings of one store directory.  Sizes are bytes, times milliseconds.

    Settings that steer Java's own machinery (its locks, DLedger) are read, checked and printed,
    so that a configuration survives a round trip; the store ignores them.
    """

    # Where the files are
    root: Path = field(metadata={"setting": Setting("storePathRootDir", _ROOT)})
    commit_log_paths: tuple[Path, ...] = _paths("storePathCommitLog")
    read_only_commit_log_paths: tuple[Path, ...] = _paths("readOnlyCommitLogStorePaths")
    multi_path_splitter: str = _text(_SPLITTER_KEY, ",", owner=Owner.SYSTEM)

    # Commit log.  128 bytes hold the smallest record and the blank that must follow it.
    commit_log_file_size: int = _number("mappedFileSizeCommitLog", 1 << 30, minimum=128)
    max_message_size: int = _number("maxMessageSize", 4 << 20, minimum=10, maximum=INT_MAX - 65536)
    check_crc_on_recover: bool = _switch("checkCRCOnRecover", True)
    warm_files: bool = _switch("warmMapedFileEnable")
    warm_flush_least_pages: int = _number("flushLeastPagesWhenWarmMapedFile", 4096, minimum=1)
    reentrant_put_lock: bool = _switch("useReentrantLockWhenPutMessage", True)
    debug_lock: bool = _switch("debugLockEnable")
    page_cache_busy_timeout_ms: int = _number("osPageCacheBusyTimeOutMills", 1000, maximum=LONG_MAX)
    duplication_enabled: bool = _switch("duplicationEnable")

    # Flush and commit
    flush_mode: FlushMode = field(
        default=FlushMode.ASYNC, metadata=_choice("flushDiskType", FlushMode)
    )
    flush_timed: bool = _switch("flushCommitLogTimed", True)
    flush_interval_ms: int = _number("flushIntervalCommitLog", 500, minimum=1)
    flush_least_pages: int = _number("flushCommitLogLeastPages", 4)
    flush_thorough_interval_ms: int = _number("flushCommitLogThoroughInterval", 10_000)
    commit_interval_ms: int = _number("commitIntervalCommitLog", 200, minimum=1)
    commit_least_pages: int = _number("commitCommitLogLeastPages", 4)
    commit_thorough_interval_ms: int = _number("commitCommitLogThoroughInterval", 200)
    sync_flush_timeout_ms: int = _number("syncFlushTimeout", 5000, minimum=1)
    transient_pool_enabled: bool = _switch("transientStorePoolEnable")
    transient_pool_size: int = _number("transientStorePoolSize", 5, minimum=1)
    fast_fail_without_buffer: bool = _switch("fastFailIfNoBufferInStorePool")

    # Consume queues
    consume_queue_file_size: int = _number(
        "mappedFileSizeConsumeQueue", 6_000_000, minimum=1, maximum=INT_MAX - UNIT_SIZE
    )
    flush_queue_interval_ms: int = _number("flushIntervalConsumeQueue", 1000, minimum=1)
    flush_queue_least_pages: int = _number("flushConsumeQueueLeastPages", 2)
    flush_queue_thorough_interval_ms: int = _number("flushConsumeQueueThoroughInterval", 60_000)
    enable_consume_queue_ext: bool = _switch("enableConsumeQueueExt")
    consume_queue_ext_file_size: int = _number(
        "mappedFileSizeConsumeQueueExt", 48 << 20, minimum=64
    )
    ext_bit_map_length: int = _number("bitMapLengthConsumeQueueExt", 64)
    enable_lmq: bool = _switch("enableLmq")
    enable_multi_dispatch: bool = _switch("enableMultiDispatch")
    lmq_queue_count_max: int = _number("maxLmqConsumeQueueNum", 20_000)

    # Key index.  Entry 0 of a file is never used, so one entry could hold nothing.
    index_enabled: bool = _switch("messageIndexEnable", True)
    index_safe: bool = _switch("messageIndexSafe")
    hash_slot_count: int = _number("maxHashSlotNum", 5_000_000, minimum=1)
    index_entry_count: int = _number("maxIndexNum", 20_000_000, minimum=2)
    query_count_max: int = _number("maxMsgsNumBatch", 64, minimum=1)
    default_query_count_max: int = _number("defaultQueryMaxNum", 32, minimum=1)
    put_index_high_water: int = _number("putMsgIndexHightWater", 600_000)

    # Reading
    transfer_bytes_in_memory_max: int = _number(
        "maxTransferBytesOnMessageInMemory", 256 << 10, minimum=1
    )
    transfer_count_in_memory_max: int = _number("maxTransferCountOnMessageInMemory", 32, minimum=1)
    transfer_bytes_on_disk_max: int = _number(
        "maxTransferBytesOnMessageInDisk", 64 << 10, minimum=1
    )
    transfer_count_on_disk_max: int = _number("maxTransferCountOnMessageInDisk", 8, minimum=1)
    memory_ratio: int = _number("accessMessageInMemoryMaxRatio", 40, maximum=100)
    record_disk_lag: bool = _switch("diskFallRecorded", True)
    offset_check_in_slave: bool = _switch("offsetCheckInSlave")

    # Deleting
    delete_when: tuple[int, ...] = _setting((4,), Setting("deleteWhen", _HOURS))
    file_reserved_hours: int = _number("fileReservedTime", 72)
    disk_max_used_ratio: int = _number("diskMaxUsedSpaceRatio", 75, minimum=-INT_MAX)
    """Percent.  Values outside 10 to 95 are moved to the nearer end, as Java does."""
    disk_warning_ratio: float = _ratio("rocketmq.broker.diskSpaceWarningLevelRatio", 0.90)
    disk_clean_forcibly_ratio: float = _ratio("rocketmq.broker.diskSpaceCleanForciblyRatio", 0.85)
    clean_forcibly: bool = _switch("cleanFileForciblyEnable", True)
    refuse_rather_than_delete: bool = _switch("refuseRatherThanDelete", owner=Owner.FLINTMQ)
    """Never delete what has not expired; a disk that fills up refuses writes instead."""
    clean_resource_interval_ms: int = _number("cleanResourceInterval", 10_000, minimum=1)
    delete_log_interval_ms: int = _number("deleteCommitLogFilesInterval", 100)
    delete_queue_interval_ms: int = _number("deleteConsumeQueueFilesInterval", 100)
    destroy_forcibly_interval_ms: int = _number("destroyMapedFileIntervalForcibly", 120_000)
    redelete_hanged_interval_ms: int = _number("redeleteHangedFileInterval", 120_000)

    # Delayed messages
    delay_levels: str = _text("messageDelayLevel", DEFAULT_DELAY_LEVELS)
    flush_delay_offset_interval_ms: int = _number(
        "flushDelayOffsetInterval", 10_000, minimum=1, maximum=LONG_MAX
    )
    schedule_statistics: bool = _switch("enableScheduleMessageStats", True)
    schedule_async_deliver: bool = _switch("enableScheduleAsyncDeliver")
    schedule_async_pending_max: int = _number(
        "scheduleAsyncDeliverMaxPendingLimit", 2000, minimum=1
    )
    schedule_async_resend_max: int = _number("scheduleAsyncDeliverMaxResendNum2Blocked", 3)

    # Replication
    broker_role: BrokerRole = field(
        default=BrokerRole.ASYNC_MASTER, metadata=_choice("brokerRole", BrokerRole)
    )
    slave_timeout_ms: int = _number("slaveTimeout", 3000, minimum=1)
    ha_listen_port: int = _number("haListenPort", 10912, maximum=65535)
    ha_heartbeat_interval_ms: int = _number("haSendHeartbeatInterval", 5000, minimum=1)
    ha_housekeeping_interval_ms: int = _number("haHousekeepingInterval", 20_000, minimum=1)
    ha_transfer_batch_size: int = _number("haTransferBatchSize", 32 << 10, minimum=1)
    ha_master_address: str | None = _optional("haMasterAddress")
    ha_slave_lag_size_max: int = _number("haSlaveFallbehindMax", 256 << 20)

    # DLedger, which FlintMQ does not have: kept for the round trip
    dledger_enabled: bool = _switch("enableDLegerCommitLog")
    dledger_commit_log_path: str | None = _optional("storePathDLedgerCommitLog")
    dledger_group: str | None = _optional("dLegerGroup")
    dledger_peers: str | None = _optional("dLegerPeers")
    dledger_self_id: str | None = _optional("dLegerSelfId")
    preferred_leader_id: str | None = _optional("preferredLeaderId")
    batch_push: bool = _switch("enableBatchPush", printed_key="isEnableBatchPush")

    # What a store reads of its broker's settings
    broker_id: int = _number("brokerId", 0, maximum=LONG_MAX, owner=Owner.BROKER)
    long_polling_enabled: bool = _switch("longPollingEnable", True, owner=Owner.BROKER)
    delete_unused_statistics: bool = _switch("autoDeleteUnusedStats", owner=Owner.BROKER)
    calculate_filter_bit_map: bool = _switch("enableCalcFilterBitMap", owner=Owner.BROKER)
    bloom_error_rate_max: int = _number(
        "maxErrorRateOfBloomFilter", 20, minimum=1, maximum=100, owner=Owner.BROKER
    )
    bloom_consumer_count: int = _number(
        "expectConsumerNumUseFilter", 32, minimum=1, owner=Owner.BROKER
    )

    def __post_init__(self) -> None:
        for name, setting in SETTINGS.items():
            setting.check(getattr(self, name))
        object.__setattr__(self, "disk_max_used_ratio", min(max(self.disk_max_used_ratio, 10), 95))
        self._check_paths()
        if not all(0 <= hour <= 23 for hour in self.delete_when):
            raise _refusal("delete_when", self.delete_when)
        if self.index_file_size > INT_MAX:
            allowed = f"slots and entries whose file is at most {INT_MAX} bytes"
            raise ConfigError("maxIndexNum", self.index_entry_count, allowed)
        if self.disk_clean_forcibly_ratio > self.disk_warning_ratio:
            allowed = f"at most the warning ratio, {self.disk_warning_ratio}"
            raise _refusal("disk_clean_forcibly_ratio", self.disk_clean_forcibly_ratio, allowed)
        if self.dledger_enabled:
            raise _refusal("dledger_enabled", "true", "false: FlintMQ has no DLedger log")
        try:
            DelayLevels.parse(self.delay_levels)
        except DelayLevelsError as error:
            allowed = "numbers with unit s, m, h or d, separated by single spaces"
            raise _refusal("delay_levels", self.delay_levels, allowed) from error

    def _check_paths(self) -> None:
        listed = self.commit_log_paths
        text = _render_paths(listed, self.multi_path_splitter)
        if len(set(listed)) < len(listed):
            raise _refusal("commit_log_paths", text, "every directory once")
        if listed and not set(listed) - set(self.read_only_commit_log_paths):
            raise _refusal("commit_log_paths", text)
        if not self.multi_path_splitter:
            raise _refusal("multi_path_splitter", "", "at least one character")

    @property
    def effective_commit_log_paths(self) -> tuple[Path, ...]:
        """The directories of the commit log: those listed, or the one below the root."""
        return self.commit_log_paths or (self.root / "commitlog",)

    @property
    def effective_consume_queue_file_size(self) -> int:
        """The size of a consume queue file: a whole number of units."""
        return -(-self.consume_queue_file_size // UNIT_SIZE) * UNIT_SIZE

    @property
    def index_file_size(self) -> int:
        """The size of a key index file."""
        return index_file.file_size(self.hash_slot_count, self.index_entry_count)

    @property
    def transient_pool_effective(self) -> bool:
        """Whether appends go through write buffers; a slave or a synchronous flush never does."""
        return (
            self.transient_pool_enabled
            and self.flush_mode is FlushMode.ASYNC
            and self.broker_role is not BrokerRole.SLAVE
        )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], *, root: Path | None = None) -> Self:
        """Read the settings of a store out of a broker's properties.

        Keys the store does not know are left alone: see ``unknown_keys``.  ``root`` overrides
        the file; without either, the root is ``store`` in the home directory, as with Java.
        """
        splitter = properties.get(_SPLITTER_KEY, ",") or ","
        values: dict[str, Any] = {}
        for name, setting in SETTINGS.items():
            text = properties.get(setting.key)
            if text is None:
                text = properties.get(setting.printed_key)
            if text is not None:
                is_paths = setting.codec is _PATHS
                values[name] = _parse_paths(text, splitter) if is_paths else setting.parse(text)
        if root is not None:
            values["root"] = root
        values.setdefault("root", Path.home() / "store")
        return cls(**values)

    def to_properties(self, *, java_only: bool = True) -> dict[str, str]:
        """Return RocketMQ key → text as a Java broker prints its store settings.

        Unset values have no line, as with Java.  With ``java_only`` false, the settings that
        Java keeps elsewhere (broker, system properties) and FlintMQ's own are included.
        """
        properties = {}
        for name, setting in SETTINGS.items():
            if java_only and setting.owner is not Owner.STORE:
                continue
            value = getattr(self, name)
            is_paths = setting.codec is _PATHS
            text = (
                _render_paths(value, self.multi_path_splitter)
                if is_paths
                else setting.codec.render(value)
            )
            if text is not None:
                properties[setting.printed_key or setting.key] = text
        return properties


SETTINGS: Final[Mapping[str, Setting]] = {
    item.name: item.metadata["setting"] for item in dataclasses.fields(StoreConfig)
}
"""Field name → setting, in the order of the fields."""


def _refusal(name: str, value: object, allowed: str = "") -> ConfigError:
    return ConfigError(SETTINGS[name].key, value, allowed or SETTINGS[name].allowed)


def read_properties(source: str | bytes) -> dict[str, str]:
    """Return key → text of a Java properties file; bytes are Latin-1, as Java reads them."""
    if len(source) > PROPERTIES_SIZE_MAX:
        raise ConfigError("properties file", len(source), f"at most {PROPERTIES_SIZE_MAX} bytes")
    text = source.decode("latin-1") if isinstance(source, bytes) else source
    try:
        return javaproperties.loads(text)
    except javaproperties.InvalidUEscapeError as error:
        allowed = "a backslash, u and four hexadecimal digits"
        raise ConfigError("properties file", error.escape, allowed) from error


def unknown_keys(
    properties: Mapping[str, str], *, also_known: Iterable[str] = ()
) -> dict[str, str | None]:
    """Return the keys nobody knows, each with the known key it resembles most, if any.

    The store knows only its own keys: a caller that reads a broker's file passes the others as
    ``also_known``.
    """
    known = {setting.key for setting in SETTINGS.values()}
    known.update(setting.printed_key for setting in SETTINGS.values() if setting.printed_key)
    known.update(also_known)
    by_lower_case = {key.lower(): key for key in sorted(known)}
    unknown: dict[str, str | None] = {}
    for key in properties:
        if key not in known:
            nearest = difflib.get_close_matches(key.lower(), by_lower_case, n=1, cutoff=0.75)
            unknown[key] = by_lower_case[nearest[0]] if nearest else None
    return unknown
