"""What messages are copied from for their readers (`flintmq.store.reading.compiled_copies`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.reading.cold_reads import ColdReads
    from flintmq.store.views.queue_table import QueueTable


class CopySources(NamedTuple):
    """Where messages are, and how much of them a read brings."""

    queues: QueueTable
    log: CommitLog
    cold_reads: ColdReads
    hot_size: int
    """How many bytes at the end of the log count as being in memory."""
    count_max: int
    size_max: int
    """How many messages and bytes a read brings."""
