"""All consume queues of a store, by topic and queue id."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.format.stored.consume_queue_ext import ExtUnit, is_address
from flintmq.model.topics import LMQ_PREFIX
from flintmq.store.errors import StoreIOError, StoreLoadError
from flintmq.store.files.interface import safe_child
from flintmq.store.files.unsynced import are_many, sync_all_below
from flintmq.store.views.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from flintmq.store.clock import Clock
    from flintmq.store.config import StoreConfig
    from flintmq.store.files.interface import Files
    from flintmq.store.files.mapped_file import MappedFile
    from flintmq.store.files.mapped_file_queue import MappedFileQueue
    from flintmq.store.files.unsynced import Unsynced
    from flintmq.store.views.consume_queue_ext import ConsumeQueueExt
    from flintmq.store.views.space_ahead import SpaceAhead

logger = logging.getLogger(__name__)

_QUEUE_ID: Final = re.compile(r"0|-?[1-9][0-9]{0,9}")
"""A damaged record may name any queue id; what it has made must be found again."""


class QueueCensus(NamedTuple):
    """How much there is in all queues together; the checkpoint's marks keep it."""

    queue_count: int
    unit_total: int


class StoredQueue(ConsumeQueue):
    """A consume queue together with its extension, where the store writes one."""

    ext: ConsumeQueueExt | None = None

    def append_with_ext(
        self,
        physical_offset: int,
        record_size: int,
        tags_code: int,
        queue_offset: int,
        store_timestamp: int,
        bitmap: bytes | None,
    ) -> None:
        """Append a unit whose tags code may live in the extension, beside its filter bitmap."""
        self._begin_anew_before(physical_offset, queue_offset)
        ext = self.ext
        if ext is not None and queue_offset >= self.max_offset:
            address = ext.put(ExtUnit(tags_code, store_timestamp, bitmap))
            if address is not None:
                tags_code = address
        self.append(physical_offset, record_size, tags_code, queue_offset)

    def resolve(self, tags_code: int) -> ExtUnit | None:
        """Return the extension unit a tags code leads to, None for a plain code or a lost unit."""
        if self.ext is None or not is_address(tags_code):
            return None
        return self.ext.get(tags_code)

    def cut(self, queue_offset: int, unsynced: Unsynced | None = None) -> int:
        """Drop units from ``queue_offset`` on, and what the extension holds for them."""
        dropped = super().cut(queue_offset, unsynced)
        if self.ext is not None:
            last = self.unit_at(self.max_offset - 1)
            address = last[2] if last is not None and is_address(last[2]) else None
            self.ext.cut_after(address, unsynced)
        return dropped

    def delete_expired(self, log_min_offset: int) -> int:
        """Delete files whose records are all gone, of the queue and of its extension."""
        deleted = super().delete_expired(log_min_offset)
        first = self.unit_at(self.min_offset)
        if self.ext is not None and first is not None and is_address(first[2]):
            self.ext.cut_before(first[2])
        return deleted

    def remove_all(self) -> list[Path]:
        """Delete every file of the queue and its extension; return the directories to be synced."""
        unsynced = super().remove_all()
        return unsynced if self.ext is None else unsynced + self.ext.files.remove_all()

    def destroy(self) -> None:
        """Delete every file of the queue and of its extension."""
        super().destroy()
        if self.ext is not None:
            self.ext.destroy()

    def close(self) -> None:
        """Unmap the files of the queue and of its extension."""
        super().close()
        if self.ext is not None:
            self.ext.close()


