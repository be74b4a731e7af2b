"""How much one run of the dispatcher does, and the units of what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.format.stored.consume_queue import UNIT_FIELD_COUNT
from flintmq.format.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.store.log.dispatch_request import DispatchRequest

RUN_COUNT_MAX: Final = 128
RUN_KEY_COUNT_MAX: Final = 1024
"""Records that one run dispatches where the owner has others to serve, and their keys; one record
may have more keys."""
GROUP_KEY_COUNT_MAX: Final = 8192
COMPILED_GROUP_KEY_COUNT_MAX: Final = 65_536
"""Keys of an append group that are entered with it, by Python and by machine code.  The records of
one that has more are read back from the log, and dispatched like any that wait."""
BATCH_REQUEST_COUNT_MAX: Final = 2048
"""Messages of a batch that wait for dispatch one by one; a larger one is read back, too."""


class RunLimit:
    """Bounds the runs of a dispatcher whose owner has others to serve."""

    def __init__(self) -> None:
        self.is_stepwise = False
        """Whether there is a bound.  A script has what it put in its queues when it reads them, and
        a slave takes the log in steps of its own."""
        self.was_reached = False
        """Whether the last run has left records that could have been dispatched."""
        self._count = self._key_count = 0
        """What the run under way may still do."""

    def begin(self) -> None:
        """Begin a run."""
        self._count, self._key_count = RUN_COUNT_MAX, RUN_KEY_COUNT_MAX
        self.was_reached = False

    def is_reached(self) -> bool:
        """Whether the run has to end here, although there is more to do."""
        if self.is_stepwise and (self._count <= 0 or self._key_count <= 0):
            self.was_reached = True
        return self.was_reached

    def few(self, batch: Sequence[DispatchRequest]) -> Sequence[DispatchRequest]:
        """Return the beginning of a batch, as far as the run may go; one record at least."""
        if self.is_stepwise:
            left = self._key_count
            for number, request in enumerate(batch):
                if left <= 0:
                    return batch[:number]
                left -= len(request.keys)
        return batch

    def note(self, done: Sequence[DispatchRequest]) -> None:
        """Note what was dispatched."""
        if self.is_stepwise:
            self._count -= len(done)
            self._key_count -= sum([len(request.keys) for request in done])

    def is_for_steps(self, *, count: int = 0, key_count: int, is_compiled: bool = False) -> bool:
        """Whether messages that are appended together have too many keys to be entered at once.

        ``count`` is how many of them would wait one by one.
        """
        most = COMPILED_GROUP_KEY_COUNT_MAX if is_compiled else GROUP_KEY_COUNT_MAX
        return self.is_stepwise and (key_count > most or count > BATCH_REQUEST_COUNT_MAX)


def units_by_queue(
    batch: Sequence[DispatchRequest],
) -> dict[tuple[str, int], list[int]] | None:
    """Return the units of a batch by queue, each list led by its first queue offset.

    None where something is special: a gap, a light queue, a transaction under way.
    """
    by_queue: dict[tuple[str, int], list[int]] = {}
    for request in batch:
        topic, queue_id, offset, size, tags, _, queue_offset, flag, _, _, multi = request
        if multi or flag & TRANSACTION_MASK not in (TRANSACTION_NONE, TRANSACTION_COMMIT):
            return None
        fields = by_queue.get((topic, queue_id))
        if fields is None:
            by_queue[topic, queue_id] = [queue_offset, offset, size, tags]
        elif fields[0] + len(fields) // UNIT_FIELD_COUNT != queue_offset:
            return None
        else:
            fields += (offset, size, tags)
    return by_queue
