import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flintmq import (
    AsyncLitePullConsumer,
    AsyncPullConsumer,
    ConsumeFrom,
    Message,
    MessageModel,
    MessageQueue,
    ReceivedMessage,
)
from flintmq.client.errors import ClientError, ResponseError, UsageError
from flintmq.client.pulling.puller import PullStatus
from flintmq.model.subscription import SQL92
from tests.kits.broker.remoting_kit import eventually
from tests.kits.client.consumer_kit import (
    GROUP,
    QUEUE_COUNT,
    TOPIC,
    Site,
    bodies,
    numbers,
    queue,
    site,
)


def lite(here: Site, **options: Any) -> AsyncLitePullConsumer:
    settings: dict[str, Any] = {"group": GROUP, "consume_from": ConsumeFrom.FIRST_OFFSET}
    return AsyncLitePullConsumer(namesrv=here.namesrv, **(settings | options))


async def take(consumer: AsyncLitePullConsumer, count: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    while len(found) < count:
        found += await consumer.poll(timeout_ms=1000, count_max=count - len(found))
    return found


async def test_a_subscriber_polls_each_message_once_and_resumes_where_it_was(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        await here.send(40)
        async with lite(here, subscriptions={TOPIC: "*"}) as consumer:
            got = await take(consumer, 40)
            assert await consumer.poll(timeout_ms=10) == []
        assert Counter(bodies(got)) == Counter(numbers(40))
        assert here.offsets() == dict.fromkeys(range(QUEUE_COUNT), 10)
        await here.send(4, start=40)
        async with lite(here, subscriptions={TOPIC: "*"}) as consumer:
            assert set(bodies(await take(consumer, 4))) == numbers(4, start=40)


async def test_messages_come_one_by_one_and_the_one_that_failed_comes_again(tmp_path: Path) -> None:
    class BrokenError(Exception):
        pass

    async with site(tmp_path) as here:
        await here.send(6, queue_count=1)
        got: list[bytes] = []

        async def fail_at_the_fourth() -> None:
            async with lite(here, subscriptions={TOPIC: "*"}) as consumer:
                async for message in consumer:
                    if len(got) == 3:
                        raise BrokenError
                    got.append(message.body)

        with pytest.raises(BrokenError):
            await fail_at_the_fourth()
        assert got == [b"0", b"1", b"2"]
        assert here.offsets()[0] == 3
        async with lite(here, subscriptions={TOPIC: "*"}) as consumer:
            assert bodies(await take(consumer, 3)) == [b"3", b"4", b"5"]


async def test_without_auto_commit_only_a_commit_counts(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await here.send(10, queue_count=1)
        options = {"auto_commit": False, "offset_interval_ms": 5}
        async with lite(here, **options) as consumer:
            await consumer.assign([queue(0)])
            await take(consumer, 4)
            await consumer.commit()
            await take(consumer, 3)
            assert await consumer.committed(queue(0)) == 4
            assert consumer.position(queue(0)) == 7
            assert await consumer.lag() == {queue(0): 3}
        assert here.offsets() == {0: 4}
        async with lite(here, **options) as consumer:
            await consumer.assign([queue(0)])
            assert bodies(await take(consumer, 1)) == [b"4"]
            await consumer.commit({queue(0): 9})
        assert here.offsets() == {0: 9}


async def test_seeking_goes_on_elsewhere(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await here.send(5, queue_count=1)
        here.clock.advance(10_000)
        middle_ms = here.clock.now_ms()
        await here.send(1, start=5, queue_count=1)
        here.clock.advance(1)
        await here.send(4, start=6, queue_count=1)
        async with lite(here) as consumer:
            await consumer.assign([queue(0)])
            await take(consumer, 10)
            await consumer.seek(queue(0), 3)
            assert bodies(await take(consumer, 2)) == [b"3", b"4"]
            await consumer.seek_to_begin(queue(0))
            assert bodies(await take(consumer, 1)) == [b"0"]
            await consumer.seek_to_time(queue(0), middle_ms)
            assert bodies(await take(consumer, 1)) == [b"5"]
            await consumer.seek_to_end(queue(0))
            assert await consumer.poll(timeout_ms=20) == []
            await here.send(1, start=10, queue_count=1)
            assert bodies(await take(consumer, 1)) == [b"10"]
            with pytest.raises(UsageError, match="from 0 to 11"):
                await consumer.seek(queue(0), 12)
            with pytest.raises(UsageError, match="not a queue of this"):
                await consumer.seek(queue(1), 0)


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await here.send(8, queue_count=2)
        async with lite(here) as consumer:
            await consumer.assign([queue(0), queue(1)])
            consumer.pause(queue(0))
            got = await take(consumer, 4)
            assert {message.queue for message in got} == {queue(1)}
            assert await consumer.poll(timeout_ms=20) == []
            waiting = asyncio.create_task(consumer.poll())
            await asyncio.sleep(0)
            consumer.resume(queue(0))
            assert {message.queue for message in await waiting} == {queue(0)}


async def test_subscribing_and_assigning_exclude_each_other(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        async with lite(here) as consumer:
            await consumer.assign([queue(0)])
            with pytest.raises(UsageError, match="either subscribes or assigns"):
                await consumer.subscribe(TOPIC)
        async with lite(here) as consumer:
            await consumer.subscribe(TOPIC)
            with pytest.raises(UsageError, match="either subscribes or assigns"):
                await consumer.assign([queue(0)])


async def test_a_lite_subscription_that_is_refused_leaves_the_others(tmp_path: Path) -> None:
    """It stayed, and every later subscription was refused with it."""
    async with site(tmp_path) as here:
        await here.send(4)
        await here.producer.send(Message(topic="others", body=b"x"))
        async with lite(here) as consumer:
            # The broker of this test has no filters by properties.
            with pytest.raises(ResponseError):
                await consumer.subscribe("others", "a = 1", SQL92)
            await consumer.subscribe(TOPIC)
            assert set(bodies(await take(consumer, 4))) == numbers(4)
            with pytest.raises(ResponseError):
                await consumer.subscribe(TOPIC, "a = 1", SQL92)
            await here.send(4, start=4)
            assert set(bodies(await take(consumer, 4))) == numbers(4, start=4)


async def test_two_lite_consumers_share_and_what_was_not_consumed_moves_over(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        await here.send(40)
        seen: set[bytes] = set()
        async with lite(here, subscriptions={TOPIC: "*"}) as first:
            seen.update(bodies(await take(first, 5)))
            async with lite(here, subscriptions={TOPIC: "*"}) as second:
                await eventually(lambda: len(first.assigned) == len(second.assigned) == 2)
                while seen != numbers(40):
                    for one in (first, second):
                        seen.update(bodies(await one.poll(timeout_ms=10)))
            await eventually(lambda: len(first.assigned) == QUEUE_COUNT)
        assert here.offsets() == dict.fromkeys(range(QUEUE_COUNT), 10)


async def test_pulling_by_hand(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await here.send(12, queue_count=1)
        async with AsyncPullConsumer(namesrv=here.namesrv, group=GROUP) as consumer:
            assert await consumer.queues(TOPIC) == [queue(n) for n in range(QUEUE_COUNT)]
            result = await consumer.pull(queue(0), 2, count_max=4)
            assert bodies(result.messages) == [b"2", b"3", b"4", b"5"]
            assert (result.status, result.next_offset) == (PullStatus.FOUND, 6)
            tagged = await consumer.pull(queue(0), 0, expression="A")
            assert {message.tag for message in tagged.messages} == {"A"}
            assert (await consumer.pull(queue(0), 12)).status is PullStatus.NO_NEW_MESSAGE
            moved = await consumer.pull(queue(0), 99)
            assert (moved.status, moved.next_offset) == (PullStatus.OFFSET_ILLEGAL, 12)
            waiting = asyncio.create_task(consumer.pull(queue(0), 12, wait_ms=10_000))
            await eventually(lambda: here.broker.context.held.count == 1)
            await here.send(1, start=12, queue_count=1)
            assert bodies((await waiting).messages) == [b"12"]
            await consumer.commit(queue(0), 6)
            assert await consumer.committed(queue(0)) == 6
            assert await consumer.lag(queue(0)) == 7
            assert await consumer.begin_offset(queue(0)) == 0
            assert await consumer.end_offset(queue(0)) == 13
            with pytest.raises(UsageError, match="count_max"):
                await consumer.pull(queue(0), 0, count_max=0)
        # Nobody has joined the group.
        assert here.broker.context.consumers.get(GROUP) is None


async def test_members_that_broadcast_get_everything_and_keep_their_progress_in_files(
    tmp_path: Path,
) -> None:
    options = {"subscriptions": {TOPIC: "*"}, "model": MessageModel.BROADCASTING}

    def member(here: Site, name: str) -> AsyncLitePullConsumer:
        directory = tmp_path / "offsets"
        return lite(here, instance_name=name, offset_directory=directory, **options)

    async with site(tmp_path) as here:
        await here.send(12)
        async with member(here, "a") as one, member(here, "b") as other:
            assert Counter(bodies(await take(one, 12))) == Counter(numbers(12))
            assert Counter(bodies(await take(other, 12))) == Counter(numbers(12))
            await one.commit()
        assert here.offsets() == {}
        await here.send(4, start=12)
        async with member(here, "a") as again:
            assert set(bodies(await take(again, 4))) == numbers(4, start=12)


async def test_a_commit_that_could_not_be_written_is_no_success(tmp_path: Path) -> None:
    """A full disk was logged, and `commit` returned."""
    (tmp_path / "offsets").write_text("a file where a directory should be")
    async with site(tmp_path) as here:
        await here.send(1)
        async with lite(
            here, model=MessageModel.BROADCASTING, offset_directory=tmp_path / "other"
        ) as consumer:
            await consumer.assign([queue(0)])
            consumer.offsets._path = tmp_path / "offsets" / "file"  # type: ignore[attr-defined]
            with pytest.raises(ClientError, match="not written"):
                await consumer.commit({queue(0): 1})


async def test_no_offset_below_zero_is_committed(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await here.send(1)
        async with (
            lite(here) as consumer,
            AsyncPullConsumer(namesrv=here.namesrv, group=GROUP) as pulling,
        ):
            for offset in (-1, 1 << 63):
                with pytest.raises(UsageError, match="from 0 on"):
                    await consumer.commit({queue(0): offset})
                with pytest.raises(UsageError, match="from 0 on"):
                    await pulling.commit(queue(0), offset)
        assert here.offsets() == {}


async def test_a_listener_is_told_when_the_queues_of_a_topic_change(tmp_path: Path) -> None:
    told: list[tuple[str, int]] = []

    def listener(topic: str, queues: list[MessageQueue]) -> None:
        told.append((topic, len(queues)))
        raise RuntimeError("what a listener raises is its own business")

    async with site(tmp_path) as here:
        await here.send(1)
        async with lite(here, route_interval_ms=20) as consumer:
            assert len(await consumer.watch_queues(TOPIC, listener)) == QUEUE_COUNT
            topics = here.broker.context.topics
            config = topics.get(TOPIC)
            assert config is not None
            topics.put(replace(config, read_queue_count=6, write_queue_count=6))
            await eventually(lambda: told == [(TOPIC, 6)])
