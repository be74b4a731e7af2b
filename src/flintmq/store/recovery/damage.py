"""Judging damage in the log: where whole records go on behind it, and whether to trust them.

A write that was interrupted leaves damage at the end of the log, and nothing behind it counts.
Damage anywhere else (a bad sector, a stray write) has records behind it that were acknowledged.
The two look alike, so what follows the damage is asked for proof:

- its consume queue leads to it, or the records from there go on to the end of the file;
- it is not older than the records before the damage, as bytes are that a Java broker leaves
  behind the end when it cuts its log;
- no power failure can have torn the damaged range: the machine has not been started anew since,
  or the range was synced before, or it lacks no words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.format.stored.record import Blank
from flintmq.format.stored.record_search import (
    claimed_ends,
    record_behind,
    whole_record,
    written_bounds,
)
from flintmq.store.log.torn_write import is_torn, lacks_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flintmq.format.stored.record import CheckedRecord
    from flintmq.store.files.mapped_file import MappedFile
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.log.record_walk import LogWalk
    from flintmq.store.views.queue_table import QueueTable

OLDER: Final = "what follows is older than the records before it"
UNPROVEN: Final = "no queue leads to what follows, and it does not go on to the end of the file"
TORN: Final = "a power failure may have torn this place, and then what follows was not flushed"


class LogDamage(NamedTuple):
    """Bytes of the log that hold no whole record, between records that are."""

    start: int
    end: int
    reason: str


class Doubt(NamedTuple):
    """Damage behind which whole records stand that nobody should be served."""

    offset: int
    following: int
    reason: str


class UnitProof:
    """Asks the consume queues of a store that was just loaded about records."""

    def __init__(self, queues: QueueTable) -> None:
        self._queues = queues

    def says(self, record: CheckedRecord) -> bool | None:
        """Whether the unit at a record's queue offset leads to it; None when there is no unit."""
        if record.queue_offset < 0:
            return None
        queue = self._queues.find((record.topic.decode("utf-8", "replace"), record.queue_id))
        unit = None if queue is None else queue.unit_at(record.queue_offset)
        if unit is None or unit[1] == 0:
            return None
        return unit[:2] == (record.physical_offset, record.size)


class DamageJudge:
    """Decides for each damaged place whether the log goes on behind it.

    A decision stands once it is made: the queues that prove it are cut and filled afterwards.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        walk: LogWalk,
        *,
        check_crc: bool,
        flushed_time: int,
        machine_ran_on: bool,
    ) -> None:
        """Judge for ``walk``; records older than ``flushed_time`` are known to be synced."""
        self._log = log
        self._proof = UnitProof(queues)
        self._walk = walk
        self._check_crc = check_crc
        self._flushed_time = flushed_time
        self._machine_ran_on = machine_ran_on
        self._decided: dict[int, int | None] = {}
        self.ranges: list[LogDamage] = []
        """What was stepped over, in the order in which it was found."""
        self.doubt: Doubt | None = None
        """Where the log ends although whole records follow."""

    def step_over(self, offset: int, reason: str) -> int | None:
        """Return where records go on behind damage at ``offset``, None where the log ends."""
        if offset not in self._decided:
            self._decided[offset] = self._decide(offset, reason)
        return self._decided[offset]

    def _decide(self, offset: int, reason: str) -> int | None:
        found = self._find_behind(offset)
        if found is None:
            return None
        file, record = found
        doubt = self._doubt(offset, file, record)
        if doubt:
            self.doubt = Doubt(offset, record.physical_offset, doubt)
            return None
        self.ranges.append(LogDamage(offset, record.physical_offset, reason))
        self._walk.damaged_at[offset] = reason
        return record.physical_offset

    # -- searching ---------------------------------------------------------------------------

    def _find_behind(self, offset: int) -> tuple[MappedFile, CheckedRecord] | None:
        """Return the next record behind damage that is good in itself, and its file."""
        for file in self._log.files_from(offset):
            if file.first_offset > offset:
                record = self._good_record(file, 0)
                if record is not None:
                    return file, record
            for position in self._following(file, max(offset - file.first_offset, 0)):
                record = self._good_record(file, position)
                if record is not None:
                    return file, record
        return None

    def _following(self, file: MappedFile, position: int) -> Iterator[int]:
        """Yield where records may stand in a file behind damage at ``position``."""
        ranges = list(file.region.data_ranges(position + 1))
        while True:
            left = [(max(begin, position + 1), end) for begin, end in ranges if end > position + 1]
            following = record_behind(
                file.view,
                position,
                left,
                self._proof,
                stop=file.size,
                limit=file.size,
                base=file.first_offset,
            )
            if following is None:
                return
            position = following
            yield position

    def _good_record(self, file: MappedFile, position: int) -> CheckedRecord | None:
        """Return the record at a position of a file if the walk will take it."""
        record = whole_record(
            file.view, position, file.size, file.first_offset, check_crc=self._check_crc
        )
        if record is None or isinstance(record, Blank):
            return None
        offset = file.first_offset + position
        if offset >= self._walk.torn_from and is_torn(record, file.view, position):
            return None
        return record

    def records_behind(self, offset: int) -> Iterator[CheckedRecord]:
        """Yield every record from ``offset`` on that is good in itself, trusted or not."""
        for file in self._log.files_from(offset):
            position = max(offset - file.first_offset, 0)
            record = self._good_record(file, position)
            while True:
                if record is not None:
                    yield record
                    position += record.size
                    if position >= file.size:
                        break
                    record = self._good_record(file, position)
                    continue
                following = next(self._following(file, position), None)
                if following is None:
                    break
                position = following
                record = self._good_record(file, position)

    # -- judging -----------------------------------------------------------------------------

    def _doubt(self, offset: int, file: MappedFile, record: CheckedRecord) -> str:
        """Return why a record behind damage must not be served, empty if it may be."""
        if record.store_timestamp < self._walk.last_time:
            return OLDER
        if not self._is_proven(offset, file, record):
            return UNPROVEN
        if (
            offset >= self._walk.torn_from
            and not self._machine_ran_on
            and record.store_timestamp >= self._flushed_time
            and self._lacks_words(offset, record.physical_offset)
        ):
            return TORN
        return ""

    def _is_proven(self, offset: int, file: MappedFile, record: CheckedRecord) -> bool:
        position = record.physical_offset - file.first_offset
        at = offset - file.first_offset
        if position == 0 or self._proof.says(record):
            return True
        if at >= 0 and position in claimed_ends(file.view, at, file.size, file.first_offset):
            return True
        return self._goes_on(file, position)

    def _goes_on(self, file: MappedFile, position: int) -> bool:
        """Whether records follow one another from a position to the end of what was written.

        Bytes in a body that look like records end within that body.
        """
        view, size, base = file.view, file.size, file.first_offset
        while position < size:
            record = whole_record(view, position, size, base, check_crc=True)
            if isinstance(record, Blank):
                return True
            if record is not None:
                said = self._proof.says(record)
                if said is not None:
                    return said
                position += record.size
                continue
            ends = claimed_ends(view, position, size, base)
            following = next((end for end in ends if whole_record(view, end, size, base)), None)
            if following is None:
                rest = file.region.data_ranges(position)
                return written_bounds(view, rest, size) is None
            position = following
        return True

    def _lacks_words(self, start: int, end: int) -> bool:
        for file in self._log.files_from(start):
            base = file.first_offset
            if base >= end:
                break
            if lacks_words(file.view, max(start - base, 0), min(end - base, file.size), base):
                return True
        return self._log.files.find(start) is None
