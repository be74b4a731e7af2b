"""The data source ``flintmq``: store directories and live topics as tables and streams.

Spark starts a process for each step of planning a query, and loading is nearly all that it does.
So each kind of reader is loaded when one is made.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from flintmq.spark.live.live_choice import is_live
from flintmq.spark.options.store_options import (
    OnCorrupt,
    Source,
    parse_on_corrupt,
    parse_options,
    parse_source,
    parse_stream_options,
)
from flintmq.spark.rows.columns import arrow_schema, table_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

    from flintmq.spark.live.live_columns import OutputColumns
    from flintmq.spark.stored.tables import RowSource

_LOADED_LATE: Final = (
    "flintmq.spark.live.live_reader",
    "flintmq.spark.live.live_stream",
    "flintmq.spark.sink.writer",
    "flintmq.spark.stored.key_guide",
    "flintmq.spark.stored.log_reader",
    "flintmq.spark.stored.log_stream",
    "flintmq.spark.stored.queue_guide",
    "flintmq.spark.stored.split_batches",
    "flintmq.spark.stored.tables",
)


def load_readers() -> None:
    """Load all that reads or writes, for a process that others are forked from."""
    for name in _LOADED_LATE:
        import_module(name)


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
            from flintmq.spark.live.live_columns import live_schema
            from flintmq.spark.live.live_options import parse_columns

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
            from flintmq.spark.live.live_options import parse_batch
            from flintmq.spark.live.live_reader import LiveReader

            return LiveReader(parse_batch(self.options), self._output(schema))
        options = parse_options(self.options)
        table = self._table()
        if table is not None:
            from flintmq.spark.stored.tables import TableReader

            return TableReader(table, options, table.columns.arrow(schema))
        from flintmq.spark.stored.log_reader import FilteringLogReader, LogReader

        kind = FilteringLogReader if options.filter_pushdown else LogReader
        return kind(options, arrow_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that follows logs or topics as they grow."""
        if is_live(self.options):
            from flintmq.spark.live.live_options import parse_stream
            from flintmq.spark.live.live_stream import LiveStreamReader

            return LiveStreamReader(parse_stream(self.options), self._output(schema))
        from flintmq.spark.stored.log_stream import LogStreamReader

        return LogStreamReader(parse_stream_options(self.options), arrow_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return what sends the rows of a batch to topics of a cluster."""
        from flintmq.spark.sink.writer import batch_writer

        return batch_writer(schema, self.options, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return what sends the rows of each micro-batch to topics of a cluster."""
        from flintmq.spark.sink.writer import stream_writer

        return stream_writer(schema, self.options, overwrite=overwrite)

    def _output(self, schema: StructType) -> OutputColumns:
        from flintmq.spark.live.live_columns import OutputColumns
        from flintmq.spark.live.live_options import parse_columns

        return OutputColumns(schema, parse_columns(self.options))

    def _table(self) -> RowSource | None:
        source = parse_source(self.options)
        if source is Source.COMMIT_LOG:
            return None
        from flintmq.spark.stored.tables import row_source_of

        return row_source_of(source)
