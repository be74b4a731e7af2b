"""The message store: the façade of one store directory."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Final, Self

from flintmq.model.message import MessageBatch
from flintmq.store.assembly import StoreOptions, assemble
from flintmq.store.clock import SystemClock
from flintmq.store.config import FlushMode
from flintmq.store.errors import StoreError
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.reading.entered_records import is_entered
from flintmq.store.results import PutStatus
from flintmq.store.upkeep.services import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from types import TracebackType

    from flintmq.format.stored.record import Record
    from flintmq.kernels.compiled import Target
    from flintmq.model.message import PutMessage
    from flintmq.model.steps import Steps
    from flintmq.store.append_group.sends import AppendGroup, AppendPosition, Sends
    from flintmq.store.appending.batch_preparation import PreparedBatch
    from flintmq.store.appending.group_appender import NotAppended
    from flintmq.store.arrivals import ArrivalListener
    from flintmq.store.assembly import StoreComponents
    from flintmq.store.clock import Clock
    from flintmq.store.config import StoreConfig
    from flintmq.store.files.interface import Files
    from flintmq.store.files.mapped_file import Slice
    from flintmq.store.read_cursor import ReadCursor
    from flintmq.store.reading.message_filter import MessageFilter
    from flintmq.store.reading.store_reader import QueryResult
    from flintmq.store.recovery.recovery_progress import RecoveryProgress
    from flintmq.store.results import CopiedMessages, GetResult, PutResult
    from flintmq.store.upkeep.queue_cleaning import ForgottenQueues, TopicsKnown

logger = logging.getLogger(__name__)

HOUSEKEEPING_MS_MIN: Final = 10
PAGES_INTERVAL_MS: Final = 60_000
"""Who grows wakes the thread that makes its pages ready; nothing is lost if it does not."""

SAMPLE_INTERVAL_MS: Final = 1000
"""How often the counters are sampled for the rates of the runtime info."""


class MessageStore:
    """A store directory, open for reading and writing by one owner thread.

    `open` makes one.  ``put`` and the reads never wait for the disk.  With ``background=False`` no
    thread runs, and the owner drives ``flush``, ``commit`` and ``checkpoint`` by hand; tests do.
    """

    def __init__(self, components: StoreComponents, *, has_threads: bool) -> None:
        """Take the components of a store; `open` makes them."""
        self.config = components.config
        self.files = components.files
        self.clock = components.clock
        self.flags = components.flags
        self.statistics = components.statistics
        self.delay_levels = components.delay_levels
        self.log = components.log
        self.queues = components.queues
        self.index = components.index
        self.dispatcher = components.dispatcher
        self.flusher = components.flusher
        self.durability = components.durability
        self.recovery_report = components.recovery_report
        self.appender = components.appender
        self.reader = components.reader
        self.replica = components.replica
        self.retention = components.retention
        self.schedule = components.schedule
        self.waiting = components.waiting
        self._writer = components.writer
        self._cleaner = components.cleaner
        self._components = components
        self._services: list[Service] = []
        self._closed = False
        self._sampled_ms = self.clock.now_ms()
        if has_threads:
            self._start_services()

    def reconfigure(self, config: StoreConfig) -> None:
        """Use other settings from now on: of messages, reads, flushes and deletions.

        What is on the disk, and how it is opened, stays as it was.
        """
        self.config = config
        is_durable = config.flush_mode is FlushMode.SYNC
        if is_durable != self.log.durable_reads:
            self.log.set_durable_reads(durable_reads=is_durable)
            self.flusher.wanted.set()
        self.appender.reconfigure(config)
        self.reader.reconfigure(config)
        self.retention.reconfigure(config)

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        background: bool = True,
        filter_bitmap: Callable[[str, Mapping[str, str]], bytes | None] | None = None,
        on_arrival: ArrivalListener | None = None,
        roll_wait_ms: int | None = None,
        progress: RecoveryProgress | None = None,
    ) -> Self:
        """Open the store of ``config``: lock, load and recover it.

        An owner that must not wait gives ``roll_wait_ms``: a put that needs the next log file
        fails after so long if it is not made yet, and `is_next_file_late` tells why.  It may open
        the store in another thread, which then has nothing more to do with it; ``progress`` tells
        meanwhile how far that is.

        Raises:
            StoreLockedError: another process has it.
            StoreLoadError: the directory holds what no broker has put there.
        """
        options = StoreOptions(
            files or LocalFiles(),
            clock or SystemClock(),
            background,
            filter_bitmap,
            on_arrival,
            roll_wait_ms,
            progress,
        )
        return cls(assemble(config, options), has_threads=background)

    def _start_services(self) -> None:
        config = self.config
        self._services.append(
            Service(
                "flintmq-flush",
                self.durability.flush_step,
                interval_ms=lambda: 10 if self.log.durable_reads else config.flush_interval_ms,
                wake=self.flusher.wanted,
            )
        )
        self._services.append(
            Service(
                "flintmq-queue-flush",
                self.durability.queue_flush_step,
                interval_ms=config.flush_queue_interval_ms,
            )
        )
        self._services.append(
            Service(
                "flintmq-pages",
                self.log.pages.step,
                interval_ms=PAGES_INTERVAL_MS,
                wake=self.log.pages.wanted,
            )
        )
        if (ahead := self._components.ahead) is not None:
            self._services.append(
                Service(
                    "flintmq-space",
                    ahead.step,
                    interval_ms=PAGES_INTERVAL_MS,
                    wake=ahead.wanted,
                )
            )
        if self._components.pool is not None:
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

    def put(self, message: PutMessage) -> PutResult:
        """Append a message; PUT_OK means in the log, not yet on the disk."""
        return self._writer.put(message)

    def put_batch(self, batch: MessageBatch) -> PutResult:
        """Append all messages of a batch, or none."""
        return self._writer.put_batch(batch)

    def prepare_batch(self, batch: MessageBatch) -> Steps[PreparedBatch | PutResult]:
        """Make a large batch ready to be put, in steps; see `StoreWriter.prepare_batch`."""
        return self._writer.prepare_batch(batch)

    def put_prepared(self, prepared: PreparedBatch) -> PutResult:
        """Append all messages of a batch that was made ready, or none."""
        return self._writer.put_prepared(prepared)

    @property
    def is_next_file_late(self) -> bool:
        """Whether puts fail because the next file of the log is not made yet."""
        return self.log.is_next_late

    def append_group(self, sends: Sends, store_host: bytes) -> AppendGroup | NotAppended:
        """Append plain sends together; NotAppended means that nothing was done, and to use ``put``.

        Only for a store that flushes in the background: nobody is told when the disk has them.
        """
        return self._writer.append_group(sends, store_host)

    def append_encoded(
        self,
        encode: Callable[[AppendPosition], AppendGroup],
        store_host: bytes,
        *,
        appended: Callable[[AppendGroup], None] | None = None,
    ) -> AppendGroup | NotAppended:
        """Append a group that somebody else encodes; see `StoreWriter.append_encoded`."""
        return self._writer.append_encoded(encode, store_host, appended=appended)

    def when_flushed(self, offset: int, done: Callable[[PutStatus, str], None]) -> None:
        """Call ``done(status, reason)`` once the log is flushed up to ``offset`` or cannot be.

        The call may come from the flushing thread.
        """
        self._writer.when_flushed(offset, done)

    def dispatch(self) -> int:
        """Bring what became readable into queues and index; return how many records."""
        self.retention.follow()
        return self._writer.dispatch()

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
        self.waiting.progress.housekeep(now_ms)
        if now_ms - self._sampled_ms >= SAMPLE_INTERVAL_MS or now_ms < self._sampled_ms:
            self._sampled_ms = now_ms
            self.statistics.sample(now_ms)

    # -- reading -----------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """Enter what waits into the views, unless the owner does so run by run.

        A turn may bring hundreds of reads: with a run of each nobody else would have his turn.
        """
        dispatcher = self.dispatcher
        if dispatcher.has_waiting and not dispatcher.is_cut_short:
            dispatcher.run()

    def get_messages(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        message_filter: MessageFilter | None = None,
        *,
        only_ready: bool = False,
    ) -> GetResult | None:
        """Return messages of a queue as views into the log; release the result when sent.

        With ``only_ready`` it is None, and not counted, if the queue has no message at
        ``offset``, or if the disk would have to be waited for.
        """
        self._catch_up()
        if self._closed or not self.flags.readable:
            return None
        began = self.clock.monotonic()
        if only_ready:
            result = self.reader.get_existing(
                topic, queue_id, offset, count_max, message_filter, only_resident=True
            )
        else:
            result = self.reader.get_messages(topic, queue_id, offset, count_max, message_filter)
        if result is not None:
            result.read_us = int((self.clock.monotonic() - began) * 1_000_000)
            self.statistics.record_get(len(result), result.read_us)
        elif not only_ready:
            self.statistics.record_get(0, int((self.clock.monotonic() - began) * 1_000_000))
        return result

    def copy_messages(
        self, cursor: ReadCursor, offset: int, count_max: int, target: Target
    ) -> CopiedMessages | None:
        """Copy plain messages of a queue, not more than fit, to the beginning of ``target``.

        None where `get_messages` has to look for them.  Whoever uses a copy counts it.
        """
        if self.dispatcher.has_waiting:
            self._catch_up()
        if self._closed or not self.flags.readable:
            return None
        return self.reader.copy_existing(cursor, offset, count_max, target)

    def ends_at(self, topic: str, queue_id: int, offset: int) -> bool:
        """Return whether a queue has messages up to ``offset`` and none there.

        Where it takes more to tell, it is False.  Whoever takes that for a read counts it.
        """
        queue = self.queues.get(topic, queue_id)
        if queue is None or not 0 < offset == queue.max_offset or self.config.enable_lmq:
            return False
        if self._closed or not self.flags.readable:
            return False
        if not self.dispatcher.has_waiting:
            return True
        self._catch_up()
        return offset == queue.max_offset

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset that can be read, 0 for an unknown queue."""
        queue = self.queues.get(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue offset the next message will get to be read at, 0 if unknown."""
        self._catch_up()
        queue = self.queues.get(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the queue offset nearest to a store time."""
        self._catch_up()
        return self.reader.offset_by_time(topic, queue_id, timestamp_ms)

    def earliest_time(self, topic: str | None = None, queue_id: int = 0) -> int:
        """Return the oldest store time of a queue, or of the whole log; -1 if there is none."""
        if topic is None:
            return self.reader.earliest_log_time()
        self._catch_up()
        return self.reader.earliest_time(topic, queue_id)

    def look(self, physical_offset: int) -> Record | None:
        """Return the decoded record at a physical offset."""
        return self.reader.look(physical_offset)

    def is_entered(self, record: Record) -> bool:
        """Return whether a queue leads to a record, or will; a body may look like one, too."""
        self._catch_up()
        return is_entered(
            record, queues=self.queues, log=self.log, dispatched=self.dispatcher.offset
        )

    def select(self, physical_offset: int, size: int | None = None) -> Slice | None:
        """Return the raw record at a physical offset, held until released."""
        return self.reader.select(physical_offset, size)

    def query(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> QueryResult:
        """Return records by key and time range; the caller compares the real keys."""
        self._catch_up()
        return self.reader.query(topic, key, count_max, begin_ms, end_ms)

    def key_offsets(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> Steps[list[int]]:
        """Return where the records of a key are; an owner with others to serve may interrupt it.

        ``reader.records_at`` then has what `query` returns.
        """
        self._catch_up()
        return (yield from self.reader.key_offsets(topic, key, count_max, begin_ms, end_ms))

    # -- maintenance -------------------------------------------------------------------------

    def clean_unused_topics(self, live: Collection[str]) -> int:
        """Destroy the queues of topics that are not in ``live``; return how many topics."""
        return self._cleaner.clean_unused_topics(live)

    def forget_unused_topics(
        self, is_live: Callable[[str], bool], *, first: str = "", known: TopicsKnown | None = None
    ) -> Steps[ForgottenQueues]:
        """Remove the queues of topics that are not live, those of ``first`` before others.

        It may be interrupted; ``sync`` of what it returns makes the removal durable, in any thread.
        """
        return self._cleaner.forget_unused_topics(is_live, first=first, known=known)

    def forget_expired_queues(self) -> Steps[ForgottenQueues]:
        """Remove queues whose every record is gone, in the same way."""
        return self._cleaner.forget_expired_queues()

    def clean_expired_queues(self) -> int:
        """Destroy queues whose every record is gone; return how many."""
        return self._cleaner.clean_expired_queues()

    def clean_unused_light_queue(self, topic: str) -> bool:
        """Destroy the light queue of that name; return whether there was one."""
        return self._cleaner.clean_unused_light_queue(topic)

    def delete_expired_views(self) -> None:
        """Let queues and index follow the log after its oldest files were deleted."""
        self._cleaner.delete_expired_views()

    @property
    def free_buffer_count(self) -> int | None:
        """Write buffers that nothing uses; None if appends go to mapped files at once."""
        pool = self._components.pool
        return None if pool is None else pool.free_count

    @property
    def uncommitted_size(self) -> int:
        """Bytes that are in write buffers only."""
        return self.log.end_offset - self.log.files.committed_end

    def runtime_info(self) -> dict[str, str]:
        """Return the statistics as RocketMQ's runtime info names them."""
        info = self.statistics.runtime_info()
        info["commitLogMinOffset"] = str(self.log.min_offset)
        info["commitLogMaxOffset"] = str(self.log.readable_end)
        info["dispatchMaxBuffer"] = str(self.dispatcher.waiting_max)
        info["dispatchBehindBytes"] = str(self.dispatcher.behind)
        info["remainHowManyDataToFlush"] = str(self.flusher.unflushed_bytes)
        for level, (offset, end) in self.schedule.progress().items():
            info[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
        info["waitingMessageCount"] = str(self.waiting.waiting_count)
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
            self._dispatch_all()
            self.schedule.close()
            self.waiting.close()
            self.checkpoint()
            clean = not self.dispatcher.behind and self.flags.writable
        except StoreError:
            logger.exception("the store could not be flushed; the next start recovers it")
        finally:
            self._release(clean=clean)

    def _dispatch_all(self) -> None:
        """Dispatch all that is readable; a slave does so in steps."""
        while self.dispatcher.has_waiting:
            before = self.dispatcher.offset
            self.dispatcher.run()
            if self.dispatcher.offset == before:
                return

    def _release(self, *, clean: bool) -> None:
        """Give everything back, whatever fails on the way; the last called for is done first."""
        self.durability.close()
        with contextlib.ExitStack() as stack:
            stack.callback(self._components.locked.close)
            if clean:
                stack.callback(self.durability.mark_stopped)
            stack.callback(self._components.opened.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
