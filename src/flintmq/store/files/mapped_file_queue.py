"""A directory of mapped files of one size, addressed by one running offset.

A file is named by its first offset in 20 digits.  Names are the only source of offsets: there is
no header, so an entry that does not belong here makes the load fail rather than be guessed at.
"""

import errno
import itertools
import logging
import re
import struct
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, overload

from flintmq.store.clock import Clock
from flintmq.store.errors import StoreError, StoreIOError, StoreLoadError
from flintmq.store.files.allocation import Allocator
from flintmq.store.files.interface import Files, MappedRegion
from flintmq.store.files.mapped_file import PAGE_SIZE, MappedFile
from flintmq.store.files.placement import Placement
from flintmq.store.files.unsynced import Unsynced

if TYPE_CHECKING:
    from flintmq.store.files.transient_pool import TransientPool

logger = logging.getLogger(__name__)

DELETE_COUNT_MAX: Final = 10
"""The most files one run of a deletion takes, so that it cannot starve everything else."""

QUEUE_FORCED_AFTER_MS: Final = 60_000
"""How long a reader may keep an expired consume-queue file in its directory."""

_NAME: Final = re.compile(r"[0-9]{20}")
_OFFSET_MAX: Final = (1 << 63) - 1
_PHYSICAL_OFFSET: Final = struct.Struct(">q")
_ZERO_CHUNK_SIZE: Final = 1 << 20
_ZERO_CHUNK: Final = bytes(_ZERO_CHUNK_SIZE)


def file_name(offset: int) -> str:
    """Return the name of the file that starts at ``offset``."""
    return f"{offset:020d}"


