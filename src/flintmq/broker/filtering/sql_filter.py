"""Choosing messages by SQL92: a queue's notes may rule a message out, its properties decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.filter.expression_limits import OPERAND_COUNT_MAX
from flintmq.format.errors import CorruptRecordError
from flintmq.format.stored.record import read_record_properties
from flintmq.model.property_names import RETRY_TOPIC
from flintmq.store.reading.message_filter import SCAN_COUNT_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flintmq.broker.filtering.tag_filter import TagFilter
    from flintmq.filter.bloom import FilterBits
    from flintmq.filter.sql92 import CompiledExpression
    from flintmq.format.stored.consume_queue_ext import ExtUnit

SCAN_COST_MAX: Final = 20_000
"""Steps that one call may spend on judging messages: some five milliseconds."""

SCAN_COUNT_MIN: Final = 16

STEPS_OF_PLAIN_JUDGMENT: Final = 32
"""Steps that take as long as it takes to read the properties of a message."""


class SqlFilter:
    """Accepts messages for whose properties an expression is true."""

    __slots__ = ("_bits", "_born_ms", "_expression", "cost", "scan_count_max", "weight")

    arrival_codes: Final = None
    """It looks at properties."""

    def __init__(
        self,
        expression: CompiledExpression,
        *,
        bits: FilterBits | None = None,
        born_ms: int = 0,
    ) -> None:
        """Use the notes of messages stored after ``born_ms``, where the filter has ``bits``."""
        self._expression = expression
        self.cost = expression.cost
        self._bits = bits
        self._born_ms = born_ms
        affordable = max(SCAN_COST_MAX // expression.cost, SCAN_COUNT_MIN)
        self.scan_count_max = min(affordable, SCAN_COUNT_MAX)
        self.weight = 1 + expression.cost // STEPS_OF_PLAIN_JUDGMENT

    def matches_unit(self, tags_code: int | None, ext: ExtUnit | None) -> bool:
        """Say no only if the notes of a message that is younger than the filter say so."""
        if ext is None or not ext.bitmap or self._bits is None:
            return True
        return ext.store_time <= self._born_ms or self._bits.are_in(ext.bitmap)

    def matches_record(self, record: memoryview) -> bool:
        """Whether the expression is true for a stored message."""
        try:
            properties = read_record_properties(record)
        except CorruptRecordError:
            return False
        return self._expression.matches(properties)

    def matches_arrival(
        self, tags_code: int, read_properties: Callable[[], Mapping[str, str]]
    ) -> bool:
        """Whether the expression is true for a new message."""
        return self._expression.matches(read_properties())


class RetryFilter:
    """Judges messages that are delivered again by what their group wants of their first topic."""

    __slots__ = ("_filter_of", "_tags")

    arrival_codes: Final = None
    """It looks at properties."""
    # It is not known before which expressions it will ask, so it counts as the most costly one.
    scan_count_max = SCAN_COST_MAX // OPERAND_COUNT_MAX
    weight = OPERAND_COUNT_MAX // STEPS_OF_PLAIN_JUDGMENT

    def __init__(
        self, filter_of: Callable[[str], SqlFilter | None], tags: TagFilter | None
    ) -> None:
        """Ask ``filter_of`` for the filter of a topic; ``tags`` is the retry topic's own."""
        self._filter_of = filter_of
        self._tags = tags

    def matches_unit(self, tags_code: int | None, ext: ExtUnit | None) -> bool:
        """Judge by the tags."""
        return self._tags is None or self._tags.matches_unit(tags_code, ext)

    def matches_record(self, record: memoryview) -> bool:
        """Whether the filter of the first topic accepts a message, if there is one."""
        try:
            properties = read_record_properties(record)
        except CorruptRecordError:
            return False
        return self._matches(properties)

    def matches_arrival(
        self, tags_code: int, read_properties: Callable[[], Mapping[str, str]]
    ) -> bool:
        """Judge a new message as a stored one."""
        return self.matches_unit(tags_code, None) and self._matches(read_properties())

    def _matches(self, properties: Mapping[str, str]) -> bool:
        chosen = self._filter_of(properties.get(RETRY_TOPIC, ""))
        return chosen is None or chosen.matches_arrival(0, lambda: properties)
