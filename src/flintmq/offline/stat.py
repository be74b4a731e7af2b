"""An overview of a store: files, offsets, queues, checkpoint, sizes."""

from dataclasses import dataclass, field
from pathlib import Path

from flintmq.format.stored.checkpoint import Checkpoint
from flintmq.format.stored.consume_queue import PRE_BLANK_SIZE
from flintmq.format.stored.index_file import HEADER_SIZE, IndexHeader
from flintmq.offline.findings import Findings
from flintmq.offline.index_geometry import IndexGeometry, find_geometry
from flintmq.offline.layout import DataFile, QueueKey, StoreLayout
from flintmq.offline.log_files import LogFiles
from flintmq.offline.queue_files import QueueFiles
from flintmq.offline.regions import Regions
from flintmq.offline.scan import LogScan, Tail
from flintmq.offline.verify.verify_state import read_checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStat:
    """One consume queue; offsets count units, ``physical_end`` is where the last record ends."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    physical_end: int | None
    file_count: int
    size: int
    extension_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStat:
    """One index file."""

    name: str
    size: int
    header: IndexHeader | None


@dataclass(slots=True, kw_only=True)
class StoreStat:
    """What a look at a store tells without reading all of it."""

    root: Path
    has_abort: bool
    log_directories: tuple[Path, ...]
    log_file_size: int
    log_file_count: int = 0
    unused_file_count: int = 0
    log_size: int = 0
    log_start: int = 0
    log_end: int = 0
    log_tail: Tail = Tail.CLEAN
    first_store_time: int | None = None
    last_store_time: int | None = None
    dispatched_end: int | None = None
    """Where the last record that has a unit ends, None without any unit."""
    queue_file_size: int = 0
    queues: list[QueueStat] = field(default_factory=list)
    geometry: IndexGeometry | None = None
    index_files: list[IndexStat] = field(default_factory=list)
    checkpoint: Checkpoint | None = None
    checkpoint_problem: str = ""
    state_files: dict[str, int] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)

    @property
    def topic_count(self) -> int:
        """How many topics have a queue."""
        return len({queue.topic for queue in self.queues})


def stat(layout: StoreLayout) -> StoreStat:
    """Look at a store.  Of the log only the last file that was written to is read."""
    result = StoreStat(
        root=layout.root,
        has_abort=layout.has_abort,
        log_directories=layout.log_directories,
        log_file_size=layout.log_file_size,
        queue_file_size=layout.queue_file_size,
        findings=layout.findings,
    )
    with Regions(layout.files) as regions:
        log = LogFiles(layout, regions)
        _stat_log(log, result)
        _stat_queues(layout, log, QueueFiles(layout, regions), result)
        result.geometry = find_geometry(layout, regions)
        result.index_files = [
            IndexStat(name=file.path.name, size=file.size, header=_header(file, regions))
            for file in layout.index_files
        ]
    checkpoint = read_checkpoint(layout)
    if isinstance(checkpoint, str):
        result.checkpoint_problem = checkpoint
    else:
        result.checkpoint = checkpoint
    for path in layout.state_files:
        result.state_files[path.name] = layout.files.size(path) or 0
    return result


def _stat_log(log: LogFiles, result: StoreStat) -> None:
    result.log_file_count = len(log.files)
    result.log_size = log.size
    result.log_start = result.log_end = log.start
    for file in log.files:
        result.first_store_time = log.first_store_time(file)
        if result.first_store_time is not None:
            break
    for file in reversed(log.files):
        scan = LogScan(log, check_crc=False, start=file.first_offset)
        for batch in scan.batches():
            result.last_store_time = batch[-1].store_timestamp
        result.unused_file_count = len(scan.unused_files)
        if scan.record_count:
            result.log_end, result.log_tail = scan.end, scan.tail
            return


def _stat_queues(layout: StoreLayout, log: LogFiles, queues: QueueFiles, result: StoreStat) -> None:
    for key in queues.keys:
        found = layout.queues.get(key, [])
        end = queues.end(key)
        last = queues.unit_at(key, end - 1) if end else None
        physical_end = None
        if last is not None and last[1] != PRE_BLANK_SIZE:
            physical_end = last[0] + last[1]
            result.dispatched_end = max(result.dispatched_end or 0, physical_end)
        result.queues.append(
            QueueStat(
                topic=key[0],
                queue_id=key[1],
                min_offset=min_offset(key, queues, log.start, end),
                max_offset=end,
                physical_end=physical_end,
                file_count=len(found),
                size=sum(file.size for file in found),
                extension_size=sum(file.size for file in layout.extensions.get(key, [])),
            )
        )


def min_offset(key: QueueKey, queues: QueueFiles, log_start: int, end: int) -> int:
    """Return the first unit whose record is still kept; units ascend by physical offset."""
    low, high = queues.first_offset(key), end
    while low < high:
        middle = (low + high) // 2
        unit = queues.unit_at(key, middle)
        if unit is None or unit[0] < log_start or unit[1] == PRE_BLANK_SIZE:
            low = middle + 1
        else:
            high = middle
    return low


def _header(file: DataFile, regions: Regions) -> IndexHeader | None:
    view = regions.view(file.path)
    return None if view is None or len(view) < HEADER_SIZE else IndexHeader.unpack_from(view)
