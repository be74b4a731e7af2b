"""The SQL92 subscriptions of consumer groups as a store keeps them, and the notes they lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flintmq.filter.bloom import BloomFilter, FilterBits
from flintmq.filter.errors import SqlFilterError
from flintmq.format.stored.consume_queue_ext import BITMAP_SIZE_MAX
from flintmq.model.subscription import SQL92
from flintmq.model.value_class import Value, value_class

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from flintmq.filter.sql92 import CompiledExpression

FILE_NAME: Final = "consumerFilter.json"
"""The state file of a store in which they are kept."""

ENTRY_COUNT_MAX: Final = 4096
"""Subscriptions that are kept, dead ones included."""


@value_class
class FilterEntry(Value):
    """The SQL92 subscription of a group to a topic."""

    topic: str
    group: str
    expression: str
    version: int
    """The version that the client gave its subscription."""
    born_ms: int
    dead_ms: int = 0
    """When the group did not want it any more; 0 while it does."""
    bits: FilterBits

    def to_json(self) -> dict[str, Any]:
        """Return the entry as RocketMQ writes it."""
        return {
            "bloomFilterData": {
                "bitNum": self.bits.bit_count,
                "bitPos": list(self.bits.positions),
            },
            "bornTime": self.born_ms,
            "clientVersion": self.version,
            "consumerGroup": self.group,
            "dead": self.dead_ms >= self.born_ms,
            "deadTime": self.dead_ms,
            "expression": self.expression,
            "expressionType": SQL92,
            "topic": self.topic,
        }


def read_entries(value: Any) -> Iterator[FilterEntry]:
    """Yield the entries of a file; what is none is left out, since consumers register again."""
    table = value.get("filterDataByTopic") if isinstance(value, dict) else None
    for of_topic in table.values() if isinstance(table, dict) else ():
        groups = of_topic.get("groupFilterData") if isinstance(of_topic, dict) else None
        for one in groups.values() if isinstance(groups, dict) else ():
            entry = _read_entry(one)
            if entry is not None:
                yield entry


def _read_entry(value: Any) -> FilterEntry | None:
    try:
        bits = value["bloomFilterData"]
        texts = value["topic"], value["consumerGroup"], value["expression"]
        numbers = value["clientVersion"], value["bornTime"], value["deadTime"], bits["bitNum"]
        positions = tuple(bits["bitPos"])
    except (KeyError, TypeError):
        return None
    if (
        value.get("expressionType") != SQL92
        or any(not isinstance(one, str) for one in texts)
        or any(type(one) is not int for one in (*numbers, *positions))
        or any(not 0 <= at < numbers[3] for at in positions)
    ):
        return None
    topic, group, expression = texts
    return FilterEntry(
        topic=topic,
        group=group,
        expression=expression,
        version=numbers[0],
        born_ms=numbers[1],
        dead_ms=numbers[2],
        bits=FilterBits(numbers[3], positions),
    )


class FilterNotes:
    """Tells the notes on stored messages: which of some subscriptions each of them satisfies.

    As in a broker, subscriptions with bits of different filters are of no use together, and one
    whose expression is wrong is satisfied by nothing.
    """

    def __init__(self, entries: Iterable[FilterEntry]) -> None:
        found = list(entries)[:ENTRY_COUNT_MAX]
        shapes = {(entry.bits.bit_count, len(entry.bits.positions)) for entry in found}
        bloom = BloomFilter(*shapes.pop()) if len(shapes) == 1 else None
        has_room = bloom is not None and bloom.bit_count <= 8 * BITMAP_SIZE_MAX
        self._bloom = bloom if has_room else None
        self._by_topic: dict[str, list[tuple[FilterBits, CompiledExpression | None]]] = {}
        for entry in found if self._bloom is not None else ():
            of_topic = self._by_topic.setdefault(entry.topic, [])
            of_topic.append((entry.bits, _compiled(entry.expression)))

    def concern(self, topic: str) -> bool:
        """Whether there is anything to note on the messages of a topic."""
        return topic in self._by_topic

    def bitmap(self, topic: str, properties: Mapping[str, str]) -> bytes | None:
        """Return the notes on a message, None if its topic has no such subscription."""
        of_topic = self._by_topic.get(topic)
        if of_topic is None or self._bloom is None:
            return None
        return self._bloom.bitmap(
            [
                bits
                for bits, expression in of_topic
                if expression is not None and expression.matches(properties)
            ]
        )


def _compiled(text: str) -> CompiledExpression | None:
    from flintmq.filter.sql92 import compile_sql  # A broker that keeps no notes needs none.

    try:
        return compile_sql(text)
    except SqlFilterError:
        return None
