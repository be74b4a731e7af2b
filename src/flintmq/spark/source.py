"""The data source ``flintmq``: store directories and live topics as tables and streams."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from flintmq.spark.live.live_columns import OutputColumns, live_schema
from flintmq.spark.live.live_options import is_live, parse_batch, parse_columns, parse_stream
from flintmq.spark.live.live_reader import LiveReader
from flintmq.spark.live.live_stream import LiveStreamReader
from flintmq.spark.options.store_options import (
    OnCorrupt,
    ReadOptions,
    Source,
    parse_on_corrupt,
    parse_options,
    parse_source,
    parse_stream_options,
)
from flintmq.spark.rows.columns import arrow_schema, table_schema
from flintmq.spark.sink.writer import batch_writer, stream_writer
from flintmq.spark.stored.log_read import LogRead
from flintmq.spark.stored.log_stream import LogStreamReader
from flintmq.spark.stored.split_plan import broker_name, plan_splits, store_directories
from flintmq.spark.stored.split_scan import LogSplit
from flintmq.spark.stored.tables import RowSource, TableReader, row_source_of


class FlintSource(DataSource):
    """Messages of one or more store directories, written by FlintMQ or by RocketMQ 4.9.

    The option ``source`` picks another table of them: queues, index, offsets, topics, groups.
    The option ``namesrv`` picks a running cluster instead of directories.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name that ``format`` takes."""
        return "flintmq"

    def schema(self) -> StructType:
        """Return all columns; a schema that the user gives picks some of them instead."""
        if is_live(self.options):
            return live_schema(parse_columns(self.options))
        table = self._table()
        if table is not None:
            return table.columns.struct()
        return table_schema(with_corrupt=parse_on_corrupt(self.options) is OnCorrupt.ROW)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns of ``schema``.

        Spark refuses a reader that takes filters unless its own setting allows them.
        """
        if is_live(self.options):
            return LiveReader(parse_batch(self.options), self._output(schema))
        options = parse_options(self.options)
        table = self._table()
        if table is not None:
            return TableReader(table, options, table.columns.arrow(schema))
        kind = FilteringLogReader if options.filter_pushdown else LogReader
        return kind(options, arrow_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that follows logs or topics as they grow."""
        if is_live(self.options):
            return LiveStreamReader(parse_stream(self.options), self._output(schema))
        return LogStreamReader(parse_stream_options(self.options), arrow_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return what sends the rows of a batch to topics of a cluster."""
        return batch_writer(schema, self.options, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return what sends the rows of each micro-batch to topics of a cluster."""
        return stream_writer(schema, self.options, overwrite=overwrite)

    def _output(self, schema: StructType) -> OutputColumns:
        return OutputColumns(schema, parse_columns(self.options))

    def _table(self) -> RowSource | None:
        source = parse_source(self.options)
        return None if source is Source.COMMIT_LOG else row_source_of(source)


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
