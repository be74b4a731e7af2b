"""Real consumers in processes that stop, die and come back, on a queue that may lose both ends.

Nothing is committed beyond the oldest message that is neither handled nor with the broker for a
later try.  In order, no message is handed to a handler while another member has the lock or after
one has committed it, and nobody commits less than the group has unless a broker or an operator
said so.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flintmq import AsyncPushConsumer, ConsumeFrom, ReceivedMessage
from flintmq.client.instance import ClientInstance
from flintmq.format.wire.codes import RequestCode
from flintmq.model.message_queue import MessageQueue
from tests.kits.client.model_cluster import (
    GROUP,
    QUEUE,
    TOPIC,
    ModelBroker,
    ModelClient,
    Process,
    World,
)
from tests.kits.leftovers import LEAVES_NOTHING

pytestmark = pytest.mark.usefixtures(LEAVES_NOTHING)

_T = TypeVar("_T")

STOP_TIMEOUT_S = 4.0
HEAR_STEPS_MAX = 20
indexes = st.integers(0, 5)
SLOW_CODES = [None, RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.LOCK_BATCH_MQ]
pauses = st.sampled_from([0.1, 1.1, 5.1, 20.1, 31.0, 61.0])


class OddError(BaseException):
    """No Exception: most handlers of errors let it pass."""


class Handlers:
    """The handler of one process; its calls end when the test says so."""

    def __init__(self, broker: ModelBroker, name: str, *, orderly: bool) -> None:
        self._broker = broker
        self._name = name
        self._orderly = orderly
        self.at_work: list[asyncio.Future[object]] = []

    async def __call__(self, messages: list[ReceivedMessage]) -> object:
        if self._orderly:
            self._broker.check_turn(self._name, messages[0].queue_offset)
            self._broker.started += [message.physical_offset for message in messages]
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.at_work.append(future)
        try:
            result = await future
        finally:
            self.at_work.remove(future)
        if result is True:
            self._broker.safe.update(message.physical_offset for message in messages)
        return result


class Member(Process):
    """A process with a push consumer."""

    def __init__(
        self,
        world: World,
        broker: ModelBroker,
        name: str,
        *,
        orderly: bool,
        batch_size: int,
        share: Callable[..., list[MessageQueue]],
    ) -> None:
        self.handlers = Handlers(broker, name, orderly=orderly)

        def make(client: ClientInstance) -> AsyncPushConsumer:
            return AsyncPushConsumer(
                group=GROUP,
                subscriptions={TOPIC: "*"},
                handler=self._handle,
                client=client,
                orderly=orderly,
                batch_size=2 if batch_size == 1 else batch_size,
                concurrency=3,
                strategy=share,
                consume_from=ConsumeFrom.FIRST_OFFSET,
                local_retry_ms=1000,
                suspend_queue_ms=1000,
                stop_timeout_ms=int(STOP_TIMEOUT_S * 1000),
            )

        super().__init__(world, broker, name, make)
        self.run(self.consumer.start())

    async def _handle(self, messages: list[ReceivedMessage]) -> object:
        return await self.handlers(messages)


class GroupMachine(RuleBasedStateMachine):
    """Two members of a group that pass one queue between them."""

    orderly: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.broker = ModelBroker(self.world)
        self.broker.checks_lowering = self.orderly
        self.members: list[Member] = []
        self.owner = ""
        self.count = 0

    @initialize(batch_size=st.integers(1, 4), sent=st.integers(1, 9))
    def begin(self, batch_size: int, sent: int) -> None:
        self.batch_size = batch_size
        self.broker.send(sent)
        for _ in range(2):
            self.members.append(self.new_member())
        self.hand_to(0)

    def new_member(self) -> Member:
        self.count += 1
        return Member(
            self.world,
            self.broker,
            f"member-{self.count}",
            orderly=self.orderly,
            batch_size=self.batch_size,
            share=self.share,
        )

    def share(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(queues) if client_id == self.owner else []

    def settle(self) -> None:
        for member in self.members:
            member.settle()

    def skip(self, seconds: float) -> None:
        """Let time pass; processes look at their clocks in steps of a second or so."""
        while seconds > 0:
            step = min(seconds, 1.3)
            self.world.now_s += step
            seconds -= step
            self.settle()

    def running(self) -> list[Member]:
        return [one for one in self.members if not one.is_stopped]

    def at_work(self) -> list[asyncio.Future[object]]:
        return [future for one in self.running() for future in one.handlers.at_work]

    @rule(count=st.integers(1, 6))
    def send(self, count: int) -> None:
        self.broker.send(count)
        self.settle()

    @rule(seconds=pauses)
    def wait(self, seconds: float) -> None:
        self.skip(seconds)

    @rule(index=indexes)
    def hand_to(self, index: int) -> None:
        """Have the members share the queue out anew."""
        self.owner = _chosen(self.members, index).name
        for member in self.running():
            member.client.wake_rebalance()
        self.settle()

    @precondition(lambda self: self.at_work())
    @rule(
        finished=st.lists(
            st.tuples(
                indexes, st.sampled_from(["handled", "failed", "raised", "odd", "cancelled"])
            ),
            min_size=1,
            max_size=4,
        ),
        is_taking_back=st.booleans(),
    )
    def finish(self, finished: list[tuple[int, str]], *, is_taking_back: bool) -> None:
        self.broker.is_taking_back = is_taking_back
        for index, outcome in finished:
            if self.at_work():
                _end(_chosen(self.at_work(), index), outcome)
                self.settle()

    @precondition(lambda self: self.running())
    @rule(index=indexes)
    def stop(self, index: int) -> None:
        """Let a process stand still."""
        _chosen(self.running(), index).is_stopped = True

    @precondition(lambda self: len(self.running()) < len(self.members))
    @rule(index=indexes, is_told=st.booleans())
    def go_on(self, index: int, *, is_told: bool) -> None:
        """Let a process go on; it may have been told of changes in the group meanwhile."""
        member = _chosen([one for one in self.members if one.is_stopped], index)
        member.is_stopped = False
        if is_told:
            member.client.wake_rebalance()
        self.settle()

    @rule(
        seconds=st.sampled_from([90, 90, 40, 10]),
        sent=st.integers(0, 12),
        finished=st.integers(0, 4),
        is_back=st.booleans(),
        slow_code=st.sampled_from(SLOW_CODES),
    )
    def be_absent(
        self, seconds: float, sent: int, finished: int, slow_code: int | None, *, is_back: bool
    ) -> None:
        """Let the owner of the queue stand still while another member has its turn."""
        for member in self.members:
            member.is_stopped = False
        self.send(sent)
        self.finish([(0, "handled")], is_taking_back=True)
        owners = [one for one in self.members if QUEUE in one.consumer.assigned]
        if len(owners) != 1:
            return
        (owner,) = owners
        cast(ModelClient, owner.client).slow_code = slow_code
        owner.is_stopped = True
        self.hand_to(self.members.index(owner) + 1)
        self.skip(seconds)
        for _ in range(finished):
            for future in self.at_work():
                _end(future, "handled")
            self.settle()
        if is_back:
            self.hand_to(self.members.index(owner))
            for future in self.at_work():
                _end(future, "handled")
            self.skip(0.1)
        owner.is_stopped = False
        for future in owner.handlers.at_work:
            _end(future, "handled")
        self.settle()
        self.skip(1)

    @precondition(lambda self: len(self.running()) == len(self.members))
    @rule(count=st.integers(1, 6))
    def lose_end(self, count: int) -> None:
        """Start the broker again without its last messages; members hear of that before others."""
        self.broker.lose_end(count)
        self.keep_commit_within_end()
        self.skip(2.5)
        for future in self.at_work():
            # In order, a restart waits for the batch at work.
            _end(future, "handled")
            self.settle()
        self.skip(2.5)
        for _ in range(HEAR_STEPS_MAX):
            # What came before a member has heard of the loss would be taken for what is lost.
            if not any(self.is_beyond_end(member) for member in self.running()):
                break
            self.skip(5.1)
        # A member that is handing the queue over pulls no more: it commits what it has handled.
        self.keep_commit_within_end()

    def keep_commit_within_end(self) -> None:
        """Lower what is committed: what comes next could be taken for what is lost, by anybody."""
        if self.broker.committed is not None:
            self.broker.committed = min(self.broker.committed, self.broker.end)

    def is_beyond_end(self, member: Member) -> bool:
        one = member.consumer._assignment.queues.get(QUEUE)
        return one is not None and one.next_offset > self.broker.end

    @rule(count=st.integers(1, 3))
    def drop_front(self, count: int) -> None:
        self.broker.drop_front(count)

    @precondition(lambda self: self.running())
    @rule(offset=st.integers(0, 12), index=indexes)
    def reset(self, offset: int, index: int) -> None:
        """Have an operator move the group."""
        member = _chosen(self.running(), index)
        if QUEUE not in member.consumer.assigned or member.handlers.at_work:
            return
        offset = max(self.broker.begin, min(offset, self.broker.end))
        self.broker.will_pass(offset)
        self.broker.started.clear()
        member.run(member.consumer.move({QUEUE: offset}))
        self.settle()

    @precondition(lambda self: self.running())
    @rule(index=indexes, way=st.sampled_from(["close", "crash", "handler"]))
    def end(self, index: int, way: str) -> None:
        member = _chosen(self.running(), index)
        if way == "crash":
            member.crash()
        else:
            closing = member.loop.create_task(member.consumer.close())
            self.settle()
            if way == "handler" and member.handlers.at_work:
                _end(member.handlers.at_work[0], "handled")
            self.skip(STOP_TIMEOUT_S + 2)
            member.run(_finished(closing))
            member.loop.close()
        self.members[self.members.index(member)] = self.new_member()
        self.settle()

    @invariant()
    def nothing_happened_that_must_not(self) -> None:
        assert self.broker.violations == []

    @invariant()
    def order_is_kept(self) -> None:
        if self.orderly:
            first_times = list(dict.fromkeys(self.broker.started))
            assert first_times == sorted(first_times)

    def teardown(self) -> None:
        """Whoever consumes last finds everything that is still to be done."""
        try:
            if self.members:
                self._consume_the_rest()
        finally:
            for member in self.members:
                member.crash()

    def _consume_the_rest(self) -> None:
        self.broker.is_taking_back = True
        for member in self.members:
            member.is_stopped = False
        self.hand_to(0)
        for _ in range(400):
            if not self.broker.unsafe_before(self.broker.end):
                break
            for future in self.at_work():
                _end(future, "handled")
            self.skip(1)
        assert self.broker.unsafe_before(self.broker.end) == []
        assert self.broker.violations == []


def _end(future: asyncio.Future[object], outcome: str) -> None:
    if future.done():
        return
    if outcome == "raised":
        future.set_exception(ValueError("no"))
    elif outcome == "odd":
        future.set_exception(OddError())
    elif outcome == "cancelled":
        future.cancel()
    else:
        future.set_result(outcome == "handled")


async def _finished(task: "asyncio.Task[Any]") -> None:
    assert task.done()
    await task


def _chosen(choices: Sequence[_T], index: int) -> _T:
    return choices[index % len(choices)]


class OrderlyGroupMachine(GroupMachine):
    """The same in order."""

    orderly: ClassVar[bool] = True


TestConcurrentGroup = GroupMachine.TestCase
TestConcurrentGroup.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestOrderlyGroup = OrderlyGroupMachine.TestCase
TestOrderlyGroup.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
