"""Moving groups: to a time, to the newest message, to where another group is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from flintmq.admin.admin_errors import MissingError
from flintmq.admin.changes import AdminChange, ChangeOutcome, PlannedChange, carry_out
from flintmq.admin.lag_admin import LagAdmin
from flintmq.client.assigning.consume_from import QueueBounds
from flintmq.client.errors import ConsumerNotOnlineError
from flintmq.client.routing.queue_lists import subscribe_queues
from flintmq.errors import FlintError
from flintmq.format.wire.bodies.dialect import Members, loads_body, queue_from
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.clients import ResetOffsetRequest
from flintmq.format.wire.headers.offsets import UpdateConsumerOffsetRequest
from flintmq.model.message_queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flintmq.client.searching.broker_places import BrokerPlace

NEWEST: Final = -1
"""Stands for the end of queues where a time is asked for."""


class OffsetAdmin(LagAdmin):
    """Operations that change how far a group has come."""

    async def reset_offsets(
        self,
        group: str,
        topic: str,
        timestamp_ms: int,
        *,
        force: bool = True,
        dry_run: bool = False,
    ) -> list[AdminChange]:
        """Have a group go on from the messages of a time, or from the newest with `NEWEST`.

        Members that are online are told by their brokers.  Where none is, the offsets are
        changed on the broker.  Without ``force`` no queue is moved forward.
        """
        plans = await self._reset_plans(group, topic, timestamp_ms, force=force)
        if dry_run:
            return [plan.change for _, plan in plans]
        done: list[AdminChange] = []
        for place in await self.topic_places(topic):
            own = [one for one in plans if one[0].broker_name == place.broker]
            try:
                moved = await self._reset(place, group, topic, timestamp_ms, force=force)
            except ConsumerNotOnlineError:
                done += await carry_out([plan for _, plan in own], dry_run=False)
            except FlintError as error:
                failed = ChangeOutcome.FAILED
                done += [replace(p.change, outcome=failed, error=error) for _, p in own]
            else:
                done += [_moved(queue, plan.change, moved) for queue, plan in own]
        return done

    async def _reset(
        self, place: BrokerPlace, group: str, topic: str, timestamp_ms: int, *, force: bool
    ) -> dict[MessageQueue, int]:
        header = ResetOffsetRequest(
            topic=topic, group=group, timestamp=timestamp_ms, is_force=force
        )
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        answer = await self.ask(place.address, code, header)
        table = Members(loads_body(answer.body), "offsets").table("offsetTable")
        return {queue_from(queue): int(offset) for queue, offset in table.items()}

    async def _reset_plans(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool
    ) -> list[tuple[MessageQueue, PlannedChange]]:
        queues = subscribe_queues(topic, await self.topic_route(topic))
        before = await self._committed(group, topic)
        if not before:
            await self.group_config(group)  # One that is not there cannot be moved.
        await self.client.routes.fetch(topic)
        bounds = QueueBounds(self.client)
        plans = []
        for queue in queues:
            if timestamp_ms == NEWEST:
                wanted = await bounds.end(queue)
            else:
                wanted = await bounds.by_time(queue, timestamp_ms)
            old = before.get(queue)
            if not force and old is not None:
                wanted = min(wanted, old)
            plans.append((queue, self._offset_plan(group, queue, old, max(wanted, 0))))
        return plans

    async def _committed(self, group: str, topic: str) -> dict[MessageQueue, int]:
        try:
            progress = await self.group_progress(group, topic=topic)
        except MissingError:
            return {}
        return {
            MessageQueue(one.topic, one.broker, one.queue_id): one.consumer_offset
            for one in progress.queues
        }

    def _offset_plan(
        self, group: str, queue: MessageQueue, old: int | None, new: int
    ) -> PlannedChange:
        change = AdminChange(
            target=queue.broker_name,
            subject=f"offset of {group} in {queue.topic}, queue {queue.queue_id}",
            old=None if old is None else {"offset": old},
            new={"offset": new},
        )
        return PlannedChange(change, lambda: self._commit(group, queue, new))

    async def _commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        header = UpdateConsumerOffsetRequest(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            broker_name=queue.broker_name,
        )
        address = await self.client.routes.home(queue)
        await self.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def clone_offsets(
        self, source: str, target: str, topic: str, *, dry_run: bool = False
    ) -> list[AdminChange]:
        """Have one group go on where another is, in one topic."""
        wanted = await self._committed(source, topic)
        if not wanted:
            raise MissingError(f"the group {source!r} has consumed nothing of {topic!r}")
        before = await self._committed(target, topic)
        await self.client.routes.fetch(topic)
        plans = [
            self._offset_plan(target, queue, before.get(queue), offset)
            for queue, offset in sorted(wanted.items())
        ]
        return await carry_out(plans, dry_run=dry_run)


def _moved(
    queue: MessageQueue, change: AdminChange, moved: Mapping[MessageQueue, int]
) -> AdminChange:
    offset = moved.get(queue)
    new = change.new if offset is None else {"offset": offset}
    return replace(change, outcome=ChangeOutcome.DONE, new=new)
