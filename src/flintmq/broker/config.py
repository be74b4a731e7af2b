"""Settings of a broker.

A broker's file also holds the settings of its store, of its server and of its own client; the
same keys as RocketMQ's, in one file.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, Self

from flintmq.broker.live_store_settings import LIVE_STORE_KEYS, LiveStoreSettings
from flintmq.filter.bloom import BloomFilter
from flintmq.format.errors import HostError
from flintmq.format.host import parse_address
from flintmq.model.value_class import value_class
from flintmq.remoting.addresses import LOOPBACK, local_address
from flintmq.settings import (
    LONG_MAX,
    Owner,
    Setting,
    check_ranges,
    from_properties,
    number,
    optional,
    refusals,
    refuse,
    settings_of,
    switch,
    text,
    to_properties,
    unknown_keys,
)
from flintmq.settings.access_settings import access_file
from flintmq.settings.log_levels import KEY as LOG_LEVELS_KEY
from flintmq.settings.property_files import ConfigError
from flintmq.store.config import SETTINGS as STORE_SETTINGS
from flintmq.store.config import BrokerRole, StoreConfig

_BROKER: Final = Owner.BROKER
_PROCESSORS: Final = os.cpu_count() or 1
_PULL_THREADS: Final = 16 + 2 * _PROCESSORS
_SEND_THREADS: Final = min(_PROCESSORS, 4)


@value_class
class BrokerConfig(LiveStoreSettings):
    """Settings of one broker.  Times are milliseconds.

    Settings that steer Java's own machinery (its thread pools and buffers) are read, checked and
    printed, so that a configuration survives a round trip; the broker ignores them.
    """

    # Who it is and where
    cluster: str = text("brokerClusterName", "DefaultCluster", owner=_BROKER)
    name: str = text("brokerName", "", owner=_BROKER)
    """If it is not set, the name of the machine is used."""
    broker_id: int = number("brokerId", 0, maximum=LONG_MAX, owner=_BROKER)
    ip1: str = text("brokerIP1", "", owner=_BROKER)
    """The address that clients are told; if it is not set, the one that the broker listens on."""
    ip2: str = text("brokerIP2", "", owner=_BROKER)
    bind_address: str = text("bindAddress", "", owner=Owner.FLINTMQ)
    """The address to listen on; if it is not set, ``brokerIP1``, and without that, loopback."""
    listen_port: int = number("listenPort", 10911, maximum=65535, owner=Owner.SERVER)
    namesrv_addr: str | None = optional("namesrvAddr", owner=_BROKER)
    fetch_namesrv_addr: bool = switch("fetchNamesrvAddrByAddressServer", owner=_BROKER)
    rocketmq_home: str | None = optional("rocketmqHome", owner=_BROKER)
    region_id: str = text("regionId", "DefaultRegion", owner=_BROKER)

    # Topics and groups
    permission: int = number("brokerPermission", 6, maximum=15, owner=_BROKER)
    default_topic_queue_count: int = number(
        "defaultTopicQueueNums", 8, minimum=1, maximum=65_536, owner=_BROKER
    )
    auto_create_topic: bool = switch("autoCreateTopicEnable", True, owner=_BROKER)
    auto_create_group: bool = switch("autoCreateSubscriptionGroup", True, owner=_BROKER)
    cluster_topic_enable: bool = switch("clusterTopicEnable", True, owner=_BROKER)
    broker_topic_enable: bool = switch("brokerTopicEnable", True, owner=_BROKER)
    trace_topic: str = text("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", owner=_BROKER)
    trace_topic_enable: bool = switch("traceTopicEnable", owner=_BROKER)
    trace_on: bool = switch("traceOn", True, owner=_BROKER)

    # Sending and pulling
    reject_transactions: bool = switch("rejectTransactionMessage", owner=_BROKER)
    accept_sends_from_ms: int = number(
        "startAcceptSendRequestTimeStamp", 0, maximum=LONG_MAX, owner=_BROKER
    )
    long_polling: bool = switch("longPollingEnable", True, owner=_BROKER)
    short_polling_ms: int = number(
        "shortPollingTimeMills", 1000, minimum=1, maximum=LONG_MAX, owner=_BROKER
    )
    notify_ids_changed: bool = switch("notifyConsumerIdsChangedEnable", True, owner=_BROKER)
    slave_read: bool = switch("slaveReadEnable", owner=_BROKER)
    store_replies: bool = switch("storeReplyMessageEnable", True, owner=_BROKER)
    property_filter: bool = switch("enablePropertyFilter", owner=_BROKER)
    """Whether consumers may choose messages by SQL92."""
    filter_retry: bool = switch("filterSupportRetry", owner=_BROKER)
    filter_clean_span_ms: int = number(
        "filterDataCleanTimeSpan", 86_400_000, maximum=LONG_MAX, owner=_BROKER
    )
    disable_slow_consumers: bool = switch("disableConsumeIfConsumerReadSlowly", owner=_BROKER)
    slow_consumer_bytes: int = number(
        "consumerFallbehindThreshold", 16 << 30, maximum=LONG_MAX, owner=_BROKER
    )
    detail_statistics: bool = switch("enableDetailStat", True, owner=_BROKER)

    # Transactions
    transaction_timeout_ms: int = number(
        "transactionTimeOut", 6000, maximum=LONG_MAX, owner=_BROKER
    )
    transaction_check_max: int = number("transactionCheckMax", 15, owner=_BROKER)
    transaction_check_interval_ms: int = number(
        "transactionCheckInterval", 60_000, minimum=1, maximum=LONG_MAX, owner=_BROKER
    )

    # Registration and housekeeping
    register_period_ms: int = number("registerNameServerPeriod", 30_000, owner=_BROKER)
    register_timeout_ms: int = number("registerBrokerTimeoutMills", 6000, minimum=1, owner=_BROKER)
    force_register: bool = switch("forceRegister", True, owner=_BROKER)
    compressed_register: bool = switch("compressedRegister", owner=_BROKER)
    flush_offsets_interval_ms: int = number(
        "flushConsumerOffsetInterval", 5000, minimum=1, owner=_BROKER
    )
    config_black_list: str = text(
        "configBlackList", "configBlackList;brokerConfigPath", owner=_BROKER
    )

    # Flow control
    fast_failure: bool = switch("brokerFastFailureEnable", True, owner=_BROKER)
    send_wait_max_ms: int = number("waitTimeMillsInSendQueue", 200, owner=_BROKER)
    pull_wait_max_ms: int = number("waitTimeMillsInPullQueue", 5000, owner=_BROKER)
    heartbeat_wait_max_ms: int = number("waitTimeMillsInHeartbeatQueue", 31_000, owner=_BROKER)
    transaction_wait_max_ms: int = number("waitTimeMillsInTransactionQueue", 3000, owner=_BROKER)
    send_queue_capacity: int = number("sendThreadPoolQueueCapacity", 10_000, owner=_BROKER)
    pull_queue_capacity: int = number("pullThreadPoolQueueCapacity", 100_000, owner=_BROKER)
    query_queue_capacity: int = number("queryThreadPoolQueueCapacity", 20_000, owner=_BROKER)
    transaction_queue_capacity: int = number(
        "endTransactionPoolQueueCapacity", 100_000, owner=_BROKER
    )

    lock_expiry_ms: int = number(
        "rocketmq.broker.rebalance.lockMaxLiveTime", 60_000, minimum=1, owner=Owner.SYSTEM
    )

    # Our own
    held_pull_count_max: int = number("maxHeldPulls", 100_000, owner=Owner.FLINTMQ)
    """Pulls that may wait for messages; one more is answered at once that there is nothing."""
    new_topics_per_minute_max: int = number("maxAutoCreatedTopicsPerMinute", 0, owner=Owner.FLINTMQ)
    """Topics that sends may make in a minute; one more is refused.  0: any number."""
    long_turn_ms: int = number("longTurnMillis", 50, owner=Owner.FLINTMQ)
    """Turns of the event loop that take so long are counted and logged with their cause; 0: none"""

    # Access control
    acl_enable: bool = switch("aclEnable", owner=_BROKER)
    ha_use_tls: bool = switch("haUseTLS", owner=Owner.FLINTMQ)
    """Whether the log goes to slaves by TLS, and nobody gets it otherwise."""
    ha_slave_addresses: str | None = optional("haSlaveAddresses", owner=Owner.FLINTMQ)
    """Where slaves may come from, in the notation of white lists; unset, from anywhere."""
    acl_credentials_file: str | None = optional("aclCredentialsFile", owner=Owner.FLINTMQ)
    """An access key and a secret key, with which the broker signs what it sends name servers."""

    # Java's own machinery
    put_queue_capacity: int = number("putThreadPoolQueueCapacity", 10_000, owner=_BROKER)
    reply_queue_capacity: int = number("replyThreadPoolQueueCapacity", 10_000, owner=_BROKER)
    client_queue_capacity: int = number(
        "clientManagerThreadPoolQueueCapacity", 1_000_000, owner=_BROKER
    )
    consumer_queue_capacity: int = number(
        "consumerManagerThreadPoolQueueCapacity", 1_000_000, owner=_BROKER
    )
    heartbeat_queue_capacity: int = number(
        "heartbeatThreadPoolQueueCapacity", 50_000, owner=_BROKER
    )
    send_threads: int = number("sendMessageThreadPoolNums", _SEND_THREADS, owner=_BROKER)
    put_threads: int = number("putMessageFutureThreadPoolNums", _SEND_THREADS, owner=_BROKER)
    pull_threads: int = number("pullMessageThreadPoolNums", _PULL_THREADS, owner=_BROKER)
    reply_threads: int = number("processReplyMessageThreadPoolNums", _PULL_THREADS, owner=_BROKER)
    query_threads: int = number("queryMessageThreadPoolNums", 8 + _PROCESSORS, owner=_BROKER)
    admin_threads: int = number("adminBrokerThreadPoolNums", 16, owner=_BROKER)
    client_threads: int = number("clientManageThreadPoolNums", 32, owner=_BROKER)
    consumer_threads: int = number("consumerManageThreadPoolNums", 32, owner=_BROKER)
    heartbeat_threads: int = number("heartbeatThreadPoolNums", min(32, _PROCESSORS), owner=_BROKER)
    transaction_threads: int = number(
        "endTransactionThreadPoolNums",
        max(8 + 2 * _PROCESSORS, 4 * _SEND_THREADS),
        owner=_BROKER,
    )
    flush_offsets_history_ms: int = number(
        "flushConsumerOffsetHistoryInterval", 60_000, owner=_BROKER
    )
    filter_server_count: int = number("filterServerNums", 0, owner=_BROKER)
    high_speed_mode: bool = switch("highSpeedMode", owner=_BROKER)
    commercial_enable: bool = switch("commercialEnable", True, owner=_BROKER)
    commercial_timer_count: int = number("commercialTimerCount", 1, owner=_BROKER)
    commercial_trans_count: int = number("commercialTransCount", 1, owner=_BROKER)
    commercial_big_count: int = number("commercialBigCount", 1, owner=_BROKER)
    commercial_base_count: int = number("commercialBaseCount", 1, owner=_BROKER)
    transfer_by_heap: bool = switch("transferMsgByHeap", True, owner=_BROKER)
    delay_time_max: int = number("maxDelayTime", 40, owner=_BROKER)
    isolate_log: bool = switch("isolateLogEnable", owner=_BROKER)
    store_plug_in: str = text("messageStorePlugIn", "", owner=_BROKER)
    client_worker_threads: int = number("clientWorkerThreads", 4, owner=Owner.CLIENT)
    client_callback_threads: int = number(
        "clientCallbackExecutorThreads", _PROCESSORS, owner=Owner.CLIENT
    )
    client_oneway_max: int = number("clientOnewaySemaphoreValue", 65_535, owner=Owner.CLIENT)
    client_async_max: int = number("clientAsyncSemaphoreValue", 65_535, owner=Owner.CLIENT)
    connect_timeout_ms: int = number("connectTimeoutMillis", 3000, minimum=1, owner=Owner.CLIENT)
    channel_not_active_ms: int = number("channelNotActiveInterval", 60_000, owner=Owner.CLIENT)
    client_idle_timeout_s: int = number(
        "clientChannelMaxIdleTimeSeconds", 120, minimum=1, owner=Owner.CLIENT
    )
    client_send_buffer: int = number("clientSocketSndBufSize", 0, owner=Owner.CLIENT)
    client_receive_buffer: int = number("clientSocketRcvBufSize", 0, owner=Owner.CLIENT)
    client_pooled_buffers: bool = switch("clientPooledByteBufAllocatorEnable", owner=Owner.CLIENT)
    client_close_on_timeout: bool = switch("clientCloseSocketIfTimeout", True, owner=Owner.CLIENT)
    use_tls: bool = switch("useTLS", owner=Owner.CLIENT)

    def __post_init__(self) -> None:
        check_ranges(SETTINGS, self)
        if not self.name:
            object.__setattr__(self, "name", socket.gethostname() or "DEFAULT_BROKER")
        if not self.bind_address:
            object.__setattr__(self, "bind_address", self.ip1 or LOOPBACK)
        if not self.ip1:
            is_any = self.bind_address in ("0.0.0.0", "::")
            object.__setattr__(self, "ip1", local_address() if is_any else self.bind_address)
        if not self.ip2:
            object.__setattr__(self, "ip2", self.ip1)
        if self.acl_enable:
            access_file(self.acl_file, self.rocketmq_home)
        refuse(self._contradictions())

    def _contradictions(self) -> Iterator[ConfigError]:
        """Yield what cannot be, and what would silently not be done."""
        if 0 < self.listen_port <= 2:
            yield ConfigError("listenPort", self.listen_port, "0, or above 2")
        if self.store_plug_in:
            yield ConfigError(
                "messageStorePlugIn", self.store_plug_in, "nothing: Java classes are not run here"
            )
        if self.disable_slow_consumers:
            allowed = "false: groups that fall behind are not disabled here"
            yield ConfigError("disableConsumeIfConsumerReadSlowly", "true", allowed)
        if self.fetch_namesrv_addr:
            allowed = "false: name servers are told by namesrvAddr, -n or NAMESRV_ADDR"
            yield ConfigError("fetchNamesrvAddrByAddressServer", "true", allowed)
        for address in self.namesrv_addresses:
            try:
                parse_address(address)
            except HostError:
                yield ConfigError("namesrvAddr", self.namesrv_addr, "host:port, with ; between")

    @property
    def black_listed_keys(self) -> frozenset[str]:
        """The keys that nobody may change while the broker runs, whatever else is allowed."""
        return frozenset(map(str.strip, self.config_black_list.split(";")))

    @property
    def namesrv_addresses(self) -> tuple[str, ...]:
        """The name servers to register with."""
        return tuple(filter(None, map(str.strip, (self.namesrv_addr or "").split(";"))))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read the settings out of a broker's properties."""
        return cls(**from_properties(SETTINGS, properties))

    def to_properties(self) -> dict[str, str]:
        """Return RocketMQ key → text."""
        return to_properties(SETTINGS, self)


