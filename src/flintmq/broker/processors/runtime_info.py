"""The status of a broker, by the names that RocketMQ's tools know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.format.wire.codes import PROTOCOL_VERSION

if TYPE_CHECKING:
    from flintmq.broker.context import BrokerContext

VERSION_TEXT: Final = "V4_9_8"
INT_MAX: Final = (1 << 31) - 1
_GIB: Final = 1 << 30
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def runtime_info(context: BrokerContext) -> dict[str, str]:
    """Return all that is told of a running broker."""
    config, store = context.config, context.store
    info = store.runtime_info()
    unflushed = int(info.get("remainHowManyDataToFlush", "0"))
    usage = store.files.usage(store.config.root)
    assert usage is not None, "an open store has a directory"
    today = context.daily.today()
    info |= {
        "brokerVersionDesc": VERSION_TEXT,
        "brokerVersion": str(PROTOCOL_VERSION),
        "msgPutTotalYesterdayMorning": str(today.put_yesterday),
        "msgPutTotalTodayMorning": str(today.put_today),
        "msgPutTotalTodayNow": str(context.statistics.put_total),
        "msgGetTotalYesterdayMorning": str(today.get_yesterday),
        "msgGetTotalTodayMorning": str(today.get_today),
        "msgGetTotalTodayNow": str(context.statistics.get_total),
        # One event loop does it all: what waits, waits for the disk, or for its turn.
        "sendThreadPoolQueueSize": str(context.puts.waiting_count + context.late_sends.count),
        "sendThreadPoolQueueCapacity": str(config.send_queue_capacity),
        "sendThreadPoolQueueHeadWaitTimeMills": str(
            max(context.puts.waited_ms, context.late_sends.waited_ms)
        ),
        "pullThreadPoolQueueSize": "0",
        "pullThreadPoolQueueCapacity": str(config.pull_queue_capacity),
        "pullThreadPoolQueueHeadWaitTimeMills": "0",
        "queryThreadPoolQueueSize": "0",
        "queryThreadPoolQueueCapacity": str(config.query_queue_capacity),
        "queryThreadPoolQueueHeadWaitTimeMills": "0",
        "EndTransactionQueueSize": "0",
        "EndTransactionThreadPoolQueueCapacity": str(config.transaction_queue_capacity),
        "pageCacheLockTimeMills": str(store.appender.busy_ms),
        "earliestMessageTimeStamp": str(store.earliest_time()),
        "startAcceptSendRequestTimeStamp": str(config.accept_sends_from_ms),
        "remainTransientStoreBufferNumbs": str(
            INT_MAX if store.free_buffer_count is None else store.free_buffer_count
        ),
        "remainHowManyDataToFlush": _size_text(unflushed),
        **(
            {}
            if store.free_buffer_count is None
            else {"remainHowManyDataToCommit": _size_text(store.uncommitted_size)}
        ),
        "commitLogDirCapacity": (
            f"Total : {usage.total / _GIB:.1f} GiB, Free : {usage.available / _GIB:.1f} GiB."
        ),
        # What the tools of 5.x look for besides.
        "brokerActive": "true",
        "getTransferredTps": info.get("getTransferedTps", ""),
        "timerReadBehind": "0",
        "timerOffsetBehind": "0",
        "timerCongestNum": str(store.waiting.waiting_count),
        "timerEnqueueTps": "0",
        "timerDequeueTps": "0",
        # Of FlintMQ itself
        "commitLogEndOffset": str(store.log.end_offset),
        "heldPullCount": str(context.held.count),
        **context.refused.runtime_info(),
        **context.watchdog.runtime_info(),
        **replication_info(context),
        **({} if context.access is None else context.access.runtime_info()),
    }
    return info


def replication_info(context: BrokerContext) -> dict[str, str]:
    """Return how far slaves are behind, on a master; and on a slave, how far it is itself."""
    log_end = context.store.log.readable_end
    info = {
        "brokerRole": context.store.config.broker_role.value,
        "haListenPort": str(context.store.config.ha_listen_port),
        "haSlaveCount": str(len(context.slaves.links)),
        "haSlaveAckOffset": str(context.slaves.acknowledged.value),
    }
    for status in context.slaves.statuses(log_end):
        seconds = status.lag_ms / 1000
        info[f"haSlave_{status.peer}"] = (
            f"ack {status.acknowledged}, behind {status.lag_size} bytes, {seconds:.1f} s"
        )
    return info | ({} if context.replica is None else context.replica.runtime_info())


def _size_text(size: int) -> str:
    amount = float(size)
    for unit in _UNITS:
        if amount < 1024 or unit == _UNITS[-1]:
            break
        amount /= 1024
    return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
