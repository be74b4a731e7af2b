"""Under any interleaving of pull, consume, fail, hand-over, stop and crash nothing is lost.

A message may come twice; it may never be committed past while it is neither handled nor with the
broker for a later try.
"""

import asyncio
from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.property.consumer_model import Broker, Member, is_wanted, run, settle_down

members = st.integers(0, 1)


class GroupMachine(RuleBasedStateMachine):
    """Two members of a group that pass one queue between them."""

    orderly: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.broker = Broker()
        self.members: list[Member] = []
        self.is_restarted = False

    @initialize(batch_size=st.integers(1, 3))
    def begin(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.members = [self.new_member(), self.new_member()]

    def new_member(self) -> Member:
        # A semaphore and events belong to the loop they are first waited for in.
        return Member(self.broker, orderly=self.orderly, batch_size=self.batch_size)

    def settle(self) -> None:
        run(self.loop, settle_down())

    @rule(count=st.integers(1, 6))
    def send(self, count: int) -> None:
        self.broker.end += count

    @rule(index=members)
    def take_up(self, index: int) -> None:
        member = self.members[index]
        is_free = all(one.one is None for one in self.members)
        # In order, the broker's lock lets one member in; else both may have it for a moment.
        if member.one is None and (is_free or not self.orderly):
            self.loop.call_soon(member.take_up)
            self.settle()

    @rule(index=members, count=st.integers(1, 5))
    def pull(self, index: int, count: int) -> None:
        member = self.members[index]
        if member.one is not None:
            self.loop.call_soon(member.pull, count)
            self.settle()

    @rule(index=members, which=st.integers(0, 2), is_success=st.booleans())
    def finish(self, index: int, which: int, *, is_success: bool) -> None:
        at_work = self.members[index].handlers.at_work
        if at_work:
            at_work[which % len(at_work)][1].set_result(is_success)
            self.settle()

    @rule(takes_back=st.booleans())
    def change_mind(self, *, takes_back: bool) -> None:
        self.broker.takes_back = takes_back

    @rule(index=members)
    def persist(self, index: int) -> None:
        if self.members[index].one is not None:
            self.members[index].persist()

    @rule(index=members, is_success=st.booleans())
    def give_up(self, index: int, *, is_success: bool) -> None:
        member = self.members[index]
        if member.one is None:
            return
        leaving = self.loop.create_task(member.give_up())
        self.settle()
        if not leaving.done():
            # In order, the hand-over waits for the batch at work.
            assert self.orderly
            assert len(member.handlers.at_work) == 1
            member.handlers.at_work[0][1].set_result(is_success)
        run(self.loop, leaving)

    @rule(index=members, is_crash=st.booleans())
    def end(self, index: int, *, is_crash: bool) -> None:
        member = self.members[index]
        run(self.loop, member.crash() if is_crash else member.stop())
        self.members[index] = self.new_member()
        self.is_restarted = True

    @precondition(lambda self: self.members)
    @invariant()
    def nothing_is_both_lost_and_committed(self) -> None:
        passed = set(filter(is_wanted, range(self.broker.committed)))
        assert passed <= self.broker.safe

    @invariant()
    def nothing_is_committed_that_is_not_there(self) -> None:
        assert self.broker.committed <= self.broker.end

    @invariant()
    def order_is_kept(self) -> None:
        if self.orderly:
            first_times = list(dict.fromkeys(self.broker.handled))
            assert first_times == sorted(first_times)
            if not self.is_restarted:
                assert first_times == self.broker.handled

    def teardown(self) -> None:
        """Whoever consumes last finds everything that is still to be done."""
        try:
            for member in self.members:
                run(self.loop, member.stop())
            if self.members:
                self._consume_the_rest()
        finally:
            self.loop.close()

    def _consume_the_rest(self) -> None:
        last = self.new_member()
        self.loop.call_soon(last.take_up)
        self.loop.call_soon(last.pull, self.broker.end + 1)
        self.settle()
        while last.handlers.at_work:
            last.handlers.at_work[0][1].set_result(True)
            self.settle()
        run(self.loop, last.stop())
        self.nothing_is_both_lost_and_committed()
        assert set(filter(is_wanted, range(self.broker.end))) <= self.broker.safe


class OrderlyGroupMachine(GroupMachine):
    """The same in order."""

    orderly: ClassVar[bool] = True


TestConcurrent = GroupMachine.TestCase
TestConcurrent.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestOrderly = OrderlyGroupMachine.TestCase
TestOrderly.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