SETTINGS: Final[Mapping[str, Setting]] = settings_of(BrokerConfig)

EDITABLE: Final = frozenset(
    {
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "brokerPermission",
        "defaultTopicQueueNums",
        "enablePropertyFilter",
        "filterSupportRetry",
        "forceRegister",
        "longPollingEnable",
        "namesrvAddr",
        "notifyConsumerIdsChangedEnable",
        "regionId",
        "registerBrokerTimeoutMills",
        "registerNameServerPeriod",
        "rejectTransactionMessage",
        "shortPollingTimeMills",
        "slaveReadEnable",
        "startAcceptSendRequestTimeStamp",
        "storeReplyMessageEnable",
        "traceOn",
        "transactionCheckInterval",
        "transactionCheckMax",
        "transactionTimeOut",
        LOG_LEVELS_KEY,
        *LIVE_STORE_KEYS,
    }
)
"""The settings that may be changed while a broker runs: no path, no port and no name is one."""


def read_settings(properties: Mapping[str, str]) -> tuple[BrokerConfig, StoreConfig]:
    """Return the settings of a broker and its store, made consistent as RocketMQ does.

    ConfigError tells all that is refused, not only the first of it.
    """
    refused = [*refusals(SETTINGS, properties), *refusals(STORE_SETTINGS, properties)]
    wrong = {error.key for error in refused}
    sound = {key: value for key, value in properties.items() if key not in wrong}
    try:
        broker = BrokerConfig.from_properties(sound)
    except ConfigError as error:
        refused.append(error)
    try:
        store = StoreConfig.from_properties(sound)
    except ConfigError as error:
        refused.append(error)
    refuse(refused)
    if store.broker_role is BrokerRole.SLAVE:
        if broker.broker_id == 0:
            raise ConfigError("brokerId", 0, "above 0 for a slave")
    elif broker.broker_id != 0:
        raise ConfigError("brokerId", broker.broker_id, "0 for a master")
    # RocketMQ always takes the port above that of the broker, whatever the file says.
    ha_port = store.ha_listen_port if "haListenPort" in properties else 0
    if ha_port == 0 and broker.listen_port:
        ha_port = broker.listen_port + 1
    return broker, replace(
        store, ext_bit_map_length=bloom_filter(store).bit_count, ha_listen_port=ha_port
    )


def bloom_filter(store: StoreConfig) -> BloomFilter:
    """Return the bloom filter that notes in queues which SQL92 subscriptions a message satisfies.

    Its size overrides ``bitMapLengthConsumeQueueExt``, as in RocketMQ.
    """
    return BloomFilter.of(
        error_percent=store.bloom_error_rate_max, consumer_count=store.bloom_consumer_count
    )


def misspelt_keys(properties: Mapping[str, str]) -> dict[str, str | None]:
    """Return the keys that neither broker nor store knows, each with the nearest known one."""
    return unknown_keys(properties, [SETTINGS, STORE_SETTINGS])
