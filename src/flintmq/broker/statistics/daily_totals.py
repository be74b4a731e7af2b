"""How much had been sent and fetched when the day began, and the day before."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.broker.statistics.broker_statistics import BrokerStatistics


class Mornings(NamedTuple):
    """Totals at the last two midnights."""

    put_yesterday: int = 0
    put_today: int = 0
    get_yesterday: int = 0
    get_today: int = 0


class DailyTotals:
    """Notes the totals at each midnight, of the machine's own time zone as RocketMQ has it."""

    def __init__(self, statistics: BrokerStatistics, *, now_ms: Callable[[], int]) -> None:
        self._statistics = statistics
        self._now_ms = now_ms
        self._day = self._present_day()
        self._mornings = Mornings()

    def _present_day(self) -> int:
        moment = datetime.fromtimestamp(self._now_ms() / 1000).astimezone()
        return moment.toordinal()

    def sample(self) -> None:
        """Note the totals if a new day has begun."""
        day = self._present_day()
        if day == self._day:
            return
        self._day = day
        before = self._mornings
        self._mornings = Mornings(
            before.put_today,
            self._statistics.put_total,
            before.get_today,
            self._statistics.get_total,
        )

    def today(self) -> Mornings:
        """Return the totals at the last two midnights."""
        return self._mornings
