"""What a slave follows besides the log: topics, groups, offsets and delay offsets.

A slave asks its master for them as a Java slave does.  Its tables take over the master's versions,
and its files are those that a master writes: a Java broker goes on with them, and so does this
slave when it is made a master.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from flintmq.broker.replication.errors import OtherLogError
from flintmq.broker.replication.master_link import MasterRange
from flintmq.format.wire.bodies.delays import DelayProgress
from flintmq.format.wire.bodies.dialect import BodyError, Members, loads_body
from flintmq.format.wire.bodies.groups import group_table_from_json
from flintmq.format.wire.bodies.topics import topic_table_from_json
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.offsets import OffsetResponse, QueueBoundRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flintmq.broker.tables.group_table import GroupTable
    from flintmq.broker.tables.offset_table import OffsetTable
    from flintmq.broker.tables.topic_table import TopicTable
    from flintmq.format.wire.command import Command
    from flintmq.format.wire.headers.codec import Header
    from flintmq.model.steps import Steps
    from flintmq.remoting import RemotingClient
    from flintmq.remoting.fair_turns import FairTurns

TIMEOUT_MS: Final = 5000


class FollowedTables(NamedTuple):
    """What a slave takes over from its master besides the log."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    follow_delays: Callable[[DelayProgress], object]
    """Saves how far the master has delivered delayed messages."""


class TableSync:
    """Asks the master for its tables and takes them over."""

    def __init__(self, tables: FollowedTables, turns: FairTurns, client: RemotingClient) -> None:
        self._tables = tables
        self._turns = turns
        self._client = client

    @property
    def topics(self) -> TopicTable:
        """The topics, as they were last taken over."""
        return self._tables.topics

    async def run(self, master: str, *, is_same: Callable[[], bool] = lambda: True) -> None:
        """Take over all tables; FlintError if the master does not give one.

        ``is_same`` tells whether the master's log is the own one.  It is asked after each answer:
        a master may have come back with another log, and with tables that belong to that.
        """

        async def ask(code: RequestCode) -> Any:
            answer = await self._ask(master, code)
            if not is_same():
                raise OtherLogError(f"{master} is not followed: its tables are not taken over")
            return answer

        tables = self._tables
        topics, version = topic_table_from_json(await ask(RequestCode.GET_ALL_TOPIC_CONFIG))
        tables.topics.replace_all(topics, version)
        offsets = await ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        await self._turns.run(_merge(tables.offsets, offsets), "offsets of the master")
        delayed = await ask(RequestCode.GET_ALL_DELAY_OFFSET)
        await asyncio.to_thread(tables.follow_delays, DelayProgress.from_json(delayed))
        groups, version = group_table_from_json(
            await ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        )
        tables.groups.replace_all(groups, version)

    async def log_range(self, master: str) -> MasterRange:
        """Return where the master's log begins and ends."""
        info = await self._runtime_info(master)
        try:
            start, end = int(info["commitLogMinOffset"]), int(info["commitLogMaxOffset"])
        except (KeyError, TypeError, ValueError) as error:
            raise BodyError("runtime info without the range of the log") from error
        # A Java broker begins an empty log at -1.
        return MasterRange(max(start, 0), max(end, 0))

    async def progress(self, master: str) -> tuple[int, int]:
        """Return where the master's log ends, be it not on its disk yet, and what is dispatched.

        A Java master does not tell more of its log than its slaves may have.
        """
        info = await self._runtime_info(master)
        try:
            end = int(info.get("commitLogEndOffset", info["commitLogMaxOffset"]))
            return end, end - int(info["dispatchBehindBytes"])
        except (KeyError, TypeError, ValueError) as error:
            raise BodyError("runtime info without the end of the log") from error

    async def _runtime_info(self, master: str) -> Mapping[str, Any]:
        answer = await self._ask(master, RequestCode.GET_BROKER_RUNTIME_INFO)
        return Members(answer, "runtime info").table("table")

    async def queue_end(self, master: str, topic: str, queue_id: int) -> int:
        """Return where a queue of the master ends, 0 if there is none."""
        header = QueueBoundRequest(topic=topic, queue_id=queue_id)
        answer = await self._call(master, RequestCode.GET_MAX_OFFSET, header)
        return OffsetResponse.decode(answer.ext_fields).offset

    async def _ask(self, master: str, code: RequestCode) -> Any:
        answer = await self._call(master, code)
        return loads_body(answer.body) if answer.body else {}

    async def _call(self, master: str, code: RequestCode, header: Header | None = None) -> Command:
        answer = await self._client.call(master, code, header, timeout_ms=TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise BodyError(f"{code.name} was answered with {answer.code}: {answer.remark}")
        return answer


def _merge(table: OffsetTable, offsets: Any) -> Steps[None]:
    yield from table.merge(offsets)
