"""What a job has left out of its answer because the log is damaged there."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, Self

DAMAGES_MAX: Final = 20
"""So many damaged ranges are named; all of them are counted."""


class DamagedRange(NamedTuple):
    """A range of one log that was left out; the offsets are physical."""

    path: str
    start: int
    size: int
    reason: str


@dataclass(frozen=True, slots=True)
class Damages:
    """How many ranges and bytes were left out of an answer, and the first of these ranges.

    ``set_aside_count`` and ``set_aside_size`` are files and bytes that recovery has cut off the
    log and kept in ``recovered``: they are not part of the log, and not of the answer.
    ``body_count`` is how many records are there whose body cannot be decompressed, so that it is
    not part of the answer.
    ``missing_count`` are messages of live topics that should be there, as far as is known; of
    these, ranges tell the queue and its offset.
    """

    count: int = 0
    size: int = 0
    ranges: tuple[DamagedRange, ...] = ()
    set_aside_count: int = 0
    set_aside_size: int = 0
    body_count: int = 0
    missing_count: int = 0

    @property
    def is_loss(self) -> bool:
        """Whether an answer lacks something of what it speaks of."""
        return bool(self.count or self.body_count or self.missing_count)

    @classmethod
    def from_members(cls, members: Mapping[str, Any] | None) -> Self:
        """Return what a JSON object says that was made of the fields; None says nothing."""
        if members is None:
            return cls()
        ranges = tuple(DamagedRange(*one) for one in members["ranges"])
        # Earlier versions counted neither bodies nor messages.
        counts = {name: members.get(name, 0) for name in ("body_count", "missing_count")}
        return cls(members["count"], members["size"], ranges, **counts)


class FoundDamage(Protocol):
    """A damaged range as a reader finds it; the offsets are physical."""

    @property
    def start(self) -> int:
        """Where the range starts."""
        ...

    @property
    def end(self) -> int:
        """Where the next record starts."""
        ...

    @property
    def reason(self) -> str:
        """What is wrong with the range."""
        ...

    @property
    def is_body(self) -> bool:
        """Whether the record is there and only its body cannot be decompressed."""
        ...


class DamageTally:
    """Counts what one reader of a store has passed over."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._count = 0
        self._size = 0
        self._body_count = 0
        self._ranges: list[DamagedRange] = []

    def add(self, damage: FoundDamage) -> None:
        """Count one range."""
        if damage.is_body:
            self._body_count += 1
            return
        size = damage.end - damage.start
        self._count += 1
        self._size += size
        if len(self._ranges) < DAMAGES_MAX:
            self._ranges.append(DamagedRange(self._path, damage.start, size, damage.reason))

    def damages(self) -> Damages:
        """Return what was counted."""
        ranges = tuple(self._ranges)
        return Damages(self._count, self._size, ranges, body_count=self._body_count)


def added(parts: Iterable[Damages]) -> Damages:
    """Return what several readers have left out together, in the order of their reading."""
    every = list(parts)
    return Damages(
        sum(one.count for one in every),
        sum(one.size for one in every),
        tuple(islice((found for one in every for found in one.ranges), DAMAGES_MAX)),
        sum(one.set_aside_count for one in every),
        sum(one.set_aside_size for one in every),
        sum(one.body_count for one in every),
        sum(one.missing_count for one in every),
    )
