"""Telling true records from bytes that look like one.

A body may hold anything, also whole records with the offset of their place and a true checksum,
so what the bytes say proves nothing.  The consume queues do: only the broker writes them, and
the unit at the queue offset that a true record claims leads back to that record.  A copy in a
body claims a queue offset whose unit leads elsewhere.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from flintmq.format.stored.record import CheckedRecord
from flintmq.offline.layout import StoreLayout, find_store
from flintmq.offline.queue_files import QueueFiles
from flintmq.offline.regions import Regions


class QueueProof:
    """Asks the consume queues of a store about records; they are opened at the first question."""

    def __init__(self, open_queues: Callable[[], QueueFiles]) -> None:
        self._open_queues = open_queues
        self._queues: QueueFiles | None = None

    def says(self, record: CheckedRecord) -> bool | None:
        """Whether the unit at a record's queue offset leads to it; None when there is no unit."""
        if record.queue_offset < 0:
            return None
        try:
            key = record.topic.decode(), record.queue_id
        except UnicodeDecodeError:
            return None
        if self._queues is None:
            self._queues = self._open_queues()
        unit = self._queues.unit_at(key, record.queue_offset)
        if unit is None:
            return None
        return unit[:2] == (record.physical_offset, record.size)


@contextmanager
def queue_proof(root: Path, layout: StoreLayout | None = None) -> Iterator[QueueProof]:
    """Yield the proof of a store directory, which need not have been looked through yet."""
    with ExitStack() as stack:

        def open_queues() -> QueueFiles:
            found = layout or find_store(root)
            return QueueFiles(found, stack.enter_context(Regions(found.files)))

        yield QueueProof(open_queues)
