"""Metrics of the whole broker, and its status under the names of the exporter for RocketMQ 4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.broker.processors.runtime_info import INT_MAX, VERSION_TEXT
from flintmq.broker.transactions.transaction_check import GROUP as TRANSACTION_GROUP
from flintmq.format.wire.codes import PROTOCOL_VERSION
from flintmq.metrics.families import FamilyKind
from flintmq.model.topics import TRANS_HALF_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flintmq.broker.context import BrokerContext
    from flintmq.metrics.families import Family, FamilyMaker, FamilySource, FamilySteps

GAUGE, COUNTER = FamilyKind.GAUGE, FamilyKind.COUNTER
PREFIX: Final = "rocketmq_brokeruntime_"
_GIB: Final = 1 << 30

_BY_KEY: Final = {
    "putMessageEntireTimeMax": "putmessage_entire_time_max",
    "putMessageTimesTotal": "putmessage_times_total",
    "putMessageSizeTotal": "put_message_size_total",
    "putMessageAverageSize": "put_message_average_size",
    "dispatchMaxBuffer": "dispatch_maxbuffer",
    "getMessageEntireTimeMax": "getmessage_entire_time_max",
    "putLatency99": "put_latency_99",
    "putLatency999": "put_latency_999",
    "commitLogMinOffset": "commitlog_minoffset",
    "commitLogMaxOffset": "commitlog_maxoffset",
    "dispatchBehindBytes": "dispatch_behind_bytes",
    "remainHowManyDataToFlush": "remain_howmanydata_toflush",
    "commitLogDiskRatio": "commitlog_disk_ratio",
    "consumeQueueDiskRatio": "consumequeue_disk_ratio",
}
"""Lines of the store's status, and what the exporter calls them behind its prefix."""

_RATES: Final = {
    "putTps": "put_tps",
    "getFoundTps": "getfound_tps",
    "getMissTps": "getmiss_tps",
    "getTotalTps": "gettotal_tps",
    "getTransferedTps": "gettransfered_tps",
}
_WINDOWS: Final = ("10", "60", "600")

_LATENCY_CLASSES: Final = (
    *("0ms", "0to10ms", "10to50ms", "50to100ms", "100to200ms", "200to500ms", "500to1s"),
    *("1to2s", "2to3s", "3to4s", "4to5s", "5to10s", "10stomore"),
)
"""Classes of put times, in the order of the status line."""


def broker_source(context: BrokerContext) -> FamilySource:
    """Return what reads the state of a broker besides its store."""

    def read(make: FamilyMaker) -> FamilySteps:
        config = context.config
        for name, text, value in (
            ("rocketmq_broker_permission", "2 write, 4 read.", config.permission),
            ("rocketmq_topic_number", "Topics.", len(context.topics)),
            ("rocketmq_consumer_group_number", "Consumer groups.", len(context.groups)),
            ("rocketmq_half_messages", "Half messages not checked yet.", _half_count(context)),
            ("flintmq_held_pulls", "Pulls that wait for messages.", context.held.count),
        ):
            yield make.one(GAUGE, name, text, value)
        water = make.gauge(
            "rocketmq_processor_watermark", "Requests that wait for the disk.", ["processor"]
        )
        water.add(context.puts.waiting_count, "send")
        yield water
        yield from _turn_families(context, make)
        denied = make.counter(
            "flintmq_acl_denied_total", "Requests that access control denied.", ["reason"]
        )
        if context.access is not None:
            for reason, count in context.access.denied_counts().items():
                denied.add(count, reason)
        yield denied
        yield from _replication_families(context, make)

    return read


def _half_count(context: BrokerContext) -> int:
    end = context.store.max_offset_in_queue(TRANS_HALF_TOPIC, 0)
    checked = context.offsets.get(TRANSACTION_GROUP, TRANS_HALF_TOPIC, 0) or 0
    return max(end - checked, 0)


def _turn_families(context: BrokerContext, make: FamilyMaker) -> FamilySteps:
    causes = list(context.watchdog.by_cause.items())
    counts = make.counter(
        "flintmq_long_turns_total", "Turns of the event loop that took long.", ["cause"]
    )
    worst = make.gauge(
        "flintmq_long_turn_worst_seconds", "The longest turn of the event loop.", ["cause"]
    )
    for cause, turns in causes:
        counts.add(turns.count, cause)
        worst.add(turns.worst_ms / 1000, cause)
    yield from (counts, worst)


