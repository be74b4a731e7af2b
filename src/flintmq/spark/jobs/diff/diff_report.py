"""What ``diff`` tells: typed, bounded, and without Spark."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from flintmq.spark.jobs.damages import Damages

DETAILS: Final = 10
DETAILS_MAX: Final = 10_000
"""How many differences of each kind a report describes: by default, and at most."""


class DifferenceKind(Enum):
    """How the two stores differ in a message.  The first store is called left, the other right."""

    MISSING = "missing"
    """Only the left store has the message."""

    EXTRA = "extra"
    """Only the right store has the message."""

    CHANGED = "changed"
    """Both stores have a message with this topic, queue and offset, and the two differ."""

    MOVED = "moved"
    """Both stores have the message, at different physical offsets."""


class Side(Enum):
    """One of the two stores."""

    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSide:
    """One of the two stores; its log begins at ``log_start``."""

    path: str
    message_count: int
    log_start: int
    damages: Damages


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One message that is not the same in both stores.

    ``parts`` names what of a changed one differs: body, properties, times, hosts, flags, size.
    """

    kind: DifferenceKind
    topic: str
    queue_id: int
    queue_offset: int
    left_physical_offset: int | None
    right_physical_offset: int | None
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDiff:
    """The differences in one queue, and the first queue offset where there is one."""

    topic: str
    queue_id: int
    missing_count: int
    extra_count: int
    changed_count: int
    moved_count: int
    first_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideRange:
    """Messages of a queue that only ``side`` has, because the other store has deleted its own.

    ``first_offset`` and ``last_offset`` are queue offsets.
    """

    side: Side
    topic: str
    queue_id: int
    first_offset: int
    last_offset: int
    message_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffReport:
    """What is different between two stores.

    ``same_count`` counts the messages that both have, wherever.  ``first`` is the difference with
    the lowest physical offset.  Lists are cut; the counts are exact.
    """

    left: StoreSide
    right: StoreSide
    is_strict: bool
    same_count: int
    missing_count: int
    extra_count: int
    changed_count: int
    moved_count: int
    outside_count: int
    first: Difference | None
    queue_count: int
    queues: tuple[QueueDiff, ...]
    outside_range_count: int
    outside: tuple[OutsideRange, ...]
    examples: tuple[Difference, ...]

    @property
    def is_equal(self) -> bool:
        """Whether both stores hold the same messages, as far as both still keep them."""
        if self.missing_count or self.extra_count or self.changed_count:
            return False
        return not self.is_strict or not self.moved_count

    @property
    def has_damage(self) -> bool:
        """Whether something of a store was left out because it is damaged."""
        return self.left.damages.is_loss or self.right.damages.is_loss
