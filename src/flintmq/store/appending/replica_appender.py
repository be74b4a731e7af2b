"""Appending on a slave: bytes of the master's log, put where the master has them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flintmq.store.errors import ReplicaGapError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.store.appending.appender import Appender
    from flintmq.store.dispatch import Dispatcher
    from flintmq.store.files.mapped_file import MappedFile
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.running_flags import RunningFlags
    from flintmq.store.views.key_index import KeyIndex
    from flintmq.store.views.queue_table import QueueTable

logger = logging.getLogger(__name__)


class ReplicaAppender:
    """Copies records of a master to the end of the log; the views come from the own dispatch."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        index: KeyIndex | None,
        appender: Appender,
        dispatcher: Dispatcher,
        *,
        checkpoint: Callable[[], None],
        flags: RunningFlags,
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._appender = appender
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._flags = flags

    def append(self, offset: int, data: memoryview | bytearray) -> None:
        """Append whole records that lie in one file of the log; an empty log begins there.

        Raises:
            ReplicaGapError: the log does not end at ``offset``, or the bytes cross a file.
            StoreError: the disk has no room, or the store is read-only; nothing has changed.
        """
        if self._appender.closed:
            raise StoreError("the store is closed")
        if not self._flags.writable:
            raise StoreError("; ".join(self._flags.reasons()))
        with self._appender.lock:
            file = self._file_for(offset)
            if file.first_offset + file.wrote != offset or len(data) > file.size - file.wrote:
                raise ReplicaGapError(file.first_offset + file.wrote, offset, len(data))
            # A call is faster than touching new pages of the map one by one.
            file.region.write(file.wrote, data)
            file.wrote += len(data)
        self._dispatcher.follow_log()

    def _file_for(self, offset: int) -> MappedFile:
        log = self._log
        if log.end_offset == 0 != offset:
            # A crash may have left the first file without a byte in it.
            log.files.truncate(-1, zero=False)
        if log.files.last is None:
            if offset % log.file_size:
                raise ReplicaGapError(offset - offset % log.file_size, offset, 0)
            file = log.files.last_for_append(offset)
            log.files.flushed_where = log.files.committed_where = offset
            self._dispatcher.start_at(offset)
            log.reset_tail()
            return file
        file = log.files.last_for_append(0)
        if file is not log.tail or not log.is_reserved:
            # A file that was loaded may be sparse, as a Java broker's is.
            file.region.reserve(file.wrote, file.size)
            log.take_tail(file)
        return file

    def start_anew(self) -> None:
        """Drop log, queues and index: the master does not have what follows them any more.

        The log goes first: views that lead nowhere are cut by the next start, whenever a crash
        comes.
        """
        log = self._log
        with self._dispatcher.lock, self._appender.lock:
            logger.warning(
                "log dropped, the master begins later: from=%d to=%d",
                log.min_offset,
                log.end_offset,
            )
            log.files.truncate(-1, zero=False)
            log.files.flushed_where = log.files.committed_where = 0
            log.reset_tail()
            directories = [
                path for queue in list(self._queues) for path in self._queues.forget(queue)
            ]
            self._queues.sync_removals(directories)
            if self._index is not None:
                self._index.destroy()
            self._appender.next_offsets.clear()
            self._dispatcher.start_at(0)
        self._checkpoint()
