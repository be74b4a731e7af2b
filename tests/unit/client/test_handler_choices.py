"""What a handler may choose for messages that come again, hooks, filters, and other topics."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from flintmq import ConsumeLater, ConsumeResult, Message, Outcome, ReceivedMessage
from flintmq.client.errors import ResponseError, UsageError
from flintmq.model.subscription import SQL92
from tests.kits.broker.remoting_kit import eventually
from tests.kits.client.consumer_kit import (
    GROUP,
    QUEUE_COUNT,
    TOPIC,
    Collected,
    Site,
    bodies,
    numbers,
    queue,
    site,
    turns,
)

DLQ = f"%DLQ%{GROUP}"
OTHER = "payments"


async def send_to_one_queue(here: Site, count: int) -> None:
    for number in range(count):
        await here.producer.send(Message(topic=TOPIC, body=b"%d" % number), queue=queue(0))


@pytest.mark.parametrize(("delay_level", "delay_ms"), [(1, 1000), (4, 30_000), (0, 10_000)])
async def test_a_handler_chooses_when_a_message_comes_again(
    tmp_path: Path, delay_level: int, delay_ms: int
) -> None:
    tries: list[int] = []

    async with site(tmp_path) as here:

        async def handle(message: ReceivedMessage) -> ConsumeLater | None:
            tries.append(here.clock.now_ms())
            return ConsumeLater(delay_level=delay_level) if len(tries) == 1 else None

        await here.send(1)
        async with here.push(handle):
            schedule = here.broker.context.store.schedule
            await eventually(lambda: schedule.next_due_ms() is not None)
            here.clock.advance(delay_ms - 1)
            assert schedule.deliver_due() == 0
            here.clock.advance(1)
            await eventually(lambda: len(tries) == 2)
    assert tries[1] - tries[0] == delay_ms


async def test_a_handler_makes_a_message_a_dead_letter_at_once(tmp_path: Path) -> None:
    async def handle(message: ReceivedMessage) -> ConsumeLater:
        return ConsumeLater(delay_level=-1)

    async with site(tmp_path) as here:
        await here.send(1)
        store = here.broker.context.store
        async with here.push(handle):
            await eventually(lambda: store.max_offset_in_queue(DLQ, 0) == 1)
            await eventually(lambda: here.offsets().get(0) == 1)


@pytest.mark.parametrize("orderly", [False, True])
async def test_the_first_messages_of_a_list_are_handled_and_the_others_come_again(
    tmp_path: Path, orderly: bool
) -> None:
    lists: list[list[bytes]] = []

    async with site(tmp_path) as here:

        async def handle(messages: list[ReceivedMessage]) -> ConsumeLater | None:
            lists.append(bodies(messages))
            return ConsumeLater(handled=2, delay_level=1) if len(lists) == 1 else None

        await send_to_one_queue(here, 4)
        async with here.push(handle, batch_size=4, orderly=orderly, suspend_queue_ms=10):

            def have_come_again() -> bool:
                here.clock.advance(1000)
                return sum(map(len, lists)) >= 6

            await eventually(have_come_again)
            await eventually(lambda: here.offsets().get(0) == 4)
    handled = lists[0][:2]
    again = [body for one in lists[1:] for body in one]
    assert handled == [b"0", b"1"]
    assert Counter(again) == Counter(numbers(2, start=2))


async def test_an_ordered_queue_waits_as_long_as_its_handler_says(tmp_path: Path) -> None:
    tries: list[float] = []

    async def handle(message: ReceivedMessage) -> ConsumeLater | None:
        tries.append(asyncio.get_running_loop().time())
        return ConsumeLater(suspend_ms=1) if len(tries) < 3 else None

    async with site(tmp_path) as here:
        await here.send(1)
        # With the pauses of the settings this would take a minute.
        async with here.push(handle, orderly=True, suspend_queue_ms=30_000):
            await eventually(lambda: len(tries) == 3)


def test_a_choice_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="handled"):
        ConsumeLater(handled=-1)
    with pytest.raises(UsageError, match="suspend_ms"):
        ConsumeLater(suspend_ms=-1)
    with pytest.raises(UsageError, match="delay_level must be int"):
        ConsumeLater(delay_level="3")  # type: ignore[arg-type]


class Seen:
    """A hook that keeps what it sees, and raises whenever it is called."""

    def __init__(self) -> None:
        self.before: list[bytes] = []
        self.after: list[tuple[bytes, ConsumeResult]] = []

    def before_consume(self, messages: Sequence[ReceivedMessage]) -> None:
        self.before += bodies(messages)
        raise ValueError("before")

    def after_consume(self, messages: Sequence[ReceivedMessage], outcome: Outcome) -> None:
        self.after += [(body, outcome.result) for body in bodies(messages)]
        raise ValueError("after")


async def test_hooks_see_what_handlers_get_and_change_nothing(tmp_path: Path) -> None:
    hook = Seen()

    async def handle(message: ReceivedMessage) -> bool:
        return message.body != b"3" or message.reconsume_times > 0

    async with site(tmp_path) as here:
        await here.send(8)
        async with here.push(handle, hooks=[hook]):
            await eventually(lambda: len(hook.after) == 8)
            await eventually(lambda: sum(here.offsets().values()) == 8)
    assert set(hook.before) == numbers(8)
    assert {body for body, result in hook.after if result is ConsumeResult.LATER} == {b"3"}


async def test_filtered_messages_count_as_handled_and_a_broken_filter_loses_none(
    tmp_path: Path,
) -> None:
    def broken(message: ReceivedMessage) -> bool:
        if message.body == b"1":
            raise ValueError("broken")
        return message.body != b"2"

    async with site(tmp_path) as here:
        await here.send(8)
        got = Collected()
        async with here.push(got, filters=[broken]):
            await eventually(lambda: here.offsets() == dict.fromkeys(range(QUEUE_COUNT), 2))
    assert set(got.bodies) == numbers(8) - {b"2"}


async def test_topics_are_subscribed_to_and_left_while_a_consumer_runs(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.broker.context.topics.ensure(OTHER, 1)
        got = Collected()
        async with here.push(got) as consumer:
            await here.send(4)
            await eventually(lambda: len(got.messages) == 4)
            await consumer.subscribe(OTHER, "A")
            for tag in "AB":
                await here.producer.send(Message(topic=OTHER, body=tag.encode(), tag=tag))
            await eventually(lambda: len(got.messages) == 5)
            await eventually(lambda: here.offsets(topic=OTHER).get(0) == 2)
            await consumer.unsubscribe(TOPIC)
            assert {one.topic for one in consumer.assigned} == {OTHER, f"%RETRY%{GROUP}"}
            assert here.offsets() == dict.fromkeys(range(QUEUE_COUNT), 1)
            await here.send(4, start=4)
            await consumer.rebalance()
            await turns()
            assert got.messages[4].body == b"A"
            # What was sent meanwhile is there when it is wanted again.
            await consumer.subscribe(TOPIC)
            await eventually(lambda: len(got.messages) == 9)
    assert set(got.bodies) == numbers(8) | {b"A"}


async def test_a_subscription_that_is_refused_leaves_the_one_before(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        got = Collected()
        async with here.push(got) as consumer:
            # The broker of this test has no filters by properties.
            with pytest.raises(ResponseError):
                await consumer.subscribe(TOPIC, "a = 1", SQL92)
            with pytest.raises(UsageError, match="not subscribed"):
                await consumer.unsubscribe(OTHER)
            await here.send(4)
            await eventually(lambda: len(got.messages) == 4)
