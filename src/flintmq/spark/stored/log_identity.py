"""Proves that a log is still the one that was read: by the record before the place to go on from.

An offset is no identity.  A log that was cut back, emptied or made anew may have grown past the
offset again.  Logs only ever lose their end or their beginning, so if the last record before a
place is the one that was read, everything before it is, too.
"""

import hashlib
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from flintmq.format.stored.record import Blank, CheckedRecord
from flintmq.format.stored.record_search import whole_record
from flintmq.kernels.compiled import as_bytes
from flintmq.kernels.records import RecordTable, Stop, walk_records
from flintmq.offline.layout import DataFile, StoreLayout
from flintmq.offline.regions import open_for_reading
from flintmq.spark.stored.split_plan import StoreSplits, walked_starts
from flintmq.spark.stored.split_scan import SplitScan

_ROWS_MAX: Final = 4096
_STEP: Final = 1 << 20


class RecordIdentity(NamedTuple):
    """What a record is known again by; the time is its store time."""

    physical_offset: int
    size: int
    store_timestamp: int
    sha256: str

    @classmethod
    def from_members(cls, members: Any) -> "RecordIdentity | None":
        """Return what a list of JSON says that was made of the fields; None says nothing."""
        return None if members is None else cls(*members)


def record_before(plan: StoreSplits, offset: int, *, start: int = 0) -> RecordIdentity | None:
    """Return the last whole record that starts before an offset, None if the log has none.

    ``offset`` is where a record starts or the log ends; so is ``start``, unless it is 0: from
    there on the records are followed, if it is in the same file.
    """
    for file in reversed(plan.layout.log_files):
        if file.first_offset >= offset:
            continue
        end = min(offset, file.first_offset + plan.layout.log_file_size)
        begin = start if file.first_offset <= start < end else file.first_offset
        found = _last_record(plan, file, begin, end)
        if found is None and begin > file.first_offset:
            found = _last_record(plan, file, file.first_offset, end)
        if found is not None:
            return found
    return None


def record_at(layout: StoreLayout, physical_offset: int) -> RecordIdentity | None:
    """Return the whole record that starts at an offset, None if there is none."""
    for file in layout.log_files:
        position = physical_offset - file.first_offset
        if 0 <= position < min(file.size, layout.log_file_size):
            return _identity(layout, file, position)
    return None


def is_gone(layout: StoreLayout, record: RecordIdentity) -> bool:
    """Whether the log begins behind a record, so that nothing can be compared with it."""
    return all(file.first_offset > record.physical_offset for file in layout.log_files)


def is_same_log(layout: StoreLayout, record: RecordIdentity) -> bool:
    """Whether a log has a record that was read, or does not reach back to it any more."""
    return is_gone(layout, record) or record_at(layout, record.physical_offset) == record


def first_after(plan: StoreSplits, store_timestamp: int, end: int) -> int:
    """Return where the first record before ``end`` starts that was stored after a time, or ``end``.

    That is where a log goes on that was cut back, or made anew: what is new in it was written
    after the last record that was read.
    """
    for split in plan.between(0, end):
        if split.gap:
            continue
        scan = SplitScan(split)
        with closing(scan.found()) as every:
            for found in every:
                if not isinstance(found, RecordTable):
                    continue
                later = found.store_timestamp > store_timestamp
                if later.any():
                    return int(found.physical_offset[int(later.argmax())])
    return end


def _identity(layout: StoreLayout, file: DataFile, position: int) -> RecordIdentity | None:
    region = open_for_reading(layout.files, file.path)
    if region is None:
        return None
    with closing(region):
        limit = min(region.size, layout.log_file_size)
        if position >= limit:
            return None
        record = whole_record(region.view, position, limit, file.first_offset)
        if not isinstance(record, CheckedRecord):
            return None
        digest = hashlib.sha256(region.view[position : position + record.size]).hexdigest()
        return RecordIdentity(
            file.first_offset + position, record.size, record.store_timestamp, digest
        )


def _last_record(plan: StoreSplits, file: DataFile, start: int, end: int) -> RecordIdentity | None:
    """Return the last whole record of a file from ``start`` to before ``end``."""
    base = file.first_offset
    region = open_for_reading(plan.layout.files, file.path)
    if region is None:
        return None
    last: int | None = None
    with closing(region):
        limit = min(region.size, plan.layout.log_file_size)
        stop = min(end - base, limit)
        starts = walked_starts(region.view, start - base, stop, limit, base, step=_STEP)
        at = starts[-1] if starts else start - base
        is_damaged = False
        while at < stop:
            walk = walk_records(
                as_bytes(region.view),
                at,
                stop,
                limit,
                base,
                rows_max=_ROWS_MAX,
                bytes_max=_STEP,
                check_crc=False,
            )
            if len(walk.table):
                last = int(walk.table.position[-1])
            at = walk.position
            if walk.stop is Stop.SPECIAL:
                is_damaged = not isinstance(whole_record(region.view, at, limit, base), Blank)
                break
    if is_damaged:
        behind = _last_behind_damage(plan, file, base + at, end)
        last = behind if behind is not None else last
    return None if last is None else _identity(plan.layout, file, last)


def _last_behind_damage(plan: StoreSplits, file: DataFile, start: int, end: int) -> int | None:
    last: int | None = None
    for split in plan.between(start, end):
        if split.gap or Path(split.path) != file.path:
            continue
        scan = SplitScan(split)
        with closing(scan.found()) as every:
            for found in every:
                if isinstance(found, RecordTable) and len(found):
                    last = int(found.position[-1])
    return last
