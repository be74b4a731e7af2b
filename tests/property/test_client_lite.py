"""A lite pull consumer whose user polls, seeks, pauses, commits, fails and closes in any order.

The group's progress is never beyond a message that the user has not finished, unless the user
said so; without automatic commits it is what the user has committed, and nothing else.
"""

from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from flintmq import AsyncLitePullConsumer, ConsumeFrom, ReceivedMessage
from flintmq.client.instance import ClientInstance
from tests.kits.client.model_cluster import (
    GROUP,
    QUEUE,
    UNWANTED_TAG_EVERY,
    ModelBroker,
    Process,
    World,
)
from tests.kits.leftovers import LEAVES_NOTHING

pytestmark = pytest.mark.usefixtures(LEAVES_NOTHING)


class LiteMachine(RuleBasedStateMachine):
    """One user of one queue after the other."""

    auto_commit: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.broker = ModelBroker(self.world)
        self.given: list[int] = []
        """Serial numbers that the user has and has not finished."""
        self.told: int | None = None
        """What the user has committed last, without automatic commits."""
        self.count = 0

    @initialize(sent=st.integers(1, 9))
    def begin(self, sent: int) -> None:
        self.broker.send(sent)
        self.open()

    def make(self, client: ClientInstance) -> AsyncLitePullConsumer:
        return AsyncLitePullConsumer(
            group=GROUP,
            client=client,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            auto_commit=self.auto_commit,
            pull_count=2,
            queue_count_max=3,
        )

    def open(self) -> None:
        self.count += 1
        self.user = Process(self.world, self.broker, f"user-{self.count}", self.make)
        self.consumer: AsyncLitePullConsumer = self.user.consumer
        self.user.run(self.consumer.__aenter__())
        self.user.run(self.consumer.assign([QUEUE]))
        self.is_paused = False
        self.user.settle()

    def finish(self) -> None:
        """Have the user finish what was given."""
        self.broker.safe.update(self.given)
        self.given.clear()

    def skip(self, seconds: float) -> None:
        self.world.now_s += seconds
        self.user.settle()

    @rule(count=st.integers(1, 6))
    def send(self, count: int) -> None:
        unnoticed = range(self.broker.end, self.broker.pulled_end)
        self.broker.send(count)
        # Whoever holds as much as it may does not pull, and has not seen that these offsets were
        # lost.  No client could tell the new messages from those that it has.
        stored = self.broker.stored
        self.broker.safe.update(stored[at] for at in unnoticed if at in stored)
        self.user.settle()

    @rule(seconds=st.sampled_from([0.1, 1.1, 31.0]))
    def wait(self, seconds: float) -> None:
        self.skip(seconds)
        self.user.run(self.consumer.persist_offsets())

    @rule(count=st.integers(1, 4))
    def poll(self, count: int) -> None:
        self.finish()
        position = self.consumer.position(QUEUE)
        found: list[ReceivedMessage] = self.user.run(
            self.consumer.poll(timeout_ms=0, count_max=count)
        )
        self.given = [message.physical_offset for message in found]
        if self.is_paused:
            assert found == []
        elif found:
            assert found[0].queue_offset >= position
            passed = range(position, found[0].queue_offset)
            skipped = [self.broker.stored.get(at, -1) for at in passed]
            # Only what nobody wants, or is deleted, is left out.
            assert all(n % UNWANTED_TAG_EVERY == UNWANTED_TAG_EVERY - 1 or n < 0 for n in skipped)

    @rule()
    def commit_all(self) -> None:
        self.finish()
        self.broker.is_lowering_allowed = True
        self.user.run(self.consumer.commit())
        self.told = self.broker.committed
        # Whoever holds as much as it may does not pull, and has not seen what was lost.
        known_end = max(self.broker.end, self.broker.pulled_end)
        assert self.broker.committed is None or self.broker.committed <= known_end

    @rule(offset=st.integers(0, 12))
    def commit_one(self, offset: int) -> None:
        offset = max(self.broker.begin, min(offset, self.broker.end))
        self.broker.will_pass(offset)
        self.user.run(self.consumer.commit({QUEUE: offset}))
        assert self.broker.committed == offset
        self.told = offset

    @rule(offset=st.integers(0, 12))
    def seek(self, offset: int) -> None:
        offset = max(self.broker.begin, min(offset, self.broker.end))
        # What lies before the new position and was not given is passed by the user's will.
        kept = set(self.given) - self.broker.safe
        self.broker.will_pass(offset)
        self.broker.safe -= kept
        self.user.run(self.consumer.seek(QUEUE, offset))
        assert self.consumer.position(QUEUE) == offset
        self.user.settle()

    @rule()
    def pause(self) -> None:
        self.consumer.pause(QUEUE)
        self.is_paused = True

    @rule()
    def resume(self) -> None:
        self.consumer.resume(QUEUE)
        self.is_paused = False
        self.skip(0.1)

    @rule(count=st.integers(1, 3))
    def lose_end(self, count: int) -> None:
        self.broker.lose_end(count)
        if self.broker.committed is not None:
            # Otherwise what comes next could be taken for what is lost, by any client.
            self.broker.committed = min(self.broker.committed, self.broker.end)
            self.told = self.broker.committed
        self.resume()
        for _ in range(3):
            self.skip(1.2)

    @rule(count=st.integers(1, 3))
    def drop_front(self, count: int) -> None:
        self.broker.drop_front(count)

    @rule(way=st.sampled_from(["block", "failure", "close", "crash"]))
    def end(self, way: str) -> None:
        if way == "crash":
            self.user.crash()
        else:
            if way == "block":
                self.finish()
                self.user.run(self.consumer.__aexit__(None, None, None))
            elif way == "failure":
                error = ValueError("no")
                self.user.run(self.consumer.__aexit__(ValueError, error, None))
            else:
                self.user.run(self.consumer.close())
            self.user.loop.settle()
            self.user.loop.close()
        self.given.clear()
        self.open()

    @invariant()
    def nothing_happened_that_must_not(self) -> None:
        assert self.broker.violations == []
        if not self.auto_commit:
            assert self.broker.committed == self.told

    def teardown(self) -> None:
        """Whoever polls last gets everything that is still to be done."""
        try:
            if self.count:
                self.end("crash")
                self._consume_the_rest()
        finally:
            if self.count:
                self.user.crash()

    def _consume_the_rest(self) -> None:
        while self.broker.unsafe_before(self.broker.end):
            position = self.consumer.position(QUEUE)
            self.poll(4)
            self.finish()
            self.skip(0.1)
            assert self.given or self.consumer.position(QUEUE) >= position
            if self.consumer.position(QUEUE) >= self.broker.end and not self.given:
                break
        self.user.run(self.consumer.poll(timeout_ms=0))
        assert self.broker.unsafe_before(self.broker.end) == []


class LiteMachineByHand(LiteMachine):
    """The same without automatic commits."""

    auto_commit: ClassVar[bool] = False


TestLite = LiteMachine.TestCase
TestLite.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestLiteByHand = LiteMachineByHand.TestCase
TestLiteByHand.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
