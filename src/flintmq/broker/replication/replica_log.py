"""The store of a slave, as replication sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.store.config import FlushMode

if TYPE_CHECKING:
    from flintmq.store.message_store import MessageStore


class StoreReplica:
    """A `ReplicaLog` that is the log of a store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._is_sync = store.config.flush_mode is FlushMode.SYNC

    @property
    def file_size(self) -> int:
        """Bytes of each file of the log."""
        return self._store.log.file_size

    @property
    def start(self) -> int:
        """Where the log begins."""
        return self._store.log.min_offset

    @property
    def end(self) -> int:
        """Where the log ends; 0 if it is empty."""
        return self._store.log.end_offset

    @property
    def promised_end(self) -> int:
        """How far the master may count on this slave.

        With synchronous flush that is what the disk has; else it is what is in memory.
        """
        return min(self._store.flusher.flushed_offset, self.end) if self._is_sync else self.end

    def is_same(self, offset: int, data: memoryview) -> bool:
        """Whether the log has these bytes at ``offset``."""
        file = self._store.log.files.find(offset)
        if file is None or not file.hold():
            return False
        try:
            at = offset - file.first_offset
            return at + len(data) <= file.wrote and file.view[at : at + len(data)] == data
        finally:
            file.release()

    def append(self, offset: int, data: memoryview | bytearray) -> None:
        """Append whole records; an empty log begins at ``offset``."""
        self._store.replica.append(offset, data)
        if self._is_sync:
            self._store.flusher.wanted.set()