def _replication_families(context: BrokerContext, make: FamilyMaker) -> FamilySteps:
    gap = make.gauge(
        "flintmq_replication_gap_bytes", "Bytes that a slave lacks of its master's log.", ["peer"]
    )
    late = make.gauge(
        "flintmq_replication_gap_seconds", "How long a slave has been behind.", ["peer"]
    )
    diff = make.gauge(
        "rocketmq_broker_commitlog_diff",
        "Bytes that a slave lacks of its master's log.",
        ["cluster", "brokerIP", "broker"],
        is_plain=True,
    )
    for slave in context.slaves.statuses(context.store.log.readable_end):
        gap.add(slave.lag_size, slave.peer)
        late.add(slave.lag_ms / 1000, slave.peer)
    if context.replica is not None:
        info = context.replica.runtime_info()
        gap.add(float(info["haLagBytes"]), "master")
        late.add(float(info["haLagSeconds"]), "master")
        config = context.config
        diff.add(float(info["haLagBytes"]), config.cluster, context.address, config.name)
    yield from (gap, late, diff)
    slaves = len(context.slaves.links)
    yield make.one(GAUGE, "flintmq_slaves", "Slaves that are connected.", slaves)


def exporter_source(context: BrokerContext) -> FamilySource:
    """Return what reads the status under the names of the exporter for RocketMQ 4."""

    def read(make: FamilyMaker) -> FamilySteps:
        status = context.store.runtime_info()
        values = {name: _number(status.get(key)) for key, name in _BY_KEY.items()}
        for key, name in _RATES.items():
            rates = status.get(key, "").split(" ")
            values |= {
                f"{name}{window}": _number(rate)
                for window, rate in zip(_WINDOWS, rates, strict=False)
            }
        yield None
        values |= _latencies(status) | _broker_values(context)
        labels = {
            "cluster": context.config.cluster,
            "brokerIP": context.address,
            "brokerHost": context.address,
            "des": VERSION_TEXT,
            "boottime": status.get("bootTimestamp", ""),
            "broker_version": str(PROTOCOL_VERSION),
        }
        for name, value in values.items():
            yield _status_family(make, name, labels, value)

    return read


def _status_family(make: FamilyMaker, name: str, labels: Mapping[str, str], value: float) -> Family:
    text = "As the exporter for RocketMQ 4 shows it."
    family = make.gauge(PREFIX + name, text, list(labels), is_plain=True)
    family.add(value, *labels.values())
    return family


def _latencies(status: Mapping[str, str]) -> dict[str, float]:
    parts = status.get("putMessageDistributeTime", "").split()
    counts = [part.rpartition(":")[2] for part in parts]
    if len(counts) != len(_LATENCY_CLASSES):
        counts = ["0"] * len(_LATENCY_CLASSES)  # No minute is over yet.
    pairs = zip(_LATENCY_CLASSES, counts, strict=True)
    return {f"pmdt_{name}": _number(count) for name, count in pairs}


def _broker_values(context: BrokerContext) -> dict[str, float]:
    """Return what the status has besides the store's lines."""
    store, config, today = context.store, context.config, context.daily.today()
    usage = store.files.usage(store.config.root)
    buffers = store.free_buffer_count
    return {
        "msg_puttotal_yesterdaymorning": today.put_yesterday,
        "msg_puttotal_todaymorning": today.put_today,
        "msg_gettotal_yesterdaymorning": today.get_yesterday,
        "msg_gettotal_todaymorning": today.get_today,
        "msg_put_total_today_now": store.statistics.put_count,
        "msg_gettotal_today_now": store.statistics.transferred_count,
        "send_threadpool_queue_size": context.puts.waiting_count + context.late_sends.count,
        "send_threadpoolqueue_capacity": config.send_queue_capacity,
        "send_threadpoolqueue_headwait_timemills": max(
            context.puts.waited_ms, context.late_sends.waited_ms
        ),
        "pull_threadpoolqueue_size": 0,
        "pull_threadpoolqueue_capacity": config.pull_queue_capacity,
        "pull_threadpoolqueue_headwait_timemills": 0,
        "query_threadpoolqueue_size": 0,
        "query_threadpool_queue_capacity": config.query_queue_capacity,
        "query_threadpoolqueue_headwait_timemills": 0,
        "pagecache_lock_time_mills": store.appender.busy_ms,
        "earliest_message_timestamp": store.earliest_time(),
        "start_accept_sendrequest_time": config.accept_sends_from_ms,
        "remain_transientstore_buffer_numbs": INT_MAX if buffers is None else buffers,
        "commitlogdir_capacity_total": 0 if usage is None else usage.total / _GIB,
        "commitlogdir_capacity_free": 0 if usage is None else usage.available / _GIB,
    }


def _number(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
