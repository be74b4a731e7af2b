"""The key index: hash files that lead from ``topic#key`` to physical offsets.

Each file is a hash table with chains (see ``flintmq.format.stored.index_file``).  Only hashes are
stored, so a query may return messages whose key merely collides: callers compare the real key.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.format.hash_batch import index_hashes
from flintmq.format.java import extend_hash, index_hash, key_prefix_hash
from flintmq.format.stored.index_file import (
    file_size,
    format_file_name,
)
from flintmq.store.errors import StoreError, StoreLoadError
from flintmq.store.views.key_index_file import KeyIndexFile

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from flintmq.store.clock import Clock
    from flintmq.store.files.interface import Files, MappedRegion
    from flintmq.store.views.key_index_file import LoggedKeys, ManyKeys
    from flintmq.store.views.space_ahead import SpaceAhead

logger = logging.getLogger(__name__)

TOPIC_CACHE_MAX: Final = 4096


class IndexPosition(NamedTuple):
    """How far the index has got: the active file and its counters."""

    file_name: int
    entry_count: int
    slot_count: int


class IndexedMessage(NamedTuple):
    """What the index keeps of a message."""

    topic: str
    keys: Sequence[bytes]
    physical_offset: int
    store_timestamp: int


class KeyIndex:
    """All index files of a store.  The owner inserts; any thread may query."""

    def __init__(
        self,
        directory: Path,
        *,
        slots: int,
        entries: int,
        files: Files,
        clock: Clock,
        ahead: SpaceAhead | None = None,
    ) -> None:
        self.directory = directory
        self.slots = slots
        self.entries = entries
        self._layer = files
        self._clock = clock
        self._ahead = ahead
        self.files: list[KeyIndexFile] = []
        self._unsynced: list[KeyIndexFile] = []
        self._prefixes: dict[str, int] = {}
        self._partial = (-1, 0)
        """The message whose keys are half in, and how many: a full disk may come in between."""
        self._complete_offset = -1
        """The last message all of whose keys are in: a second time they would be doubled."""
        self._sync_lock = threading.Lock()
        self._removed: list[KeyIndexFile] = []
        """Files that are removed and still mapped, because they may be in the middle of a sync."""
        self._named = 0
        self.lacks_files = False
        """Whether ``load`` met a damaged file: the index ends before it."""

    def load(self, *, read_only: bool = False) -> list[StoreLoadError]:
        """Map every file of the directory; return what had to be left aside, and why.

        The index is derived, so a file that cannot be one of ours is reported, not fatal.  A file
        of another size is removed, and with it those after it: what it held is to be made again,
        and can only be added at the end.
        """
        problems: list[StoreLoadError] = []
        size = file_size(self.slots, self.entries)
        for entry in self._layer.list(self.directory):
            path = self.directory / entry.name
            if entry.is_directory or not (entry.name.isascii() and entry.name.isdigit()):
                problems.append(StoreLoadError(path, "not an index file name"))
                continue
            if entry.size != size:
                problems.append(StoreLoadError(path, f"{entry.size} bytes instead of {size}"))
                self.lacks_files = True
            if self.lacks_files and not read_only:
                self._layer.remove(path)
            if self.lacks_files:
                continue
            region = self._layer.open(path, read_only=read_only)
            self.files.append(self._file(region, fresh=False))
        self._unsynced = list(self.files)
        return problems

    def _file(self, region: MappedRegion, *, fresh: bool) -> KeyIndexFile:
        return KeyIndexFile(
            region, slots=self.slots, entries=self.entries, fresh=fresh, ahead=self._ahead
        )

    @property
    def end_offset(self) -> int:
        """The newest physical offset that has an entry; -1 for an empty index."""
        for file in reversed(self.files):
            if file.count > 1:
                return file.end_offset
        return -1

    @property
    def position(self) -> IndexPosition:
        """Where the index stands, for the checkpoint's marks."""
        if not self.files:
            return IndexPosition(0, 0, 0)
        last = self.files[-1]
        return IndexPosition(last.name, last.count, last.slot_count)

    def topic_hash(self, topic: str) -> int:
        """Return the unsigned hash of ``topic#``, the prefix of all key texts of a topic."""
        prefix = self._prefixes.get(topic)
        if prefix is None:
            if len(self._prefixes) >= TOPIC_CACHE_MAX:
                self._prefixes.clear()
            prefix = self._prefixes[topic] = key_prefix_hash(topic)
        return prefix

    def insert(self, entries: Sequence[IndexedMessage]) -> int:
        """Add the keys of messages in log order; return how many messages are wholly in.

        A message below the end is already there and counts as in.  All keys are hashed together,
        which is most of the work.

        Raises:
            DiskFullError: no space for an entry or for the next file, and no message got in.
        """
        if self._removed:
            self._close_removed()
        file = self.files[-1] if self.files else None
        end_offset = file.end_offset if file is not None else -1
        keys: list[bytes] = []
        prefixes: list[int] = []
        get_prefix = self._prefixes.get
        for entry in entries:
            own = entry[1]
            keys += own
            prefix = get_prefix(entry[0])
            if prefix is None:
                prefix = self.topic_hash(entry[0])
            prefixes += [prefix] * len(own)
        hashes = index_hashes(prefixes, keys)
        first = 0
        for number, (_, own, physical_offset, store_timestamp) in enumerate(entries):
            following = first + len(own)
            if physical_offset >= end_offset and physical_offset != self._complete_offset:
                done = self._partial[1] if physical_offset == self._partial[0] else 0
                own_hashes = hashes[first:following]
                try:
                    while True:
                        file = file if file is not None else self._roll()
                        done = file.insert(own_hashes, done, physical_offset, store_timestamp)
                        if done == len(own_hashes):
                            break
                        file = self._roll() if file.is_full else file.reserve_next()
                except StoreError:
                    self._partial = (physical_offset, done)
                    if number == 0:
                        raise
                    return number
                self._complete_offset = physical_offset
            first = following
        return len(entries)

    def make_room(self, key_count: int) -> bool:
        """Whether ``key_count`` more keys go into the last file, with space reserved if need be.

        Raises:
            DiskFullError: there is none; nothing has changed.
        """
        if self._removed:
            self._close_removed()
        if not key_count:
            return True
        if not self.files:
            return False
        file = self.files[-1]
        return file.has_room(key_count) or file.reserve_next(key_count).has_room(key_count)

    def insert_group(self, keys: ManyKeys, store_timestamp: int) -> None:
        """Add the keys of messages that are newer than all others; `make_room` has said yes."""
        self.files[-1].insert_group(keys, store_timestamp)
        self._complete_offset = keys.last_offset

    def insert_logged(self, keys: LoggedKeys) -> None:
        """Add keys of messages that are newer than all others, in as many files as they need.

        Raises:
            DiskFullError: no space for all of them; some may be in.
        """
        if self._removed:
            self._close_removed()
        done = 0
        while done < keys.count:
            file = self.files[-1] if self.files else self._roll()
            if file.is_full:
                file = self._roll()
            done += file.insert_logged(keys, done)
        self._complete_offset = self.end_offset

    def _roll(self) -> KeyIndexFile:
        """Open the next file; it starts where the full one ended, as RocketMQ's does."""
        previous = self.files[-1] if self.files else None
        moment = datetime.datetime.fromtimestamp(
            self._clock.now_ms() / 1000, tz=datetime.UTC
        ).astimezone()
        name = int(format_file_name(moment))
        if previous is not None and name <= previous.name:
            # Two files in one millisecond, or a clock set back: names must still ascend.
            name = previous.name + 1
        path = self.directory / str(name)
        region = self._layer.create(path, file_size(self.slots, self.entries), reserve=False)
        file = self._file(region, fresh=True)
        try:
            file.reserve_next()
        except StoreError:
            file.close()
            self._layer.remove(path, missing_ok=True)
            raise
        if previous is not None:
            previous.write_header()
            file.begin_time = file.end_time = previous.end_time
            file.begin_offset = file.end_offset = previous.end_offset
        self.files.append(file)
        self._unsynced.append(file)
        logger.info("index file made: name=%d", name)
        return file

    def write_headers(self) -> None:
        """Put the counters of the active file into its mapping."""
        if self.files:
            self.files[-1].write_header()

    def sync(self) -> int:
        """Sync every file that may have unsynced pages; return the newest synced store time.

        May run in another thread than the owner's, which may delete files meanwhile.
        """
        with self._sync_lock:
            if not self.files:
                return 0
            active = self.files[-1]
            end_time = active.end_time
            for file in list(self._unsynced):
                file.sync()
                if file is not active:
                    with contextlib.suppress(ValueError):  # The owner may have deleted it.
                        self._unsynced.remove(file)
            return end_time

    def sync_names(self) -> None:
        """Make the names of files that are new since the last call durable."""
        newest = self.files[-1].name if self.files else 0
        if newest > self._named:
            self._layer.sync_directory(self.directory)
            self._layer.sync_directory(self.directory.parent)
            self._named = newest

    def query(self, topic: str, key: str, most: int, begin: int, end: int) -> list[int]:
        """Return up to ``most`` physical offsets for a key, newest first; collisions included."""
        found: list[int] = []
        for _ in self.query_steps(topic, key, found, most=most, begin=begin, end=end):
            pass
        return found

    def query_steps(
        self, topic: str, key: str, found: list[int], *, most: int, begin: int, end: int
    ) -> Generator[None, None, None]:
        """Add to ``found`` what `query` returns, interruptible; the index may grow meanwhile."""
        key_hash = index_hash(extend_hash(self.topic_hash(topic), key.encode()))
        for file in list(reversed(self.files)):
            if file.is_closed or file.count <= 1:
                continue
            if file.begin_time <= end and file.end_time >= begin:
                yield from file.collect(key_hash, found, most=most, begin=begin, end=end)
            if file.begin_time < begin or len(found) >= most:
                break
            yield

    def last_update(self) -> tuple[int, int]:
        """Return (store time, physical offset) of the newest entry, (0, 0) without one."""
        if not self.files:
            return 0, 0
        return self.files[-1].end_time, self.files[-1].end_offset

    def drop_from(self, number: int) -> None:
        """Delete the files from list position ``number`` on."""
        for file in self.files[number:]:
            self._remove(file)
        del self.files[number:]
        # With a clock set back the next file may have the name of one of these, or an earlier one.
        self._named = min(self._named, self.files[-1].name if self.files else 0)
        self.forget_last()

    def forget_last(self) -> None:
        """Take the next message for a new one, after entries were cut off."""
        self._partial = (-1, 0)
        self._complete_offset = -1

    def delete_expired(self, log_min_offset: int) -> int:
        """Delete leading files whose records are all gone, never the last; count them."""
        deleted = 0
        while len(self.files) > 1 and self.files[0].end_offset < log_min_offset:
            self._remove(self.files.pop(0))
            deleted += 1
        return deleted

    def _remove(self, file: KeyIndexFile) -> None:
        """Delete a file; if a sync is under way, it is unmapped only when the sync is done."""
        with contextlib.suppress(ValueError):
            self._unsynced.remove(file)
        self._layer.remove(file.region.path, missing_ok=True)
        self._removed.append(file)
        self._close_removed()

    def _close_removed(self) -> None:
        """Unmap deleted files, unless a sync is under way: the owner does not wait for the disk."""
        if self._sync_lock.acquire(blocking=False):
            try:
                while self._removed:
                    self._removed.pop().close()
            finally:
                self._sync_lock.release()

    def destroy(self) -> None:
        """Delete every file."""
        self.drop_from(0)

    def close(self) -> None:
        """Write the headers and unmap."""
        self.write_headers()
        with self._sync_lock:
            files, self.files, self._unsynced = self.files + self._removed, [], []
            self._removed = []
            for file in files:
                file.close()
