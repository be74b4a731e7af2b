"""What is found in a store: problems and notes, counted exactly, kept in part.

A *problem* is lost or damaged data, or something a broker would serve wrongly.  A *note* is what
brokers leave behind in the course of things: a tail that was not finished, queues behind the log
after a kill, a file reserved ahead of its need.
"""

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

DETAILS_MAX: Final = 100
"""How many findings of one kind are kept with all details, unless the caller says otherwise."""


class Severity(StrEnum):
    """Whether a finding is a fault."""

    PROBLEM = "problem"
    NOTE = "note"


class Kind(StrEnum):
    """What a finding is about; the value is what reports print."""

    # Any file
    WRONG_SIZE = "wrong-size"
    STRAY_ENTRY = "stray-entry"
    DELETED = "deleted-meanwhile"
    # The log
    LOG_MISSING = "log-missing"
    CHECKSUM = "checksum"
    DAMAGED_RECORD = "damaged-record"
    LOG_GAP = "log-gap"
    TORN_TAIL = "torn-tail"
    GARBAGE = "garbage-after-end"
    LEFTOVER = "leftover"
    UNUSED_FILE = "unused-file"
    ENDS_IN_BLANK = "ends-in-blank"
    DELAY_LEVEL = "delay-level"
    # Queues
    OFFSET_GAP = "queue-offset-gap"
    OFFSET_REPEATED = "queue-offset-repeated"
    QUEUE_RESTARTED = "queue-restarted"
    QUEUE_MISSING = "queue-missing"
    QUEUE_BEHIND = "queue-behind"
    UNIT_MISSING = "unit-missing"
    UNIT_WRONG = "unit-wrong"
    UNIT_AHEAD = "unit-ahead"
    UNIT_TO_DAMAGE = "unit-to-damage"
    TAGS_CODE = "tags-code"
    DUE_TIME_LOST = "due-time-lost"
    EXT_UNIT = "extension-unit"
    # The key index
    INDEX_UNREADABLE = "index-unreadable"
    INDEX_HEADER = "index-header"
    INDEX_CHAIN = "index-chain"
    INDEX_ENTRY_WRONG = "index-entry-wrong"
    INDEX_ENTRY_TIME = "index-entry-time"
    INDEX_DUPLICATE = "index-duplicate"
    INDEX_TO_DAMAGE = "index-to-damage"
    INDEX_AHEAD = "index-ahead"
    INDEX_BEHIND = "index-behind"
    KEY_MISSING = "key-missing"
    # State
    CHECKPOINT = "checkpoint"
    STATE_FILE = "state-file"


class Finding(NamedTuple):
    """One thing that was found."""

    severity: Severity
    kind: Kind
    file: str
    """Relative to the store where it lies in it."""
    offset: int | None
    """In the log a physical offset, in a queue a queue offset, in an index an entry's number."""
    reason: str


class Findings:
    """Findings of one run: exact counts, and details up to a limit for each kind."""

    def __init__(self, *, details_max: int = DETAILS_MAX) -> None:
        self._details_max = details_max
        self._details: list[Finding] = []
        self.counts: Counter[tuple[Severity, Kind]] = Counter()
        self.shown: Counter[tuple[Severity, Kind]] = Counter()
        """How many of them the kept details stand for."""
        self._kept: Counter[tuple[Severity, Kind]] = Counter()

    def add(
        self,
        severity: Severity,
        kind: Kind,
        file: str,
        offset: int | None,
        reason: str,
        *,
        count: int = 1,
    ) -> None:
        """Note that something was found ``count`` times, described once."""
        key = (severity, kind)
        self.counts[key] += count
        if self._kept[key] < self._details_max:
            self._kept[key] += 1
            self.shown[key] += count
            self._details.append(Finding(severity, kind, file, offset, reason))

    def problem(
        self, kind: Kind, file: str, offset: int | None, reason: str, *, count: int = 1
    ) -> None:
        """Add a problem."""
        self.add(Severity.PROBLEM, kind, file, offset, reason, count=count)

    def note(
        self, kind: Kind, file: str, offset: int | None, reason: str, *, count: int = 1
    ) -> None:
        """Add a note."""
        self.add(Severity.NOTE, kind, file, offset, reason, count=count)

    def merge(self, other: "Findings") -> None:
        """Take over everything another collection holds."""
        left_out: Counter[tuple[Severity, Kind]] = Counter()
        for finding in other._details:
            key = (finding.severity, finding.kind)
            if self._kept[key] < self._details_max:
                self._kept[key] += 1
                self._details.append(finding)
            else:
                left_out[key] += 1
        self.counts.update(other.counts)
        self.shown.update(other.shown)
        self.shown.subtract(left_out)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._details)

    def __len__(self) -> int:
        return sum(self.counts.values())

    def of(self, severity: Severity) -> Iterator[Finding]:
        """Yield the kept findings of one severity, in the order they were found."""
        return (finding for finding in self._details if finding.severity is severity)

    def total(self, severity: Severity) -> int:
        """Return how many findings of one severity there were, kept or not."""
        return sum(count for (found, _), count in self.counts.items() if found is severity)


class Streak:
    """Joins findings of one kind at consecutive offsets of one file into a single one."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._first: Finding | None = None
        self._count = 0

    def add(self, severity: Severity, kind: Kind, file: str, offset: int, reason: str) -> None:
        """Add a finding, which continues the last one if it is the next of its kind."""
        first = self._first
        if first is not None and first[:3] == (severity, kind, file):
            assert first.offset is not None
            if offset == first.offset + self._count:
                self._count += 1
                return
        self.close()
        self._first = Finding(severity, kind, file, offset, reason)
        self._count = 1

    def close(self) -> None:
        """Hand on what was joined so far."""
        first, self._first = self._first, None
        if first is None:
            return
        severity, kind, file, offset, reason = first
        if self._count > 1:
            reason = f"{reason} (and {self._count - 1} more after it)"
        self._findings.add(severity, kind, file, offset, reason, count=self._count)