class QueueTable:
    """Finds, makes and forgets consume queues.  A queue gets a directory with its first unit."""

    def __init__(
        self,
        config: StoreConfig,
        *,
        files: Files,
        clock: Clock,
        ahead: SpaceAhead | None = None,
    ) -> None:
        self._config = config
        self._ahead = ahead
        self._files = files
        self._clock = clock
        self.directory = config.root / "consumequeue"
        self.ext_directory = config.root / "consumequeue_ext"
        self.tops = (self.directory, *([self.ext_directory] * config.enable_consume_queue_ext))
        """The directories below which all files of queues are."""
        self._queues: dict[tuple[str, int], StoredQueue] = {}
        self.find = self._queues.get
        self.has_ext = config.enable_consume_queue_ext
        self.lmq_count = 0
        self.damaged: list[StoredQueue] = []
        """Queues whose files could not be loaded, and were deleted."""
        self._named: dict[Path, Path] = {}
        """For each directory the last file whose name is durable."""

    def load(self, *, read_only: bool = False) -> list[StoreLoadError]:
        """Open every queue on disk; return the damaged ones, which are left empty and deleted.

        Entries that are no directories and queue ids that are no integers are skipped, as
        RocketMQ does.
        """
        problems: list[StoreLoadError] = []
        found = self._found_in(self.directory)
        if self.has_ext:
            found |= self._found_in(self.ext_directory)
        for topic, queue_id in found:
            queue = self._make(topic, queue_id)
            try:
                queue.files.load(read_only=read_only)
                if queue.ext is not None:
                    queue.ext.load(read_only=read_only)
            except StoreLoadError as error:
                problems.append(error)
                if not read_only:
                    self._clear(queue)
            queue.refresh()
            if queue.is_empty and queue.ext is not None and not read_only:
                # A crash came between the first unit there and the first unit here.
                queue.ext.destroy()
        return problems

    def _found_in(self, directory: Path) -> dict[tuple[str, int], None]:
        """Return the queues that have a directory of their own, in the order of their names."""
        return {
            (topic.name, int(entry.name)): None
            for topic in self._files.list(directory)
            if topic.is_directory
            for entry in self._files.list(directory / topic.name)
            if entry.is_directory and _QUEUE_ID.fullmatch(entry.name)
        }

    def _clear(self, queue: StoredQueue) -> None:
        """Delete the files of a queue that could not be loaded; the log gives them back."""
        self.damaged.append(queue)
        queue.close()
        directories = [queue.files.placement.directories[0]]
        if queue.ext is not None:
            directories.append(queue.ext.files.placement.directories[0])
        for directory in directories:
            for entry in self._files.list(directory):
                if not entry.is_directory:
                    self._files.remove(directory / entry.name)

    def get(self, topic: str, queue_id: int) -> StoredQueue | None:
        """Return a queue if it exists."""
        return self._queues.get((topic, queue_id))

    def get_or_make(self, topic: str, queue_id: int) -> StoredQueue:
        """Return a queue; one that did not exist is made in memory only."""
        queue = self._queues.get((topic, queue_id))
        return queue if queue is not None else self._make(topic, queue_id)

    def _make(self, topic: str, queue_id: int) -> StoredQueue:
        config = self._config
        queue = StoredQueue(
            topic,
            queue_id,
            safe_child(self.directory, topic) / str(queue_id),
            file_size=config.effective_consume_queue_file_size,
            files=self._files,
            clock=self._clock,
            ahead=self._ahead,
        )
        if config.enable_consume_queue_ext:
            # Few stores have one.
            from flintmq.store.views.consume_queue_ext import ConsumeQueueExt

            queue.ext = ConsumeQueueExt(
                safe_child(self.ext_directory, topic) / str(queue_id),
                file_size=config.consume_queue_ext_file_size,
                files=self._files,
                clock=self._clock,
            )
        self._queues[(topic, queue_id)] = queue
        if topic.startswith(LMQ_PREFIX):
            self.lmq_count += 1
        return queue

    def __iter__(self) -> Iterator[StoredQueue]:
        return iter(list(self._queues.values()))

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def census(self) -> QueueCensus:
        """Count the queues that have units, and their units by queue offset."""
        written = [queue.max_offset for queue in self if queue.has_units]
        return QueueCensus(len(written), sum(written))

    @property
    def topics(self) -> list[str]:
        """The names of all topics that have a queue."""
        return sorted({topic for topic, _ in self._queues})

    def forget(self, queue: StoredQueue) -> list[Path]:
        """Remove a queue and drop it from the table; return the directories to be synced."""
        unsynced = queue.remove_all()
        self._named.pop(queue.files.directory, None)
        if queue.ext is not None:
            self._named.pop(queue.ext.files.directory, None)
        if self._queues.pop((queue.topic, queue.queue_id), None) and queue.topic.startswith(
            LMQ_PREFIX
        ):
            self.lmq_count -= 1
        return unsynced

    def sync_removals(self, directories: Iterable[Path]) -> None:
        """Make removals durable that `forget` has told of; any thread may call it."""
        for directory in dict.fromkeys(directories):
            self._sync_if_there(directory)

    def sync(self) -> None:
        """Make all units and the names of their files durable; any thread may call it."""
        unflushed = [
            (file, file.readable)
            for files in self._all_files()
            for file in files.snapshot()
            if file.able_to_flush(0)
        ]
        unnamed = self._unnamed()
        if are_many(len(unflushed) + len(unnamed)):
            sync_all_below(self._files, self.tops)
            self._files.sync_directory(self.directory.parent)
            for file, reached in unflushed:
                file.flushed = max(file.flushed, reached)
            for directory, last in unnamed:
                self._note_named(directory, last)
        else:
            self.flush(0)
            self.sync_names()

    def flush(self, least_pages: int) -> None:
        """Make units durable in files that have so many pages of them, and names of none."""
        for files in self._all_files():
            while files.flush(least_pages):
                pass

    def _all_files(self) -> Iterator[MappedFileQueue]:
        for queue in self:
            yield queue.files
            if queue.ext is not None:
                yield queue.ext.files

    def _unnamed(self) -> list[tuple[Path, MappedFile]]:
        """Return each directory whose last file has a name that is new since the last sync."""
        # Paths of files are not asked for their parents: with many queues that takes a while.
        return [
            (files.directory, last)
            for files in self._all_files()
            if (last := files.last) is not None and self._named.get(files.directory) != last.path
        ]

    def _note_named(self, directory: Path, last: MappedFile) -> None:
        """Note that a name is durable, unless it was given up: its next file needs a sync again."""
        if last.available:
            self._named[directory] = last.path

    def sync_names(self) -> None:
        """Make the names of queue files that are new since the last call durable."""
        parents: dict[Path, None] = {}
        for directory, last in self._unnamed():
            if self._sync_if_there(directory):
                self._note_named(directory, last)
                parents[(topic := directory.parent)] = None
                parents[topic.parent] = None
        for directory in parents:
            self._sync_if_there(directory)
        if parents:
            self._files.sync_directory(self.directory.parent)

    def _sync_if_there(self, directory: Path) -> bool:
        """Sync a directory unless its topic is deleted meanwhile; return whether it was there.

        This runs in a thread while the owner may delete a topic.  Whoever removes a directory
        syncs its parent, so there is nothing left to do for it here.
        """
        try:
            self._files.sync_directory(directory)
        except StoreIOError:
            if self._files.exists(directory):
                raise
            return False
        return True

    def close(self) -> None:
        """Unmap everything."""
        for queue in self:
            queue.close()
