"""Verifying a store: each record is whole, queues and index say what the log says."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from flintmq.format.delay_levels import DelayLevels
from flintmq.format.stored.checkpoint import Checkpoint
from flintmq.offline.bulk_loading import bulk_loader
from flintmq.offline.derive import Derivation
from flintmq.offline.findings import DETAILS_MAX, Findings, Kind, Severity
from flintmq.offline.index_geometry import find_geometry
from flintmq.offline.layout import StoreLayout
from flintmq.offline.log_files import LogFiles
from flintmq.offline.queue_files import QueueFiles
from flintmq.offline.regions import Regions
from flintmq.offline.scan import Damage, LogScan, Progress, Tail
from flintmq.offline.verify.index_cursor import IndexCursor
from flintmq.offline.verify.verify_index import IndexCheck
from flintmq.offline.verify.verify_queues import QueueCheck
from flintmq.offline.verify.verify_state import (
    check_checkpoint,
    check_state_files,
    known_topics,
    read_checkpoint,
)

DAMAGES_KEPT_MAX: Final = 1000


@dataclass(slots=True, kw_only=True)
class VerifyReport:
    """What a verification found.  All counts are exact; findings and damages are kept in part."""

    root: Path
    unclean: bool
    """Whether there is an ``abort`` file: a broker runs here, or was killed."""
    log_start: int = 0
    log_end: int = 0
    log_file_count: int = 0
    record_count: int = 0
    record_bytes: int = 0
    blank_count: int = 0
    queue_count: int = 0
    unit_count: int = 0
    index_file_count: int = 0
    index_entry_count: int = 0
    index_checked: bool = True
    state_file_count: int = 0
    damage_count: int = 0
    damage_bytes: int = 0
    damages: list[Damage] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)

    @property
    def problem_count(self) -> int:
        """How many problems there are."""
        return self.findings.total(Severity.PROBLEM)

    @property
    def note_count(self) -> int:
        """How many notes there are."""
        return self.findings.total(Severity.NOTE)

    @property
    def is_sound(self) -> bool:
        """Whether there is no problem; notes may be there."""
        return self.problem_count == 0


def verify(
    layout: StoreLayout,
    *,
    delay_levels: DelayLevels,
    check_index: bool = True,
    details_max: int = DETAILS_MAX,
    progress: Progress | None = None,
) -> VerifyReport:
    """Read a whole store and report what is wrong with it."""
    findings = Findings(details_max=details_max)
    findings.merge(layout.findings)
    report = VerifyReport(root=layout.root, unclean=layout.has_abort, findings=findings)
    checkpoint = read_checkpoint(layout)
    with ExitStack() as stack:
        regions = stack.enter_context(Regions(layout.files))
        log = LogFiles(layout, regions)
        load_bulk = bulk_loader(log, delay_levels, lmq=layout.lmq)
        scan = LogScan(log, check_crc=True, progress=progress, load_bulk=load_bulk)
        queues = QueueFiles(layout, regions)
        queue_check = QueueCheck(
            queues,
            log,
            scan,
            findings,
            unclean=layout.has_abort,
            has_directory=layout.has_queue_directory,
            known_topics=known_topics(layout),
            details_max=details_max,
            lmq=layout.lmq,
            dispatched=dispatched_end(checkpoint),
        )
        index_check = None
        if check_index:
            index_check = make_index_check(layout, regions, log, scan, findings)
        if index_check is not None:
            stack.callback(index_check.close)
        derivation = Derivation(
            delay_levels=delay_levels, lmq=layout.lmq, units=queue_check, keys=index_check
        )
        for piece in scan.pieces():
            if isinstance(piece, list):
                derivation.feed(piece)
            else:
                derivation.feed_many(piece)
        derivation.finish()
        if scan.tail is not Tail.BLANK or not log.has_grown():
            report_tail(layout, scan, findings)
        report_log(layout, scan, findings)
        queue_check.finish()
        if index_check is not None:
            index_check.finish()
            report.index_entry_count = index_check.entry_count
    check_checkpoint(layout, checkpoint, scan.flushed_end, findings)
    report.state_file_count = check_state_files(layout, findings)
    report.index_checked = index_check is not None
    report.index_file_count = len(layout.index_files)
    report.queue_count = len(queues.keys)
    report.unit_count = queue_check.unit_count
    count_log(layout, scan, report)
    return report


def dispatched_end(checkpoint: Checkpoint | str) -> int:
    """Return the log offset below which queues and index were complete and synced."""
    marks = None if isinstance(checkpoint, str) else checkpoint.marks
    return 0 if marks is None else min(marks.dispatched, marks.log_flushed)


def make_index_check(
    layout: StoreLayout, regions: Regions, log: LogFiles, scan: LogScan, findings: Findings
) -> IndexCheck | None:
    """Return the check of the index; None, and a finding, when it cannot be read."""
    geometry = find_geometry(layout, regions)
    if geometry is None:
        reason = "the number of slots cannot be told from the entries; give it by an option"
        name = layout.name_of(layout.index_directory)
        findings.problem(Kind.INDEX_UNREADABLE, name, None, reason)
        return None
    unclean = layout.has_abort
    cursor = IndexCursor(layout, geometry, findings, unclean=unclean)
    return IndexCheck(cursor, log, scan, findings, unclean=unclean)


def count_log(layout: StoreLayout, scan: LogScan, report: VerifyReport) -> None:
    """Put into a report what was read of the log."""
    report.log_start = layout.log_files[0].first_offset if layout.log_files else 0
    report.log_end = scan.end
    report.log_file_count = len(layout.log_files)
    report.record_count = scan.record_count
    report.record_bytes = scan.record_bytes
    report.blank_count = scan.blank_count
    report.damage_count = scan.damage_count
    report.damage_bytes = scan.damage_bytes
    report.damages = scan.damages[:DAMAGES_KEPT_MAX]


def report_log(layout: StoreLayout, scan: LogScan, findings: Findings) -> None:
    """Report the damage in a log, and its files that were not read."""
    for damage in scan.damages:
        findings.problem(damage.kind, damage.file, damage.start, _describe(damage))
    uncounted = scan.damage_count - len(scan.damages)
    if uncounted:
        reason = "more damaged ranges than can be kept"
        findings.problem(Kind.DAMAGED_RECORD, "", None, reason, count=uncounted)
    for file in scan.unused_files:
        reason = "nothing was written to this file yet"
        findings.note(Kind.UNUSED_FILE, layout.name_of(file.path), file.first_offset, reason)
    for file in scan.deleted_files:
        reason = "the file was deleted while the store was read"
        findings.note(Kind.DELETED, layout.name_of(file.path), file.first_offset, reason)


def report_tail(layout: StoreLayout, scan: LogScan, findings: Findings) -> None:
    """Report what follows the last record of a log."""
    for severity, kind in _tail_finding(scan, unclean=layout.has_abort):
        name = _name_of_tail(layout, scan)
        reason = f"{scan.tail_reason} (up to {scan.tail_end})"
        findings.add(severity, kind, name, scan.tail_start, reason)


def _describe(damage: Damage) -> str:
    return f"{damage.end - damage.start} bytes up to {damage.end}: {damage.reason}"


def _tail_finding(scan: LogScan, *, unclean: bool) -> Iterator[tuple[Severity, Kind]]:
    """Yield how the end of the log is to be reported, if at all."""
    fault = Severity.NOTE if unclean else Severity.PROBLEM
    match scan.tail:
        case Tail.CLEAN:
            return
        case Tail.BLANK:
            yield Severity.NOTE, Kind.ENDS_IN_BLANK
        case Tail.LEFTOVER:
            yield Severity.NOTE, Kind.LEFTOVER
        case Tail.TORN:
            yield fault, Kind.TORN_TAIL
        case Tail.GARBAGE:
            yield fault, Kind.GARBAGE


def _name_of_tail(layout: StoreLayout, scan: LogScan) -> str:
    for file in reversed(layout.log_files):
        if file.first_offset <= scan.tail_start:
            return layout.name_of(file.path)
    return ""
