"""The pulls that wait for messages of one queue, by what they want of them.

Thousands may wait for one queue, and a batch brings thousands of messages.  To compare each with
each would hold the loop for seconds.  So pulls that want tags are found by the tags of a message,
and whoever was found is not looked at again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from flintmq.broker.filtering.tag_filter import wanted_code

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from flintmq.broker.filtering.pull_filter import PullFilter
    from flintmq.broker.waiting.held_pull import HeldPull

_KeyT = TypeVar("_KeyT")

CODES_MAX: Final = 32
"""Tags of a pull by which it is found; one that wants more is judged message by message."""
JUDGED_COUNT_MAX: Final = 512
"""Messages that are judged by filters before pulls that have one are woken unjudged: they read for
themselves then, which has its own bounds."""


class Judging:
    """How many times filters were asked since the pulls that were found were answered.

    One that takes long counts for several.
    """

    def __init__(self) -> None:
        self.count = 0

    def matches(
        self,
        chosen: PullFilter,
        tags_code: int,
        read_properties: Callable[[], Mapping[str, str]],
    ) -> bool:
        """Whether a filter accepts a new message, or has been asked too often to know."""
        if self.count >= JUDGED_COUNT_MAX:
            return True
        self.count += chosen.weight
        return chosen.matches_arrival(tags_code, read_properties)


class AwaitedQueue:
    """The pulls of one queue that nothing has come for yet."""

    __slots__ = ("_by_code", "_by_filter", "_for_all")

    def __init__(self) -> None:
        self._for_all: dict[HeldPull, None] = {}
        """Those that want any message."""
        self._by_code: dict[int, dict[HeldPull, None]] = {}
        self._by_filter: dict[PullFilter, dict[HeldPull, None]] = {}
        """Those whose filters are asked.  Members of a group share theirs."""

    def __bool__(self) -> bool:
        return bool(self._for_all or self._by_code or self._by_filter)

    @property
    def wants_each(self) -> bool:
        """Whether two messages with the same tags may differ for some pull."""
        return bool(self._by_filter)

    def add(self, pull: HeldPull) -> None:
        """Have a pull wait."""
        chosen = pull.message_filter
        if chosen is None:
            self._for_all[pull] = None
        elif (codes := _codes_of(chosen)) is None:
            self._by_filter.setdefault(chosen, {})[pull] = None
        else:
            for code in codes:
                self._by_code.setdefault(code, {})[pull] = None

    def remove(self, pull: HeldPull) -> None:
        """Forget a pull, if it waits."""
        chosen = pull.message_filter
        if chosen is None:
            self._for_all.pop(pull, None)
        elif (codes := _codes_of(chosen)) is None:
            _take_out(self._by_filter, chosen, pull)
        else:
            for code in codes:
                _take_out(self._by_code, code, pull)

    def take(
        self,
        queue_offset: int,
        tags_code: int,
        read_properties: Callable[[], Mapping[str, str]],
        judging: Judging,
    ) -> list[HeldPull]:
        """Return the pulls that want a message which has come; they wait no longer."""
        found = [*self._for_all, *self._by_code.get(wanted_code(tags_code), ())]
        for chosen, pulls in self._by_filter.items():
            if judging.matches(chosen, tags_code, read_properties):
                found += pulls
        found = [pull for pull in found if queue_offset > pull.offset]
        for pull in found:
            self.remove(pull)
        return found


def _codes_of(chosen: PullFilter) -> Collection[int] | None:
    """Return the tags codes by which pulls with a filter are found, None if it has to be asked."""
    codes = chosen.arrival_codes
    return None if codes is None or len(codes) > CODES_MAX else codes


def _take_out(table: dict[_KeyT, dict[HeldPull, None]], key: _KeyT, pull: HeldPull) -> None:
    pulls = table.get(key)
    if pulls is not None:
        pulls.pop(pull, None)
        if not pulls:
            del table[key]
