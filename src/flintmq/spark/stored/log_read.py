"""How splits of a log become rows: which ranges of each are read, and which rows are kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flintmq.spark.options.store_options import AccessPath, OnCorrupt
from flintmq.spark.rows.conditions import RowConditions
from flintmq.spark.rows.row_filter import RowFilter
from flintmq.spark.stored.reach import OffsetReach

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from flintmq.spark.options.store_options import ReadOptions
    from flintmq.spark.stored.log_ranges import Guide
    from flintmq.spark.stored.log_split import LogSplit
    from flintmq.spark.stored.split_batches import FileDeleted, PassedOver


@dataclass(slots=True)
class LogRead:
    """Reads splits as batches of a schema, batch and stream alike."""

    schema: pa.Schema
    row_filter: RowFilter
    conditions: RowConditions
    on_corrupt: OnCorrupt
    access_path: AccessPath

    @classmethod
    def from_options(cls, options: ReadOptions, schema: pa.Schema) -> LogRead:
        """Return how to read what the options ask for."""
        row_filter = RowFilter.from_options(options)
        if options.queue_ids is not None:
            row_filter.queue_id.only(options.queue_ids)
        conditions = RowConditions.from_options(options)
        return cls(schema, row_filter, conditions, options.on_corrupt, options.access_path)

    @property
    def reach(self) -> OffsetReach:
        """What tells which range of a log can hold wanted records."""
        return OffsetReach(self.row_filter, self.conditions.offsets)

    def push(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Take over the filters that are understood, yield the others."""
        return self.conditions.push(self.row_filter.push(filters))

    def batches(
        self,
        split: LogSplit,
        passed_over: PassedOver | None = None,
        deleted: FileDeleted | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the wanted rows of a split, in log order."""
        # Planning, which reads nothing, is a process of its own and starts without machine code.
        from flintmq.spark.stored.split_batches import BatchReader

        schema = self.conditions.widen(self.schema)
        for smaller in self.narrowed(split):
            reader = BatchReader(
                smaller, schema, self.row_filter, self.on_corrupt, passed_over, deleted
            )
            for batch in reader.batches():
                kept = self.conditions.apply(batch, self.schema)
                if kept.num_rows:
                    yield kept

    def narrowed(self, split: LogSplit) -> list[LogSplit]:
        """Return the ranges of a split that are worth reading, as smaller splits."""
        for guide in self.guides():
            ranges = guide.ranges(split)
            if ranges is not None:
                return [replace(split, start=start, end=end) for start, end in ranges]
        return [split]

    def guides(self) -> list[Guide]:
        """Return what leads to the wanted records, the quickest first."""
        from flintmq.spark.stored.key_guide import KeyGuide
        from flintmq.spark.stored.queue_guide import QueueGuide

        # Where damage gives rows, all of the log must be looked at to find it.
        by_itself = self.access_path is AccessPath.AUTO and self.on_corrupt is not OnCorrupt.ROW
        topics, keys = self.row_filter.topics, self.conditions.wanted_keys
        guides: list[Guide] = []
        if topics is None:
            return guides
        if keys is not None and (by_itself or self.access_path is AccessPath.INDEX):
            guides.append(KeyGuide(frozenset(topic.decode() for topic in topics), keys))
        if by_itself or self.access_path is AccessPath.QUEUE:
            guides.append(QueueGuide(self.row_filter))
        return guides
