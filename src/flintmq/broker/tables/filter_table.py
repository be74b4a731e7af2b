"""The SQL92 subscriptions of consumer groups, and the file in which they are kept.

A subscription comes with the heartbeats of its group and is compiled once.  When the group goes, or
does not want the topic any more, its entry is dead but kept for a day, as RocketMQ keeps it: the
notes in the queues (`flintmq.filter.bloom`) go on while a consumer restarts.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from flintmq.broker.filtering.sql_filter import SqlFilter
from flintmq.broker.tables.state_keeper import StateKeeper
from flintmq.filter.errors import SqlFilterError
from flintmq.filter.filter_entries import ENTRY_COUNT_MAX, FilterEntry, read_entries
from flintmq.model.steps import finish
from flintmq.remoting.paced_log import PacedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from flintmq.filter.bloom import BloomFilter
    from flintmq.filter.sql92 import CompiledExpression
    from flintmq.model.steps import Steps
    from flintmq.model.subscription import Subscription
    from flintmq.store.files.state_file import StateFile

logger = logging.getLogger(__name__)

EXPRESSIONS_LENGTH_MAX: Final = 2 << 20
"""Characters of all expressions that are kept; compiled they take some forty bytes for each."""

COMPILED_COUNT_MAX: Final = 128
"""Expressions whose compiled form, or whose mistake, is remembered."""

COMPILED_AT_ONCE_LENGTH_MAX: Final = 128
"""Characters of an expression that is compiled in one go: that takes a millisecond or so."""

BITMAP_COST_MAX: Final = 10_000
"""Steps that the notes on one message may take.  Of a topic with more costly subscriptions there
are no notes, and its messages are judged when they are read."""

SHOWN_LENGTH_MAX: Final = 256
"""Characters of an expression in the log."""

DEAD_FROM_START_MS: Final = 30_000
"""A subscription that was alive when the broker stopped counts as dead for so long."""


class FilterTable:
    """SQL92 subscriptions by topic and group.  The file is written from time to time."""

    def __init__(
        self,
        file: StateFile,
        *,
        bloom: BloomFilter,
        now_ms: Callable[[], int],
        clean_span_ms: int,
    ) -> None:
        self.keeper = StateKeeper(file, self._snapshot, is_eager=False)
        self._bloom = bloom
        self._now_ms = now_ms
        self._clean_span_ms = clean_span_ms
        self._entries: dict[tuple[str, str], FilterEntry] = {}
        self._groups: dict[str, dict[str, None]] = {}
        """Topic → groups that have an entry for it."""
        self._length = 0
        """Characters of all expressions."""
        self._filters: dict[tuple[str, str], SqlFilter] = {}
        self._compiled: dict[str, CompiledExpression | SqlFilterError] = {}
        self._costs: dict[str, int] = {}
        """Topic → steps that the notes on one of its messages take, once that is known."""
        self._log: PacedLog[str] = PacedLog()

    # -- expressions ---------------------------------------------------------------------------

    def takes_long(self, expression: str) -> bool:
        """Whether an expression has to be compiled yet, and is too long for that to be at once."""
        return len(expression) > COMPILED_AT_ONCE_LENGTH_MAX and expression not in self._compiled

    def compiled(self, expression: str) -> CompiledExpression:
        """Return an expression compiled, now or before; SqlFilterError if it is wrong."""
        return finish(self.compile(expression))

    def compile(self, expression: str) -> Steps[CompiledExpression]:
        """Do what `compiled` does, and yield wherever it may be interrupted."""
        found = self._compiled.pop(expression, None)
        if found is None:
            # Few brokers have such subscriptions.
            from flintmq.filter.sql92 import compile_in_steps

            try:
                found = yield from compile_in_steps(expression)
            except SqlFilterError as error:
                found = error
            else:
                self._tell_ignored(found)
            while len(self._compiled) >= COMPILED_COUNT_MAX:
                del self._compiled[next(iter(self._compiled))]
        self._compiled[expression] = found
        if isinstance(found, SqlFilterError):
            raise found.with_traceback(None)
        return found

    def _tell_ignored(self, compiled: CompiledExpression) -> None:
        if compiled.ignored and self._log.passes("ignored") is not None:
            logger.warning(
                "text behind an SQL92 expression is ignored: expression=%r ignored=%r",
                compiled.text[:SHOWN_LENGTH_MAX],
                compiled.ignored[:SHOWN_LENGTH_MAX],
            )

    # -- subscriptions -------------------------------------------------------------------------

    def get(self, topic: str, group: str) -> FilterEntry | None:
        """Return the subscription of a group to a topic."""
        return self._entries.get((topic, group))

    def filter_of(self, topic: str, group: str) -> SqlFilter | None:
        """Return the filter of a group's subscription to a topic, None without one."""
        key = topic, group
        found = self._filters.get(key)
        entry = self._entries.get(key)
        if found is None and entry is not None:
            try:
                expression = self.compiled(entry.expression)
            except SqlFilterError:
                return None  # It was read from the file; nothing else gets here uncompiled.
            found = self._filters[key] = _filter_of(entry, expression)
        return found

    def bitmap(self, topic: str, properties: Mapping[str, str]) -> bytes | None:
        """Return the notes on a new message: the bits of all subscriptions that it satisfies.

        None if the topic has no such subscription, or too costly ones; dead ones count, since they
        may live again.
        """
        groups = self._groups.get(topic)
        if groups is None or self._cost_of(topic, groups) > BITMAP_COST_MAX:
            return None
        return self._bloom.bitmap(
            [
                self._entries[topic, group].bits
                for group in groups
                if (chosen := self.filter_of(topic, group)) is not None
                and chosen.matches_arrival(0, lambda: properties)
            ]
        )

    def _cost_of(self, topic: str, groups: Iterable[str]) -> int:
        known = self._costs.get(topic)
        if known is None:
            filters = (self.filter_of(topic, group) for group in groups)
            known = sum(one.cost for one in filters if one is not None)
            self._costs[topic] = known
        return known

    def register(self, group: str, subscriptions: Iterable[Subscription]) -> Iterator[None]:
        """Apply what a heartbeat says of a group; it may be interrupted after each compilation."""
        wanted = {one.topic: one for one in subscriptions if not one.is_tag and one.expression}
        for subscription in wanted.values():
            yield from self._register(group, subscription)
        gone = [key for key in self._entries if key[1] == group and key[0] not in wanted]
        self._mark_dead(gone)

    def _register(self, group: str, subscription: Subscription) -> Iterator[None]:
        """Take a subscription in; it may be interrupted while its expression is compiled."""
        key = subscription.topic, group
        known = self._entries.get(key)
        if known is not None and subscription.version <= known.version:
            if subscription.version == known.version:
                if known.dead_ms:
                    self._put(key, replace(known, dead_ms=0))
                yield from self._make_filter(key)
            return
        try:
            yield from self.compile(subscription.expression)
        except SqlFilterError as error:
            self._tell_refused(group, subscription.topic, error)
            return
        known = self._entries.get(key)
        if known is not None and subscription.version <= known.version:
            return  # Another member of the group was faster.
        entry = FilterEntry(
            topic=subscription.topic,
            group=group,
            expression=subscription.expression,
            version=subscription.version,
            born_ms=self._now_ms(),
            bits=self._bloom.bits_of(group, subscription.topic),
        )
        if not self._make_room(entry):
            if self._log.passes("full") is not None:
                logger.warning("too many SQL92 subscriptions: group=%s", group)
            return
        self._put(key, entry)
        yield from self._make_filter(key)

    def _make_filter(self, key: tuple[str, str]) -> Iterator[None]:
        """Make the filter of an entry, so that no pull has to wait for it."""
        entry = self._entries[key]
        if key not in self._filters:
            with contextlib.suppress(SqlFilterError):
                expression = yield from self.compile(entry.expression)
                if self._entries.get(key) is entry:
                    self._filters[key] = _filter_of(entry, expression)
        yield

    def make_filters(self) -> None:
        """Load the parser and make the filters of all entries, before anybody waits for that."""
        from flintmq.filter.sql92 import load_parser

        load_parser()
        for topic, group in self._entries:
            self.filter_of(topic, group)

    def _tell_refused(self, group: str, topic: str, error: SqlFilterError) -> None:
        if (not_logged := self._log.passes("refused")) is not None:
            logger.warning(
                "SQL92 subscription refused: group=%s topic=%s reason=%s not_logged=%d",
                group,
                topic,
                str(error).partition("\n")[0][:SHOWN_LENGTH_MAX],
                not_logged,
            )

    def _put(self, key: tuple[str, str], entry: FilterEntry) -> None:
        known = self._entries.get(key)
        self._length += len(entry.expression) - (0 if known is None else len(known.expression))
        self._entries[key] = entry
        self._groups.setdefault(entry.topic, {})[entry.group] = None
        self._filters.pop(key, None)
        self._costs.pop(entry.topic, None)
        self.keeper.changed()

    def _make_room(self, new: FilterEntry) -> bool:
        """Forget entries that have been dead the longest until there is room for one more."""
        while (
            len(self._entries) >= ENTRY_COUNT_MAX
            or self._length + len(new.expression) > EXPRESSIONS_LENGTH_MAX
        ):
            dead = [(entry.dead_ms, key) for key, entry in self._entries.items() if entry.dead_ms]
            if not dead:
                return False
            self._forget(min(dead)[1])
        return True

    def _forget(self, key: tuple[str, str]) -> None:
        topic, group = key
        self._length -= len(self._entries.pop(key).expression)
        del self._groups[topic][group]
        if not self._groups[topic]:
            del self._groups[topic]
        self._filters.pop(key, None)
        self._costs.pop(topic, None)
        self.keeper.changed()

    def unregister(self, group: str) -> None:
        """Note that a group has no members any more."""
        self._mark_dead([key for key in self._entries if key[1] == group])

    def _mark_dead(self, keys: Iterable[tuple[str, str]]) -> None:
        now_ms = self._now_ms()
        for key in keys:
            entry = self._entries[key]
            if not entry.dead_ms:
                self._entries[key] = replace(entry, dead_ms=now_ms)
                self.keeper.changed()

    # -- file ----------------------------------------------------------------------------------

    def clean(self) -> None:
        """Forget what has been dead for long."""
        oldest_ms = self._now_ms() - self._clean_span_ms
        for key, entry in list(self._entries.items()):
            if entry.dead_ms and entry.dead_ms <= oldest_ms:
                self._forget(key)

    def load(self) -> None:
        """Read the file; entries of another bloom filter make all of it useless, as in RocketMQ."""
        value = self.keeper.file.load().value
        found = list(read_entries(value))[:ENTRY_COUNT_MAX]
        if any(
            entry.bits.bit_count != self._bloom.bit_count
            or len(entry.bits.positions) != self._bloom.hash_count
            for entry in found
        ):
            logger.warning("SQL92 subscriptions of other filter bits are left out")
            return
        started_ms = self._now_ms() - DEAD_FROM_START_MS
        for entry in found:
            dead_ms = entry.dead_ms or max(entry.born_ms, started_ms)
            self._entries[entry.topic, entry.group] = replace(entry, dead_ms=dead_ms)
            self._groups.setdefault(entry.topic, {})[entry.group] = None
        self._length = sum(len(entry.expression) for entry in self._entries.values())

    def _snapshot(self) -> Callable[[], Any]:
        entries = list(self._entries.values())
        return lambda: _to_json(entries)


def _filter_of(entry: FilterEntry, expression: CompiledExpression) -> SqlFilter:
    return SqlFilter(expression, bits=entry.bits, born_ms=entry.born_ms)


def _to_json(entries: Iterable[FilterEntry]) -> dict[str, Any]:
    by_topic: dict[str, dict[str, Any]] = {}
    for entry in entries:
        of_topic = by_topic.setdefault(entry.topic, {"groupFilterData": {}, "topic": entry.topic})
        of_topic["groupFilterData"][entry.group] = entry.to_json()
    return {"filterDataByTopic": by_topic}
