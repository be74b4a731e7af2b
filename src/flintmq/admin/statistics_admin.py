"""Statistics that brokers count: rates and totals of topics and groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from flintmq.admin.admin_errors import MissingError
from flintmq.admin.dead_letter_admin import DeadLetterAdmin
from flintmq.client.errors import SystemFailureError
from flintmq.format.wire.bodies.dialect import Members, loads_body
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.admin import BrokerStatsRequest
from flintmq.model.topics import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from flintmq.client.searching.broker_places import Answers, BrokerPlace

TOPIC_PUT: Final = "TOPIC_PUT_NUMS"
GROUP_GET: Final = "GROUP_GET_NUMS"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCounter:
    """What a broker has counted of something, over a minute, an hour and a day."""

    per_second: float
    minute: int
    hour: int
    day: int

    @property
    def day_or_less(self) -> int:
        """The sum of the longest time for which there is one, as mqadmin shows it."""
        return self.day or self.hour or self.minute


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTraffic:
    """The traffic of a topic, and of one group that consumes it."""

    topic: str
    group: str | None
    """None for a topic that nobody consumes."""
    lag: int
    in_per_second: float
    out_per_second: float
    in_day: int
    out_day: int


class StatisticsAdmin(DeadLetterAdmin):
    """Operations that tell what brokers have counted."""

    async def broker_counter(self, address: str, name: str, key: str) -> BrokerCounter | None:
        """Return a counter of a broker; None if nothing was counted."""
        header = BrokerStatsRequest(stats_name=name, stats_key=key)
        try:
            answer = await self.ask(address, RequestCode.VIEW_BROKER_STATS_DATA, header)
        except SystemFailureError as error:
            if "not exist" not in error.remark:
                raise
            return None
        members = Members(loads_body(answer.body), "a counter")
        return BrokerCounter(
            per_second=_value(members.get("statsMinute"), "tps"),
            minute=int(_value(members.get("statsMinute"), "sum")),
            hour=int(_value(members.get("statsHour"), "sum")),
            day=int(_value(members.get("statsDay"), "sum")),
        )

    async def topic_statistics(
        self, *, topic: str | None = None, active_only: bool = False
    ) -> Answers[str, list[TopicTraffic]]:
        """Return the traffic of topics and of the groups that consume them."""
        topics = await self.topics() if topic is None else [topic]
        wanted = [one for one in topics if not one.startswith((RETRY_PREFIX, DLQ_PREFIX))]

        async def ask(name: str) -> list[TopicTraffic]:
            rows = await self._statistics(name)
            if active_only:
                return [one for one in rows if one.in_day or one.out_day]
            return rows

        return await self.ask_all(wanted, ask)

    async def _statistics(self, topic: str) -> list[TopicTraffic]:
        places = await self.topic_places(topic)
        sent = await self._sum(places, TOPIC_PUT, topic)
        groups = await self.groups_of_topic(topic)
        if not groups:
            return [
                TopicTraffic(
                    topic=topic,
                    group=None,
                    lag=0,
                    in_per_second=sent.per_second,
                    out_per_second=0.0,
                    in_day=sent.day_or_less,
                    out_day=0,
                )
            ]
        rows = []
        for group in groups:
            got = await self._sum(places, GROUP_GET, f"{topic}@{group}")
            rows.append(
                TopicTraffic(
                    topic=topic,
                    group=group,
                    lag=await self._lag(group, topic),
                    in_per_second=sent.per_second,
                    out_per_second=got.per_second,
                    in_day=sent.day_or_less,
                    out_day=got.day_or_less,
                )
            )
        return rows

    async def _lag(self, group: str, topic: str) -> int:
        try:
            return max((await self.group_progress(group, topic=topic)).diff_total, 0)
        except MissingError:
            return 0

    async def _sum(self, places: list[BrokerPlace], name: str, key: str) -> BrokerCounter:
        async def ask(place: BrokerPlace) -> BrokerCounter | None:
            return await self.broker_counter(place.address, name, key)

        answers = await self.ask_all(places, ask)
        if answers.failures:
            raise answers.failures[0][1]  # The sum of some brokers is not that of the topic.
        found = [one for _, one in answers.found if one is not None]
        return BrokerCounter(
            per_second=sum(one.per_second for one in found),
            minute=sum(one.minute for one in found),
            hour=sum(one.hour for one in found),
            day=sum(one.day for one in found),
        )


def _value(members: Any, name: str) -> float:
    value = members.get(name) if isinstance(members, dict) else None
    return float(value) if isinstance(value, int | float) else 0.0
