"""The commit log: every message of a broker, one after the other, in files of one size."""

import logging
from collections.abc import Iterator

from flintmq.format.stored.record_encoding import encode_blank
from flintmq.format.stored.record_layout import BLANK_SIZE
from flintmq.store.clock import Clock
from flintmq.store.files.mapped_file import MappedFile, Slice
from flintmq.store.files.mapped_file_queue import MappedFileQueue
from flintmq.store.log.pages_ahead import STEP_SIZE, PagesAhead

logger = logging.getLogger(__name__)


class CommitLog:
    """Append and read by physical offset.  One thread appends; any thread may read.

    With synchronous flush ``durable_reads`` is set: what is not flushed is not readable, so a
    consumer can never have seen a message that a power failure takes back.
    """

    def __init__(self, files: MappedFileQueue, *, durable_reads: bool, clock: Clock) -> None:
        self.files = files
        self.durable_reads = durable_reads
        self._readable_floor = 0
        """What was readable when reads became durable, and stays so."""
        self.file_size = files.file_size
        self._tail: MappedFile | None = None
        self._space_end = 0
        """Where the space that is reserved in the last file ends, less the room for a blank."""
        self._room_end = 0
        """The same, or where the log tells next that it has grown."""
        self.pages = PagesAhead(self, clock=clock)

    @property
    def min_offset(self) -> int:
        """Where the oldest kept file starts; 0 for an empty log.

        A file that is being deleted while somebody still reads it does not count any more.
        """
        first = self.files.first
        if first is None:
            return 0
        return first.first_offset if first.available else first.end_offset

    @property
    def end_offset(self) -> int:
        """Where the next record will start, readable or not."""
        return self.files.max_wrote

    @property
    def readable_end(self) -> int:
        """Nothing at or after this offset is dispatched, served or replicated yet."""
        if self.durable_reads:
            end = min(self.files.flushed_where, self.files.max_offset)
            return max(end, self._readable_floor) if self._readable_floor else end
        return self.files.committed_end

    @property
    def reads_wait(self) -> bool:
        """Whether what is appended now is readable later: on the disk, or once it is committed.

        With a pool that is so of every file: one without a buffer may stand behind one that has.
        """
        return self.durable_reads or self.files.is_pooled

    def set_durable_reads(self, *, durable_reads: bool) -> None:
        """Have reads wait for the disk from now on, or no longer; nothing becomes unreadable."""
        self._readable_floor = self.readable_end if durable_reads else 0
        self.durable_reads = durable_reads

    def reset_tail(self) -> None:
        """Look up the last file again, after files were loaded, cut or removed."""
        self._tail = self.files.last
        self._space_end = self._room_end = 0

    @property
    def tail(self) -> MappedFile | None:
        """The file that takes the next record, if it has room for it."""
        return self._tail

    def has_room(self, size: int) -> bool:
        """Whether ``size`` bytes go into the last file as it is."""
        tail = self._tail
        if tail is None:
            return False
        end = tail.wrote + size
        return end <= self._room_end or self._has_grown(end)

    def _has_grown(self, end: int) -> bool:
        """Tell that the log grows to a position of the last file, if that has room for it."""
        if end > self._space_end:
            return False
        self._room_end = min(end + STEP_SIZE, self._space_end)
        self.pages.wanted.set()
        return True

    def fits(self, size: int) -> bool:
        """Whether a record or batch of ``size`` bytes can be stored in one file at all."""
        return size + BLANK_SIZE <= self.file_size

    def room_for(self, size: int) -> MappedFile:
        """Return the file that takes the next ``size`` bytes, rolling to a new one if needed.

        A record never crosses a file: when it and a blank do not fit, the rest of the file
        becomes a blank record and the next file is opened.  The new file is made *before* the
        blank is written, so that a full disk leaves the log as it was.

        Raises:
            DiskFullError: there is no space; nothing has changed.
        """
        tail = self._tail
        if tail is not None and self.has_room(size):
            return tail
        if tail is None or tail.is_full:
            self.take_tail(self.files.last_for_append(0))
        elif self._space_end == 0:
            # A file that was loaded may be sparse, as a Java broker's is.
            tail.region.reserve(tail.wrote, tail.size)
            self.take_tail(tail)
        else:
            following = self.files.make_next()
            self._write_blank(tail)
            tail.region.expect_reads()
            self.take_tail(following)
            logger.info("commit log rolled: file=%s", following.path.name)
        return self.room_for(size)

    def prepare_next(self) -> None:
        """Let the next file be made while the last one still has room; any thread may call it.

        A log that rolls has asked for its next file already, but one that was just opened has not.
        """
        files, last = self.files, self.files.last
        if last is not None and last.wrote * 2 >= last.size and files.allocator is not None:
            files.allocator.prepare(files.next_path(last.end_offset), self.file_size)

    @property
    def is_next_late(self) -> bool:
        """Whether the file that is needed next was not made in time, and still is not."""
        return self.files.allocator is not None and self.files.allocator.is_late

    def ask_for_first(self) -> bool:
        """Have the first file made, if there is none; return whether it is being made still.

        That takes longer than an owner may wait who has others to serve: `is_next_late` tells him
        when it is there.
        """
        files = self.files
        if files.last is not None or files.allocator is None:
            return False
        return files.allocator.is_awaited(
            files.next_path(0), files.next_path(self.file_size), self.file_size
        )

    def make_ready(self, size: int) -> None:
        """Have the place where the next ``size`` bytes go ready: the next file, or its pages.

        It waits for the disk, in a thread that may, so that an append of much need not.
        """
        tail, files = self._tail, self.files
        if tail is None or (self._space_end and tail.wrote + size > self._space_end):
            if files.allocator is not None:
                path = files.next_path(0 if tail is None else tail.end_offset)
                files.allocator.prepare(path, self.file_size, size)
        elif self._space_end and tail.write_buffer is None and tail.hold():
            try:
                tail.region.prepare_pages(tail.wrote, size)
            finally:
                tail.release()

    @property
    def is_reserved(self) -> bool:
        """Whether the disk has room for all of the file that takes the next record."""
        return self._space_end != 0

    def take_tail(self, file: MappedFile) -> None:
        """Let the next record go into a file whose room is reserved."""
        self._tail = file
        self._space_end = file.size - BLANK_SIZE
        self._room_end = min(file.wrote + STEP_SIZE, self._space_end)
        self.pages.wanted.set()

    def _write_blank(self, file: MappedFile) -> None:
        rest = file.size - file.wrote
        target = file.write_buffer if file.write_buffer is not None else file.view
        target[file.wrote : file.wrote + BLANK_SIZE] = encode_blank(rest)
        file.wrote = file.size

    def select(self, physical_offset: int, size: int) -> Slice | None:
        """Return ``size`` readable bytes at ``physical_offset``, held until released."""
        if size <= 0 or physical_offset + size > self.readable_end:
            return None
        file = self.files.find(physical_offset)
        if file is None:
            return None
        return file.select(physical_offset - file.first_offset, size)

    def read_range(self, physical_offset: int, size_max: int) -> Slice | None:
        """Return up to ``size_max`` raw bytes at an offset, for replication; never two files."""
        available = self.readable_end - physical_offset
        file = self.files.find(physical_offset, first_if_missing=physical_offset == 0)
        if file is None or available <= 0:
            return None
        position = max(physical_offset - file.first_offset, 0)
        size = min(size_max, available, file.readable - position)
        return file.select(position, size) if size > 0 else None

    def files_from(self, physical_offset: int) -> Iterator[MappedFile]:
        """Yield the files that hold ``physical_offset`` and everything after it, in order."""
        for file in self.files.snapshot():
            if file.first_offset + file.size > physical_offset:
                yield file
