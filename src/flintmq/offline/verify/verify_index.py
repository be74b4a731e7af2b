"""Checking the key index against the log.

Entries stand in the order of the log.  So one pass over the log and one over the entries, side
by side, tell which keys have no entry and which entries no key; what does not fit is looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.format.stored.dispatch_fields import index_keys
from flintmq.format.stored.index_file import key_text_hash
from flintmq.format.sys_flag import TRANSACTION_ROLLBACK, transaction_type
from flintmq.offline.findings import Findings, Kind, Severity, Streak
from flintmq.offline.log_files import LogFiles
from flintmq.offline.scan import LogScan
from flintmq.offline.verify.index_cursor import END, NEVER, IndexCursor

if TYPE_CHECKING:
    from flintmq.store.recovery.bulk_records import SortedKeys

MATCH_COUNT: Final = 256
"""So many keys are compared at once; where they differ, they are taken one by one."""
AHEAD_COUNT_MAX: Final = 1000
"""Entries that lead further than the log was read; more of them are judged by what is known."""

_INT_MAX: Final = 2**31 - 1


class IndexCheck:
    """Compares the entries with the keys of the records, which come in log order."""

    def __init__(
        self,
        cursor: IndexCursor,
        log: LogFiles,
        scan: LogScan,
        findings: Findings,
        *,
        unclean: bool,
    ) -> None:
        self._cursor = cursor
        self._log = log
        self._scan = scan
        self._findings = findings
        self._streak = Streak(findings)
        self._unclean = unclean
        self._at_end = False
        self._header_checked = ""
        self._true_entry = ("", 0)
        """The entry, by file and number, that was looked up and found true."""
        self._same: list[tuple[int, str, int]] = []
        """Entries (hash, file, number) of one record that stand in another order than its keys."""
        self._same_offset = -1
        self._ahead: list[tuple[int, int, str, int]] = []
        """Entries (hash, offset, file, number) that lead to what the scan has not reached yet."""
        self._ahead_least = NEVER
        """The lowest of their offsets."""
        self._missing_count = 0
        self._missing_first = -1
        self._after_gap = ""
        """The file before whose entries keys are missing, perhaps with a whole file."""

    @property
    def entry_count(self) -> int:
        """How many entries were read."""
        return self._cursor.entry_count

    # -- the merge ---------------------------------------------------------------------------

    def take(self, hashes: list[int], offsets: list[int], times: list[int]) -> None:
        """Compare the next keys of the log with the next entries."""
        match = self._cursor.match
        for at in range(0, len(hashes), MATCH_COUNT):
            end = at + MATCH_COUNT
            some = hashes[at:end], offsets[at:end], times[at:end]
            done = 0 if self._same else match(*some)
            if done:
                self._report_missing()
            for key_hash, offset, time in zip(*(part[done:] for part in some), strict=True):
                self._place(key_hash, offset, time)

    def take_many(self, keys: SortedKeys) -> None:
        """Compare the next keys of the log with the next entries, by machine code."""
        at = 0
        while at < keys.count:
            done = 0 if self._same else self._cursor.match_many(keys.between(at, keys.count))
            if done:
                self._report_missing()
                at += done
                continue
            end = min(at + MATCH_COUNT, keys.count)
            self.take(*keys.between(at, end).lists())
            at = end

    def _place(self, key_hash: int, offset: int, time: int) -> None:
        """Find the entry of one key."""
        if self._same_offset != offset:
            self._drop_same()
        if self._ahead_least < offset:
            self._judge_ahead(offset)
        cursor, log_start = self._cursor, self._log.start
        while True:
            entry = cursor.entry
            if entry.physical_offset == offset:
                if entry.key_hash == key_hash and not self._same:
                    self._report_missing()
                    self._check_elapsed(time)
                    cursor.advance()
                    return
                self._same.append((entry.key_hash, cursor.name, cursor.number))
                self._same_offset = offset
                cursor.advance()
            elif entry.physical_offset < log_start:
                cursor.advance()
            elif self._take_same(key_hash):
                return
            elif entry.physical_offset > offset and self._is_true():
                self._miss(offset)
                return
            else:
                here = entry.key_hash, entry.physical_offset, cursor.name, cursor.number
                if entry.physical_offset > offset and len(self._ahead) < AHEAD_COUNT_MAX:
                    self._ahead.append(here)
                    self._ahead_least = min(self._ahead_least, entry.physical_offset)
                else:
                    self._judge(*here)
                cursor.advance()

    def _judge_ahead(self, end: int) -> None:
        """Judge entries that lead below ``end``, up to which all damage of the log is known."""
        for entry in self._ahead:
            if entry[1] < end:
                self._judge(*entry)
        self._ahead = [entry for entry in self._ahead if entry[1] >= end]
        self._ahead_least = min((entry[1] for entry in self._ahead), default=NEVER)

    def _check_elapsed(self, time: int) -> None:
        """Judge the seconds of an entry; the first of a file counts from the file before it."""
        cursor = self._cursor
        elapsed = cursor.entry.elapsed_seconds
        if cursor.name != self._header_checked:
            self._check_header_times()
        begin = cursor.begin_time
        expected = min(max((time - begin) // 1000, 0), _INT_MAX) if begin > 0 else 0
        if elapsed == expected:
            return
        if cursor.number == 1:
            if cursor.previous_end is None or cursor.name == self._after_gap:
                return  # The file it counted from is gone.
            if elapsed == max((time - cursor.previous_end) // 1000, 0):
                return
        reason = f"{elapsed} seconds after the file's beginning instead of {expected}"
        self._streak.add(
            Severity.PROBLEM, Kind.INDEX_ENTRY_TIME, cursor.name, cursor.number, reason
        )

    def _check_header_times(self) -> None:
        """Compare the times in a header with the records they are of, where those still exist."""
        header = self._cursor.header
        self._header_checked = self._cursor.name
        for offset, time, word in (
            (header.begin_offset, header.begin_timestamp, "begins"),
            (header.end_offset, header.end_timestamp, "ends"),
        ):
            record = self._log.record_at(offset)
            if record is not None and record.store_timestamp != time:
                reason = f"{word} at {time}, but the record at {offset} is of another time"
                self._findings.problem(Kind.INDEX_HEADER, self._cursor.name, None, reason)

    def _take_same(self, key_hash: int) -> bool:
        """Take an entry out of those set aside, if one is for this key."""
        for entry in self._same:
            if entry[0] == key_hash:
                self._same.remove(entry)
                return True
        return False

    def _drop_same(self) -> None:
        """Report entries of a record that were left over when its keys were through."""
        for entry_hash, name, number in self._same:
            self._judge(entry_hash, self._same_offset, name, number)
        self._same.clear()

    # -- keys without an entry ---------------------------------------------------------------

    def _miss(self, offset: int) -> None:
        """Count a key without an entry; if no later one has any, they may just be late."""
        if self._missing_first < 0:
            self._missing_first = offset
        self._missing_count += 1
        self._after_gap = self._cursor.name

    def _report_missing(self) -> None:
        if self._missing_count and not self._log.is_deleted(self._missing_first):
            first, count = self._missing_first, self._missing_count
            reason = f"{count} keys have no entry, the first of the record at {first}"
            self._findings.problem(Kind.KEY_MISSING, "index", first, reason, count=count)
        self._missing_count, self._missing_first = 0, -1

    # -- entries without a key ---------------------------------------------------------------

    def _is_true(self) -> bool:
        """Whether the present entry is worth waiting for: true, or the end of all entries."""
        cursor = self._cursor
        key_hash, offset, _, _ = cursor.entry
        if offset == NEVER:
            return True
        here = (cursor.name, cursor.number)
        if self._true_entry != here and self._lookup(key_hash, offset):
            self._true_entry = here
        return self._true_entry == here

    def _lookup(self, entry_hash: int, offset: int) -> bool:
        """Whether the record at an offset has a key with this hash."""
        record = self._log.record_at(offset)
        if record is None or transaction_type(record.sys_flag) == TRANSACTION_ROLLBACK:
            return False
        topic = record.topic.decode("utf-8", "replace")
        return any(
            key_text_hash(topic, key.decode("utf-8", "replace")) == entry_hash
            for key in index_keys(record.properties)
        )

    def _judge(self, entry_hash: int, offset: int, name: str, number: int) -> None:
        """Report an entry that no key at its position asked for."""
        scan, record = self._scan, self._log.record_at(offset)
        if record is None and self._log.is_deleted(offset):
            return
        at_tail = self._at_end and record is None and offset >= scan.end
        severity = Severity.NOTE if at_tail and self._unclean else Severity.PROBLEM
        kind = Kind.INDEX_ENTRY_WRONG
        if at_tail and offset >= scan.tail_end:
            kind, reason = Kind.INDEX_AHEAD, f"leads to {offset}, behind the log's end"
        elif record is None and (at_tail or scan.damaged_between(offset, offset + 1)):
            kind, reason = Kind.INDEX_TO_DAMAGE, f"leads to the damaged record at {offset}"
        elif record is not None and self._lookup(entry_hash, offset):
            severity, kind = Severity.NOTE, Kind.INDEX_DUPLICATE
            reason = f"a second entry for a key of the record at {offset}"
        else:
            reason = f"leads to {offset}, where no record has a key of its hash {entry_hash}"
        self._streak.add(severity, kind, name, number, reason)

    # -- the end -----------------------------------------------------------------------------

    def finish(self) -> None:
        """Look at the entries behind the last record, and report keys behind the last entry."""
        self._drop_same()
        self._judge_ahead(NEVER)
        self._at_end = True
        cursor = self._cursor
        log_start, scan_end = self._log.start, self._scan.end
        limit = self._log.end if self._log.has_grown() else NEVER
        while cursor.entry is not END:
            key_hash, offset, _, _ = cursor.entry
            # What lies behind the end of the scan may have been written since.
            late = offset >= limit or (offset >= scan_end and self._lookup(key_hash, offset))
            if not (0 <= offset < log_start or late):
                self._judge(key_hash, offset, cursor.name, cursor.number)
            cursor.advance()
        self._streak.close()
        if self._missing_count and self._unclean and cursor.has_files:
            first, count = self._missing_first, self._missing_count
            reason = f"{count} keys have no entry yet, the first of the record at {first}"
            self._findings.note(Kind.INDEX_BEHIND, "index", first, reason, count=count)
        else:
            self._report_missing()

    def close(self) -> None:
        """Unmap the index."""
        self._cursor.close()
