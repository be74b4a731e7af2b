"""Selecting stored messages: by queue, by time, by key, or all.

Consume queues and index are used where they reach; the log is scanned for what they lack, so a
message is found even if it was not dispatched yet.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from flintmq.format.delay_levels import DelayLevels
from flintmq.format.stored.consume_queue import PRE_BLANK_SIZE
from flintmq.format.stored.dispatch_fields import index_keys
from flintmq.format.stored.queue_claims import queue_claims
from flintmq.format.stored.record import CheckedRecord
from flintmq.offline.errors import RequestError
from flintmq.offline.findings import Findings, Kind
from flintmq.offline.index_geometry import find_geometry
from flintmq.offline.layout import QueueKey, StoreLayout
from flintmq.offline.log_files import LogFiles
from flintmq.offline.queue_files import QueueFiles
from flintmq.offline.readable_bodies import BODY_SHOWN_MAX, BodyForm
from flintmq.offline.regions import Regions
from flintmq.offline.scan import LogScan, Progress
from flintmq.offline.stored_messages import MessageFields
from flintmq.store.clock import SystemClock
from flintmq.store.views.key_index import KeyIndex

TIME_SLACK_MS: Final = 600_000
"""Store times ascend with the log as far as the broker's clock does; it may be set back so far."""

