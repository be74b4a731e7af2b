"""What one task reads of a log; planning knows it without what reads it."""

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from flintmq.offline.regions import StoreFiles


@dataclass(frozen=True, kw_only=True)
class LogSplit(InputPartition):
    """A range of one log file.  All but sizes are physical offsets.

    ``gap`` says why nothing can be read from ``start`` to ``end``; then there is no file.
    ``may_be_torn`` says that the store was not closed, so its last write may be unfinished.  Of
    what recovery has set aside (``is_set_aside``) the queues of the store know nothing.
    """

    files: StoreFiles
    store: str
    broker_name: str | None
    path: str
    file_start: int
    file_size: int
    start: int
    end: int
    is_last_file: bool = False
    last_time: int = 0
    may_be_torn: bool = False
    is_set_aside: bool = False
    gap: str = ""
