"""The tables of a store directory besides its messages.

Each is a module with one class: its columns, its splits on the driver, its rows on an executor.
"""

from typing import Final

from flintmq.spark.options import Source
from flintmq.spark.tables.consumer_offsets import ConsumerOffsetTable
from flintmq.spark.tables.groups import GroupTable
from flintmq.spark.tables.index import IndexTable
from flintmq.spark.tables.queues import QueueTable
from flintmq.spark.tables.reader import Table, TableReader
from flintmq.spark.tables.topics import TopicTable

__all__ = ["Table", "TableReader", "table_of"]

_TABLES: Final[dict[Source, Table]] = {
    Source.QUEUES: QueueTable(),
    Source.INDEX: IndexTable(),
    Source.OFFSETS: ConsumerOffsetTable(),
    Source.TOPICS: TopicTable(),
    Source.GROUPS: GroupTable(),
}


def table_of(source: Source) -> Table:
    """Return the table that the option ``source`` names."""
    return _TABLES[source]
