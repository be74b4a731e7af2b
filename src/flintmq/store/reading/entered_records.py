"""Whether a record is one, and not bytes in the body of another that look like one.

Clients name messages by their places in the log, and a sender chooses every byte of a body: also
those of a record that claims to stand just there, in any topic and at any offset of its queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.format.stored.record_layout import BLANK

if TYPE_CHECKING:
    from flintmq.format.stored.record import Record
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.views.queue_table import QueueTable

WALK_COUNT_MAX: Final = 16_384
"""Records that are gone over to find one that no queue leads to yet."""


def is_entered(record: Record, *, queues: QueueTable, log: CommitLog, dispatched: int) -> bool:
    """Return whether the queue of a record leads to it, or will.

    ``dispatched`` is the offset up to which all records are in their queues.
    """
    if record.physical_offset >= dispatched:
        return _is_met(record.physical_offset, log, dispatched)
    queue = queues.get(record.topic, record.queue_id)
    unit = None if queue is None else queue.unit_at(record.queue_offset)
    return unit is not None and unit[0] == record.physical_offset and unit[1] == record.size


def _is_met(offset: int, log: CommitLog, start: int) -> bool:
    """Return whether a record begins at an offset, going from one to the next."""
    at = start
    for _ in range(WALK_COUNT_MAX):
        if at >= offset:
            return at == offset
        head = log.select(at, BLANK.size)
        if head is None:
            return False
        with head:
            size, _ = BLANK.unpack_from(head.view)
        if size <= 0:
            return False
        at += size  # What is blank at the end of a file has a size too.
    return False
