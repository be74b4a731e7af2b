"""The data source ``flintmq``: store directories as tables."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from flintmq.spark.batches import BatchReader
from flintmq.spark.columns import arrow_schema, table_schema
from flintmq.spark.options import OnCorrupt, ReadOptions, parse_on_corrupt, parse_options
from flintmq.spark.plan import plan_splits
from flintmq.spark.row_filter import RowFilter
from flintmq.spark.split_scan import LogSplit


class FlintSource(DataSource):
    """Messages of one or more store directories, written by FlintMQ or by RocketMQ 4.9."""

    @classmethod
    def name(cls) -> str:
        """Return the name that ``format`` takes."""
        return "flintmq"

    def schema(self) -> StructType:
        """Return all columns; a schema that the user gives picks some of them instead."""
        return table_schema(with_corrupt=parse_on_corrupt(self.options) is OnCorrupt.ROW)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns of ``schema``.

        Spark refuses a reader that takes filters unless its own setting allows them.
        """
        options = parse_options(self.options)
        kind = FilteringLogReader if options.filter_pushdown else LogReader
        return kind(options, arrow_schema(schema))


class LogReader(DataSourceReader):
    """Plans splits on the driver and reads them on the executors."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._filter = RowFilter.from_options(self._options)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the splits."""
        return plan_splits(self._options, self._filter.store_time)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split."""
        assert isinstance(partition, LogSplit)
        on_corrupt = self._options.on_corrupt
        return BatchReader(partition, self._schema, self._filter, on_corrupt).batches()


class FilteringLogReader(LogReader):
    """The same, with filters that Spark hands over.

    It is only for who asks for it: Spark (4.3.0 at least) keeps the reader with its filters for
    the next query on the same DataFrame, which then lacks rows.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take over the filters on fields that every record has; Spark applies the others."""
        yield from self._filter.push(filters)