_TIME_MAX: Final = 1 << 62
_RESULTS_MAX: Final = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which messages to give; what is None does not restrict.

    ``start`` (inclusive) and ``end`` (exclusive) are queue offsets where ``queue_id`` is given,
    else store times.  With ``scan`` neither queues nor index are trusted.
    """

    topic: str | None = None
    queue_id: int | None = None
    start: int | None = None
    end: int | None = None
    key: str | None = None
    limit: int | None = None
    scan: bool = False

    def __post_init__(self) -> None:
        if self.queue_id is not None and self.topic is None:
            raise RequestError("a queue id needs the topic it belongs to")

    @property
    def queue(self) -> QueueKey | None:
        """The queue that is asked for, if it is just one."""
        if self.topic is None or self.queue_id is None:
            return None
        return self.topic, self.queue_id


class Dump:
    """Gives the selected messages in log order; ``findings`` tells what could not be read."""

    def __init__(
        self,
        layout: StoreLayout,
        selection: Selection,
        *,
        delay_levels: DelayLevels,
        progress: Progress | None = None,
        body_form: BodyForm | None = None,
        body_shown_max: int = BODY_SHOWN_MAX,
    ) -> None:
        """Select from the store of ``layout``; bodies are left out without a ``body_form``."""
        self._layout = layout
        self._selection = selection
        self._delay_levels = delay_levels
        self._progress = progress
        self._body_form = body_form
        self._body_shown_max = body_shown_max
        self._regions = Regions(layout.files)
        self._log = LogFiles(layout, self._regions)
        self._queues = QueueFiles(layout, self._regions)
        self.findings = Findings()

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the fields of the selected messages (see `MessageFields.of`)."""
        fields = MessageFields(
            self._queues,
            delay_levels=self._delay_levels,
            body_form=self._body_form,
            body_shown_max=self._body_shown_max,
        )
        given = 0
        with self._regions:
            for offset in self._offsets():
                if self._selection.limit is not None and given >= self._selection.limit:
                    return
                record = self._log.decode(offset)
                if record is None:
                    reason = "the record is gone, or its topic is not UTF-8"
                    self.findings.problem(Kind.DAMAGED_RECORD, "", offset, reason)
                    continue
                message = fields.of(record)
                if "crcOk" in message:
                    reason = "the body does not match its checksum"
                    self.findings.problem(Kind.CHECKSUM, "", offset, reason)
                yield message
                given += 1

    def _offsets(self) -> Iterator[int]:
        selection = self._selection
        if selection.scan or (selection.queue is None and selection.key is None):
            return self._scan(self._start_by_time())
        if selection.key is not None:
            return self._by_key(selection.key)
        assert selection.queue is not None
        return self._by_queue(selection.queue)

    # -- the log -----------------------------------------------------------------------------

    def _scan(self, start: int | None, end: int | None = None) -> Iterator[int]:
        """Yield the selected records that stand from ``start`` to before ``end``."""
        scan = LogScan(self._log, check_crc=False, start=start, progress=self._progress)
        wanted = self._is_wanted
        time_end = self._time_end()
        with closing(scan.batches()) as batches:
            for batch in batches:
                for record in batch:
                    if end is not None and record.physical_offset >= end:
                        return
                    if wanted(record):
                        yield record.physical_offset
                if time_end is not None and batch[0].store_timestamp >= time_end:
                    return
        for damage in scan.damages:
            self.findings.problem(damage.kind, damage.file, damage.start, damage.reason)

    def _is_wanted(self, record: CheckedRecord) -> bool:
        selection = self._selection
        queue = selection.queue
        if queue is not None:
            claims = queue_claims(record, lmq=self._layout.lmq)
            position = next((at for *claim, at in claims if tuple(claim) == queue), None)
            if position is None:
                return False
        else:
            position = record.store_timestamp
            if selection.topic is not None and record.topic != selection.topic.encode():
                return False
        if selection.start is not None and position < selection.start:
            return False
        if selection.end is not None and position >= selection.end:
            return False
        return selection.key is None or selection.key.encode() in index_keys(record.properties)

    def _start_by_time(self) -> int | None:
        """Return the file to start with, None for the first, when a time is asked for."""
        if self._selection.start is None or self._selection.queue is not None:
            return None
        for file in reversed(self._log.files):
            time = self._log.first_store_time(file)
            if time is not None and time < self._selection.start - TIME_SLACK_MS:
                return file.first_offset
        return None

    def _time_end(self) -> int | None:
        if self._selection.end is None or self._selection.queue is not None:
            return None
        return self._selection.end + TIME_SLACK_MS

    # -- one queue ---------------------------------------------------------------------------

    def _by_queue(self, key: QueueKey) -> Iterator[int]:
        """Follow the units of a queue, then look for records that have no unit yet."""
        start, end = self._selection.start or 0, self._selection.end
        following = start
        for queue_offset, physical_offset, size, _ in self._queues.units(key, start, end):
            expired = 0 <= physical_offset < self._log.start
            if expired or (size == PRE_BLANK_SIZE and physical_offset == 0):
                continue
            record = self._log.record_at(physical_offset)
            claim = (*key, queue_offset)
            if record is None or claim not in queue_claims(record, lmq=self._layout.lmq):
                reason = f"leads to {physical_offset}, where no such record is"
                name = self._queues.name_of(key)
                self.findings.problem(Kind.UNIT_WRONG, name, queue_offset, reason)
                continue
            following = queue_offset + 1
            if self._selection.key is None or self._is_wanted(record):
                yield physical_offset
        if end is None or following < end:
            yield from self._undispatched(key, following)

    def _undispatched(self, key: QueueKey, following: int) -> Iterator[int]:
        """Yield records of a queue, from an offset on, behind the last unit of any queue."""
        for physical_offset in self._scan(max(self._dispatched_end(), self._log.start)):
            record = self._log.record_at(physical_offset)
            if record is not None and any(
                claim[:2] == key and claim[2] >= following
                for claim in queue_claims(record, lmq=self._layout.lmq)
            ):
                yield physical_offset

    def _dispatched_end(self) -> int:
        """Return where the last record that has a unit ends; the log's start without any."""
        ends = [self._log.start]
        for key in self._queues.keys:
            last = self._queues.end(key) - 1
            unit = self._queues.unit_at(key, last) if last >= 0 else None
            if unit is not None and unit[1] != PRE_BLANK_SIZE:
                ends.append(unit[0] + unit[1])
        # A unit that leads behind the log proves nothing.
        log_end = self._log.files[-1].first_offset + self._log.file_size if self._log.files else 0
        return max(end for end in ends if end <= log_end or end == self._log.start)

    # -- one key -----------------------------------------------------------------------------

    def _by_key(self, key: str) -> Iterator[int]:
        """Ask the index, and scan the log before its first and behind its last entry."""
        found = self._ask_index(key)
        if found is None:
            yield from self._scan(None)
            return
        offsets, begin, end = found
        if begin > self._log.start:
            yield from self._scan(None, begin)
        wanted = set()
        for offset in offsets:
            record = self._log.record_at(offset)
            # Only hashes are in the index, so another key may have led here.
            if record is not None and self._is_wanted(record):
                wanted.add(offset)
        yield from sorted(wanted)
        yield from (offset for offset in self._scan(end) if offset not in wanted)

    def _ask_index(self, key: str) -> tuple[list[int], int, int] | None:
        """Return the offsets for a key, and from where to where the index reaches."""
        layout = self._layout
        geometry = find_geometry(layout, self._regions)
        if geometry is None or not layout.index_files:
            return None
        index = KeyIndex(
            layout.index_directory,
            slots=geometry.slots,
            entries=geometry.entries,
            files=layout.files,
            clock=SystemClock(),
        )
        with closing(index):
            index.load(read_only=True)
            used = [file for file in index.files if file.count > 1]
            if not used or self._log.record_at(index.end_offset) is None:
                return None
            topics = {topic for topic, _ in layout.queues}
            if self._selection.topic is not None:
                topics = {self._selection.topic}
            offsets = [
                offset
                for topic in topics
                for offset in index.query(topic, key, _RESULTS_MAX, 0, _TIME_MAX)
            ]
            return offsets, used[0].begin_offset, index.end_offset
