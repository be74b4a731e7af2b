"""Settings of one store directory; see ``flintmq.settings`` for how they are read and printed."""

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import Final, Self

from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.format.delivery_time import DEFAULT_DELAY_MAX_S, DELAY_MAX_S
from flintmq.format.errors import DelayLevelsError
from flintmq.format.stored import index_file
from flintmq.format.stored.consume_queue import UNIT_SIZE
from flintmq.model.value_class import Value, value_class
from flintmq.settings import tables
from flintmq.settings.property_files import ConfigError
from flintmq.settings.setting import (
    INT_MAX,
    LONG_MAX,
    Codec,
    Owner,
    Setting,
    choice,
    number,
    optional,
    parse_number,
    paths,
    ratio,
    render_paths,
    setting_field,
    settings_of,
    switch,
    text,
)

_SPLITTER_KEY: Final = "rocketmq.broker.multiPathSplitter"


class FlushMode(Enum):
    """When a message counts as stored."""

    SYNC = "SYNC_FLUSH"
    ASYNC = "ASYNC_FLUSH"


class BrokerRole(Enum):
    """What the broker is to its replicas."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class DamagedLogPolicy(Enum):
    """What a start does when whole records stand behind damage in the log."""

    KEEP = "keep"
    """Keep them, or set them aside where there is doubt."""
    REFUSE = "refuse"
    """Do not start, and leave everything as it is."""


def _parse_hours(text: str) -> tuple[int, ...]:
    return tuple(parse_number(item.strip()) for item in text.split(";") if item.strip())


_HOURS: Final = Codec(
    _parse_hours, lambda hours: ";".join(f"{hour:02d}" for hour in hours), "hours 0 to 23, as 04;16"
)
_ROOT: Final = Codec(Path, str, "a directory")


@value_class
class StoreConfig(Value):
    """Settings of one store directory.  Sizes are bytes, times milliseconds.

    Settings that steer Java's own machinery (its locks, DLedger) are read, checked and printed,
    so that a configuration survives a round trip; the store ignores them.
    """

    # Where the files are
    root: Path = field(metadata={"setting": Setting("storePathRootDir", _ROOT)})
    commit_log_paths: tuple[Path, ...] = paths("storePathCommitLog")
    read_only_commit_log_paths: tuple[Path, ...] = paths("readOnlyCommitLogStorePaths")
    multi_path_splitter: str = text(_SPLITTER_KEY, ",", owner=Owner.SYSTEM)

    # Commit log.  128 bytes hold the smallest record and the blank that must follow it.
    commit_log_file_size: int = number("mappedFileSizeCommitLog", 1 << 30, minimum=128)
    max_message_size: int = number("maxMessageSize", 4 << 20, minimum=10, maximum=INT_MAX - 65536)
    check_crc_on_recover: bool = switch("checkCRCOnRecover", True)
    damaged_log_policy: DamagedLogPolicy = field(
        default=DamagedLogPolicy.KEEP,
        metadata=choice("damagedLogPolicy", DamagedLogPolicy, owner=Owner.FLINTMQ),
    )
    warm_files: bool = switch("warmMapedFileEnable")
    warm_flush_least_pages: int = number("flushLeastPagesWhenWarmMapedFile", 4096, minimum=1)
    reentrant_put_lock: bool = switch("useReentrantLockWhenPutMessage", True)
    debug_lock: bool = switch("debugLockEnable")
    page_cache_busy_timeout_ms: int = number("osPageCacheBusyTimeOutMills", 1000, maximum=LONG_MAX)
    duplication_enabled: bool = switch("duplicationEnable")

    # Flush and commit
    flush_mode: FlushMode = field(
        default=FlushMode.ASYNC, metadata=choice("flushDiskType", FlushMode)
    )
    flush_timed: bool = switch("flushCommitLogTimed", True)
    flush_interval_ms: int = number("flushIntervalCommitLog", 500, minimum=1)
    flush_least_pages: int = number("flushCommitLogLeastPages", 4)
    flush_thorough_interval_ms: int = number("flushCommitLogThoroughInterval", 10_000)
    commit_interval_ms: int = number("commitIntervalCommitLog", 200, minimum=1)
    commit_least_pages: int = number("commitCommitLogLeastPages", 4)
    commit_thorough_interval_ms: int = number("commitCommitLogThoroughInterval", 200)
    sync_flush_timeout_ms: int = number("syncFlushTimeout", 5000, minimum=1)
    transient_pool_enabled: bool = switch("transientStorePoolEnable")
    transient_pool_size: int = number("transientStorePoolSize", 5, minimum=1)
    fast_fail_without_buffer: bool = switch("fastFailIfNoBufferInStorePool")

    # Consume queues
    consume_queue_file_size: int = number(
        "mappedFileSizeConsumeQueue", 6_000_000, minimum=1, maximum=INT_MAX - UNIT_SIZE
    )
    flush_queue_interval_ms: int = number("flushIntervalConsumeQueue", 1000, minimum=1)
    flush_queue_least_pages: int = number("flushConsumeQueueLeastPages", 2)
    flush_queue_thorough_interval_ms: int = number("flushConsumeQueueThoroughInterval", 60_000)
    enable_consume_queue_ext: bool = switch("enableConsumeQueueExt")
    consume_queue_ext_file_size: int = number("mappedFileSizeConsumeQueueExt", 48 << 20, minimum=64)
    ext_bit_map_length: int = number("bitMapLengthConsumeQueueExt", 64)
    enable_lmq: bool = switch("enableLmq")
    enable_multi_dispatch: bool = switch("enableMultiDispatch")
    lmq_queue_count_max: int = number("maxLmqConsumeQueueNum", 20_000)

    # Key index.  Entry 0 of a file is never used, so one entry could hold nothing.
    index_enabled: bool = switch("messageIndexEnable", True)
    index_safe: bool = switch("messageIndexSafe")
    hash_slot_count: int = number("maxHashSlotNum", 5_000_000, minimum=1)
    index_entry_count: int = number("maxIndexNum", 20_000_000, minimum=2)
    query_count_max: int = number("maxMsgsNumBatch", 64, minimum=1)
    default_query_count_max: int = number("defaultQueryMaxNum", 32, minimum=1)
    put_index_high_water: int = number("putMsgIndexHightWater", 600_000)

    # Reading
    transfer_bytes_in_memory_max: int = number(
        "maxTransferBytesOnMessageInMemory", 256 << 10, minimum=1
    )
    transfer_count_in_memory_max: int = number("maxTransferCountOnMessageInMemory", 32, minimum=1)
    transfer_bytes_on_disk_max: int = number("maxTransferBytesOnMessageInDisk", 64 << 10, minimum=1)
    transfer_count_on_disk_max: int = number("maxTransferCountOnMessageInDisk", 8, minimum=1)
    memory_ratio: int = number("accessMessageInMemoryMaxRatio", 40, maximum=100)
    record_disk_lag: bool = switch("diskFallRecorded", True)
    offset_check_in_slave: bool = switch("offsetCheckInSlave")

    # Deleting
    delete_when: tuple[int, ...] = setting_field((4,), Setting("deleteWhen", _HOURS))
    file_reserved_hours: int = number("fileReservedTime", 72)
    disk_max_used_ratio: int = number("diskMaxUsedSpaceRatio", 75, minimum=-INT_MAX)
    """Percent.  Values outside 10 to 95 are moved to the nearer end, as Java does."""
    disk_warning_ratio: float = ratio("rocketmq.broker.diskSpaceWarningLevelRatio", 0.90)
    disk_clean_forcibly_ratio: float = ratio("rocketmq.broker.diskSpaceCleanForciblyRatio", 0.85)
    clean_forcibly: bool = switch("cleanFileForciblyEnable", True)
    refuse_rather_than_delete: bool = switch("refuseRatherThanDelete", owner=Owner.FLINTMQ)
    """Never delete what has not expired; a disk that fills up refuses writes instead."""
    clean_resource_interval_ms: int = number("cleanResourceInterval", 10_000, minimum=1)
    delete_log_interval_ms: int = number("deleteCommitLogFilesInterval", 100)
    delete_queue_interval_ms: int = number("deleteConsumeQueueFilesInterval", 100)
    destroy_forcibly_interval_ms: int = number("destroyMapedFileIntervalForcibly", 120_000)
    redelete_hanged_interval_ms: int = number("redeleteHangedFileInterval", 120_000)

    # Delayed messages
    delay_levels: str = text("messageDelayLevel", DEFAULT_DELAY_LEVELS)
    flush_delay_offset_interval_ms: int = number(
        "flushDelayOffsetInterval", 10_000, minimum=1, maximum=LONG_MAX
    )
    schedule_statistics: bool = switch("enableScheduleMessageStats", True)
    schedule_async_deliver: bool = switch("enableScheduleAsyncDeliver")
    schedule_async_pending_max: int = number("scheduleAsyncDeliverMaxPendingLimit", 2000, minimum=1)
    schedule_async_resend_max: int = number("scheduleAsyncDeliverMaxResendNum2Blocked", 3)
    delivery_delay_max_s: int = number(
        "timerMaxDelaySec",
        DEFAULT_DELAY_MAX_S,
        minimum=1,
        maximum=DELAY_MAX_S,
        owner=Owner.FLINTMQ,
    )
    """How far ahead a message may name its time of delivery."""
    waiting_window_count: int = number(
        "waitingWindowCount", 1 << 15, minimum=1, maximum=1 << 24, owner=Owner.FLINTMQ
    )
    """Messages that name a time and are kept in memory, of each of the queues they wait in."""

    # Replication
    broker_role: BrokerRole = field(
        default=BrokerRole.ASYNC_MASTER, metadata=choice("brokerRole", BrokerRole)
    )
    slave_timeout_ms: int = number("slaveTimeout", 3000, minimum=1)
    ha_listen_port: int = number("haListenPort", 10912, maximum=65535)
    ha_heartbeat_interval_ms: int = number("haSendHeartbeatInterval", 5000, minimum=1)
    ha_housekeeping_interval_ms: int = number("haHousekeepingInterval", 20_000, minimum=1)
    ha_transfer_batch_size: int = number("haTransferBatchSize", 32 << 10, minimum=1)
    ha_master_address: str | None = optional("haMasterAddress")
    ha_slave_lag_size_max: int = number("haSlaveFallbehindMax", 256 << 20)

    # DLedger, which FlintMQ does not have: kept for the round trip
    dledger_enabled: bool = switch("enableDLegerCommitLog")
    dledger_commit_log_path: str | None = optional("storePathDLedgerCommitLog")
    dledger_group: str | None = optional("dLegerGroup")
    dledger_peers: str | None = optional("dLegerPeers")
    dledger_self_id: str | None = optional("dLegerSelfId")
    preferred_leader_id: str | None = optional("preferredLeaderId")
    batch_push: bool = switch("enableBatchPush", printed_key="isEnableBatchPush")

    # Our own
    machine_code: bool = switch("machineCode", True, owner=Owner.FLINTMQ)
    """Whether a store under load may load machine code, where numba is installed."""

    # What a store reads of its broker's settings
    broker_id: int = number("brokerId", 0, maximum=LONG_MAX, owner=Owner.BROKER)
    long_polling_enabled: bool = switch("longPollingEnable", True, owner=Owner.BROKER)
    delete_unused_statistics: bool = switch("autoDeleteUnusedStats", owner=Owner.BROKER)
    calculate_filter_bit_map: bool = switch("enableCalcFilterBitMap", owner=Owner.BROKER)
    bloom_error_rate_max: int = number(
        "maxErrorRateOfBloomFilter", 20, minimum=1, maximum=100, owner=Owner.BROKER
    )
    bloom_consumer_count: int = number(
        "expectConsumerNumUseFilter", 32, minimum=1, owner=Owner.BROKER
    )

    def __post_init__(self) -> None:
        tables.check_ranges(SETTINGS, self)
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
        shown = render_paths(listed, self.multi_path_splitter)
        if len(set(listed)) < len(listed):
            raise _refusal("commit_log_paths", shown, "every directory once")
        if listed and not set(listed) - set(self.read_only_commit_log_paths):
            raise _refusal("commit_log_paths", shown)
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
        values = tables.from_properties(SETTINGS, properties, splitter=splitter)
        if root is not None:
            values["root"] = root
        values.setdefault("root", Path.home() / "store")
        return cls(**values)

    def to_properties(self, *, java_only: bool = True) -> dict[str, str]:
        """Return RocketMQ key → text as a Java broker prints its store settings.

        With ``java_only`` false, the settings that Java keeps elsewhere (broker, system
        properties) and FlintMQ's own are included.
        """
        owners = (Owner.STORE,) if java_only else tuple(Owner)
        return tables.to_properties(
            SETTINGS, self, owners=owners, splitter=self.multi_path_splitter
        )


SETTINGS: Final[Mapping[str, Setting]] = settings_of(StoreConfig)
"""Field name → setting, in the order of the fields."""


def _refusal(name: str, value: object, allowed: str = "") -> ConfigError:
    return ConfigError(SETTINGS[name].key, value, allowed or SETTINGS[name].allowed)


def unknown_keys(
    properties: Mapping[str, str], *, also_known: Iterable[str] = ()
) -> dict[str, str | None]:
    """Return the keys that are neither the store's nor ``also_known``; see ``settings``."""
    return tables.unknown_keys(properties, [SETTINGS], also=also_known)
