"""The doctor: takes a picture of a whole cluster, and says what is wrong with it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeVar

from flintmq.admin.diagnosis import BrokerPicture, ClusterPicture, DoctorLimits
from flintmq.admin.doctor_checks import CHECKS
from flintmq.admin.measure_admin import MeasureAdmin
from flintmq.admin.member_admin import subscription_mismatches
from flintmq.client.searching.broker_places import BrokerPlace, broker_places
from flintmq.errors import FlintError
from flintmq.format.wire.bodies.dialect import loads_body
from flintmq.format.wire.bodies.routes import cluster_from_json
from flintmq.format.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from flintmq.admin.diagnosis import Diagnosis
    from flintmq.admin.lag_admin import GroupSummary
    from flintmq.admin.member_admin import SubscriptionMismatch

_T = TypeVar("_T")

GROUP_COUNT_MAX: Final = 500
"""Groups whose members the doctor asks for their subscriptions."""


class DoctorAdmin(MeasureAdmin):
    """The operation that looks at everything."""

    async def diagnose(self, limits: DoctorLimits | None = None) -> list[Diagnosis]:
        """Return all that was checked and found, the name servers first."""
        picture = await self.picture()
        wanted = limits or DoctorLimits()
        return [one for check in CHECKS for one in check(picture, wanted)]

    async def picture(self) -> ClusterPicture:
        """Return the cluster as it is now; what cannot be asked is noted, and ends nothing."""
        picture, unknown = ClusterPicture(), list[str]()
        views = await self.ask_all(self.name_servers(), self._brokers_known_to)
        picture.name_servers = {
            **{server: frozenset(one.address for one in known) for server, known in views.found},
            **{server: str(error) for server, error in views.failures},
        }
        if not views.found:
            return picture
        # A broker that only one of them knows is looked at too.
        places = sorted({one for _, known in views.found for one in known})
        picture.brokers = await asyncio.gather(*map(self._broker_picture, places))
        picture.route_perms = await self._route_perms(places)
        groups = await self._or_unknown(self.group_summaries(), unknown, "the groups")
        if groups is not None:
            picture.groups = [one for _, one in groups.found]
            unknown += [f"group {group}: {error}" for group, error in groups.failures]
        picture.mismatches = await self._mismatches(picture.groups, unknown)
        letters = await self._or_unknown(self.dead_letters(), unknown, "the dead letters")
        picture.dead_letters = letters or []
        picture.now_ms = time.time_ns() // 1_000_000
        picture.unknown = unknown
        return picture

    async def _or_unknown(self, work: Awaitable[_T], unknown: list[str], what: str) -> _T | None:
        try:
            return await work
        except FlintError as error:
            unknown.append(f"{what}: {error}")
            return None

    async def _brokers_known_to(self, server: str) -> list[BrokerPlace]:
        answer = await self.ask(server, RequestCode.GET_BROKER_CLUSTER_INFO)
        return broker_places(cluster_from_json(loads_body(answer.body)))

    async def _broker_picture(self, place: BrokerPlace) -> BrokerPicture:
        picture = BrokerPicture(place=place)
        try:
            picture.info = await self.runtime_info(place.address)
            picture.asked_at_ms = time.time_ns() // 1_000_000
            picture.settings = await self.settings_of(place.address)
            picture.topics = await self.topic_configs(place.address)
        except FlintError as error:
            picture.error = str(error)
        return picture

    async def _route_perms(self, places: list[BrokerPlace]) -> dict[str, int]:
        perms: dict[str, int] = {}
        for name in {one.broker for one in places}:
            try:
                route = await self.topic_route(name)
            except FlintError:
                continue  # A broker need not have a topic of its own name.
            perms |= {one.broker_name: int(one.perm) for one in route.queues}
        return perms

    async def _mismatches(
        self, groups: Sequence[GroupSummary], unknown: list[str]
    ) -> list[SubscriptionMismatch]:
        shared = [one.group for one in groups if one.member_count > 1]
        if len(shared) > GROUP_COUNT_MAX:
            unknown.append(f"only {GROUP_COUNT_MAX} of {len(shared)} groups were asked")

        async def ask(group: str) -> list[SubscriptionMismatch]:
            consumers, _ = await self.running_consumers(group)
            return subscription_mismatches(group, consumers)

        answers = await self.ask_all(shared[:GROUP_COUNT_MAX], ask)
        unknown += [f"members of {group}: {error}" for group, error in answers.failures]
        return [one for _, found in answers.found for one in found]
