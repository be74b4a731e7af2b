"""How a store is put together: lock, load, recover, then everything that serves it.

`assemble` builds the components in the order in which they need each other; whatever fails on the
way, what was opened before is closed again.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, NamedTuple

from flintmq.format.delay_levels import DelayLevels
from flintmq.kernels.background_load import collector_paused
from flintmq.model.value_class import NamedFields, named_fields
from flintmq.store.append_group.encoder_choice import EncoderChoice
from flintmq.store.appending.appender import Appender
from flintmq.store.appending.group_appender import GroupAppender
from flintmq.store.appending.replica_appender import ReplicaAppender
from flintmq.store.appending.store_writer import StoreWriter
from flintmq.store.config import BrokerRole, FlushMode
from flintmq.store.dispatch import Dispatcher
from flintmq.store.files.allocation import Allocator
from flintmq.store.files.interface import make_directory_durable
from flintmq.store.files.mapped_file_queue import MappedFileQueue
from flintmq.store.files.placement import Placement
from flintmq.store.log.checkpoint_file import CheckpointFile
from flintmq.store.log.commit_log import CommitLog
from flintmq.store.log.log_flusher import LogFlusher
from flintmq.store.reading.store_reader import StoreReader
from flintmq.store.recovery.recovery_report import RecoveryReport
from flintmq.store.running_flags import RunningFlags
from flintmq.store.store_statistics import StoreStatistics
from flintmq.store.upkeep.durability import Durability
from flintmq.store.upkeep.queue_cleaning import QueueCleaner
from flintmq.store.upkeep.retention import Retention
from flintmq.store.upkeep.schedule import ScheduleService
from flintmq.store.upkeep.waiting_delivery import WaitingDelivery
from flintmq.store.upkeep.waiting_progress import WaitingProgress
from flintmq.store.views.key_index import KeyIndex
from flintmq.store.views.queue_table import QueueTable
from flintmq.store.views.space_ahead import SpaceAhead

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flintmq.store.append_group.sends import Queue
    from flintmq.store.arrivals import ArrivalListener
    from flintmq.store.clock import Clock
    from flintmq.store.config import StoreConfig
    from flintmq.store.files.interface import Files
    from flintmq.store.files.transient_pool import TransientPool
    from flintmq.store.recovery.recovery_progress import RecoveryProgress

logger = logging.getLogger(__name__)


class StoreOptions(NamedTuple):
    """What a store is opened with besides its settings."""

    files: Files
    clock: Clock
    has_threads: bool
    filter_bitmap: Callable[[str, Mapping[str, str]], bytes | None] | None
    on_arrival: ArrivalListener | None
    roll_wait_ms: int | None = None
    """How long a put waits for the next log file, unless it is the first that is asked for."""
    progress: RecoveryProgress | None = None
    """Learns how far recovery is."""


@named_fields
class StoreComponents(NamedFields):
    """Everything that a store is made of; `MessageStore` is the face of it."""

    config: StoreConfig
    files: Files
    clock: Clock
    flags: RunningFlags
    statistics: StoreStatistics
    delay_levels: DelayLevels
    pool: TransientPool | None
    log: CommitLog
    queues: QueueTable
    index: KeyIndex | None
    dispatcher: Dispatcher
    flusher: LogFlusher
    durability: Durability
    recovery_report: RecoveryReport
    appender: Appender
    writer: StoreWriter
    replica: ReplicaAppender
    reader: StoreReader
    cleaner: QueueCleaner
    retention: Retention
    schedule: ScheduleService
    waiting: WaitingDelivery
    ahead: SpaceAhead | None
    """Makes space of queues and index ready, where a thread does so."""
    locked: contextlib.ExitStack
    """Lets other stores have the directories."""
    opened: contextlib.ExitStack
    """Closes all files."""


def assemble(config: StoreConfig, options: StoreOptions) -> StoreComponents:
    """Lock, load and recover the store of ``config`` and return its components.

    Raises:
        StoreLockedError: another process has it.
        StoreLoadError: the directory holds what no broker has put there.
    """
    make_directory_durable(options.files, config.root)
    with contextlib.ExitStack() as locked, contextlib.ExitStack() as opened:
        locked.callback(options.files.lock(config.root / "lock").release)
        for path in config.effective_commit_log_paths:
            if path not in config.read_only_commit_log_paths:
                # Two stores that name one directory would overwrite each other's log.
                make_directory_durable(options.files, path)
                locked.callback(options.files.lock_directory(path).release)
        components = _Assembly(config, options, locked, opened).build()
        components.opened, components.locked = opened.pop_all(), locked.pop_all()
        return components


class _Assembly:
    """A store that is being put together."""

    def __init__(
        self,
        config: StoreConfig,
        options: StoreOptions,
        locked: contextlib.ExitStack,
        opened: contextlib.ExitStack,
    ) -> None:
        self._config = config
        self._options = options
        self._files = options.files
        self._clock = options.clock
        self._locked = locked
        self._opened = opened
        self._flags = RunningFlags()
        self._ahead = SpaceAhead() if options.has_threads else None
        self._statistics = StoreStatistics(clock=options.clock)
        self._delay_levels = DelayLevels.parse(config.delay_levels)

    def build(self) -> StoreComponents:
        """Build everything, from the files outwards."""
        config, files, clock = self._config, self._files, self._clock
        pool = self._open_pool()
        log = self._open_log(pool)
        queues = QueueTable(config, files=files, clock=clock, ahead=self._ahead)
        self._opened.callback(queues.close)
        index = self._open_index()
        dispatcher = self._make_dispatcher(log, queues, index)
        checkpoint = CheckpointFile(config.root / "checkpoint", files=files)
        self._opened.callback(checkpoint.close)
        flusher = LogFlusher(log, flags=self._flags, clock=clock)
        durability = Durability(
            config,
            log,
            queues,
            index,
            dispatcher,
            flusher,
            checkpoint,
            flags=self._flags,
            files=files,
            clock=clock,
        )
        report, waiting_offsets = self._recover(
            log, queues, index, dispatcher, checkpoint, durability
        )
        appender = self._make_appender(log, queues, dispatcher, waiting_offsets)
        groups = self._make_groups(appender, log, dispatcher)
        writer = StoreWriter(config, appender, groups, dispatcher, flusher)
        reader = StoreReader(config, log, queues, index)
        cleaner = QueueCleaner(log, queues, index, appender, dispatcher, durability)
        schedule = self._make_schedule(queues, reader, writer, durability)
        waiting = self._make_waiting(log, queues, reader, appender, writer, dispatcher, durability)
        components = StoreComponents(
            config=config,
            files=files,
            clock=clock,
            flags=self._flags,
            statistics=self._statistics,
            delay_levels=self._delay_levels,
            pool=pool,
            log=log,
            queues=queues,
            index=index,
            dispatcher=dispatcher,
            flusher=flusher,
            durability=durability,
            recovery_report=report,
            appender=appender,
            writer=writer,
            replica=self._make_replica(log, queues, index, appender, dispatcher, durability),
            reader=reader,
            cleaner=cleaner,
            retention=self._make_retention(log, durability, cleaner, schedule, waiting),
            schedule=schedule,
            waiting=waiting,
            ahead=self._ahead,
            locked=self._locked,
            opened=self._opened,
        )
        components.schedule.load()
        components.waiting.load()
        durability.mark_running()
        return components

    def _make_groups(
        self, appender: Appender, log: CommitLog, dispatcher: Dispatcher
    ) -> GroupAppender:
        return GroupAppender(
            appender,
            EncoderChoice(machine_code=self._config.machine_code),
            log,
            dispatcher,
            statistics=self._statistics,
            clock=self._clock,
        )

    def _open_pool(self) -> TransientPool | None:
        config = self._config
        if not config.transient_pool_effective:
            return None
        from flintmq.store.files.transient_pool import TransientPool  # Few stores have one.

        pool = TransientPool(config.transient_pool_size, config.commit_log_file_size)
        self._opened.callback(pool.close)
        return pool

    def _open_log(self, pool: TransientPool | None) -> CommitLog:
        config = self._config
        allocator = Allocator(
            files=self._files,
            clock=self._clock,
            threads=self._options.has_threads,
            warm=config.warm_files,
            pool=pool,
            fail_fast=config.fast_fail_without_buffer,
            roll_wait_ms=self._options.roll_wait_ms,
        )
        self._opened.callback(allocator.close)
        mapped = MappedFileQueue(
            Placement(
                config.effective_commit_log_paths, read_only=config.read_only_commit_log_paths
            ),
            config.commit_log_file_size,
            files=self._files,
            clock=self._clock,
            allocator=allocator,
            pool=pool,
        )
        mapped.load()
        self._opened.callback(mapped.close)
        return CommitLog(
            mapped, durable_reads=config.flush_mode is FlushMode.SYNC, clock=self._clock
        )

    def _open_index(self) -> KeyIndex | None:
        config = self._config
        if not config.index_enabled:
            return None
        index = KeyIndex(
            config.root / "index",
            slots=config.hash_slot_count,
            entries=config.index_entry_count,
            files=self._files,
            clock=self._clock,
            ahead=self._ahead,
        )
        self._opened.callback(index.close)
        return index

    def _make_dispatcher(
        self, log: CommitLog, queues: QueueTable, index: KeyIndex | None
    ) -> Dispatcher:
        return Dispatcher(
            log,
            queues,
            index,
            flags=self._flags,
            delay_levels=self._delay_levels,
            multi_dispatch=self._config.enable_multi_dispatch,
            lmq=self._config.enable_lmq,
            filter_bitmap=self._options.filter_bitmap,
            on_arrival=self._options.on_arrival,
            follows_master=self._config.broker_role is BrokerRole.SLAVE,
        )

    def _recover(
        self,
        log: CommitLog,
        queues: QueueTable,
        index: KeyIndex | None,
        dispatcher: Dispatcher,
        checkpoint: CheckpointFile,
        durability: Durability,
    ) -> tuple[RecoveryReport, Mapping[Queue, int]]:
        """Bring log and views in line; return the report, and offsets that no view has yet."""
        problems = [str(problem) for problem in queues.load()]
        if index is not None:
            problems.extend(str(problem) for problem in index.load())
        checkpoint_problem = checkpoint.load()
        is_new = log.files.last is None and not queues and (index is None or not index.files)
        if is_new and not problems and checkpoint.value.marks is None:
            return self._begin(dispatcher, is_clean=durability.stopped_cleanly), {}
        with collector_paused():
            # Only what was there before has to be recovered.
            from flintmq.store.recovery.recovery import Recovery

        recovery = Recovery(
            self._config,
            log,
            queues,
            index,
            dispatcher,
            checkpoint=checkpoint.value,
            delay_levels=self._delay_levels,
            clean_exit=durability.stopped_cleanly,
            pages_lost=durability.has_lost_pages,
            machine_ran_on=durability.machine_ran_on,
            damaged_queues=queues.damaged,
            files=self._files,
            clock=self._clock,
            progress=self._options.progress,
        )
        for problem in problems:
            recovery.report.add_problem(problem)
        if checkpoint_problem and log.files.last is not None:
            recovery.report.add_problem(f"checkpoint: {checkpoint_problem}")
        return recovery.run(), recovery.next_offsets

    def _begin(self, dispatcher: Dispatcher, *, is_clean: bool) -> RecoveryReport:
        """Begin a store that holds nothing yet; return what a recovery of it would report."""
        report = RecoveryReport(clean_exit=is_clean, start_reason="no log files")
        dispatcher.start_at(report.log_end)
        logger.info("recovered: %s", report.summary)
        return report

    def _make_appender(
        self,
        log: CommitLog,
        queues: QueueTable,
        dispatcher: Dispatcher,
        waiting_offsets: Mapping[Queue, int],
    ) -> Appender:
        appender = Appender(
            self._config,
            log,
            queues,
            dispatcher,
            flags=self._flags,
            statistics=self._statistics,
            delay_levels=self._delay_levels,
            clock=self._clock,
        )
        appender.next_offsets = {
            **{(queue.topic, queue.queue_id): queue.max_offset for queue in queues},
            **waiting_offsets,
        }
        return appender

    def _make_replica(
        self,
        log: CommitLog,
        queues: QueueTable,
        index: KeyIndex | None,
        appender: Appender,
        dispatcher: Dispatcher,
        durability: Durability,
    ) -> ReplicaAppender:
        return ReplicaAppender(
            log,
            queues,
            index,
            appender,
            dispatcher,
            checkpoint=durability.checkpoint,
            flags=self._flags,
        )

    def _make_retention(
        self,
        log: CommitLog,
        durability: Durability,
        cleaner: QueueCleaner,
        schedule: ScheduleService,
        waiting: WaitingDelivery,
    ) -> Retention:
        return Retention(
            self._config,
            log,
            dispatched=lambda: durability.durably_dispatched,
            delete_views=cleaner.expired_views,
            keeps=lambda end_offset: schedule.keeps(end_offset) or waiting.keeps(end_offset),
            flags=self._flags,
            files=self._files,
            clock=self._clock,
        )

    def _make_schedule(
        self,
        queues: QueueTable,
        reader: StoreReader,
        writer: StoreWriter,
        durability: Durability,
    ) -> ScheduleService:
        return ScheduleService(
            self._config,
            queues,
            reader,
            delay_levels=self._delay_levels,
            put=writer.put,
            dispatch=writer.dispatch,
            flush=durability.flush,
            when_flushed=writer.when_flushed,
            files=self._files,
            clock=self._clock,
        )

    def _make_waiting(
        self,
        log: CommitLog,
        queues: QueueTable,
        reader: StoreReader,
        appender: Appender,
        writer: StoreWriter,
        dispatcher: Dispatcher,
        durability: Durability,
    ) -> WaitingDelivery:
        return WaitingDelivery(
            self._config,
            WaitingProgress(
                self._config, log, flush=durability.flush, files=self._files, clock=self._clock
            ),
            queues,
            reader,
            appender,
            put=writer.put,
            dispatch=writer.dispatch,
            dispatched=lambda: dispatcher.offset,
            clock=self._clock,
        )
