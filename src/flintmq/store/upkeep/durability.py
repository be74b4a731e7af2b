"""Durability: what is brought to the disk when, and what is noted about it.

Log, queues, index and names are synced here and nowhere else once a store is open.  After one
failure no checkpoint is written any more: the kernel reports a lost page once, the next sync
would succeed without it, and marks that speak of it would be false.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Final

from flintmq.format.stored.checkpoint import NO_INDEX, Checkpoint, CheckpointMarks
from flintmq.store.errors import StoreError
from flintmq.store.running_flags import RunningFlag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flintmq.store.clock import Clock
    from flintmq.store.config import StoreConfig
    from flintmq.store.dispatch import Dispatcher
    from flintmq.store.files.interface import Files
    from flintmq.store.log.checkpoint_file import CheckpointFile
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.log.log_flusher import LogFlusher
    from flintmq.store.running_flags import RunningFlags
    from flintmq.store.views.key_index import KeyIndex
    from flintmq.store.views.queue_table import QueueTable


logger = logging.getLogger(__name__)

COMMIT_TRIES_AT_STOP: Final = 10
"""How often a stop tries to write what is left in pool buffers, as RocketMQ does."""

CHECKPOINT_SIZE_MAX: Final = 512 << 20
"""Bytes of the log that may lie behind the marks: a start after a crash walks them again."""

_BOOT: Final = b"boot "
"""What the ``abort`` file begins with if it names the run of the machine, not a failed sync."""

_ABORT_SIZE_MAX: Final = 4096


class Durability:
    """Commits, flushes and checkpoints a store; any thread may call it."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: QueueTable,
        index: KeyIndex | None,
        dispatcher: Dispatcher,
        flusher: LogFlusher,
        checkpoint: CheckpointFile,
        *,
        flags: RunningFlags,
        files: Files,
        clock: Clock,
    ) -> None:
        self._config = config
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._checkpoint = checkpoint
        self._flags = flags
        self._files = files
        self._clock = clock
        self._abort = config.root / "abort"
        self._pages_lost = False
        self._commit_failed = False
        self._is_closed = False
        self._commit_lock = threading.Lock()
        self._checkpoint_lock = threading.Lock()
        now = clock.monotonic()
        self._committed = self._flushed = self._checkpointed = now

    # -- the file that stands while a store is open ------------------------------------------

    @property
    def stopped_cleanly(self) -> bool:
        """Whether the last run left no ``abort`` file."""
        return not self._files.exists(self._abort)

    @property
    def has_lost_pages(self) -> bool:
        """Whether the last run left word that a sync had failed."""
        return not self._abort_content.startswith(_BOOT) and bool(self._abort_content)

    @property
    def machine_ran_on(self) -> bool:
        """Whether the machine has not been started anew since the last run of the store began.

        Then all that was written is there, synced or not: no power failure can have torn it.
        """
        boot = self._boot
        return boot != _BOOT and self._abort_content == boot

    @property
    def _boot(self) -> bytes:
        return _BOOT + self._files.boot_id().encode()

    @property
    def _abort_content(self) -> bytes:
        try:
            return self._files.read(self._abort, limit=_ABORT_SIZE_MAX)
        except FileNotFoundError:
            return b""

    def mark_running(self) -> None:
        """Leave on the disk what a restart after a crash needs, before the first put.

        RocketMQ's ``abort`` is empty and only its existence counts.
        """
        self.checkpoint()
        boot = self._boot
        if boot == _BOOT:
            boot = b""
        if self._abort_content != boot or not self._files.exists(self._abort):
            self._files.write(self._abort, boot)
        self._files.sync_directory(self._config.root)

    def mark_stopped(self) -> None:
        """Say that everything is in place."""
        self._files.remove(self._abort, missing_ok=True)
        self._files.sync_directory(self._config.root)

    def _note_lost_pages(self, reason: str) -> None:
        """Tell the next start that the page cache shows bytes which the disk may not have.

        The kernel takes them for clean from now on: recovery must write them again, for a sync
        alone would succeed without them.
        """
        if not self._pages_lost:
            self._pages_lost = True
            with contextlib.suppress(StoreError):
                self._files.write(self._abort, reason.encode())
                self._files.sync(self._abort)

    # -- log ---------------------------------------------------------------------------------

    def commit(self, least_pages: int = 0) -> None:
        """Write pool buffers into their files."""
        with self._commit_lock:
            while self._log.files.commit(least_pages):
                pass

    def commit_finally(self) -> None:
        """Write pool buffers into their files before the buffers are gone.

        Unlike a sync, a write that has failed can be tried again: the bytes are still here.
        """
        for _ in range(COMMIT_TRIES_AT_STOP - 1):
            with contextlib.suppress(StoreError):
                self.commit()
                return
        self.commit()

    def flush(self, least_pages: int = 0) -> None:
        """Bring the log to stable storage.

        Raises:
            FlushFailedError: the disk refused; the store is read-only now.
        """
        self.commit()
        self._flush_log(least_pages)

    def _flush_log(self, least_pages: int) -> None:
        try:
            self._flusher.flush(least_pages)
        except StoreError as error:
            self._note_lost_pages(str(error))
            raise

    # -- everything --------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Sync log, queues and index, and note exactly how far everything is.

        What is noted was sampled before the syncs began, so it is on the disk when they are
        done, whatever the owner appends meanwhile.
        """
        index, dispatcher = self._index, self._dispatcher
        with self._checkpoint_lock:
            if self._is_closed:
                return
            with dispatcher.lock:
                if index is not None:
                    index.write_headers()
                dispatched = dispatcher.offset
                logics = dispatcher.last_timestamp
                position = index.position if index is not None else (NO_INDEX, 0, 0)
                census = self._queues.census
            self.flush()
            self._checkpoint.prepare()
            old = self._checkpoint.value
            with self._syncing():
                self._queues.sync()
                index_time = old.index
                if index is not None:
                    index_time = index.sync()
                    index.sync_names()
                self._checkpoint.save(
                    Checkpoint(
                        max(old.physic, self._flusher.flushed_timestamp),
                        max(old.logics, logics),
                        max(old.index, index_time),
                        CheckpointMarks(
                            self._flusher.flushed_offset, dispatched, *position, *census
                        ),
                    )
                )

    def close(self) -> None:
        """Write no checkpoint any more: closed files would be taken for lost ones."""
        with self._checkpoint_lock:
            self._is_closed = True

    @property
    def durably_dispatched(self) -> int:
        """Up to where a power failure leaves the views complete.

        A record that is deleted before its unit is on the disk would take its queue offset with
        it, and the next message of that queue would get the same offset again.
        """
        marks = self._checkpoint.value.marks
        return marks.dispatched if marks is not None else 0

    @contextlib.contextmanager
    def _syncing(self) -> Iterator[None]:
        """Let no checkpoint be written after a sync of queues, index or names has failed."""
        self._flags.check_sync()
        try:
            yield
        except StoreError as error:
            self._flags.set(RunningFlag.SYNC_FAILED, str(error))
            self._note_lost_pages(str(error))
            raise

    # -- steps, each driven by a thread of its own -------------------------------------------

    def commit_step(self) -> None:
        """Commit what is worth it, and everything once in a while."""
        now = self._clock.monotonic()
        least_pages = self._config.commit_least_pages
        if now - self._committed >= self._config.commit_thorough_interval_ms / 1000:
            self._committed = now
            least_pages = 0
        try:
            self.commit(least_pages)
        except StoreError as error:
            # The bytes are still in their buffers: no more are taken in until they are out.
            self._flags.set(RunningFlag.NOT_WRITABLE, str(error))
            self._commit_failed = True
            logger.warning("pool not committed: %s", error)
        else:
            if self._commit_failed:
                self._commit_failed = False
                self._flags.clear(RunningFlag.NOT_WRITABLE)

    def flush_step(self) -> None:
        """Flush the log: with synchronous flush at once, else what is worth it."""
        now = self._clock.monotonic()
        # Somebody may still wait for the disk after flushing has become asynchronous.
        is_wanted = self._log.durable_reads or self._flusher.has_waiters
        least_pages = 0 if is_wanted else self._config.flush_least_pages
        if now - self._flushed >= self._config.flush_thorough_interval_ms / 1000:
            self._flushed = now
            least_pages = 0
        self._log.prepare_next()
        self._flush_log(least_pages)
        # Whoever was told has to wait for this thread to rest, so nothing needless is done now.
        if self._flusher.has_waiters:
            self._flusher.expire()

    def queue_flush_step(self) -> None:
        """Flush queues that have enough to flush; checkpoint once in a while, and after much."""
        now = self._clock.monotonic()
        is_due = now - self._checkpointed >= self._config.flush_queue_thorough_interval_ms / 1000
        if is_due or self._dispatcher.offset - self.durably_dispatched >= CHECKPOINT_SIZE_MAX:
            self._checkpointed = now
            self.checkpoint()
        else:
            with self._syncing():
                self._queues.flush(self._config.flush_queue_least_pages)
