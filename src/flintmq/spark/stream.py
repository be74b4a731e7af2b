"""Store directories as a stream: it follows each log as a broker appends to it.

The offset of the stream is a JSON object from directory to the place in its log that is read
next.  A micro-batch reads from one offset to another with the splits and the reader of a batch,
so it gives the same rows whenever it is repeated.  Live topics (the option ``namesrv``) have a
reader of their own, `flintmq.spark.live.stream`.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from flintmq.spark.errors import DataLossError
from flintmq.spark.log_end import Allowance, LogEnd, LogRange
from flintmq.spark.log_read import LogRead
from flintmq.spark.options import StreamOptions
from flintmq.spark.plan import StorePlan, store_directories
from flintmq.spark.read_limit import read_limit
from flintmq.spark.split_scan import LogSplit

logger = logging.getLogger(__name__)

Places: TypeAlias = dict[str, int]
"""Physical offsets by directory."""


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads logs as far as they are whole, and then what is new."""

    def __init__(self, options: StreamOptions, schema: pa.Schema) -> None:
        self._options = options
        self._read = LogRead.from_options(options.read, schema)
        self._logs: dict[str, LogEnd] = {}
        self._target: Places | None = None

    def initialOffset(self) -> Places:
        """Return where a new query begins: at the start of each log, or at its end."""
        from_latest = self._options.from_latest
        return {
            name: found.end if from_latest else found.start for name, found in self._look().items()
        }

    def latestOffset(self, start: Places, limit: ReadLimit) -> Places:
        """Return how far the next micro-batch goes."""
        allowance = self._allowance(limit)
        ranges = {
            name: self._range(name, start.get(name, found.start), found)
            for name, found in self._look().items()
        }
        self._check_missing(start, ranges)
        latest = {name: end for name, (_, end) in ranges.items()}
        if not allowance.is_unlimited:
            # The log with least to give comes first: what it leaves of its share goes to others.
            news = sorted(
                (name for name in ranges if ranges[name].start < ranges[name].end),
                key=lambda name: ranges[name].end - ranges[name].start,
            )
            for number, name in enumerate(news):
                begin, end = ranges[name]
                share = allowance.share(len(news) - number)
                latest[name] = min(end, self._logs[name].advance(begin, share))
        return latest

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return what the options allow a micro-batch."""
        options = self._options
        return read_limit(bytes_max=options.bytes_max, rows_max=options.rows_max)

    def reportLatestOffset(self) -> Places:
        """Return where the logs end now."""
        return {name: found.end for name, found in self._look().items()}

    def prepareForTriggerAvailableNow(self) -> None:
        """Note where the logs end: this query reads no further."""
        self._target = self.reportLatestOffset()

    def partitions(self, start: Places, end: Places) -> Sequence[InputPartition]:
        """Return the splits of what lies between two offsets."""
        splits: list[InputPartition] = []
        for name, stop in end.items():
            plan = StorePlan(Path(name), self._options.read)
            files = plan.layout.log_files
            first = files[0].first_offset if files else 0
            begin = self._begin(name, start.get(name, first), LogRange(first, stop))
            splits += plan.between(begin, stop)
        return splits

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split."""
        if isinstance(partition, LogSplit):
            yield from self._read.batches(partition)

    def commit(self, end: Places) -> None:
        """Do nothing: the checkpoint of the query is the only memory there is."""

    def _look(self) -> dict[str, LogRange]:
        found: dict[str, LogRange] = {}
        for directory in store_directories(self._options.read.paths):
            name = str(directory)
            if name not in self._logs:
                self._logs[name] = LogEnd(directory, self._options.read)
            found[name] = self._logs[name].look()
        return found

    def _range(self, name: str, wanted: int, found: LogRange) -> LogRange:
        """Return what of a log is new to a stream that has come to ``wanted``."""
        begin = self._begin(name, wanted, found)
        end = found.end
        if self._target is not None:
            end = min(end, self._target.get(name, begin))
        return LogRange(begin, max(begin, end))

    def _begin(self, name: str, wanted: int, found: LogRange) -> int:
        """Return where to go on in a log; DataLossError if that is gone."""
        if found.start <= wanted <= found.end:
            return wanted
        if wanted < found.start:
            reason = f"the log starts at {found.start}, while the stream has come to {wanted}"
            begin = found.start
        else:
            reason = f"the log ends at {found.end}, while the stream has come to {wanted}"
            begin = found.end
        self._lose(name, reason)
        return begin

    def _check_missing(self, start: Places, found: Collection[str]) -> None:
        for name in start:
            if name not in found:
                self._lose(name, "the directory is gone")

    def _lose(self, name: str, reason: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(name, reason)
        logger.warning("stream goes on over a gap: store=%s reason=%s", name, reason)

    def _allowance(self, limit: ReadLimit) -> Allowance:
        if isinstance(limit, ReadAllAvailable):
            return Allowance()
        return Allowance(self._options.bytes_max, self._options.rows_max)