class MappedFileQueue:
    """The files of one log or consume queue, oldest first.

    One thread appends and cuts; others may read, flush and delete.  The list of files is replaced,
    never changed, so a snapshot stays true to itself.
    """

    def __init__(
        self,
        directory: Path | Placement,
        file_size: int,
        *,
        files: Files,
        clock: Clock,
        allocator: Allocator | None = None,
        pool: "TransientPool | None" = None,
        reserve: bool = True,
    ) -> None:
        """Describe the queue; ``load`` maps what is there, and no file is made before its time.

        Without an ``allocator`` new files are made where they are needed; without ``reserve`` they
        have no blocks, and who appends reserves them.
        """
        assert file_size > 0, file_size
        self.placement = directory if isinstance(directory, Placement) else Placement([directory])
        self.file_size = file_size
        self.flushed_where = 0
        """Every byte before this offset is durable."""
        self.committed_where = 0
        """Every byte before this offset is in its file."""
        self.store_timestamp = 0
        """Store time of the last append that a flush without a least number of pages covered."""
        self._files_layer = files
        self._clock = clock
        self.allocator = allocator
        self._pool = pool
        self._reserve = reserve
        self._list: list[MappedFile] = []
        self._list_lock = threading.Lock()

    # -- loading and closing -----------------------------------------------------------------

    def load(
        self, *, read_only: bool = False, wrong_size: Literal["raise", "skip"] = "raise"
    ) -> list[Path]:
        """Map every file; each counts as written to its end until recovery finds out.

        A file of another size, a second file of one offset and any stray entry raise
        StoreLoadError.  With ``wrong_size="skip"`` files of another size are left out and returned,
        for a reader that wants to see the rest of a damaged store.
        """
        assert not self._list, "loaded twice"
        paths: dict[int, Path] = {}
        skipped = []
        for directory in self.placement.directories:
            for entry in self._files_layer.list(directory):
                path = directory / entry.name
                offset = self._offset_of(path, is_directory=entry.is_directory)
                if offset in paths:
                    raise StoreLoadError(path, f"the same offset as {paths[offset]}")
                if entry.size == self.file_size:
                    paths[offset] = path
                elif wrong_size == "skip":
                    skipped.append(path)
                else:
                    reason = f"{entry.size} bytes instead of {self.file_size}"
                    raise StoreLoadError(path, reason)
        loaded: list[MappedFile] = []
        try:
            for offset in sorted(paths):
                region = self._open(paths[offset], read_only=read_only)
                loaded.append(MappedFile(region, offset, files=self._files_layer, loaded=True))
        except BaseException:
            self._shut_down(loaded)
            raise
        self._list = loaded
        return skipped

    def _offset_of(self, path: Path, *, is_directory: bool) -> int:
        if is_directory or _NAME.fullmatch(path.name) is None:
            raise StoreLoadError(path, "not a file of this store")
        offset = int(path.name)
        if offset % self.file_size or offset > _OFFSET_MAX - self.file_size:
            raise StoreLoadError(path, f"its name is no multiple of {self.file_size}")
        return offset

    def _open(self, path: Path, *, read_only: bool) -> MappedRegion:
        try:
            return self._files_layer.open(path, read_only=read_only)
        except StoreIOError as error:
            refused = error.cause.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
            if read_only or not refused or path.parent not in self.placement.read_only:
                raise
        return self._files_layer.open(path, read_only=True)

    def close(self) -> None:
        """Unmap every file as soon as nobody reads it; the files stay on disk."""
        with self._list_lock:
            closed, self._list = self._list, []
        self._shut_down(closed)

    def _shut_down(self, files: Iterable[MappedFile]) -> None:
        now_ms = self._clock.now_ms()
        for file in files:
            file.shutdown(now_ms)

    @property
    def directory(self) -> Path:
        """The directory of the queue, the first one when there are several."""
        return self.placement.directories[0]

    # -- looking -----------------------------------------------------------------------------

    def snapshot(self) -> list[MappedFile]:
        """Return the files as they are now, oldest first."""
        return self._list.copy()

    def __len__(self) -> int:
        return len(self._list)

    @property
    def first(self) -> MappedFile | None:
        """The oldest file."""
        files = self._list
        return files[0] if files else None

    @property
    def last(self) -> MappedFile | None:
        """The file that is appended to."""
        files = self._list
        return files[-1] if files else None

    @property
    def min_offset(self) -> int:
        """Where the oldest file starts, -1 without files."""
        files = self._list
        return files[0].first_offset if files else -1

    @property
    def max_offset(self) -> int:
        """Where readable bytes end, 0 without files."""
        files = self._list
        if not files:
            return 0
        # Every request asks several times, so the file's own property is left out.
        last = files[-1]
        readable = last.wrote if last.write_buffer is None else last.committed
        return last.first_offset + readable

    @property
    def is_pooled(self) -> bool:
        """Whether new files have buffers of a pool, from which bytes are committed to them."""
        return self._pool is not None

    @property
    def committed_end(self) -> int:
        """Where bytes end that are readable without a gap: a full buffer may wait behind them."""
        if self._pool is None:
            return self.max_offset
        return min(self.committed_where, self.max_offset)

    @property
    def max_wrote(self) -> int:
        """Where appended bytes end, readable or not, 0 without files."""
        files = self._list
        return files[-1].first_offset + files[-1].wrote if files else 0

    def find(self, offset: int, *, first_if_missing: bool = False) -> MappedFile | None:
        """Return the file whose range holds ``offset``, else None or the first file."""
        files = self._list
        if not files:
            return None
        first = files[0].first_offset
        size = self.file_size
        if first <= offset < files[-1].first_offset + size:
            index = (offset - first) // size
            if index < len(files) and files[index].first_offset == first + index * size:
                return files[index]
            for file in files:  # There is a gap: the number of a file does not tell its place.
                if file.first_offset <= offset < file.first_offset + size:
                    return file
        return files[0] if first_if_missing else None

    def by_time(self, timestamp_ms: int) -> MappedFile | None:
        """Return the first file modified at or after a time, else the last one."""
        files = self._list
        for file in files:
            modified_ms = self._files_layer.modified_ms(file.path)
            if modified_ms is not None and modified_ms >= timestamp_ms:
                return file
        return files[-1] if files else None

    def check_continuity(self) -> list[str]:
        """Return a sentence for every gap between files."""
        files = self._list
        return [
            f"{before.path} ends at {before.end_offset}, but the next file is {after.path}"
            for before, after in itertools.pairwise(files)
            if before.end_offset != after.first_offset
        ]

    # -- growing -----------------------------------------------------------------------------

    def next_path(self, offset: int) -> Path:
        """Return where the file that starts at ``offset`` belongs."""
        directory = self.placement.directory_for(offset // self.file_size)
        return directory / file_name(offset)

    @overload
    def last_for_append(self, start_offset: int) -> MappedFile: ...
    @overload
    def last_for_append(self, start_offset: int, *, create: bool) -> MappedFile | None: ...

    def last_for_append(self, start_offset: int, *, create: bool = True) -> MappedFile | None:
        """Return the last file, or a new one when there is none or it is full.

        ``start_offset`` says where an empty queue begins.  Without ``create`` there may be none.
        """
        last = self.last
        if last is not None and not last.is_full:
            return last
        if not create:
            return None
        if last is not None:
            return self._create(last.end_offset)
        return self._create(start_offset - start_offset % self.file_size)

    def make_next(self) -> MappedFile:
        """Make the file after the last one, which need not be full yet."""
        last = self.last
        assert last is not None, "an empty queue has no next file"
        return self._create(last.end_offset)

    def _create(self, offset: int) -> MappedFile:
        path = self.next_path(offset)
        if self.allocator is None:
            region = self._files_layer.create(path, self.file_size, reserve=self._reserve)
        else:
            following = self.next_path(offset + self.file_size)
            allocated = self.allocator.request(path, following, self.file_size)
            if allocated is None:
                raise StoreError(f"{path}: the file was not made in time")
            region = allocated
        file = MappedFile(
            region,
            offset,
            files=self._files_layer,
            first_in_queue=not self._list,
            pool=self._pool,
        )
        with self._list_lock:
            self._list = [*self._list, file]
        return file

    # -- flushing ----------------------------------------------------------------------------

    def flush(self, least_pages: int = 0) -> bool:
        """Flush the file that ``flushed_where`` lies in; return whether something moved.

        One call flushes one file: call until nothing moves.  FlushFailedError passes.
        """
        file = self._holding(self.flushed_where)
        if file is None:
            return False
        store_timestamp = file.store_timestamp
        where = file.first_offset + file.flush(least_pages)
        moved = where != self.flushed_where
        self.flushed_where = where
        if least_pages == 0:
            self.store_timestamp = store_timestamp
        return moved

    def commit(self, least_pages: int = 0) -> bool:
        """Commit the file that ``committed_where`` lies in; return whether something moved."""
        file = self._holding(self.committed_where)
        if file is None:
            return False
        where = file.first_offset + file.commit(least_pages)
        moved = where != self.committed_where
        self.committed_where = where
        return moved

    def _holding(self, offset: int) -> MappedFile | None:
        """Return the file to go on with: the one at ``offset``, or the first one after it."""
        file = self.find(offset)
        if file is not None:
            return file
        return next((file for file in self._list if file.first_offset > offset), None)

    # -- cutting -----------------------------------------------------------------------------

    def truncate(self, offset: int, *, zero: bool, unsynced: Unsynced | None = None) -> None:
        """End the queue at ``offset``: positions move back, later files are removed.

        With ``zero`` the bytes cut off are zeroed and the file is synced.  A Java broker leaves
        them; they can look valid to the next recovery.  Files go from the last one down and
        durably, so that a crash in between leaves no gap, and none of them can come back behind
        new records.  Files before the one that is cut are not synced, and none with ``unsynced``.
        """
        files = self._list
        kept = [file for file in files if file.first_offset <= offset]
        later = files[len(kept) :]
        self._remove(reversed(later))
        self._sync_directories(later, unsynced)
        if not kept or kept[-1].end_offset <= offset:
            return
        file = kept[-1]
        position = offset - file.first_offset
        if zero:
            self._zero(file, position)
            file.region.sync() if unsynced is None else unsynced.add_file(file)
        file.set_positions(position)

    def _zero(self, file: MappedFile, position: int) -> None:
        """Zero the pages from ``position`` on that are not, by calls that can fail.

        Holes of a sparse file stay holes, and a full disk is an error rather than a dead process.
        """
        zero_page = bytes(PAGE_SIZE)
        # Asked for all at once: what is read ahead meanwhile would count as data, to the end.
        for begin, end in list(file.region.data_ranges(position)):
            for at in range(begin, end, _ZERO_CHUNK_SIZE):
                chunk = bytes(file.view[at : min(at + _ZERO_CHUNK_SIZE, end)])
                if chunk == _ZERO_CHUNK or not chunk.strip(b"\0"):
                    continue
                for start in range(0, len(chunk), PAGE_SIZE):
                    page = chunk[start : start + PAGE_SIZE]
                    if page != zero_page[: len(page)]:
                        file.region.write(at + start, zero_page[: len(page)])

    def delete_last(self) -> None:
        """Remove the last file."""
        last = self.last
        if last is not None:
            self._remove([last])
            self._sync_directories([last])

    def destroy(self) -> None:
        """Remove every file durably, and the directories that are empty then."""
        for directory in self.remove_all():
            self._files_layer.sync_directory(directory)

    def remove_all(self) -> list[Path]:
        """Do the same as `destroy`, but not durably: return the directories to be synced."""
        self._remove(reversed(self._list))
        self.flushed_where = self.committed_where = 0
        unsynced = []
        for directory in self.placement.directories:
            if self._files_layer.remove_directory(directory):
                unsynced.append(directory.parent)
            elif self._files_layer.exists(directory):
                unsynced.append(directory)
        return unsynced

    def _remove(self, files: Iterable[MappedFile]) -> None:
        for file in files:
            file.destroy(self._clock.now_ms())
            self._drop(file)

    def _drop(self, dropped: MappedFile) -> None:
        with self._list_lock:
            self._list = [file for file in self._list if file is not dropped]

    def _sync_directories(
        self, removed: Iterable[MappedFile], unsynced: Unsynced | None = None
    ) -> None:
        directories = dict.fromkeys(file.path.parent for file in removed)
        if unsynced is not None:
            unsynced.add_directories(directories)
            return
        for directory in directories:
            self._files_layer.sync_directory(directory)

    # -- expiring ----------------------------------------------------------------------------

    def delete_expired_by_time(
        self,
        expired_ms: int,
        *,
        forced_after_ms: int,
        immediate: bool = False,
        limit: int = DELETE_COUNT_MAX,
    ) -> int:
        """Remove files not modified for ``expired_ms``, or any with ``immediate``; count them.

        Oldest first, never the last file, at most ``limit``; a file that is young enough, or is
        still read, ends the run.  The caller waits between runs, so as not to choke the disk.
        """
        deleted = 0
        for file in self._list[:-1][: min(limit, DELETE_COUNT_MAX)]:
            if not immediate and not self._is_expired(file, expired_ms):
                break
            if not self._delete(file, forced_after_ms):
                break
            # Synced one by one: after a crash no file is missing between two that are there.
            self._sync_directories([file])
            deleted += 1
        return deleted

    def _is_expired(self, file: MappedFile, expired_ms: int) -> bool:
        modified_ms = self._files_layer.modified_ms(file.path)
        return modified_ms is None or self._clock.now_ms() >= modified_ms + expired_ms

    def delete_expired_by_offset(self, min_physical: int, unit_size: int = 20) -> int:
        """Remove files of a consume queue whose last unit leads below ``min_physical``; count them.

        The removal is not synced: a file that comes back leads nowhere and is removed again.
        """
        deleted = 0
        for file in self._list[:-1]:
            if not self._leads_below(file, min_physical, unit_size):
                break
            if not self._delete(file, QUEUE_FORCED_AFTER_MS):
                break
            deleted += 1
        return deleted

    def _leads_below(self, file: MappedFile, min_physical: int, unit_size: int) -> bool:
        if not file.hold():
            return True  # An earlier run has begun to remove it.
        try:
            position = file.size - unit_size
            (physical_offset,) = _PHYSICAL_OFFSET.unpack_from(file.view, position)
            while physical_offset == 0 and position > 0:  # Blank units lead nowhere.
                position -= unit_size
                (physical_offset,) = _PHYSICAL_OFFSET.unpack_from(file.view, position)
        finally:
            file.release()
        return bool(physical_offset < min_physical)

    def delete_first(self) -> bool:
        """Remove the first file unless it is the only one or still read; tell if it is gone."""
        files = self._list
        return len(files) > 1 and self._delete(files[0], QUEUE_FORCED_AFTER_MS)

    def retry_delete_first(self, *, forced_after_ms: int) -> bool:
        """Try again to remove a first file that was still read; return whether it is gone now."""
        first = self.first
        if first is None or first.available or not self._delete(first, forced_after_ms):
            return False
        self._sync_directories([first])
        return True

    def _delete(self, file: MappedFile, forced_after_ms: int) -> bool:
        try:
            if not file.destroy(self._clock.now_ms(), forced_after_ms=forced_after_ms):
                return False
        except StoreIOError:
            logger.exception("file could not be removed: file=%s", file.path)
            return False
        self._drop(file)
        logger.info("file removed: file=%s", file.path)
        return True
