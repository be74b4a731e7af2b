"""Metrics of the store of a broker: the log, its views, the disk, and what the last start found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.metrics.families import FamilyKind
from flintmq.store.running_flags import RunningFlag

if TYPE_CHECKING:
    from flintmq.metrics.families import FamilyMaker, FamilySource, FamilySteps
    from flintmq.store.message_store import MessageStore

GAUGE, COUNTER = FamilyKind.GAUGE, FamilyKind.COUNTER


def store_source(store: MessageStore) -> FamilySource:
    """Return what reads the state of a store."""

    def read(make: FamilyMaker) -> FamilySteps:
        yield from _log_families(store, make)
        yield None
        yield from _sync_families(store, make)
        yield from _put_families(store, make)
        yield None
        yield from _disk_families(store, make)
        yield from _recovery_families(store, make)

    return read


def _log_families(store: MessageStore, make: FamilyMaker) -> FamilySteps:
    log = store.log
    index_behind = 0
    if store.index is not None:
        # Messages without keys have no entry: the index is behind only by what is not dispatched.
        index_behind = store.dispatcher.behind
    labels = ["storage_type", "storage_medium"]
    for name, text, value in (
        ("rocketmq_storage_size", "Bytes of the log.", log.end_offset - log.min_offset),
        (
            "rocketmq_storage_flush_behind_bytes",
            "Bytes of the log that are not on the disk yet.",
            store.flusher.unflushed_bytes,
        ),
        (
            "rocketmq_storage_dispatch_behind_bytes",
            "Bytes of the log that are not in queues yet.",
            store.dispatcher.behind,
        ),
        (
            "flintmq_store_index_behind_bytes",
            "Bytes of the log that are not in the key index yet.",
            index_behind,
        ),
        (
            "flintmq_store_commit_behind_bytes",
            "Bytes that are in write buffers only.",
            store.uncommitted_size,
        ),
        (
            "rocketmq_storage_message_reserve_time",
            "Milliseconds since the oldest message of the log was stored.",
            _reserve_ms(store),
        ),
    ):
        family = make.gauge(name, text, labels)
        family.add(value, "local", "disk")
        yield family
    for name, text, offset in (
        ("flintmq_store_log_min_offset_bytes", "Where the log begins.", log.min_offset),
        ("flintmq_store_log_end_offset_bytes", "Where the log ends.", log.end_offset),
        (
            "flintmq_store_log_flushed_offset_bytes",
            "Up to where the log is on the disk.",
            store.flusher.flushed_offset,
        ),
        ("flintmq_store_queues", "Consume queues.", len(store.queues)),
        (
            "flintmq_store_dispatch_blocked",
            "Whether the log cannot be brought into queues: 1, else 0.",
            store.dispatcher.blocked is not None,
        ),
    ):
        yield make.one(GAUGE, name, text, offset)


def _reserve_ms(store: MessageStore) -> int:
    oldest_ms = store.earliest_time()
    return max(store.clock.now_ms() - oldest_ms, 0) if oldest_ms > 0 else 0


def _sync_families(store: MessageStore, make: FamilyMaker) -> FamilySteps:
    syncs = make.histogram("flintmq_store_fsync_seconds", "How long syncs of the log took.")
    syncs.add_histogram(store.flusher.latency)
    yield syncs
    yield make.one(
        COUNTER,
        "flintmq_store_fsync_failures_total",
        "Syncs that failed: after the first the store is read-only until a restart.",
        bool(store.flags.bits & RunningFlag.SYNC_FAILED),
    )
    flags = make.gauge("flintmq_store_flag", "What is wrong with the store: 1, else 0.", ["flag"])
    for one in RunningFlag:
        flags.add(bool(store.flags.bits & one), one.words)
    yield flags


def _put_families(store: MessageStore, make: FamilyMaker) -> FamilySteps:
    counts = store.statistics
    for name, text, value in (
        ("flintmq_store_puts_total", "Messages that were stored.", counts.put_count),
        ("flintmq_store_put_bytes_total", "Bytes of the log they took.", counts.put_size),
        ("flintmq_store_put_failures_total", "Puts that were refused.", counts.failed_put_count),
        ("flintmq_store_gets_found_total", "Reads that found messages.", counts.found_count),
        ("flintmq_store_gets_missed_total", "Reads that found none.", counts.missed_count),
        (
            "flintmq_store_messages_read_total",
            "Messages that reads have found.",
            counts.transferred_count,
        ),
        (
            "flintmq_store_crc_errors_total",
            "Messages that did not match their checksums when they were read.",
            store.schedule.crc_error_count + store.waiting.crc_error_count,
        ),
        (
            "flintmq_store_delayed_skipped_total",
            "Delayed messages that could not be delivered and were skipped.",
            store.schedule.skipped_count,
        ),
    ):
        yield make.one(COUNTER, name, text, value)
    waiting = make.gauge(
        "flintmq_store_delayed_messages", "Delayed messages that wait, by level.", ["level"]
    )
    for level, (offset, end) in store.schedule.progress().items():
        waiting.add(max(end - offset, 0), str(level))
    yield waiting
    yield from _waiting_families(store, make)


def _waiting_families(store: MessageStore, make: FamilyMaker) -> FamilySteps:
    """Tell of messages that name the time of their delivery."""
    waiting = store.waiting
    yield make.one(
        GAUGE,
        "flintmq_store_waiting_messages",
        "Messages that wait for the time they name.",
        waiting.waiting_count,
    )
    for name, text, value in (
        (
            "delivered",
            "Messages that were delivered at the time they name.",
            waiting.delivered_count,
        ),
        ("cancelled", "Waiting messages that were cancelled.", waiting.cancelled_count),
        (
            "rolled",
            "Waiting messages that were put again, for their file to go.",
            waiting.rolled_count,
        ),
        ("skipped", "Waiting messages that could not be delivered.", waiting.skipped_count),
    ):
        yield make.one(COUNTER, f"flintmq_store_waiting_{name}_total", text, value)


def _disk_families(store: MessageStore, make: FamilyMaker) -> FamilySteps:
    used = make.gauge(
        "flintmq_store_disk_used_ratio", "How full the disk of a directory is, 0 to 1.", ["path"]
    )
    ratios = store.retention.ratios()
    measured = {**ratios.logs, store.config.root / "consumequeue": ratios.queues}
    for path, ratio in measured.items():
        if ratio >= 0:  # What is not there yet cannot be measured.
            used.add(ratio, str(path))
    yield used


def _recovery_families(store: MessageStore, make: FamilyMaker) -> FamilySteps:
    report = store.recovery_report
    for name, text, value in (
        (
            "flintmq_store_recovery_seconds",
            "How long the last start took to recover.",
            report.duration_ms / 1000,
        ),
        (
            "flintmq_store_recovery_clean",
            "Whether the run before ended cleanly: 1, else 0.",
            report.clean_exit,
        ),
        (
            "flintmq_store_recovery_records",
            "Records that the last start looked at.",
            report.records_scanned,
        ),
        (
            "flintmq_store_recovery_truncated_bytes",
            "Bytes that the last start cut off the log.",
            report.bytes_truncated,
        ),
        (
            "flintmq_store_recovery_damaged_ranges",
            "Damaged ranges of the log that the last start stepped over.",
            report.damaged_range_count,
        ),
        (
            "flintmq_store_recovery_problems",
            "What else was wrong at the last start.",
            report.problem_count,
        ),
    ):
        yield make.one(GAUGE, name, text, value)
