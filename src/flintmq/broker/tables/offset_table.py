"""How far consumer groups have come: the offset of the next message each wants, by queue."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from flintmq.broker.tables.state_keeper import StateKeeper
from flintmq.broker.tables.table_limits import json_size
from flintmq.model.topics import LMQ_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from flintmq.store.files.state_file import StateFile

logger = logging.getLogger(__name__)

SEPARATOR: Final = "@"
ENTRY_COUNT_MAX: Final = 1_000_000
"""Queues with an offset, over all topics and groups; clients can commit for any."""

NAMES_SIZE_MAX: Final = 24 << 20
"""Bytes that the names of topics and groups have in the file; all entries fit beside them."""


class OffsetTable:
    """Committed offsets by topic and group.  They are written from time to time and at the end."""

    def __init__(self, file: StateFile, *, older: StateFile | None = None) -> None:
        """Keep offsets in a file; ``older`` is read instead as long as that is not there."""
        self._older = older
        self.keeper = StateKeeper(file, self._snapshot, is_eager=False)
        self._offsets: dict[tuple[str, str], dict[int, int]] = {}
        self._entry_count = 0
        self._names_size = 0

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the committed offset of a group in a queue."""
        queues = self._offsets.get((topic, group))
        return None if queues is None else queues.get(queue_id)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Set an offset, also to a lower one; return False when the table is full."""
        queues = self._offsets.get((topic, group))
        if queues is None or queue_id not in queues:
            size = _names_size((topic, group)) if queues is None else 0
            if self._entry_count >= ENTRY_COUNT_MAX or self._names_size + size > NAMES_SIZE_MAX:
                return False
            self._entry_count += 1
            self._names_size += size
            queues = self._offsets.setdefault((topic, group), {})
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self.keeper.changed()
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
            self._names_size -= _names_size(key)
            self.keeper.changed()

    def merge(self, table: Any) -> Iterator[None]:
        """Take over the offsets of a master, as code 43 has them; what it lacks stays.

        An owner with others to serve may interrupt it.
        """
        offsets, unreadable = _read_table(table)
        if unreadable:
            logger.warning("offsets of the master that cannot be read: count=%d", len(unreadable))
        for (topic, group), queues in offsets.items():
            for queue_id, offset in queues.items():
                self.commit(group, topic, queue_id, offset)
            yield

    # -- file --------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the file; entries that are none are taken from the backup, or else left out."""
        state = self.keeper.file.load()
        if state.value is None and self._older is not None:
            state = self._older.load()
        if state.value is None:
            return
        self._offsets, unreadable = _read_table(state.value)
        if unreadable:
            backup, _ = _read_table(self.keeper.file.load_backup())
            found = [key for key in unreadable if key in backup]
            self._offsets |= {key: backup[key] for key in found}
            logger.warning(
                "consumer offsets that cannot be read: file=%s count=%d from_backup=%d first=%s",
                self.keeper.file.path,
                len(unreadable),
                len(found),
                unreadable[0],
            )
        self._entry_count = sum(map(len, self._offsets.values()))
        self._names_size = sum(map(_names_size, self._offsets))

    def to_json(self) -> dict[str, Any]:
        """Return the table as its file and code 43 have it."""
        return _to_json(self._offsets)

    def _snapshot(self) -> Callable[[], Any]:
        copied = {key: dict(queues) for key, queues in self._offsets.items()}
        return lambda: _to_json(copied)


def _to_json(offsets: Mapping[tuple[str, str], Mapping[int, int]]) -> dict[str, Any]:
    """Return the members of the file; groups of light queues have one of their own, as in Java."""
    light: dict[str, int] = {}
    table: dict[str, Mapping[int, int]] = {}
    for (topic, group), queues in offsets.items():
        name = f"{topic}{SEPARATOR}{group}"
        if group.startswith(LMQ_PREFIX) and queues.keys() == {0}:
            light[name] = queues[0]
        else:
            table[name] = queues
    return {"lmqOffsetTable": light, "offsetTable": table} if light else {"offsetTable": table}


def _read_table(
    value: Any,
) -> tuple[dict[tuple[str, str], dict[int, int]], list[tuple[str, str]]]:
    """Return the entries of a file, and the names of those that hold anything but offsets."""
    offsets: dict[tuple[str, str], dict[int, int]] = {}
    unreadable: list[tuple[str, str]] = []
    table = value.get("offsetTable") if isinstance(value, dict) else None
    for name, queues in table.items() if isinstance(table, dict) else ():
        topic, separator, group = str(name).partition(SEPARATOR)
        if not separator:
            continue
        try:
            offsets[topic, group] = {_number(key): _number(one) for key, one in queues.items()}
        except (AttributeError, TypeError, ValueError):
            unreadable.append((topic, group))
    light = value.get("lmqOffsetTable") if isinstance(value, dict) else None
    for name, offset in light.items() if isinstance(light, dict) else ():
        topic, _, group = str(name).partition(SEPARATOR)
        try:
            offsets[topic, group] = {0: _number(offset)}
        except (TypeError, ValueError):
            unreadable.append((topic, group))
    return offsets, unreadable


def _number(value: Any) -> int:
    """Return a queue id or offset, which may be a text; raises for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(value)
    return int(value)


def _names_size(key: tuple[str, str]) -> int:
    return json_size(SEPARATOR.join(key)) + len(":{},")
