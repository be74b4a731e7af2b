"""Checking consume queues against the log.

Each record proves what its unit must be.  Many units of a queue are compared at once; only
where they differ each is looked at.  Units that no record of the log claims are looked at
one by one too: they may lead to records that have expired, and to nothing else.
"""

from dataclasses import dataclass, field
from typing import Final

from flintmq.format.stored.consume_queue import PRE_BLANK_SIZE, UNIT
from flintmq.format.stored.consume_queue_ext import is_address
from flintmq.format.stored.dispatch_fields import dispatch_tags_code
from flintmq.format.stored.queue_claims import queue_claims
from flintmq.format.stored.record import CheckedRecord
from flintmq.model.topics import DUE_TIME_TOPICS
from flintmq.offline.derive import DerivedQueue
from flintmq.offline.findings import Findings, Kind, Severity, Streak
from flintmq.offline.layout import QueueKey
from flintmq.offline.log_files import LogFiles
from flintmq.offline.queue_files import QueueFiles
from flintmq.offline.scan import LogScan

GAP_MAX: Final = 1_000_000
"""A record further ahead of its queue has a damaged queue offset; the queue is not followed there.

Recovery has the same limit.
"""

_NO_LIMIT: Final = 1 << 63


@dataclass(slots=True)
class _QueueState:
    """What is known of one queue so far."""

    findings: Findings
    """Kept apart until it is known whether the topic was deleted and made anew."""
    streak: Streak
    missing_from: int = -1
    """Where the units begin that are missing now, -1 without any."""
    missing_physical: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of queue offsets that no record claims; looked at when the log is known whole."""


class QueueCheck:
    """Compares the units on disk with those the records ask for."""

    def __init__(
        self,
        queues: QueueFiles,
        log: LogFiles,
        scan: LogScan,
        findings: Findings,
        *,
        unclean: bool,
        has_directory: bool,
        known_topics: frozenset[str] | None,
        details_max: int,
        lmq: bool,
        dispatched: int = 0,
        all_queues: QueueFiles | None = None,
    ) -> None:
        """Check ``queues``; ``unclean`` says that a broker runs or was killed.

        ``known_topics`` are those the broker's state lists, None when that cannot be read.  Below
        the log offset ``dispatched`` every unit was durable before the log was read.
        ``all_queues`` are those of the store, where ``queues`` are only some of them.
        """
        self._queues = queues
        self._all_queues = all_queues or queues
        self._log = log
        self._scan = scan
        self._findings = findings
        self._unclean = unclean
        self._has_directory = has_directory
        self._known_topics = known_topics
        self._details_max = details_max
        self._lmq = lmq
        self._dispatched = dispatched
        self._states: dict[QueueKey, _QueueState] = {}
        self._derived: dict[QueueKey, DerivedQueue] = {}
        self._unclaimed = Streak(findings)
        self._limit = _NO_LIMIT
        """From here on a broker has written since we looked which files the log has."""
        self.unit_count = 0

    def _new_state(self) -> _QueueState:
        findings = Findings(details_max=self._details_max)
        return _QueueState(findings, Streak(findings))

    # -- what the derivation tells -----------------------------------------------------------

    def begin(self, queue: DerivedQueue) -> None:
        """Note the units before the first record: what they led to must have expired."""
        key = (queue.topic, queue.queue_id)
        if key not in self._queues:
            self._queues.refresh(key)
        state = self._new_state()
        state.gaps.append((self._queues.first_offset(key), queue.first))
        self._states[key] = state
        self._derived[key] = queue

    def take(self, queue: DerivedQueue) -> None:
        """Compare the next units of a queue."""
        key = (queue.topic, queue.queue_id)
        state = self._states[key]
        count = len(queue.units) // UNIT.size
        stored = self._queues.read(key, queue.first, count)
        if stored == queue.units:
            self.unit_count += count
            if state.missing_from >= 0:
                self._end_missing(key, state, queue.first)
            return
        if not stored[-UNIT.size :].strip(b"\0"):
            self._queues.refresh(key)
            stored = self._queues.read(key, queue.first, count)
        pairs = zip(UNIT.iter_unpack(stored), UNIT.iter_unpack(queue.units), strict=True)
        for queue_offset, (found, expected) in enumerate(pairs, queue.first):
            if found[1] == 0 or found[1] == PRE_BLANK_SIZE:
                if state.missing_from < 0:
                    state.missing_from, state.missing_physical = queue_offset, expected[0]
                continue
            self.unit_count += 1
            if state.missing_from >= 0:
                self._end_missing(key, state, queue_offset)
            if found != expected:
                self._judge(key, state, queue_offset, found, expected)

    def jump(self, queue: DerivedQueue, queue_offset: int, physical_offset: int) -> bool:
        """Judge a record that does not continue its queue."""
        key = (queue.topic, queue.queue_id)
        state = self._states[key]
        name = self._queues.name_of(key)
        where = f"the record at {physical_offset} has the queue offset {queue_offset}"
        if queue_offset == 0:
            self._restart(key, queue, physical_offset)
            return True
        if not 0 <= queue_offset <= queue.next + GAP_MAX:
            reason = f"{where}, far from {queue.next}"
            state.findings.problem(Kind.OFFSET_GAP, name, queue.next, reason)
            return False
        if queue_offset < queue.next:
            reason = f"{where}, the queue was at {queue.next} already"
            state.findings.problem(Kind.OFFSET_REPEATED, name, queue_offset, reason)
            return True
        if not self._scan.damaged_between(queue.last_physical, physical_offset):
            reason = f"{where}, {queue.next} is missing and nothing in the log is damaged there"
            state.findings.problem(
                Kind.OFFSET_GAP, name, queue.next, reason, count=queue_offset - queue.next
            )
        state.gaps.append((queue.next, queue_offset))
        return True

    def bad_delay_level(self, record: CheckedRecord, reason: str) -> None:
        """Report a delayed record without a level; a Java broker ends its log there."""
        file = self._log.find(record.physical_offset)
        name = "" if file is None else self._log.name_of(file.path)
        self._findings.problem(Kind.DELAY_LEVEL, name, record.physical_offset, reason)

    def _restart(self, key: QueueKey, queue: DerivedQueue, physical_offset: int) -> None:
        """Forget what was found so far: the topic was deleted, and its units with it."""
        self._findings.note(
            Kind.QUEUE_RESTARTED,
            self._queues.name_of(key),
            0,
            f"counts from zero again at {physical_offset} after {queue.next} records: "
            "the topic was deleted and made anew",
        )
        self._states[key] = self._new_state()

    # -- units that differ -------------------------------------------------------------------

    def _end_missing(self, key: QueueKey, state: _QueueState, queue_offset: int) -> None:
        """Report units that are missing although later ones are there."""
        first = state.missing_from
        state.missing_from = -1
        count = queue_offset - first
        if self._log.is_deleted(state.missing_physical):
            return
        reason = f"{count} units from {first} on are missing, the first for the record at "
        state.findings.problem(
            Kind.UNIT_MISSING,
            self._queues.name_of(key),
            first,
            f"{reason}{state.missing_physical}",
            count=count,
        )

    def _judge(
        self,
        key: QueueKey,
        state: _QueueState,
        queue_offset: int,
        found: tuple[int, int, int],
        expected: tuple[int, int, int],
    ) -> None:
        """Say what is wrong with a unit that is there."""
        severity, kind = Severity.PROBLEM, Kind.UNIT_WRONG
        if found[:2] != expected[:2]:
            reason = (
                f"leads to {found[1]} bytes at {found[0]} instead of "
                f"{expected[1]} bytes at {expected[0]}"
            )
        elif is_address(found[2]):
            kind = Kind.EXT_UNIT
            reason = self._judge_extension(key, found[2], expected)
            if not reason:
                return
        else:
            kind, reason = Kind.TAGS_CODE, f"tags code {found[2]} instead of {expected[2]}"
        if kind is Kind.TAGS_CODE and self._lost_due_time(key, expected[0], found[2]):
            severity, kind = Severity.NOTE, Kind.DUE_TIME_LOST
            reason = f"the code of a tag instead of the due time {expected[2]}: due at once"
        state.streak.add(severity, kind, self._queues.name_of(key), queue_offset, reason)

    def _lost_due_time(self, key: QueueKey, physical_offset: int, code: int) -> bool:
        """Whether a Java broker's recovery, which knows no delay levels, made this unit."""
        record = self._log.record_at(physical_offset) if key[0] in DUE_TIME_TOPICS else None
        if record is None:
            return False
        return code == dispatch_tags_code(
            record.topic, record.properties, record.store_timestamp, None
        )

    def _judge_extension(self, key: QueueKey, address: int, expected: tuple[int, int, int]) -> str:
        """Return what is wrong with the unit of the extension, empty for nothing."""
        at, unit = self._queues.extension_unit(key, address)
        if unit is None:
            return f"no unit of the extension stands at {at}"
        if unit.tags_code != expected[2] and not self._lost_due_time(
            key, expected[0], unit.tags_code
        ):
            return f"its extension has the tags code {unit.tags_code} instead of {expected[2]}"
        record = self._log.record_at(expected[0])
        if record is not None and unit.store_time != record.store_timestamp:
            return f"its extension has the time {unit.store_time} of another message"
        return ""

    # -- units without a record --------------------------------------------------------------

    def _check_unclaimed(self, key: QueueKey, start: int, end: int | None) -> None:
        """Look at units that no record asked for; with no ``end``, up to the queue's end."""
        log_start = self._log.start
        following = start
        for queue_offset, physical_offset, size, _ in self._queues.units(key, start, end):
            if end is None and queue_offset != following:
                # Readers stop at the first unit that is zero.
                self._note_leftover(key, queue_offset)
                return
            following = queue_offset + 1
            if size == PRE_BLANK_SIZE and physical_offset == 0:
                continue
            if 0 <= physical_offset < log_start:
                continue
            self._judge_unclaimed(key, queue_offset, physical_offset, size)

    def _note_leftover(self, key: QueueKey, queue_offset: int) -> None:
        reason = "units behind the end of the queue, from before it was cut back"
        self._findings.note(Kind.LEFTOVER, self._queues.name_of(key), queue_offset, reason)

    def _judge_unclaimed(
        self, key: QueueKey, queue_offset: int, physical_offset: int, size: int
    ) -> None:
        record = self._log.record_at(physical_offset)
        claims = [] if record is None else queue_claims(record, lmq=self._lmq)
        if record is not None and record.size == size and (*key, queue_offset) in claims:
            return  # A running broker has written it while we read.
        if physical_offset >= self._limit or (
            record is None and self._log.is_deleted(physical_offset)
        ):
            return
        scan = self._scan
        at_tail = physical_offset >= scan.end
        # A tail that was not finished lies in the last file; what leads further has lost a file.
        is_unfinished = at_tail and self._unclean and physical_offset < self._log.end
        severity = Severity.NOTE if is_unfinished else Severity.PROBLEM
        if at_tail and physical_offset >= scan.tail_end:
            kind, reason = Kind.UNIT_AHEAD, f"leads to {physical_offset}, behind the log's end"
        elif record is None and (
            at_tail or scan.damaged_between(physical_offset, physical_offset + 1)
        ):
            kind, reason = Kind.UNIT_TO_DAMAGE, f"leads to the damaged record at {physical_offset}"
        else:
            kind = Kind.UNIT_WRONG
            reason = f"leads to {physical_offset}, where no record of this queue and offset is"
        self._unclaimed.add(severity, kind, self._queues.name_of(key), queue_offset, reason)

    # -- the end -----------------------------------------------------------------------------

    def finish(self) -> None:
        """Report what is only known when the whole log was read."""
        if self._log.has_grown():
            self._limit = self._log.end
        for key, state in self._states.items():
            if state.missing_from >= 0:
                self._report_behind(key, state, self._derived[key].next)
            state.streak.close()
            self._findings.merge(state.findings)
            for first, last in state.gaps:
                self._check_unclaimed(key, first, last)
        for key in self._queues.keys:
            queue = self._derived.get(key)
            start = self._queues.first_offset(key) if queue is None else queue.next
            self._check_unclaimed(key, start, None)
        self._unclaimed.close()

    def _report_behind(self, key: QueueKey, state: _QueueState, end: int) -> None:
        first, physical_offset = state.missing_from, state.missing_physical
        count = end - first
        name = self._queues.name_of(key)
        if self._log.is_deleted(physical_offset):
            return
        if key in self._queues:
            kind = Kind.QUEUE_BEHIND
            reason = (
                f"ends at {first}; {count} records have no unit, the first at {physical_offset}"
            )
        else:
            kind = Kind.QUEUE_MISSING
            reason = f"has no files; {count} records have no unit, the first at {physical_offset}"
        severity = Severity.PROBLEM
        if self._unclean and self._has_directory and not self._was_dispatched(key, physical_offset):
            severity = Severity.NOTE
        elif kind is Kind.QUEUE_MISSING and self._is_deleted_topic(key[0]):
            severity = Severity.NOTE
            reason += "; the broker does not know the topic any more"
        state.findings.add(severity, kind, name, first, reason, count=count)

    def _was_dispatched(self, key: QueueKey, physical_offset: int) -> bool:
        """Whether a record without a unit must have had one: no start would dispatch it first.

        Dispatch goes along the log.  Units at the end of a queue may be lost in a power failure,
        but not those before a checkpoint, nor before a later unit of the same queue; and a queue
        without any file was deleted if another one is further on.
        """
        if physical_offset < self._dispatched:
            return True
        self._queues.refresh(key)
        if key in self._queues:
            return physical_offset < self._queues.last_physical(key)
        return any(
            physical_offset < self._all_queues.last_physical(other) < self._scan.end
            for other in self._all_queues.keys
        )

    def _is_deleted_topic(self, topic: str) -> bool:
        return (
            self._has_directory
            and self._known_topics is not None
            and topic not in self._known_topics
        )
