"""What all tables have in common: columns, splits, rows, and the reader that Spark sees."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from flintmq.spark.options.store_options import ReadOptions
from flintmq.spark.rows.columns import ColumnSet
from flintmq.spark.stored.split_plan import broker_name, store_directories


@dataclass(frozen=True, kw_only=True)
class StoreSplit(InputPartition):
    """The share of one store directory that a task reads."""

    store: str
    broker_name: str | None

    @property
    def constants(self) -> dict[str, Any]:
        """The columns that are the same in all rows."""
        return {"brokerName": self.broker_name, "path": self.store}


class RowSource(Protocol):
    """Where the rows of one table come from."""

    columns: ColumnSet

    def splits(self, store: StoreSplit, options: ReadOptions) -> Sequence[StoreSplit]:
        """Return the splits of a store, each of which one task reads."""
        ...

    def rows(
        self, split: StoreSplit, options: ReadOptions
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield, for batches of rows, their number and columns: arrays, lists or one value."""
        ...


class TableReader(DataSourceReader):
    """Plans the splits of a table on the driver and reads them on the executors."""

    def __init__(self, table: RowSource, options: ReadOptions, schema: pa.Schema) -> None:
        self._table = table
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the splits of all directories."""
        options = self._options
        stores = [
            StoreSplit(store=str(path), broker_name=broker_name(path, options.broker_names))
            for path in store_directories(options.paths)
        ]
        options.offsets.check_brokers(store.broker_name for store in stores)
        return [split for store in stores for split in self._table.splits(store, options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split."""
        # Where there is no split, Spark hands over a partition of its own.
        if not isinstance(partition, StoreSplit):
            return
        for count, columns in self._table.rows(partition, self._options):
            if count:
                yield self._batch(count, {**columns, **partition.constants})

    def _batch(self, count: int, columns: Mapping[str, Any]) -> pa.RecordBatch:
        arrays = []
        for field in self._schema:
            values = columns[field.name]
            if values is None or isinstance(values, str | int):
                arrays.append(pa.repeat(pa.scalar(values, field.type), count))
            elif isinstance(values, pa.Array):
                arrays.append(values.cast(field.type))
            else:
                arrays.append(pa.array(values, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def root_of(split: StoreSplit) -> Path:
    """Return the directory of a split's store."""
    return Path(split.store)
