"""How far consumer groups have come: the offset of the next message each wants, by queue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from flintmq.format.bodies.dialect import Members

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flintmq.store.state_file import StateFile

SEPARATOR: Final = "@"
ENTRY_COUNT_MAX: Final = 1_000_000
"""Queues with an offset, over all topics and groups; clients commit what they like."""


class OffsetTable:
    """Committed offsets by topic and group.  They are written from time to time and at the end."""

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self._offsets: dict[tuple[str, str], dict[int, int]] = {}
        self._entry_count = 0
        self.is_changed = False

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the committed offset of a group in a queue."""
        queues = self._offsets.get((topic, group))
        return None if queues is None else queues.get(queue_id)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Set an offset, also to a lower one; return False when the table is full."""
        queues = self._offsets.get((topic, group))
        if queues is None or queue_id not in queues:
            if self._entry_count >= ENTRY_COUNT_MAX:
                return False
            self._entry_count += 1
            queues = self._offsets.setdefault((topic, group), {})
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self.is_changed = True
        return True

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the offsets of a group in the queues of a topic."""
        return self._offsets.get((topic, group), {})

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which a group has offsets."""
        return [topic for topic, name in self._offsets if name == group]

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets in a topic."""
        return [group for name, group in self._offsets if name == topic]

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield (topic, group) for everyone who has offsets."""
        yield from list(self._offsets)

    def clone(self, source: str, target: str, topic: str) -> None:
        """Give one group the offsets of another in a topic."""
        for queue_id, offset in self.queues(source, topic).items():
            self.commit(target, topic, queue_id, offset)

    def remove_group(self, group: str) -> None:
        """Forget all offsets of a group."""
        for key in [one for one in self._offsets if one[1] == group]:
            self._entry_count -= len(self._offsets.pop(key))
            self.is_changed = True

    # -- file --------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the file."""
        state = self._file.load()
        if state.value is None:
            return
        table = Members(state.value, "the consumer offsets").table("offsetTable")
        for name, queues in table.items():
            topic, separator, group = str(name).partition(SEPARATOR)
            if separator and isinstance(queues, dict):
                self._offsets[topic, group] = {int(k): int(v) for k, v in queues.items()}
        self._entry_count = sum(map(len, self._offsets.values()))

    def to_json(self) -> dict[str, Any]:
        """Return the table as its file and code 43 have it."""
        table = {
            f"{topic}{SEPARATOR}{group}": dict(queues)
            for (topic, group), queues in self._offsets.items()
        }
        return {"offsetTable": table}

    async def persist_in_thread(self) -> bool:
        """Do the same without holding up the event loop while the disk works."""
        if not self.is_changed:
            return False
        # What is committed from here on is a change again.
        self.is_changed, state = False, self.to_json()
        try:
            await asyncio.to_thread(self._file.save, state)
        except BaseException:
            self.is_changed = True
            raise
        return True

    def persist(self) -> bool:
        """Write the file if something has changed; return whether it was written."""
        if not self.is_changed:
            return False
        self._file.save(self.to_json())
        self.is_changed = False
        return True
