"""Which records are wanted: what the options and the pushed filters ask for, together."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import numpy as np
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flintmq.format.stored.record import CheckedRecord
    from flintmq.kernels.compiled import Bools, Bytes, Ints, Longs
    from flintmq.kernels.records import RecordTable
    from flintmq.spark.options.store_options import ReadOptions

LONG_MIN: Final = -(1 << 63)
LONG_MAX: Final = (1 << 63) - 1
TIME_MIN_MS: Final = -62_135_596_800_000
TIME_MAX_MS: Final = 253_402_300_799_999
"""The years 1 to 9999.  A time outside of them is null: Spark and Python have no such day."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(slots=True)
class Bounds:
    """Whole numbers from ``low`` to ``high``, both included, and of these maybe only some."""

    low: int = LONG_MIN
    high: int = LONG_MAX
    one_of: frozenset[int] | None = None

    def __contains__(self, value: int) -> bool:
        return self.low <= value <= self.high and (self.one_of is None or value in self.one_of)

    def mask(self, values: Ints | Longs) -> Bools:
        """Return for each value whether it is among the numbers."""
        inside: Bools = (values >= self.low) & (values <= self.high)
        if self.one_of is not None:
            # What no long can be, no value is.
            wanted = [value for value in self.one_of if LONG_MIN <= value <= LONG_MAX]
            inside &= np.isin(values, np.array(wanted, np.int64))
        return inside

    def at_least(self, low: int) -> None:
        """Leave out what is below ``low``."""
        self.low = max(self.low, low)

    def at_most(self, high: int) -> None:
        """Leave out what is above ``high``."""
        self.high = min(self.high, high)

    def only(self, values: Iterable[int]) -> None:
        """Leave out what is not among ``values``."""
        wanted = frozenset(values)
        self.one_of = wanted if self.one_of is None else self.one_of & wanted

    @property
    def is_open(self) -> bool:
        """Whether nothing is left out."""
        return self.low == LONG_MIN and self.high == LONG_MAX and self.one_of is None


@dataclass(slots=True)
class RowFilter:
    """Conditions on the fields that every record has.

    ``drops_damage`` says that a pushed filter compares a field which a damaged range does not
    have: in SQL such a row is left out.
    """

    topics: frozenset[bytes] | None = None
    queue_id: Bounds = field(default_factory=Bounds)
    queue_offset: Bounds = field(default_factory=Bounds)
    store_time: Bounds = field(default_factory=Bounds)
    drops_damage: bool = False

    @classmethod
    def from_options(cls, options: ReadOptions) -> RowFilter:
        """Return the conditions that the options state."""
        made = cls()
        if options.topics is not None:
            made.topics = frozenset(topic.encode() for topic in options.topics)
        if options.starting_timestamp is not None:
            made.store_time.at_least(options.starting_timestamp)
        if options.ending_timestamp is not None:
            made.store_time.at_most(options.ending_timestamp - 1)
        return made

    @property
    def is_open(self) -> bool:
        """Whether every record is wanted."""
        bounds = (self.queue_id, self.queue_offset, self.store_time)
        return self.topics is None and all(one.is_open for one in bounds)

    def wants(self, record: CheckedRecord) -> bool:
        """Whether a record meets all conditions."""
        return (
            (self.topics is None or record.topic in self.topics)
            and record.queue_id in self.queue_id
            and record.queue_offset in self.queue_offset
            and record.store_timestamp in self.store_time
        )

    def mask(self, data: Bytes, table: RecordTable) -> Bools | None:
        """Return for each row of a table of ``data`` whether it meets all conditions.

        None if all do because there are none.  This is `wants` for many at a time: a condition
        that is added belongs to both.
        """
        masks = [
            bounds.mask(values)
            for bounds, values in (
                (self.queue_id, table.queue_id),
                (self.queue_offset, table.queue_offset),
                (self.store_time, table.store_timestamp),
            )
            if not bounds.is_open
        ]
        if self.topics is not None:
            # Planning knows a filter too, and has no use for machine code.
            from flintmq.kernels.texts import is_one_of

            masks.append(is_one_of(data, table.topic_at, table.topic_size, self.topics))
        return np.logical_and.reduce(masks) if masks else None

    def push(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Take over the filters that are understood, yield the others."""
        for one in filters:
            if self._take(one):
                self.drops_damage = True
            else:
                yield one

    def _take(self, one: Filter) -> bool:
        column = getattr(one, "attribute", None)
        if column is None or len(column) != 1:
            return False
        if isinstance(one, IsNotNull):
            if column[0] == "storeTimestamp":
                _leave_out_null(self.store_time)
            return column[0] in ("topic", "queueId", "queueOffset", "storeTimestamp")
        if column[0] == "topic":
            return self._take_topic(one)
        if column[0] == "storeTimestamp":
            return _restrict_time(self.store_time, one)
        bounds = {"queueId": self.queue_id, "queueOffset": self.queue_offset}.get(column[0])
        return bounds is not None and _restrict(bounds, one)

    def _take_topic(self, one: Filter) -> bool:
        values = _equal_values(one)
        if values is None or not all(isinstance(value, str) for value in values):
            return False
        wanted = frozenset(value.encode() for value in values if isinstance(value, str))
        self.topics = wanted if self.topics is None else self.topics & wanted
        return True


def _equal_values(one: Filter) -> list[object] | None:
    if isinstance(one, EqualTo):
        return [one.value]
    # No value is equal to null, so null in a list adds nothing.
    return [value for value in one.value if value is not None] if isinstance(one, In) else None


def _restrict(bounds: Bounds, one: Filter) -> bool:
    values = _equal_values(one)
    if values is not None:
        if not all(_is_int(value) for value in values):
            return False
        bounds.only(value for value in values if isinstance(value, int))
        return True
    value = getattr(one, "value", None)
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return _restrict_to(bounds, one, value, value)


def _restrict_time(bounds: Bounds, one: Filter) -> bool:
    values = _equal_values(one)
    if values is not None:
        if not all(isinstance(value, datetime) for value in values):
            return False
        times = [_microseconds(value) for value in values if isinstance(value, datetime)]
        bounds.only(time // 1000 for time in times if time % 1000 == 0)
        _leave_out_null(bounds)
        return True
    value = getattr(one, "value", None)
    if not isinstance(value, datetime):
        return False
    time = _microseconds(value)
    _leave_out_null(bounds)
    return _restrict_to(bounds, one, time // 1000, -(-time // 1000))


def _leave_out_null(times: Bounds) -> None:
    times.at_least(TIME_MIN_MS)
    times.at_most(TIME_MAX_MS)


def _restrict_to(bounds: Bounds, one: Filter, floor: int, ceiling: int) -> bool:
    """Apply an order comparison with a value between ``floor`` and ``ceiling``, whole numbers."""
    if isinstance(one, GreaterThan):
        bounds.at_least(floor + 1)
    elif isinstance(one, GreaterThanOrEqual):
        bounds.at_least(ceiling)
    elif isinstance(one, LessThan):
        bounds.at_most(ceiling - 1)
    elif isinstance(one, LessThanOrEqual):
        bounds.at_most(floor)
    else:
        return False
    return True


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _microseconds(time: datetime) -> int:
    # Spark hands instants over in UTC; one without a zone is taken for such.
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MICROSECOND
