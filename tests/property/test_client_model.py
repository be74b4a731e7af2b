"""Under any interleaving of pull, consume, fail, hand-over, stop and crash nothing is lost.

A message may come twice; it may never be committed past while it is neither handled nor with the
broker for a later try.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.kits.client.consumer_model import QUEUE, Broker, Member, SkippingLoop, settle_down
from tests.kits.leftovers import LEAVES_NOTHING

pytestmark = pytest.mark.usefixtures(LEAVES_NOTHING)

_T = TypeVar("_T")

indexes = st.integers(0, 5)
outcomes = st.sampled_from(["failed and refused", "failed", "handled"])

PAUSE_S = 1.0
"""Longer than any pause before another try."""


class GroupMachine(RuleBasedStateMachine):
    """Two members of a group that pass one queue between them."""

    orderly: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.loop = SkippingLoop()
        self.broker = Broker()
        self.members: list[Member] = []
        self.is_restarted = False

    @initialize(batch_size=st.integers(1, 3), sent=st.integers(1, 9), pulled=st.integers(1, 9))
    def begin(self, batch_size: int, sent: int, pulled: int) -> None:
        self.batch_size = batch_size
        self.broker.end = sent
        self.members = [self.new_member(), self.new_member()]
        self.call(self.members[0].take_up)
        self.call(self.members[0].pull, pulled)

    def new_member(self) -> Member:
        return Member(self.broker, orderly=self.orderly, batch_size=self.batch_size)

    def call(self, function: Callable[..., None], *arguments: int) -> None:
        """Do something inside the loop, and let everything run that can."""
        self.loop.call_soon(function, *arguments)
        self.settle()

    def settle(self) -> None:
        self.loop.run_until_complete(settle_down())

    def owners(self) -> list[Member]:
        return [one for one in self.members if one.one is not None]

    def who_may_take_up(self) -> list[Member]:
        # In order, the broker's lock lets one member in; else both may have it for a moment.
        if self.orderly and self.owners():
            return []
        return [one for one in self.members if one.one is None]

    def at_work(self) -> list[asyncio.Future[bool]]:
        return [future for one in self.members for _, future in one.handlers.at_work]

    @rule(count=st.integers(1, 6))
    def send(self, count: int) -> None:
        self.broker.end += count

    @precondition(lambda self: self.who_may_take_up())
    @rule(index=indexes)
    def take_up(self, index: int) -> None:
        self.call(_chosen(self.who_may_take_up(), index).take_up)

    @precondition(lambda self: self.owners())
    @rule(index=indexes, count=st.integers(1, 5))
    def pull(self, index: int, count: int) -> None:
        self.call(_chosen(self.owners(), index).pull, count)

    @precondition(lambda self: self.at_work())
    @rule(finished=st.lists(st.tuples(indexes, outcomes), min_size=1, max_size=4))
    def finish(self, finished: list[tuple[int, str]]) -> None:
        for index, outcome in finished:
            if self.at_work():
                self.broker.takes_back = outcome != "failed and refused"
                _chosen(self.at_work(), index).set_result(outcome == "handled")
                self.settle()

    @rule()
    def wait(self) -> None:
        self.loop.skip(PAUSE_S)

    @precondition(lambda self: self.owners())
    @rule(index=indexes)
    def persist(self, index: int) -> None:
        _chosen(self.owners(), index).persist()

    @precondition(lambda self: self.owners())
    @rule(index=indexes, is_success=st.booleans())
    def give_up(self, index: int, *, is_success: bool) -> None:
        member = _chosen(self.owners(), index)
        leaving = self.loop.create_task(member.give_up())
        self.settle()
        if self.orderly and member.handlers.at_work:
            # In order, the hand-over waits for the batch at work.
            assert not leaving.done()
            member.handlers.at_work[0][1].set_result(is_success)
        self.loop.run_until_complete(leaving)

    @precondition(lambda self: self.at_work() and self.owners())
    @rule(index=indexes, is_crash=st.booleans())
    def end(self, index: int, *, is_crash: bool) -> None:
        member = _chosen(self.owners(), index)
        self.loop.run_until_complete(member.crash() if is_crash else member.stop())
        self.members[self.members.index(member)] = self.new_member()
        self.is_restarted = True

    @invariant()
    def nothing_is_both_lost_and_committed(self) -> None:
        assert self.broker.is_passed_safely(self.broker.committed)
        for one in self.owners():
            # What is noted may be committed at any moment.
            assert self.broker.is_passed_safely(one.offsets.noted(QUEUE) or 0)

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
                self.loop.run_until_complete(member.stop())
            if self.members:
                self._consume_the_rest()
        finally:
            self.loop.close()

    def _consume_the_rest(self) -> None:
        last = self.new_member()
        self.call(last.take_up)
        self.call(last.pull, self.broker.end + 1)
        while last.handlers.at_work:
            last.handlers.at_work[0][1].set_result(True)
            self.settle()
        self.loop.run_until_complete(last.stop())
        assert self.broker.is_passed_safely(self.broker.end)


def _chosen(choices: Sequence[_T], index: int) -> _T:
    return choices[index % len(choices)]


class OrderlyGroupMachine(GroupMachine):
    """The same in order."""

    orderly: ClassVar[bool] = True


TestConcurrent = GroupMachine.TestCase
TestConcurrent.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestOrderly = OrderlyGroupMachine.TestCase
TestOrderly.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
