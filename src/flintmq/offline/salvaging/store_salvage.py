"""Making a sound store of everything that can be proven in a broken one.

The records are copied to a new log, one after the other without the damaged ranges, so each gets
another physical offset.  Queue offsets stay as they are where they are dense; behind a gap the
records of a queue move up, and so do the offsets of consumers.  What recovery has set aside
follows behind the log.  Queues and index are made from the new log.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from zlib import crc32

from flintmq.format.delay_levels import DelayLevels
from flintmq.format.stored.record import CheckedRecord
from flintmq.offline.bulk_loading import bulk_loader
from flintmq.offline.errors import UnknownIndexShapeError
from flintmq.offline.findings import Findings, Kind
from flintmq.offline.index_geometry import find_geometry
from flintmq.offline.layout import QueueKey, SizeOptions, StoreLayout, find_store
from flintmq.offline.log_files import LogFiles
from flintmq.offline.rebuild import check_output, derive_views
from flintmq.offline.regions import Regions
from flintmq.offline.salvaging.new_log import NewLog
from flintmq.offline.salvaging.queue_numbering import QueueNumbering
from flintmq.offline.salvaging.salvaged_state import copy_state
from flintmq.offline.scan import LogScan, Progress
from flintmq.offline.set_aside_files import set_aside_logs
from flintmq.store.files.interface import Files, make_directory_durable
from flintmq.store.files.local_files import LocalFiles

RENUMBERED_MAX: Final = 1000
"""How many queues with other offsets are named; all of them are counted."""


@dataclass(slots=True, kw_only=True)
class SalvageReport:
    """What a salvage has saved, and what it had to leave."""

    output: Path
    record_count: int = 0
    set_aside_count: int = 0
    """How many of the records came from what recovery had set aside."""
    duplicate_count: int = 0
    """Records that were set aside and are in the log too."""
    checksum_count: int = 0
    """Records left out since their body does not match its checksum."""
    damage_count: int = 0
    damage_bytes: int = 0
    renumbered_count: int = 0
    renumbered: dict[str, int] = field(default_factory=dict)
    """Queues whose records got other offsets, and from which old offset on."""
    queue_count: int = 0
    unit_count: int = 0
    index_file_count: int = 0
    index_entry_count: int = 0
    state_file_count: int = 0
    findings: Findings = field(default_factory=Findings)


def salvage(
    layout: StoreLayout,
    output: Path,
    *,
    delay_levels: DelayLevels,
    with_index: bool = True,
    files: Files | None = None,
    progress: Progress | None = None,
) -> SalvageReport:
    """Write a sound store to ``output``; OutputError when it is not free."""
    files = files or LocalFiles()
    check_output(layout, output, files=files)
    report = SalvageReport(output=output)
    make_directory_durable(files, output / "commitlog")
    numbers = QueueNumbering()
    log = NewLog(output / "commitlog", layout.log_file_size, numbers, files=files)
    try:
        _copy_log(layout, log, report, delay_levels, progress)
        _copy_set_aside(layout, log, report)
    finally:
        log.close()
    report.record_count = log.record_count
    _name_renumbered(numbers, report)
    _make_views(layout, report, delay_levels, with_index=with_index, files=files)
    report.state_file_count = copy_state(layout, output, numbers, report.findings, files=files)
    files.sync_directory(output)
    return report


def _copy_log(
    layout: StoreLayout,
    log: NewLog,
    report: SalvageReport,
    delay_levels: DelayLevels,
    progress: Progress | None,
) -> None:
    with Regions(layout.files) as regions:
        source = LogFiles(layout, regions)
        load_bulk = bulk_loader(source, delay_levels, lmq=False, multi=False)
        scan = LogScan(source, check_crc=True, progress=progress, load_bulk=load_bulk)
        for piece in scan.pieces():
            if isinstance(piece, list) or not log.append_sound(piece):
                for record, raw in _with_bytes(piece, source, scan):
                    log.append(record, raw)
        for damage in scan.damages:
            report.findings.problem(damage.kind, damage.file, damage.start, damage.reason)
            report.checksum_count += damage.kind is Kind.CHECKSUM
        report.damage_count = scan.damage_count
        report.damage_bytes = scan.damage_bytes


def _whole_records(log: LogFiles, scan: LogScan) -> Iterator[tuple[CheckedRecord, bytes]]:
    """Yield the records of a scan whose checksum is true, and their bytes."""
    for batch in scan.batches():
        yield from _with_bytes(batch, log, scan)


def _with_bytes(
    records: Iterable[CheckedRecord], log: LogFiles, scan: LogScan
) -> Iterator[tuple[CheckedRecord, bytes]]:
    for record in records:
        if scan.damage_count and scan.damaged_between(
            record.physical_offset, record.physical_offset + 1
        ):
            continue
        raw = log.raw(record)
        if raw is not None:
            yield record, raw


def _copy_set_aside(layout: StoreLayout, log: NewLog, report: SalvageReport) -> None:
    seen: set[tuple[int, int]] = set()
    with ExitStack() as stack:
        regions = stack.enter_context(Regions(layout.files))
        kept = LogFiles(layout, regions)
        for cut in set_aside_logs(layout):
            with Regions(layout.files) as cut_regions:
                source = LogFiles(cut, cut_regions)
                for record, raw in _whole_records(source, LogScan(source, check_crc=True)):
                    key = (record.physical_offset, crc32(raw))
                    in_log = kept.record_at(record.physical_offset)
                    if key in seen or (in_log is not None and kept.raw(in_log) == raw):
                        report.duplicate_count += 1
                        continue
                    seen.add(key)
                    log.append(record, raw)
                    report.set_aside_count += 1


def _name_renumbered(numbers: QueueNumbering, report: SalvageReport) -> None:
    moved: dict[QueueKey, int] = numbers.renumbered()
    report.renumbered_count = len(moved)
    for (topic, queue_id), old_offset in moved.items():
        name = f"{topic}/{queue_id}"
        reason = f"records from queue offset {old_offset} on have other offsets now"
        report.findings.note(Kind.OFFSET_GAP, f"consumequeue/{name}", old_offset, reason)
        if len(report.renumbered) < RENUMBERED_MAX:
            report.renumbered[name] = old_offset


def _make_views(
    layout: StoreLayout,
    report: SalvageReport,
    delay_levels: DelayLevels,
    *,
    with_index: bool,
    files: Files,
) -> None:
    with Regions(layout.files) as regions:
        geometry = find_geometry(layout, regions)
    if with_index and geometry is None:
        raise UnknownIndexShapeError(report.output)
    made = find_store(
        report.output,
        sizes=SizeOptions(
            log_file_size=layout.log_file_size,
            queue_file_size=layout.queue_file_size,
            hash_slots=None if geometry is None else geometry.slots,
            index_entries=None if geometry is None else geometry.entries,
        ),
        files=files,
    )
    made.lmq = layout.lmq
    views = derive_views(
        made, report.output, queues=True, index=with_index, delay_levels=delay_levels, files=files
    )
    report.queue_count, report.unit_count = views.queue_count, views.unit_count
    report.index_file_count = views.index_file_count
    report.index_entry_count = views.index_entry_count
    report.findings.merge(views.findings)
