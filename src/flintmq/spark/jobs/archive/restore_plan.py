"""Where the records of an archive go in the log of a restored store.

The archive tells, for chunks of the old log, how many records there are and where they stood.  If
they follow each other without a hole from the start of a file, the log is written as it was: all
records at their old offsets.  Otherwise it is compacted: the records move together, in their
order, and chunks of one old file stay together, so that they fit into a new file.

A compacted log begins with what would be its second file.  Its queues may begin or go on behind a
hole, which blank units fill; these lead to the offset 0, and brokers pass over them as it should
be only if the log does not have that offset any more: RocketMQ would take the first blank for the
first message of the queue, and behind blanks leave out messages of the same log file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from flintmq.format.stored.record_layout import BLANK_SIZE
from flintmq.kernels.compiled import Longs

CHUNK_SIZE: Final = 64 << 20
"""A task of a restore writes about so many bytes."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one chunk of the old log: their count and bytes, and where they start and end."""

    number: int
    count: int
    size: int
    start: int
    end: int

    def joined(self, other: "Chunk") -> "Chunk":
        """Return this chunk with more records of it."""
        return Chunk(
            self.number,
            self.count + other.count,
            self.size + other.size,
            min(self.start, other.start),
            max(self.end, other.end),
        )


@dataclass(frozen=True, slots=True)
class BlankEnd:
    """The end of a file that had no room for the next record."""

    start: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkGrid:
    """How a log is cut into chunks: within a file, at multiples of a size."""

    file_size: int
    chunk_size: int = CHUNK_SIZE

    @property
    def chunks_per_file(self) -> int:
        """How many chunks a file has."""
        return -(-self.file_size // self.chunk_size)

    def file_of(self, chunk: int) -> int:
        """Return the number of the file that a chunk lies in."""
        return chunk // self.chunks_per_file

    def of(self, physical_offsets: Longs) -> Longs:
        """Return the chunks of records."""
        chunks: Longs = (
            physical_offsets // self.file_size * self.chunks_per_file
            + physical_offsets % self.file_size // self.chunk_size
        )
        return chunks


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlan:
    """The new log: where each chunk begins, which files there are, and how they end."""

    grid: ChunkGrid
    is_exact: bool
    starts: dict[int, int]
    file_starts: tuple[int, ...]
    blanks: tuple[BlankEnd, ...]
    end: int


def plan_log(grid: ChunkGrid, chunks: Sequence[Chunk], log_end: int | None) -> LogPlan:
    """Return how the log is to be written.

    ``log_end`` is where the old log ended; None if something was left out of it.
    """
    ordered = sorted(chunks, key=lambda chunk: chunk.number)
    if log_end is not None and _is_whole(grid, ordered, log_end):
        return _exact(grid, ordered, log_end)
    return _compacted(grid, ordered)


def _is_whole(grid: ChunkGrid, chunks: Sequence[Chunk], log_end: int) -> bool:
    """Whether records follow each other from the start of a file to the end of the log."""
    if not chunks:
        return False
    file = grid.file_of(chunks[0].number)
    at = file * grid.file_size
    for chunk in chunks:
        if grid.file_of(chunk.number) == file + 1:
            if (file + 1) * grid.file_size - at < BLANK_SIZE:
                return False
            file += 1
            at = file * grid.file_size
        if chunk.start != at or chunk.end - chunk.start != chunk.size:
            return False
        at = chunk.end
    return log_end in (at, (file + 1) * grid.file_size)


def _exact(grid: ChunkGrid, chunks: Sequence[Chunk], log_end: int) -> LogPlan:
    ends = {grid.file_of(chunk.number): chunk.end for chunk in chunks}
    files = list(ends)
    blanks = [
        BlankEnd(end, (file + 1) * grid.file_size - end)
        for file, end in ends.items()
        if file != files[-1] or log_end > end
    ]
    return LogPlan(
        grid=grid,
        is_exact=True,
        starts={chunk.number: chunk.start for chunk in chunks},
        file_starts=tuple(file * grid.file_size for file in files),
        blanks=tuple(blanks),
        end=log_end,
    )


def _compacted(grid: ChunkGrid, chunks: Sequence[Chunk]) -> LogPlan:
    sizes: dict[int, int] = {}
    for chunk in chunks:
        file = grid.file_of(chunk.number)
        sizes[file] = sizes.get(file, 0) + chunk.size
    starts: dict[int, int] = {}
    blanks: list[BlankEnd] = []
    first = file_start = at = grid.file_size
    begun: int | None = None
    for chunk in chunks:
        file = grid.file_of(chunk.number)
        file_end = file_start + grid.file_size
        if file != begun:
            begun = file
            if at > file_start and at + sizes[file] + BLANK_SIZE > file_end:
                blanks.append(BlankEnd(at, file_end - at))
                file_start = at = file_end
        starts[chunk.number] = at
        at += chunk.size
    return LogPlan(
        grid=grid,
        is_exact=False,
        starts=starts,
        file_starts=tuple(range(first, file_start + 1, grid.file_size)) if chunks else (),
        blanks=tuple(blanks),
        end=at if chunks else 0,
    )
