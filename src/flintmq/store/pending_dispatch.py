"""Records and append groups that are in the log and wait to be dispatched."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from flintmq.store.append_group.sends import AppendGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.store.log.dispatch_request import DispatchRequest

PENDING_MAX: Final = 65_536
"""Messages kept in memory; past that they are read from the log again when their turn comes."""


class PendingDispatch:
    """What waits to be dispatched, in the order of the log.

    With synchronous flush readers see nothing that is not on the disk, and with the pool nothing
    that is not in its file.  So append groups wait here too, between records that came alone.
    """

    def __init__(self) -> None:
        self.waiting: deque[DispatchRequest | AppendGroup] = deque()
        """What waits; whoever only looks at it need not ask."""
        self._group_messages = 0

    def clear(self) -> None:
        """Forget all that waits."""
        self.waiting.clear()
        self._group_messages = 0

    def add(self, request: DispatchRequest) -> bool:
        """Keep a record; return False if too much waits, and then nothing does any more."""
        self.waiting.append(request)
        return self._has_room()

    def add_group(self, group: AppendGroup) -> bool:
        """Keep a group; return False if too much waits, and then nothing does any more."""
        self.waiting.append(group.kept())
        self._group_messages += group.message_count
        return self._has_room()

    def _has_room(self) -> bool:
        if len(self.waiting) + self._group_messages <= PENDING_MAX:
            return True
        self.clear()
        return False

    def next(self, limit: int, count_max: int) -> Sequence[DispatchRequest] | AppendGroup:
        """Return what is next and ends at or below ``limit``: a group, or some records."""
        waiting = self.waiting
        if not waiting:
            return ()
        first = waiting[0]
        if isinstance(first, AppendGroup):
            return first if first.end_offset <= limit else ()
        batch: list[DispatchRequest] = []
        for request in islice(waiting, count_max):
            # The last record may begin below the limit and end behind it.
            if isinstance(request, AppendGroup) or request.physical_offset + request.size > limit:
                break
            batch.append(request)
        return batch

    def drop_group(self) -> None:
        """Forget the first, which is a group."""
        group = self.waiting.popleft()
        assert isinstance(group, AppendGroup)
        self._group_messages -= group.message_count

    def drop(self, done: Sequence[DispatchRequest]) -> None:
        """Forget these records, if they are the first that wait."""
        waiting = self.waiting
        if waiting and waiting[0] is done[0]:
            for _ in done:  # One by one: another thread may be adding.
                waiting.popleft()
