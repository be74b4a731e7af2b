import asyncio
import contextlib
import itertools
import threading
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from flintmq import (
    AsyncPushConsumer,
    ClientInstance,
    ClientOptions,
    ConsumeFrom,
    ConsumeResult,
    MessageModel,
    ReceivedMessage,
    SendFailedError,
)
from flintmq.client.errors import ResponseError, UsageError
from flintmq.model.message_queue import MessageQueue
from flintmq.model.subscription import SQL92
from flintmq.store.running_flags import RunningFlag
from tests.kits.broker.remoting_kit import eventually
from tests.kits.client.consumer_kit import (
    GROUP,
    QUEUE_COUNT,
    TOPIC,
    Collected,
    bodies,
    got_count,
    numbers,
    queue,
    site,
    turns,
)

RETRY = f"%RETRY%{GROUP}"
DLQ = f"%DLQ%{GROUP}"


async def test_each_message_is_consumed_once_and_committed(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await here.send(40)
        got = Collected()
        async with here.push(got):
            await eventually(lambda: len(got.messages) == 40)
        assert Counter(got.bodies) == Counter(numbers(40))
        assert here.offsets() == dict.fromkeys(range(QUEUE_COUNT), 10)


async def test_a_plain_function_runs_in_threads_and_gets_lists(tmp_path: Path) -> None:
    threads, got = set(), []

    def handle(messages: list[ReceivedMessage]) -> bool:
        threads.add(threading.current_thread().name)
        got.extend(bodies(messages))
        return len(messages) <= 8

    async with site(tmp_path) as here:
        await here.send(40)
        async with here.push(handle, batch_size=8, concurrency=2):
            await eventually(lambda: len(got) == 40)
        assert Counter(got) == Counter(numbers(40))
    assert len(threads) <= 2
    assert threading.current_thread().name not in threads
    assert not any(one.name.startswith("flintmq-handler") for one in threading.enumerate())


async def test_only_wanted_tags_come_and_the_others_are_committed_past(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await here.send(40)
        got = Collected()
        async with here.push(got, subscriptions={TOPIC: "A || C"}):
            await eventually(lambda: here.offsets() == dict.fromkeys(range(QUEUE_COUNT), 10))
        assert {message.tag for message in got.messages} == {"A"}
        assert len(got.messages) == 20


async def test_a_group_that_starts_at_the_end_skips_nothing_that_comes_later(
    tmp_path: Path,
) -> None:
    """The start was not committed: a second member began at the end of its own time."""

    async with site(tmp_path) as here:
        await here.send(8)
        for number in range(QUEUE_COUNT):
            # The broker takes a young queue for one that a new group reads from the start.
            here.broker.context.offsets.commit(GROUP, TOPIC, number, 2)
        held = asyncio.Event()

        async def never(message: ReceivedMessage) -> None:
            held.set()
            await asyncio.Event().wait()

        options = {"consume_from": ConsumeFrom.LAST_OFFSET, "stop_timeout_ms": 0}
        async with here.push(never, **options):
            await here.send(4, start=8)
            await held.wait()
        got = Collected()
        async with here.push(got, **options):
            await eventually(lambda: len(got.messages) == 4)
        assert set(got.bodies) == numbers(4, start=8)


async def test_a_failing_message_comes_again_later_and_later_until_it_is_dead(
    tmp_path: Path,
) -> None:
    tries: list[tuple[int, int]] = []

    async with site(tmp_path) as here:

        async def handle(message: ReceivedMessage) -> ConsumeResult:
            assert message.topic == TOPIC
            tries.append((message.reconsume_times, here.clock.now_ms()))
            return ConsumeResult.LATER

        await here.send(1)
        async with here.push(handle, reconsume_times_max=3):
            schedule = here.broker.context.store.schedule
            for count, delay_ms in ((1, 10_000), (2, 30_000), (3, 60_000)):
                await got_count(tries, count)
                await eventually(lambda: schedule.next_due_ms() is not None)
                here.clock.advance(delay_ms - 1)
                assert schedule.deliver_due() == 0
                here.clock.advance(1)
            await eventually(lambda: here.broker.context.topics.get(DLQ) is not None)
            store = here.broker.context.store
            await eventually(lambda: store.max_offset_in_queue(DLQ, 0) == 1)
    waits = [later - sooner for (_, sooner), (_, later) in itertools.pairwise(tries)]
    assert [times for times, _ in tries] == [0, 1, 2, 3]
    assert waits == [10_000, 30_000, 60_000]


async def test_a_message_that_no_broker_takes_back_is_tried_here_and_not_committed(
    tmp_path: Path,
) -> None:
    tries = []

    async with site(tmp_path) as here:
        flags = here.broker.context.store.flags
        await here.send(1)

        async def handle(message: ReceivedMessage) -> bool:
            tries.append(message.reconsume_times)
            return len(tries) == 3

        flags.set(RunningFlag.NOT_WRITABLE, "a test")
        async with here.push(handle, local_retry_ms=30):
            await eventually(lambda: len(tries) == 2)
            assert not here.offsets().get(0)
            await eventually(lambda: len(tries) == 3)
        assert here.offsets()[0] == 1
    assert tries == [0, 1, 2]


async def test_an_exception_of_any_kind_is_a_failure_and_not_the_end(tmp_path: Path) -> None:
    got = []

    def handle(message: ReceivedMessage) -> None:
        got.append(message.body)
        next(iter(()))

    async def cancelled(message: ReceivedMessage) -> None:
        got.append(message.body)
        raise asyncio.CancelledError

    async with site(tmp_path) as here:
        store = here.broker.context.store
        await here.send(4)
        async with here.push(handle):
            await eventually(lambda: len(got) == 4)
        async with here.push(cancelled, group="others"):
            await eventually(lambda: len(got) == 8)
        await eventually(lambda: store.max_offset_in_queue("SCHEDULE_TOPIC_XXXX", 2) == 8)


async def test_order_is_kept_and_a_failure_holds_only_its_queue_up(tmp_path: Path) -> None:
    got: dict[int, list[int]] = defaultdict(list)
    failed = Counter[bytes]()

    async def handle(message: ReceivedMessage) -> bool:
        if message.body == b"5" and failed[message.body] < 2:
            failed[message.body] += 1
            assert message.reconsume_times == failed[message.body] - 1
            return False
        got[message.queue.queue_id].append(message.queue_offset)
        return True

    async with site(tmp_path) as here:
        await here.send(40)
        async with here.push(handle, orderly=True, suspend_queue_ms=10):
            await eventually(lambda: sum(map(len, got.values())) == 40)
        assert got == {number: list(range(10)) for number in range(QUEUE_COUNT)}
        assert failed == {b"5": 2}
        assert here.offsets() == dict.fromkeys(range(QUEUE_COUNT), 10)
        # The locks are given back at once, for the next member.
        assert here.broker.context.locks.lock(GROUP, "other", [queue(0)], 0) == [queue(0)]


async def test_a_member_that_has_lost_its_lock_lets_go_of_what_it_held(tmp_path: Path) -> None:
    """It went on with what it held, behind the back of the member that had the queue since."""

    got = Collected()
    go = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        await got(message)
        await go.wait()

    async with site(tmp_path) as here:
        locks, now_ms = here.broker.context.locks, here.clock.now_ms()
        await here.send(4, queue_count=1)
        async with here.push(handle, orderly=True) as consumer:
            await got_count(got.messages, 1)
            locks.unlock(GROUP, consumer.client.client_id, [queue(0)])
            assert locks.lock(GROUP, "other", [queue(0)], now_ms) == [queue(0)]
            await consumer._assignment._renew_locks()
            await eventually(lambda: queue(0) not in consumer.assigned)
            go.set()
            # The other member consumes up to the third message and leaves.
            here.broker.context.offsets.commit(GROUP, TOPIC, 0, 3)
            locks.unlock(GROUP, "other", [queue(0)])
            await got_count(got.messages, 2)
        assert got.bodies == [b"0", b"3"]
        assert here.offsets()[0] == 4


async def test_a_message_that_fails_too_often_in_order_is_buried(tmp_path: Path) -> None:
    got = Collected()

    async def handle(message: ReceivedMessage) -> bool:
        await got(message)
        return message.body != b"0"

    async with site(tmp_path) as here:
        store = here.broker.context.store
        await here.send(3, queue_count=1)
        async with here.push(handle, orderly=True, suspend_queue_ms=10, reconsume_times_max=2):
            await eventually(lambda: len(got.messages) == 5)
            await eventually(lambda: store.max_offset_in_queue(DLQ, 0) == 1)
        assert got.bodies == [b"0", b"0", b"0", b"1", b"2"]
        assert here.offsets()[0] == 3


async def test_broadcasting_gives_everything_to_everyone_and_goes_on_from_its_file(
    tmp_path: Path,
) -> None:
    async with site(tmp_path / "site") as here:
        await here.send(20)
        first, second, again = Collected(), Collected(), Collected()
        options = {"model": MessageModel.BROADCASTING, "offset_directory": tmp_path / "offsets"}
        async with (
            here.push(first, instance_name="first", **options),
            here.push(second, instance_name="second", **options),
        ):
            await eventually(lambda: len(first.messages) == len(second.messages) == 20)
        assert set(first.bodies) == set(second.bodies) == numbers(20)
        assert here.offsets() == {}
        await here.send(4, start=20)
        async with here.push(again, instance_name="first", **options):
            await eventually(lambda: len(again.messages) == 4)
        assert set(again.bodies) == numbers(4, start=20)


@pytest.mark.parametrize("orderly", [False, True])
async def test_members_share_the_queues_and_nothing_is_lost_when_they_come_and_go(
    tmp_path: Path, *, orderly: bool
) -> None:
    got: dict[str, list[tuple[int, int]]] = {"first": [], "second": []}
    seen: set[bytes] = set()
    by_queue: dict[int, list[int]] = defaultdict(list)

    def handler(name: str):  # type: ignore[no-untyped-def]
        async def handle(message: ReceivedMessage) -> None:
            place = message.queue.queue_id, message.queue_offset
            await asyncio.sleep(0)
            got[name].append(place)
            by_queue[place[0]].append(place[1])
            seen.add(message.body)

        return handle

    async with site(tmp_path) as here:
        await here.send(40)
        async with here.push(handler("first"), orderly=orderly) as first:
            await eventually(lambda: len(seen) >= 10)
            async with here.push(handler("second"), orderly=orderly) as second:
                await eventually(lambda: len(second.assigned & _queues()) == 2)
                await eventually(lambda: len(first.assigned & _queues()) == 2)
                assert not first.assigned & second.assigned & _queues()
                sending = asyncio.create_task(here.send(80, start=40))
                await eventually(lambda: len(got["second"]) >= 5)
                await sending
            await eventually(lambda: first.assigned >= _queues())
            await here.send(20, start=120)
            await eventually(lambda: len(seen) == 140)
        assert here.offsets() == dict.fromkeys(range(QUEUE_COUNT), 35)
    assert seen == numbers(140)
    if orderly:
        # Nothing twice, nothing out of turn: the hand-over waits for the batch at work.
        assert by_queue == {number: list(range(35)) for number in range(QUEUE_COUNT)}


def _queues() -> set[MessageQueue]:
    return {queue(number) for number in range(QUEUE_COUNT)}


async def test_a_dropped_connection_is_made_again(tmp_path: Path) -> None:
    got = Collected()
    async with site(tmp_path) as here, here.push(got):
        await here.send(4)
        await eventually(lambda: len(got.messages) == 4)
        for connection in list(here.broker.server.connections):
            connection.abort()
        # The first send may find out that its own connection is gone, too.
        with contextlib.suppress(SendFailedError):
            await here.send(1, start=4)
        await here.send(4, start=4)
        await eventually(lambda: set(got.bodies) == numbers(8))


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_broker_may_be_started_again_under_a_consumer(
    tmp_path: Path, *, orderly: bool
) -> None:
    got = Collected()
    async with site(tmp_path) as here:
        async with here.push(got, orderly=orderly) as consumer:
            await here.send(8)
            await eventually(lambda: len(got.messages) == 8)
            await here.stop_broker()
            await here.start_broker()
            await here.send(8, start=8)
            await eventually(lambda: set(got.bodies) == numbers(16))
            assert consumer.assigned >= _queues()
        assert here.offsets() == dict.fromkeys(range(QUEUE_COUNT), 4)


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_stop_waits_for_handlers_at_work_and_begins_no_others(
    tmp_path: Path, *, orderly: bool
) -> None:
    begun, done, go = [], [], asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        begun.append(message.body)
        await go.wait()
        done.append(message.body)

    async with site(tmp_path) as here:
        await here.send(20)
        consumer = await here.push(handle, concurrency=2, orderly=orderly).start()
        await eventually(lambda: len(begun) == 2)
        closing = asyncio.create_task(consumer.close())
        await turns()
        assert not closing.done()
        go.set()
        await closing
        assert begun == done
        assert len(done) == 2
        handled = set(done)
        got = Collected()
        async with here.push(got):
            await eventually(lambda: set(got.bodies) | handled == numbers(20))


async def test_handlers_that_come_to_no_end_are_left_and_their_messages_come_again(
    tmp_path: Path,
) -> None:
    begun = asyncio.Event()

    async def never(message: ReceivedMessage) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with site(tmp_path) as here:
        await here.send(8)
        async with here.push(never, stop_timeout_ms=20):
            await begun.wait()
        assert not any(here.offsets().values())
        got = Collected()
        async with here.push(got):
            await eventually(lambda: set(got.bodies) == numbers(8))


async def test_a_cancelled_user_still_hands_the_queues_over(tmp_path: Path) -> None:
    got = Collected()
    async with site(tmp_path) as here:
        await here.send(8)

        async def use() -> None:
            async with here.push(got, orderly=True):
                await asyncio.Event().wait()

        user = asyncio.create_task(use())
        await eventually(lambda: len(got.messages) == 8)
        user.cancel()
        await asyncio.gather(user, return_exceptions=True)
        assert user.cancelled()
        assert here.offsets() == dict.fromkeys(range(QUEUE_COUNT), 2)
        assert here.broker.context.consumers.get(GROUP) is None


async def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        before = asyncio.all_tasks()
        consumer = here.push(Collected(), expression_type=SQL92, subscriptions={TOPIC: "a > 1"})
        with pytest.raises(ResponseError, match="SQL92"):
            await consumer.start()
        await eventually(lambda: len(asyncio.all_tasks()) <= len(before))
        assert here.broker.context.consumers.get(GROUP) is None
        async with here.push(Collected()) as first:
            second = here.push(Collected())
            second._shared = first.client
            with pytest.raises(UsageError, match="already"):
                await second.start()
            # The failed one did not take the group from the one that has it.
            assert here.broker.context.consumers.get(GROUP) is not None


async def test_a_consumer_can_be_opened_again(tmp_path: Path) -> None:
    got = Collected()
    async with site(tmp_path) as here:
        consumer = here.push(got)
        for round_number in range(2):
            await here.send(4, start=4 * round_number)
            async with consumer:
                await got_count(got.messages, 4 * (round_number + 1))
        assert set(got.bodies) == numbers(8)


async def test_an_offset_behind_the_end_is_corrected_and_nothing_after_it_is_skipped(
    tmp_path: Path,
) -> None:
    """What was held kept its highest offset, and that was committed for messages never seen."""

    got = Collected()
    async with site(tmp_path) as here:
        await here.send(3, queue_count=1)
        here.broker.context.offsets.commit(GROUP, TOPIC, 0, 500)
        async with here.push(got) as consumer:
            await eventually(lambda: here.offsets().get(0) == 3)
            await here.send(2, start=3, queue_count=1)
            await eventually(lambda: len(got.messages) >= 2)
            assert queue(0) in consumer.assigned
        assert here.offsets()[0] == 5
        assert got.bodies[-2:] == [b"3", b"4"]


async def test_a_suspended_consumer_pulls_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    got = Collected()
    async with site(tmp_path) as here, here.push(got) as consumer:
        consumer.suspend()
        # A pull that is under way still brings what it waits for.
        await here.send(4)
        await eventually(lambda: len(got.messages) == 4)
        await here.send(4, start=4)
        await turns()
        assert len(got.messages) == 4
        consumer.resume()
        await eventually(lambda: set(got.bodies) == numbers(8))


async def test_stuck_messages_are_given_back_and_no_longer_hold_the_offset(tmp_path: Path) -> None:
    got = []

    async def handle(message: ReceivedMessage) -> None:
        got.append((message.body, message.reconsume_times))
        if message.body == b"0" and not message.reconsume_times:
            await asyncio.Event().wait()

    async with site(tmp_path) as here:
        await here.send(3, queue_count=1)
        async with here.push(handle, consume_timeout_ms=60, stop_timeout_ms=0):
            await eventually(lambda: here.offsets().get(0) == 3)
            here.clock.advance(10_000)
            await eventually(lambda: (b"0", 1) in got)


async def test_pulling_pauses_while_too_much_is_held_of_a_topic(tmp_path: Path) -> None:
    begun, go = [], asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        begun.append(message.body)
        await go.wait()

    async with site(tmp_path) as here:
        await here.send(80)
        async with here.push(handle, concurrency=1, pull_count=2, topic_count_max=12) as consumer:
            held = consumer.held
            await eventually(lambda: all(held[one].count >= 4 for one in _queues()))
            await turns()
            # The first queues had the topic to themselves for a moment.
            assert sum(one.count for one in held.values()) <= 14 + 8 + 4 + 4
            go.set()
            await eventually(lambda: len(begun) == 80)


async def test_consumers_of_a_shared_client_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group whose broker did not answer kept all others of its client from sharing queues."""
    async with (
        site(tmp_path) as here,
        ClientInstance(ClientOptions(namesrv=here.namesrv)) as client,
        AsyncPushConsumer(
            group="one", subscriptions={TOPIC: "*"}, handler=Collected(), client=client
        ) as one,
        AsyncPushConsumer(
            group="other", subscriptions={TOPIC: "*"}, handler=Collected(), client=client
        ) as other,
    ):
        is_shared = asyncio.Event()

        async def stuck() -> None:
            await is_shared.wait()

        async def share() -> None:
            is_shared.set()

        monkeypatch.setattr(one, "rebalance", stuck)
        monkeypatch.setattr(other, "rebalance", share)
        client.wake_rebalance()
        await eventually(is_shared.is_set)
