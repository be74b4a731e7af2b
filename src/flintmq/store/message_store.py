"""The message store: the façade of one store directory."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Final, Self, TypeVar

from flintmq.format.delay_levels import DelayLevels
from flintmq.model.message import MessageBatch
from flintmq.model.topics import LMQ_PREFIX, SCHEDULE_TOPIC, TRANS_OP_HALF_TOPIC
from flintmq.store.allocation import Allocator
from flintmq.store.appending import Appender
from flintmq.store.checkpoint import CheckpointFile
from flintmq.store.clock import SystemClock
from flintmq.store.commit_log import CommitLog
from flintmq.store.config import FlushMode
from flintmq.store.dispatch import Dispatcher
from flintmq.store.durability import Durability
from flintmq.store.errors import FlushFailedError, StoreError
from flintmq.store.files import LocalFiles, make_directory_durable
from flintmq.store.flags import RunningFlags
from flintmq.store.flush import LogFlusher
from flintmq.store.key_index import KeyIndex
from flintmq.store.mapped_file_queue import MappedFileQueue, Placement
from flintmq.store.queue_table import QueueTable
from flintmq.store.reading import StoreReader
from flintmq.store.recovery import Recovery
from flintmq.store.results import PutStatus
from flintmq.store.retention import Retention
from flintmq.store.runs import RunAppender
from flintmq.store.schedule import ScheduleService
from flintmq.store.services import Service
from flintmq.store.statistics import StoreStatistics
from flintmq.store.transient_pool import TransientPool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from types import TracebackType

    from flintmq.format.record import Record
    from flintmq.model.message import Message
    from flintmq.store.clock import Clock
    from flintmq.store.config import StoreConfig
    from flintmq.store.dispatch import ArrivalListener
    from flintmq.store.files import FileLock, Files
    from flintmq.store.mapped_file import Slice
    from flintmq.store.queue_table import StoredQueue
    from flintmq.store.reading import MessageFilter, QueryResult
    from flintmq.store.recovery_report import RecoveryReport
    from flintmq.store.results import GetResult, PutResult
    from flintmq.store.run_encoding import Run
    from flintmq.store.runs import Encode

logger = logging.getLogger(__name__)

DISPATCH_EVERY: Final = 64
"""A put dispatches by itself once this many records wait, whoever forgot to."""

HOUSEKEEPING_MS_MIN: Final = 10

SAMPLE_INTERVAL_MS: Final = 1000
"""How often the counters are sampled for the rates of the runtime info."""

_Placed = TypeVar("_Placed")

KEEP_TOPICS: Final = frozenset({SCHEDULE_TOPIC, TRANS_OP_HALF_TOPIC})


class MessageStore:
    """A store directory, open for reading and writing by one owner thread.

    ``put`` and the reads never wait for the disk.  With ``background=False`` no thread runs, and
    the owner drives ``flush``, ``commit`` and ``checkpoint`` by hand; tests do.
    """

    def __init__(
        self,
        config: StoreConfig,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        background: bool = True,
        filter_bitmap: Callable[[str, Mapping[str, str]], bytes | None] | None = None,
        on_arrival: ArrivalListener | None = None,
    ) -> None:
        """Open the store: lock, load and recover it.

        Raises:
            StoreLockedError: another process has it.
            StoreLoadError: the directory holds what no broker has put there.
        """
        self.config = config
        self.files = files = files or LocalFiles()
        self.clock = clock = clock or SystemClock()
        self.flags = RunningFlags()
        self.statistics = StoreStatistics(clock=clock)
        self.delay_levels = DelayLevels.parse(config.delay_levels)
        self._background = background
        self._services: list[Service] = []
        self._closed = False
        self._sampled_ms = clock.now_ms()
        make_directory_durable(files, config.root)
        with contextlib.ExitStack() as undo:
            self._lock: FileLock = files.lock(config.root / "lock")
            undo.callback(self._lock.release)
            self._pool = self._make_pool()
            if self._pool is not None:
                undo.callback(self._pool.close)
            self._allocator = Allocator(
                files=files,
                clock=clock,
                threads=background,
                warm=config.warm_files,
                pool=self._pool,
                fail_fast=config.fast_fail_without_buffer,
            )
            undo.callback(self._allocator.close)
            self.log = self._load_log()
            undo.callback(self.log.files.close)
            self.queues = QueueTable(config, files=files, clock=clock)
            undo.callback(self.queues.close)
            self.index = self._make_index()
            if self.index is not None:
                undo.callback(self.index.close)
            self.dispatcher = Dispatcher(
                self.log,
                self.queues,
                self.index,
                flags=self.flags,
                delay_levels=self.delay_levels,
                multi_dispatch=config.enable_multi_dispatch,
                lmq=config.enable_lmq,
                filter_bitmap=filter_bitmap,
                on_arrival=on_arrival,
            )
            self._checkpoint = CheckpointFile(config.root / "checkpoint", files=files)
            undo.callback(self._checkpoint.close)
            self.flusher = LogFlusher(self.log, flags=self.flags, clock=clock)
            self.durability = Durability(
                config,
                self.log,
                self.queues,
                self.index,
                self.dispatcher,
                self.flusher,
                self._checkpoint,
                flags=self.flags,
                files=files,
                clock=clock,
            )
            self.recovery_report = self._recover()
            self.appender = Appender(
                config,
                self.log,
                self.queues,
                self.dispatcher,
                flags=self.flags,
                statistics=self.statistics,
                delay_levels=self.delay_levels,
                clock=clock,
            )
            self._runs = RunAppender(
                self.appender,
                self.log,
                self.dispatcher,
                statistics=self.statistics,
                clock=clock,
            )
            self.reader = StoreReader(config, self.log, self.queues, self.index)
            self._take_queue_offsets()
            self.retention = self._make_retention()
            self.schedule = self._make_schedule()
            self.schedule.load()
            self.durability.mark_running()
            undo.pop_all()
        if background:
            self._start_services()

    # -- opening -----------------------------------------------------------------------------

    def _make_pool(self) -> TransientPool | None:
        if not self.config.transient_pool_effective:
            return None
        return TransientPool(self.config.transient_pool_size, self.config.commit_log_file_size)

    def _load_log(self) -> CommitLog:
        config = self.config
        placement = Placement(
            config.effective_commit_log_paths, read_only=config.read_only_commit_log_paths
        )
        mapped = MappedFileQueue(
            placement,
            config.commit_log_file_size,
            files=self.files,
            clock=self.clock,
            allocator=self._allocator,
            pool=self._pool,
        )
        mapped.load()
        return CommitLog(mapped, durable_reads=config.flush_mode is FlushMode.SYNC)

    def _make_index(self) -> KeyIndex | None:
        config = self.config
        if not config.index_enabled:
            return None
        return KeyIndex(
            config.root / "index",
            slots=config.hash_slot_count,
            entries=config.index_entry_count,
            files=self.files,
            clock=self.clock,
        )

    def _make_retention(self) -> Retention:
        return Retention(
            self.config,
            self.log,
            dispatched=lambda: self.durability.durably_dispatched,
            delete_views=self.delete_expired_views,
            flags=self.flags,
            files=self.files,
            clock=self.clock,
        )

    def _make_schedule(self) -> ScheduleService:
        return ScheduleService(
            self.config,
            self.queues,
            self.reader,
            delay_levels=self.delay_levels,
            put=self.put,
            dispatch=self.dispatch,
            flush=self.flush,
            when_flushed=self.when_flushed,
            files=self.files,
            clock=self.clock,
        )

    def _recover(self) -> RecoveryReport:
        problems = [str(problem) for problem in self.queues.load()]
        if self.index is not None:
            problems.extend(str(problem) for problem in self.index.load())
        checkpoint_problem = self._checkpoint.load()
        recovery = Recovery(
            self.config,
            self.log,
            self.queues,
            self.index,
            self.dispatcher,
            checkpoint=self._checkpoint.value,
            delay_levels=self.delay_levels,
            clean_exit=self.durability.stopped_cleanly,
            pages_lost=self.durability.has_lost_pages,
            damaged_queues=self.queues.damaged,
            clock=self.clock,
        )
        for problem in problems:
            recovery.report.add_problem(problem)
        if checkpoint_problem and self.log.files.last is not None:
            recovery.report.add_problem(f"checkpoint: {checkpoint_problem}")
        report = recovery.run()
        self._waiting_offsets = recovery.next_offsets
        return report

    def _take_queue_offsets(self) -> None:
        self.appender.next_offsets = {
            (queue.topic, queue.queue_id): queue.max_offset for queue in self.queues
        } | self._waiting_offsets

    def _start_services(self) -> None:
        config = self.config
        self._services.append(
            Service(
                "flintmq-flush",
                self.durability.flush_step,
                interval_ms=10 if self.log.durable_reads else config.flush_interval_ms,
                wake=self.flusher.wanted if self.log.durable_reads else None,
            )
        )
        self._services.append(
            Service(
                "flintmq-queue-flush",
                self.durability.queue_flush_step,
                interval_ms=config.flush_queue_interval_ms,
            )
        )
        if self._pool is not None:
            self._services.append(
                Service(
                    "flintmq-commit",
                    self.durability.commit_step,
                    interval_ms=config.commit_interval_ms,
                )
            )
        self._services.append(
            Service(
                "flintmq-housekeeping",
                self._housekeeping_step,
                interval_ms=max(config.delete_log_interval_ms, HOUSEKEEPING_MS_MIN),
            )
        )

    # -- writing -----------------------------------------------------------------------------

    def put(self, message: Message) -> PutResult:
        """Append a message; PUT_OK means in the log, not yet on the disk."""
        result = self.appender.put(message)
        if self.dispatcher.waiting >= DISPATCH_EVERY:
            self.dispatcher.run()
        return result

    def put_batch(self, batch: MessageBatch) -> PutResult:
        """Append all messages of a batch, or none."""
        result = self.appender.put_batch(batch)
        if self.dispatcher.waiting >= DISPATCH_EVERY:
            self.dispatcher.run()
        return result

    def put_run(self, encode: Encode[_Placed], store_host: bytes) -> tuple[Run, _Placed] | None:
        """Append plain messages together; None means that nothing was done, and to use ``put``.

        Only for a store that flushes in the background: nobody is told when the disk has them.
        """
        return self._runs.put(encode, store_host)

    def put_durably(self, message: Message | MessageBatch) -> PutResult:
        """Append a message or batch and wait as long as its promise asks for.

        With synchronous flush this returns PUT_OK only when the message is on stable storage
        (unless its WAIT property says false), FLUSH_DISK_TIMEOUT when it is in the log but the
        disk took too long, and SERVICE_NOT_AVAILABLE when the disk has failed.
        """
        result = self.put_batch(message) if isinstance(message, MessageBatch) else self.put(message)
        if result.ok and result.wait_for_flush:
            status, reason = self.wait_flushed(result.end_offset)
            if status is not PutStatus.PUT_OK:
                result.with_status(status, reason)
        self.dispatcher.run()
        return result

    def when_flushed(self, offset: int, done: Callable[[PutStatus, str], None]) -> None:
        """Call ``done(status, reason)`` once the log is flushed up to ``offset`` or cannot be.

        The call may come from the flushing thread.
        """
        self.flusher.when_flushed(offset, done, timeout_ms=self.config.sync_flush_timeout_ms)

    def wait_flushed(self, offset: int) -> tuple[PutStatus, str]:
        """Wait until the log is flushed up to ``offset``; return how that ended."""
        if not self._background:
            with contextlib.suppress(FlushFailedError):
                self.flush()
        outcome: list[tuple[PutStatus, str]] = []
        finished = threading.Event()

        def done(status: PutStatus, reason: str) -> None:
            outcome.append((status, reason))
            finished.set()

        self.when_flushed(offset, done)
        if not finished.wait(self.config.sync_flush_timeout_ms / 1000):
            return PutStatus.FLUSH_DISK_TIMEOUT, "not flushed within syncFlushTimeout"
        return outcome[0]

    def dispatch(self) -> int:
        """Bring what became readable into queues and index; return how many records."""
        self.retention.follow()
        return self.dispatcher.run() if self.dispatcher.waiting else 0

    # -- flushing ----------------------------------------------------------------------------

    def commit(self, least_pages: int = 0) -> None:
        """Write pool buffers into their files."""
        self.durability.commit(least_pages)

    def flush(self, least_pages: int = 0) -> None:
        """Bring the log to stable storage.

        Raises:
            FlushFailedError: the disk refused; the store is read-only now.
        """
        self.durability.flush(least_pages)

    def checkpoint(self) -> None:
        """Sync log, queues and index, and note exactly how far everything is."""
        self.durability.checkpoint()

    def _housekeeping_step(self) -> None:
        now_ms = self.clock.now_ms()
        self.retention.clean_log(now_ms)
        self.schedule.housekeep(now_ms)
        if now_ms - self._sampled_ms >= SAMPLE_INTERVAL_MS or now_ms < self._sampled_ms:
            self._sampled_ms = now_ms
            self.statistics.sample(now_ms)

    # -- reading -----------------------------------------------------------------------------

    def get_messages(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        message_filter: MessageFilter | None = None,
    ) -> GetResult | None:
        """Return messages of a queue as views into the log; release the result when sent."""
        if self.dispatcher.waiting:
            self.dispatcher.run()
        if self._closed or not self.flags.readable:
            return None
        began = self.clock.monotonic()
        result = self.reader.get_messages(topic, queue_id, offset, count_max, message_filter)
        self._record_get(result, began)
        return result

    def get_inside(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        message_filter: MessageFilter | None = None,
    ) -> GetResult | None:
        """Return what `get_messages` does if a queue has a message at ``offset``.

        None means that nothing was done, not even counted: use `get_messages`, which says why.
        """
        if self.dispatcher.waiting:
            self.dispatcher.run()
        if self._closed or not self.flags.readable:
            return None
        began = self.clock.monotonic()
        result = self.reader.get_inside(topic, queue_id, offset, count_max, message_filter)
        if result is not None:
            self._record_get(result, began)
        return result

    def _record_get(self, result: GetResult | None, began: float) -> None:
        elapsed_us = int((self.clock.monotonic() - began) * 1_000_000)
        self.statistics.record_get(0 if result is None else len(result), elapsed_us)

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset that can be read, 0 for an unknown queue."""
        queue = self.queues.get(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue offset the next message will get to be read at, 0 if unknown."""
        if self.dispatcher.waiting:
            self.dispatcher.run()
        queue = self.queues.get(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def message_total_in_queue(self, topic: str, queue_id: int) -> int:
        """Return how many messages a queue holds."""
        end = self.max_offset_in_queue(topic, queue_id)
        return end - self.min_offset_in_queue(topic, queue_id)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the queue offset nearest to a store time."""
        self.dispatcher.run()
        return self.reader.offset_by_time(topic, queue_id, timestamp_ms)

    def earliest_time(self, topic: str | None = None, queue_id: int = 0) -> int:
        """Return the oldest store time of a queue, or of the whole log; -1 if there is none."""
        if topic is None:
            return self.reader.earliest_log_time()
        self.dispatcher.run()
        return self.reader.earliest_time(topic, queue_id)

    def look(self, physical_offset: int) -> Record | None:
        """Return the decoded record at a physical offset."""
        return self.reader.look(physical_offset)

    def select(self, physical_offset: int, size: int | None = None) -> Slice | None:
        """Return the raw record at a physical offset, held until released."""
        return self.reader.select(physical_offset, size)

    def read_log(self, physical_offset: int, size_max: int) -> Slice | None:
        """Return raw bytes of the log for replication, held until released."""
        return self.log.read_range(physical_offset, size_max)

    def query(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> QueryResult:
        """Return records by key and time range; the caller compares the real keys."""
        self.dispatcher.run()
        return self.reader.query(topic, key, count_max, begin_ms, end_ms)

    # -- maintenance -------------------------------------------------------------------------

    def clean_unused_topics(self, live: Collection[str]) -> int:
        """Destroy the queues of topics that are not in ``live``; return how many topics."""
        gone = {
            topic
            for topic in self.queues.topics
            if topic not in live and topic not in KEEP_TOPICS and not topic.startswith(LMQ_PREFIX)
        }
        for queue in self.queues:
            if queue.topic in gone:
                self._forget(queue)
        if gone:
            self.checkpoint()
        return len(gone)

    def clean_expired_queues(self) -> int:
        """Destroy queues whose every record is gone; return how many.

        As in RocketMQ the next message of such a queue starts at offset 0 again.
        """
        self.dispatcher.run()
        count = 0
        for queue in self.queues:
            end = queue.max_physical_offset
            if queue.topic != SCHEDULE_TOPIC and 0 <= end <= self.log.min_offset:
                self._forget(queue)
                count += 1
        if count:
            self.checkpoint()
        return count

    def clean_unused_light_queue(self, topic: str) -> bool:
        """Destroy the light queue of that name; return whether there was one."""
        queue = self.queues.get(topic, 0) if topic.startswith(LMQ_PREFIX) else None
        if queue is None:
            return False
        self._forget(queue)
        self.checkpoint()
        return True

    def _forget(self, queue: StoredQueue) -> None:
        self.queues.forget(queue)
        self.appender.next_offsets.pop((queue.topic, queue.queue_id), None)

    def delete_expired_views(self) -> None:
        """Let queues and index follow the log after its oldest files were deleted."""
        log_min = self.log.min_offset
        for queue in self.queues:
            queue.delete_expired(log_min)
        if self.index is not None:
            self.index.delete_expired(log_min)

    def runtime_info(self) -> dict[str, str]:
        """Return the statistics as RocketMQ's runtime info names them."""
        info = self.statistics.runtime_info()
        info["commitLogMinOffset"] = str(self.log.min_offset)
        info["commitLogMaxOffset"] = str(self.log.readable_end)
        info["dispatchBehindBytes"] = str(self.dispatcher.behind)
        info["remainHowManyDataToFlush"] = str(self.flusher.unflushed_bytes)
        for level, (offset, end) in self.schedule.progress().items():
            info[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
        info.update(self.retention.runtime_info())
        return info

    # -- closing -----------------------------------------------------------------------------

    def close(self) -> None:
        """Flush everything, leave the marks of a clean stop, and give the directory back."""
        if self._closed:
            return
        self._closed = True
        self.appender.closed = True
        for service in self._services:
            service.stop()
        clean = False
        try:
            self.durability.commit_finally()
            self.flush()
            self.dispatcher.run()
            self.schedule.close()
            self.checkpoint()
            clean = not self.dispatcher.behind and self.flags.writable
        except StoreError:
            logger.exception("the store could not be flushed; the next start recovers it")
        finally:
            self._release(clean=clean)

    def _release(self, *, clean: bool) -> None:
        """Give everything back, whatever fails on the way; the last called for is done first."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._lock.release)
            if clean:
                stack.callback(self.durability.mark_stopped)
            if self._pool is not None:
                stack.callback(self._pool.close)
            stack.callback(self._allocator.close)
            stack.callback(self.log.files.close)
            stack.callback(self.queues.close)
            if self.index is not None:
                stack.callback(self.index.close)
            stack.callback(self._checkpoint.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
