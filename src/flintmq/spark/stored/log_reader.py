"""Store directories as a table of messages: the readers that Spark sees."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from flintmq.spark.options.store_options import ReadOptions
from flintmq.spark.stored.log_read import LogRead
from flintmq.spark.stored.log_split import LogSplit
from flintmq.spark.stored.split_plan import broker_name, plan_splits, store_directories


class LogReader(DataSourceReader):
    """Plans splits on the driver and reads them on the executors."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self._options = options
        self._read = LogRead.from_options(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the splits."""
        options = self._options
        directories = store_directories(options.paths)
        options.offsets.check_brokers(
            broker_name(directory, options.broker_names) for directory in directories
        )
        return plan_splits(options, self._read.row_filter.store_time, self._read.reach)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split."""
        # Where there is no split, Spark hands over a partition of its own.
        if isinstance(partition, LogSplit):
            yield from self._read.batches(partition)


class FilteringLogReader(LogReader):
    """Reads splits as `LogReader` does, and checks filters that Spark hands over.

    It is used only where the option asks for it: Spark (4.3.0 at least) keeps the reader with its
    filters for the next query on the same DataFrame, which then lacks rows.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take over the filters that can be checked here; Spark applies the others."""
        yield from self._read.push(filters)
