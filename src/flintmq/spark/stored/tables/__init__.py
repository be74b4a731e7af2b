"""The tables of a store directory besides its messages.

Each table is a module with one row source: its columns, its splits on the driver, and its rows on
an executor.
"""

from typing import Final

from flintmq.spark.options.store_options import Source
from flintmq.spark.stored.tables.consumer_offsets import ConsumerOffsetRowSource
from flintmq.spark.stored.tables.groups import GroupRowSource
from flintmq.spark.stored.tables.index import IndexEntryRowSource
from flintmq.spark.stored.tables.queues import QueueUnitRowSource
from flintmq.spark.stored.tables.reader import RowSource, TableReader
from flintmq.spark.stored.tables.topics import TopicRowSource

__all__ = ["RowSource", "TableReader", "row_source_of"]

_TABLES: Final[dict[Source, RowSource]] = {
    Source.QUEUES: QueueUnitRowSource(),
    Source.INDEX: IndexEntryRowSource(),
    Source.OFFSETS: ConsumerOffsetRowSource(),
    Source.TOPICS: TopicRowSource(),
    Source.GROUPS: GroupRowSource(),
}


def row_source_of(source: Source) -> RowSource:
    """Return where the rows of the table come from that the option ``source`` names."""
    return _TABLES[source]
