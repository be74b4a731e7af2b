"""The first offsets of a group, on a broker that forgets one of two that come together."""

import asyncio
from typing import Final, cast

import pytest

from flintmq import ClientInstance
from flintmq.client.assigning.offset_store import RemoteOffsets
from flintmq.client.errors import NotFoundError
from flintmq.format.wire.headers.offsets import (
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from flintmq.model.message_queue import MessageQueue
from flintmq.remoting import RemotingError
from flintmq.remoting.errors import AnswerTimeoutError
from tests.kits.client.consumer_kit import GROUP, queue

QUEUES: Final = [queue(number) for number in range(8)]
TURNS: Final = 4 * len(QUEUES)
"""Turns of the loop that a request takes, so that all can be at work at once."""


class ForgetfulBroker:
    """A client whose broker keeps offsets as Java's does: it looks for a table, then makes one."""

    def __init__(self) -> None:
        self.routes = self
        self.answers = True
        self.commit_count = 0
        self.tables: dict[str, dict[int, int]] = {}
        self.side_by_side_max = 0
        self.without_table_max = 0
        """How many were at work at once while there was no table."""
        self._at_work = 0

    async def home(self, queue: MessageQueue) -> str:
        return queue.broker_name

    async def call(
        self,
        _address: str,
        _code: int,
        header: UpdateConsumerOffsetRequest | QueryConsumerOffsetRequest,
        *,
        timeout_ms: int,
    ) -> None:
        assert timeout_ms > 0
        if isinstance(header, QueryConsumerOffsetRequest):
            raise NotFoundError("nothing yet")
        self.commit_count += 1
        if not self.answers:
            await asyncio.sleep(0)
            raise AnswerTimeoutError("silence")
        self._at_work += 1
        self.side_by_side_max = max(self.side_by_side_max, self._at_work)
        table = self.tables.get(header.topic)
        if table is None:
            self.without_table_max = max(self.without_table_max, self._at_work)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        if table is None:
            table = self.tables[header.topic] = {}
        table[header.queue_id] = header.commit_offset
        self._at_work -= 1


def _offsets(broker: ForgetfulBroker) -> RemoteOffsets:
    return RemoteOffsets(cast("ClientInstance", broker), GROUP)


async def test_none_of_the_first_commits_of_a_group_is_forgotten() -> None:
    """Of 20 messages in four queues, 15 counted as consumed."""
    broker = ForgetfulBroker()
    offsets = _offsets(broker)
    await asyncio.gather(*(offsets.commit(one, 5) for one in QUEUES))
    assert broker.tables == {one.topic: {one.queue_id: 5 for one in QUEUES} for one in QUEUES}
    assert broker.without_table_max == 1


async def test_only_the_first_commit_is_waited_for() -> None:
    """All that waited for the first went one after the other: a close was over before they were."""
    broker = ForgetfulBroker()
    offsets = _offsets(broker)
    await asyncio.gather(*(offsets.commit(one, 5) for one in QUEUES))
    assert broker.side_by_side_max == len(QUEUES) - 1


async def test_those_that_wait_for_a_broker_that_does_not_answer_do_not_wait_one_by_one() -> None:
    """Eight queues took eight times the time of one, and a close as long."""
    broker = ForgetfulBroker()
    broker.answers = False
    offsets = _offsets(broker)
    commits = await asyncio.gather(
        *(offsets.commit(one, 5) for one in QUEUES), return_exceptions=True
    )
    assert all(isinstance(one, AnswerTimeoutError) for one in commits)
    assert broker.commit_count == 1
    with pytest.raises(RemotingError):
        await offsets.commit(QUEUES[1], 5)
    assert broker.commit_count == 2
    broker.answers = True
    await asyncio.gather(*(offsets.commit(one, 5) for one in QUEUES))
    assert len(broker.tables[QUEUES[0].topic]) == len(QUEUES)
    assert broker.without_table_max == 1


async def test_nor_is_one_that_is_noted_and_committed_with_others() -> None:
    broker = ForgetfulBroker()
    offsets = _offsets(broker)
    for one in QUEUES:
        offsets.update(one, 7, increase_only=True)
    await offsets.persist(QUEUES)
    assert set(broker.tables[QUEUES[0].topic]) == {one.queue_id for one in QUEUES}
    # Later ones go side by side again.
    for one in QUEUES:
        offsets.update(one, 9, increase_only=True)
    await offsets.persist(QUEUES)
    assert broker.side_by_side_max == len(QUEUES)


async def test_pulls_carry_no_offset_before_the_first_commit() -> None:
    broker = ForgetfulBroker()
    offsets = _offsets(broker)
    for one in QUEUES:
        assert await offsets.read(one) is None
        offsets.update(one, 7, increase_only=True)
        assert offsets.carried(one) is None
    await offsets.persist(QUEUES[:1])
    assert [offsets.carried(one) for one in QUEUES] == [7] * len(QUEUES)
