"""Store directories as a stream: it follows each log as a broker appends to it.

The offset of the stream is a JSON object from directory to `LogPosition`: the physical offset that
is read next, where the micro-batch that ends there began, and the record before, which proves that
the log is still the same.  So the end of a micro-batch tells all that it covers, and it gives the
same rows whenever it is repeated, or an error.  Live topics (the option ``namesrv``) have a reader
of their own, `flintmq.spark.live.live_stream`.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from flintmq.offline.errors import NotAStoreError
from flintmq.offline.layout import find_log
from flintmq.spark.errors import DataLossError, OptionError
from flintmq.spark.options.read_limit import read_limit
from flintmq.spark.options.store_options import StreamOptions
from flintmq.spark.stored.log_follower import Allowance, LogFollower, LogRange
from flintmq.spark.stored.log_identity import (
    RecordIdentity,
    first_after,
    is_same_log,
    record_before,
)
from flintmq.spark.stored.log_read import LogRead
from flintmq.spark.stored.log_split import LogSplit
from flintmq.spark.stored.split_plan import StoreSplits, store_directories
from flintmq.spark.stored.split_scan import SplitDamage

logger = logging.getLogger(__name__)

StreamOffset: TypeAlias = dict[str, Any]
"""Positions by directory, as JSON has them; checkpoints of earlier versions have numbers."""


class LogPosition(NamedTuple):
    """How far a stream has come in a log, as physical offsets.

    ``begin`` is where the micro-batch began that ends at ``offset``, None if nobody knows.
    ``last`` is the record before ``offset``, None if there was none or nobody knows.
    """

    offset: int
    begin: int | None = None
    last: RecordIdentity | None = None

    @classmethod
    def from_members(cls, members: Any) -> "LogPosition":
        """Return the position that JSON tells."""
        if isinstance(members, int):
            return cls(members)
        last = RecordIdentity.from_members(members["last"])
        return cls(members["offset"], members["begin"], last)

    def members(self) -> dict[str, Any]:
        """Return the position as JSON has it."""
        last = None if self.last is None else list(self.last)
        return {"offset": self.offset, "begin": self.begin, "last": last}


@dataclass(frozen=True, kw_only=True)
class StreamSplit(LogSplit):
    """A split of a micro-batch; ``last`` is the record that the micro-batch ends with."""

    last: RecordIdentity | None = None

    @classmethod
    def of(cls, split: LogSplit, last: RecordIdentity | None) -> "StreamSplit":
        """Return a split as one of a micro-batch."""
        return cls(**{one.name: getattr(split, one.name) for one in fields(LogSplit)}, last=last)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads logs as far as they are whole, and then what is new."""

    def __init__(self, options: StreamOptions, schema: pa.Schema) -> None:
        self._options = options
        self._read = LogRead.from_options(options.read, schema)
        self._logs: dict[str, LogFollower] = {}
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> StreamOffset:
        """Return where a new query begins: at the start of each log, or at its end."""
        from_latest = self._options.from_latest
        places = {
            name: found.end if from_latest else found.start for name, found in self._look().items()
        }
        return {name: self._position(name, at, at).members() for name, at in places.items()}

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        """Return how far the next micro-batch goes."""
        allowance = self._allowance(limit)
        positions = _positions(start)
        looked = self._look(positions)
        self._check_missing(positions, looked)
        ranges = {
            name: self._range(name, positions.get(name), found) for name, found in looked.items()
        }
        ends = {name: end for name, (_, end) in ranges.items()}
        if not allowance.is_unlimited:
            # The log with least to give comes first: what it leaves of its share goes to others.
            news = sorted(
                (name for name in ranges if ranges[name].start < ranges[name].end),
                key=lambda name: ranges[name].end - ranges[name].start,
            )
            for number, name in enumerate(news):
                begin, end = ranges[name]
                share = allowance.share(len(news) - number)
                ends[name] = min(end, self._logs[name].advance(begin, share))
        # What has nothing new keeps its position as it is: equal offsets end a query's waiting.
        latest: dict[str, Any] = dict(start)
        for name, end in ends.items():
            begin = ranges[name].start
            before = positions.get(name)
            if before is None or (begin, end) != (before.offset, before.offset):
                latest[name] = self._position(name, begin, end).members()
        return latest

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return what the options allow a micro-batch."""
        options = self._options
        return read_limit(bytes_max=options.bytes_max, rows_max=options.rows_max)

    def reportLatestOffset(self) -> StreamOffset:
        """Return where the logs end now."""
        looked = self._look(self._logs)
        return {name: LogPosition(found.end).members() for name, found in looked.items()}

    def prepareForTriggerAvailableNow(self) -> None:
        """Note where the logs end: this query reads no further."""
        # Which logs the query knows nobody says yet; if one may be away, it is left for later.
        known = () if self._options.fail_on_data_loss else self._options.read.paths
        self._target = {name: found.end for name, found in self._look(known).items()}

    def partitions(self, start: StreamOffset, end: StreamOffset) -> Sequence[InputPartition]:
        """Return the splits of what lies between two offsets.

        Raises:
            DataLossError: something of it is gone, or another log is in its place.
        """
        splits: list[InputPartition] = []
        before = _positions(start)
        for name, position in _positions(end).items():
            first = position.begin
            if first is None:
                known = before.get(name)
                first = self._first_offset(name) if known is None else known.offset
            if first < position.offset and position != before.get(name):
                splits += self._splits(name, first, position)
        return splits

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split."""
        if not isinstance(partition, LogSplit):
            return
        yield from self._read.batches(partition, _note_damage, self._lose_file)
        last = partition.last if isinstance(partition, StreamSplit) else None
        # The log may have been cut back while it was read.
        if last is not None and not is_same_log(find_log(Path(partition.store)), last):
            self._lose(partition.store, _another_record(last))

    def commit(self, end: StreamOffset) -> None:
        """Do nothing: the checkpoint of the query is the only memory there is."""

    def _look(self, known: Collection[str] = ()) -> dict[str, LogRange]:
        """Return where the logs that are there start and end; ``known`` ones may be away."""
        found: dict[str, LogRange] = {}
        try:
            directories = store_directories(self._options.read.paths)
        except OptionError:
            if not known:
                raise
            directories = []  # All that a pattern has named are away.
        for directory in directories:
            name = str(directory)
            log = self._logs.get(name) or LogFollower(directory, self._options.read)
            try:
                found[name] = log.look()
            except NotAStoreError:
                if name not in known:
                    raise
            else:
                self._logs[name] = log
        return found

    def _plan(self, name: str) -> StoreSplits | None:
        """Return what plans the splits of a store, None if it is away."""
        try:
            return StoreSplits(Path(name), self._options.read)
        except NotAStoreError:
            return None

    def _first_offset(self, name: str) -> int:
        files = find_log(Path(name)).log_files
        return files[0].first_offset if files else 0

    def _position(self, name: str, begin: int, end: int) -> LogPosition:
        plan = StoreSplits(Path(name), self._options.read, log_only=True)
        return LogPosition(end, begin, record_before(plan, end, start=begin))

    def _splits(self, name: str, first: int, position: LogPosition) -> list[InputPartition]:
        """Return the splits of one log up to a position."""
        plan = self._plan(name)
        if plan is None:
            self._lose(name, "the directory is gone")
            return []
        files = plan.layout.log_files
        begin = files[0].first_offset if files else 0
        if first < begin:
            reason = f"the log starts at {begin}, while the stream has come to {first}"
            self._lose(name, reason)
        if position.last is not None and not is_same_log(plan.layout, position.last):
            self._lose(name, _another_record(position.last))
        found = plan.between(max(first, begin), position.offset)
        return [StreamSplit.of(split, position.last) for split in found]

    def _range(self, name: str, before: LogPosition | None, found: LogRange) -> LogRange:
        """Return what of a log is new to a stream that has come to a position."""
        begin, end = found if before is None else self._going_on(name, before, found)
        if self._target is not None:
            end = min(end, self._target.get(name, begin))
        return LogRange(begin, max(begin, end))

    def _going_on(self, name: str, before: LogPosition, found: LogRange) -> LogRange:
        """Return where to go on in a log, and where it ends; DataLossError if that is gone."""
        wanted = before.offset
        plan = StoreSplits(Path(name), self._options.read, log_only=True)
        if not plan.layout.log_files and wanted > found.end:
            self._lose(name, f"the log has no file, while the stream has come to {wanted}")
            return LogRange(wanted, found.end)  # It may be away for a moment only.
        if before.last is not None and not is_same_log(plan.layout, before.last):
            self._lose(name, _another_record(before.last))
            # What was known of the log does not hold for this one.
            self._logs[name] = LogFollower(Path(name), self._options.read)
            end = self._logs[name].look().end
            return LogRange(first_after(plan, before.last.store_timestamp, end), end)
        if wanted < found.start:
            reason = f"the log starts at {found.start}, while the stream has come to {wanted}"
            self._lose(name, reason)
            return found
        if wanted > found.end:
            self._lose(name, f"the log ends at {found.end}, while the stream has come to {wanted}")
            return LogRange(found.end, found.end)
        return LogRange(wanted, found.end)

    def _check_missing(
        self, known: Mapping[str, LogPosition], found: Mapping[str, LogRange]
    ) -> None:
        for name in known:
            if name not in found:
                self._lose(name, "the directory is gone")

    def _lose_file(self, path: str, damage: SplitDamage) -> None:
        """Tell of a file that was deleted between the plan of a batch and its reading."""
        self._lose(path, f"{damage.reason}: from {damage.start} to {damage.end}")

    def _lose(self, name: str, reason: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(name, reason)
        logger.warning("stream goes on over a gap: store=%s reason=%s", name, reason)

    def _allowance(self, limit: ReadLimit) -> Allowance:
        if isinstance(limit, ReadAllAvailable):
            return Allowance()
        return Allowance(self._options.bytes_max, self._options.rows_max)


def _note_damage(damage: SplitDamage) -> None:
    logger.warning("damage is left out: start=%d end=%d", damage.start, damage.end)


def _positions(offset: StreamOffset) -> dict[str, LogPosition]:
    return {name: LogPosition.from_members(members) for name, members in offset.items()}


def _another_record(record: RecordIdentity) -> str:
    return (
        f"the record at {record.physical_offset} is not the one that was read: the log was cut "
        "back and written anew, or is another one"
    )
