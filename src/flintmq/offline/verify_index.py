"""Checking the key index: each file in itself, and all of them against the log.

Entries stand in the order of the log.  So one pass over the log and one over the entries, side
by side, tell which keys have no entry and which entries no key; what does not fit is looked up.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Final

from flintmq.format.index_file import ENTRY, ENTRY_SIZE, entry_position, key_text_hash
from flintmq.format.record import index_keys
from flintmq.format.sys_flag import TRANSACTION_ROLLBACK, transaction_type
from flintmq.offline.findings import Findings, Kind, Severity, Streak
from flintmq.offline.index_structure import CHUNK_COUNT, IndexFiles, IndexStructure
from flintmq.offline.log_files import LogFiles
from flintmq.offline.regions import open_for_reading
from flintmq.offline.scan import LogScan

_INT_MAX: Final = 2**31 - 1
_NEVER: Final = 1 << 63
"""Above every physical offset: stands for the entry after the last one."""


class IndexCheck:
    """Compares the entries with the keys of the records, which come in log order."""

    def __init__(
        self,
        index: IndexFiles,
        log: LogFiles,
        scan: LogScan,
        findings: Findings,
        *,
        unclean: bool,
    ) -> None:
        self._index = index
        self._log = log
        self._scan = scan
        self._findings = findings
        self._streak = Streak(findings)
        self._unclean = unclean
        self._name = ""
        self._number = 0
        self._begin_time = 0
        self._previous_end: int | None = None
        self._true_entry = ("", 0)
        """The entry, by file and number, that was looked up and found true."""
        self._same: list[tuple[int, str, int]] = []
        """Entries (hash, file, number) of one record that stand in another order than its keys."""
        self._same_offset = -1
        self._missing_count = 0
        self._missing_first = -1
        self._at_end = False
        self.entry_count = 0
        self._entries = self._read_entries()
        self._entry = next(self._entries, (0, _NEVER, 0, 0))

    # -- entries -----------------------------------------------------------------------------

    def _read_entries(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield the entries of all files; the attributes tell which one it is."""
        for number, file in enumerate(self._index.files):
            region = open_for_reading(self._index.layer, file.path)
            if region is None:
                continue
            with closing(region):
                structure = IndexStructure(file, self._index, self._findings)
                is_last = number == len(self._index.files) - 1
                if not structure.check(region.view, may_grow=self._unclean and is_last):
                    self._previous_end = None
                    continue
                header = structure.header
                self._check_header_times(structure)
                self._name = self._index.name_of(file.path)
                self._begin_time = header.begin_timestamp
                yield from self._file_entries(region.view, header.index_count)
                self._previous_end = header.end_timestamp

    def _file_entries(
        self, view: memoryview, index_count: int
    ) -> Iterator[tuple[int, int, int, int]]:
        number = 1
        base = entry_position(self._index.slots, 0)
        while number < index_count:
            last = min(number + CHUNK_COUNT, index_count)
            chunk = bytes(view[base + number * ENTRY_SIZE : base + last * ENTRY_SIZE])
            for self._number, entry in enumerate(ENTRY.iter_unpack(chunk), number):
                yield entry
            number = last

    def _advance(self) -> None:
        self.entry_count += 1
        self._entry = next(self._entries, (0, _NEVER, 0, 0))

    # -- the merge ---------------------------------------------------------------------------

    def take(self, hashes: list[int], offsets: list[int], times: list[int]) -> None:
        """Compare the next keys of the log with the next entries."""
        entries = self._entries
        entry_hash, entry_offset, elapsed, _ = self._entry
        for key_hash, offset, time in zip(hashes, offsets, times, strict=True):
            if key_hash != entry_hash or offset != entry_offset or self._same:
                self._entry = (entry_hash, entry_offset, elapsed, 0)
                self._differ(key_hash, offset, time)
                entry_hash, entry_offset, elapsed, _ = self._entry
                continue
            seconds = (time - self._begin_time) // 1000
            if elapsed != seconds or self._number == 1:
                self._check_elapsed(elapsed, time)
            self.entry_count += 1
            entry_hash, entry_offset, elapsed, _ = next(entries, (0, _NEVER, 0, 0))
        self._entry = (entry_hash, entry_offset, elapsed, 0)

    def _check_elapsed(self, elapsed: int, time: int) -> None:
        """Judge the seconds of an entry; the first of a file counts from the file before it."""
        expected = max((time - self._begin_time) // 1000, 0) if self._begin_time > 0 else 0
        allowed = {min(expected, _INT_MAX)}
        if self._number == 1:
            if self._previous_end is None:
                return  # The file it counted from is gone.
            allowed.add(max((time - self._previous_end) // 1000, 0))
        if elapsed not in allowed:
            reason = f"{elapsed} seconds after the file's beginning instead of {expected}"
            self._streak.add(
                Severity.PROBLEM, Kind.INDEX_ENTRY_TIME, self._name, self._number, reason
            )

    def _differ(self, key_hash: int, offset: int, time: int) -> None:
        """Find the place of a key whose entry is not the next one."""
        if self._same_offset != offset:
            self._drop_same()
        log_start = self._log.start
        while True:
            entry_hash, entry_offset, elapsed, _ = self._entry
            if entry_offset == offset:
                if entry_hash == key_hash and not self._same:
                    self._check_elapsed(elapsed, time)
                    self._advance()
                    return
                self._same.append((entry_hash, self._name, self._number))
                self._same_offset = offset
                self._advance()
            elif entry_offset < log_start:
                self._advance()
            elif self._take_same(key_hash):
                return
            elif entry_offset > offset and self._is_true(entry_hash, entry_offset):
                self._miss(offset)
                return
            else:
                self._judge(entry_hash, entry_offset, self._name, self._number)
                self._advance()

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

    def _is_true(self, entry_hash: int, offset: int) -> bool:
        """Whether the present entry is worth waiting for: true, or the end of all entries."""
        if offset == _NEVER:
            return True
        here = (self._name, self._number)
        if self._true_entry != here and self._lookup(entry_hash, offset):
            self._true_entry = here
        return self._true_entry == here

    def _miss(self, offset: int) -> None:
        """Count a key without an entry; at the end of the index it may just be late."""
        if self._missing_first < 0:
            self._missing_first = offset
        self._missing_count += 1
        if self._entry[1] != _NEVER:
            self._report_missing()

    def _report_missing(self) -> None:
        if self._missing_count:
            first, count = self._missing_first, self._missing_count
            reason = f"{count} keys have no entry, the first of the record at {first}"
            self._findings.problem(Kind.KEY_MISSING, "index", first, reason, count=count)
        self._missing_count, self._missing_first = 0, -1

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
        """Report an entry that no key in its place asked for."""
        scan, record = self._scan, self._log.record_at(offset)
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
        elif self._log.is_deleted(offset):
            return
        else:
            reason = f"leads to {offset}, where no record has a key of its hash {entry_hash}"
        self._streak.add(severity, kind, name, number, reason)

    # -- the end -----------------------------------------------------------------------------

    def finish(self) -> None:
        """Look at the entries behind the last record, and report keys behind the last entry."""
        self._at_end = True
        self._drop_same()
        log_start, scan_end = self._log.start, self._scan.end
        while self._entry[1] != _NEVER:
            entry_hash, offset, _, _ = self._entry
            late = offset >= scan_end and self._lookup(entry_hash, offset)
            if offset >= log_start and not late:
                self._judge(entry_hash, offset, self._name, self._number)
            self._advance()
        self._streak.close()
        for file in self._index.wrong_size:
            reason = f"{file.size} bytes, unlike the other index files"
            name = self._index.name_of(file.path)
            self._findings.problem(Kind.WRONG_SIZE, name, None, reason)
        if self._missing_count and self._unclean and self._index.files:
            first, count = self._missing_first, self._missing_count
            reason = f"{count} keys have no entry yet, the first of the record at {first}"
            self._findings.note(Kind.INDEX_BEHIND, "index", first, reason, count=count)
        else:
            self._report_missing()

    def _check_header_times(self, structure: IndexStructure) -> None:
        """Compare the times in a header with the records they are of, where those still exist."""
        header = structure.header
        if header.index_count <= 1:
            return
        for offset, time, word in (
            (header.begin_offset, header.begin_timestamp, "begins"),
            (header.end_offset, header.end_timestamp, "ends"),
        ):
            record = self._log.record_at(offset)
            if record is not None and record.store_timestamp != time:
                reason = f"{word} at {time}, but the record at {offset} is of another time"
                structure.report(Kind.INDEX_HEADER, None, reason)
