"""Consumer groups: their configuration on brokers, and changing it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from flintmq.admin.admin_base import AdminBase
from flintmq.admin.admin_errors import MissingError, is_absence
from flintmq.admin.changes import AdminChange, PlannedChange, carry_out, plan_each
from flintmq.client.errors import ResponseError
from flintmq.client.options import checked_group
from flintmq.client.searching.broker_places import Answers, BrokerPlace
from flintmq.format.wire.bodies.dialect import dumps_body, loads_body
from flintmq.format.wire.bodies.groups import group_table_from_json, group_to_json
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.admin import DeleteGroupRequest
from flintmq.model.group_config import GroupConfig
from flintmq.model.topics import RETRY_PREFIX


class GroupFields(TypedDict, total=False):
    """The fields of `GroupConfig` that an operator may change; those not given stay."""

    consume_enable: bool
    consume_from_min_enable: bool
    consume_broadcast_enable: bool
    retry_queue_count: int
    retry_max_times: int
    broker_id: int
    slow_broker_id: int
    notify_ids_changed_enable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedGroup:
    """The configuration of a group on one broker."""

    broker: str
    address: str
    config: GroupConfig


class GroupAdmin(AdminBase):
    """Operations on the configuration of consumer groups."""

    async def group_configs(self, address: str) -> dict[str, GroupConfig]:
        """Return the configuration of all groups of one broker by name."""
        answer = await self.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        groups, _ = group_table_from_json(loads_body(answer.body))
        return groups

    async def group_config(self, group: str) -> Answers[BrokerPlace, PlacedGroup]:
        """Return how a group is configured on each broker that has it."""

        async def ask(place: BrokerPlace) -> PlacedGroup | None:
            config = (await self.group_configs(place.address)).get(group)
            if config is None:
                return None
            return PlacedGroup(broker=place.broker, address=place.address, config=config)

        masters = [one for one in await self.all_places() if one.is_master]
        answers = await self.ask_all(masters, ask)
        found = [(place, one) for place, one in answers.found if one is not None]
        if not found and not answers.failures:
            raise MissingError(f"no broker has the group {group!r}; updateSubGroup creates it")
        return Answers(found, answers.failures)

    async def put_group(
        self,
        group: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        dry_run: bool = False,
        **fields: Unpack[GroupFields],
    ) -> list[AdminChange]:
        """Create a group on a broker or on all of a cluster, or change what is given of it."""
        # As mqadmin, a new group may neither broadcast nor start at the oldest message.
        new = GroupConfig(
            name=checked_group(group),
            consume_broadcast_enable=False,
            consume_from_min_enable=False,
        )

        async def plan(place: BrokerPlace) -> PlannedChange:
            before = (await self.group_configs(place.address)).get(group)
            return self._group_plan(place, before, replace(before or new, **fields))

        places = await self.places(cluster=cluster, broker=broker)
        return await carry_out(await plan_each(places, f"group {group}", plan), dry_run=dry_run)

    def _group_plan(
        self, place: BrokerPlace, before: GroupConfig | None, after: GroupConfig
    ) -> PlannedChange:
        code, body = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group_to_json(after)
        change = AdminChange(
            target=place.label,
            subject=f"group {after.name}",
            old=None if before is None else group_to_json(before),
            new=body,
        )
        return PlannedChange(change, lambda: self.ask(place.address, code, None, dumps_body(body)))

    async def delete_group(
        self,
        group: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        remove_offsets: bool = False,
        dry_run: bool = False,
    ) -> list[AdminChange]:
        """Delete a group and, if told so, how far it has come."""

        async def plan(place: BrokerPlace) -> PlannedChange | None:
            before = (await self.group_configs(place.address)).get(group)
            if before is None:
                return None
            return self._group_deletion(place, before, remove_offsets=remove_offsets)

        places = await self.places(cluster=cluster, broker=broker)
        plans = await plan_each(places, f"group {group}", plan)
        if not plans:
            raise MissingError(f"no broker that was named has the group {group!r}")
        return await carry_out(plans, dry_run=dry_run)

    def _group_deletion(
        self, place: BrokerPlace, before: GroupConfig, *, remove_offsets: bool
    ) -> PlannedChange:
        header = DeleteGroupRequest(group_name=before.name, remove_offset=remove_offsets)
        offsets = " and its offsets" if remove_offsets else ""
        change = AdminChange(
            target=place.label, subject=f"group {before.name}{offsets}", old=group_to_json(before)
        )
        code = RequestCode.DELETE_SUBSCRIPTIONGROUP
        return PlannedChange(change, lambda: self.ask(place.address, code, header))

    async def group_places(self, group: str) -> list[BrokerPlace]:
        """Return the brokers of a group: those with its retry topic, else all masters."""
        try:
            return await self.topic_places(RETRY_PREFIX + group)
        except ResponseError as error:
            if not is_absence(error):
                raise
        return [one for one in await self.all_places() if one.is_master]
