"""Our consumers on the real Java broker, alone and beside a Java consumer of the same group."""

import asyncio
import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeFrom,
    Message,
    MessageModel,
    ReceivedMessage,
)
from flintmq.client.errors import ResponseError
from tests.kits.leftovers import LEAVES_NOTHING
from tests.kits.processes.java_clients import HEAP_FLAGS, HURRY_FLAGS, find_clients
from tests.kits.processes.java_cluster import HOST, JavaCluster
from tests.kits.processes.java_process import JavaProcess
from tests.kits.processes.java_toolchain import JavaToolchain

pytestmark = [
    pytest.mark.interop,
    pytest.mark.xdist_group("client-consumers"),
    pytest.mark.usefixtures(LEAVES_NOTHING),
]

QUEUE_COUNT: Final = 4
BATCH_COUNT: Final = 12
SETTINGS: Final = {
    "brokerName": "broker-a",
    # A retried message starts at level three.
    "messageDelayLevel": "1s 1s 1s 2s 3s",
    "mappedFileSizeCommitLog": 16 << 20,
    "enablePropertyFilter": "true",
}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("client-consumers")


@pytest.fixture(scope="module")
def namesrv(work: Path, toolchain: JavaToolchain) -> Iterator[str]:
    with JavaCluster(work / "store", SETTINGS, work_directory=work, toolchain=toolchain) as cluster:
        yield f"{HOST}:{cluster.namesrv_port}"
        # Nobody reads this store again: a clean stop would only take its time.
        cluster.kill_broker()


async def eventually(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for sets no event
        await asyncio.sleep(0.01)


async def send(producer: AsyncProducer, topic: str, count: int, *, start: int = 0) -> None:
    if not start:
        # The first message makes the topic; its queues are known only after that.
        await producer.send(Message(topic=topic, body=b"0"))
    for number in range(max(start, 1), start + count):
        await producer.send(Message(topic=topic, body=b"%d" % number))


def numbers(count: int) -> set[bytes]:
    return {b"%d" % number for number in range(count)}


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_push_consumer_gets_everything_and_commits_it(
    namesrv: str, *, orderly: bool
) -> None:
    topic, group = f"push-{orderly}", f"push-group-{orderly}"
    got: list[bytes] = []
    by_queue: dict[int, list[int]] = defaultdict(list)

    async def handle(message: ReceivedMessage) -> None:
        got.append(message.body)
        by_queue[message.queue.queue_id].append(message.queue_offset)

    options: dict[str, Any] = {
        "namesrv": namesrv,
        "group": group,
        "subscriptions": {topic: "*"},
        "handler": handle,
        "orderly": orderly,
        "consume_from": ConsumeFrom.FIRST_OFFSET,
    }
    async with AsyncProducer(namesrv=namesrv, group="senders") as producer:
        await send(producer, topic, 40)
        async with AsyncPushConsumer(**options):
            await eventually(lambda: len(got) == 40)
        assert set(got) == numbers(40)
        if orderly:
            assert all(offsets == sorted(offsets) for offsets in by_queue.values())
        await send(producer, topic, 8, start=40)
        async with AsyncPushConsumer(**options):
            await eventually(lambda: len(got) == 48)
    assert set(got) == numbers(48)


async def test_a_failing_message_is_retried_and_ends_as_a_dead_letter(namesrv: str) -> None:
    topic, group = "retried", "retried-group"
    tries: list[tuple[int, int, str]] = []
    dead: list[bytes] = []

    async def fail(message: ReceivedMessage) -> bool:
        tries.append((message.reconsume_times, message.store_timestamp, message.topic))
        return False

    async def keep(message: ReceivedMessage) -> None:
        dead.append(message.body)

    async with AsyncProducer(namesrv=namesrv, group="senders") as producer:
        await producer.send(Message(topic=topic, body=b"hopeless"))
    common: dict[str, Any] = {"namesrv": namesrv, "consume_from": ConsumeFrom.FIRST_OFFSET}
    async with AsyncPushConsumer(
        group=group,
        subscriptions={topic: "*"},
        handler=fail,
        reconsume_times_max=2,
        **common,
    ):
        await eventually(lambda: len(tries) == 3)
        async with AsyncPushConsumer(
            group="undertakers", subscriptions={f"%DLQ%{group}": "*"}, handler=keep, **common
        ):
            await eventually(lambda: dead == [b"hopeless"])
    assert [(times, topic_seen) for times, _, topic_seen in tries] == [
        (times, topic) for times in range(3)
    ]
    waits = [later[1] - sooner[1] for sooner, later in itertools.pairwise(tries)]
    assert waits[0] >= 1000
    assert waits[1] >= 2000


async def test_a_lite_consumer_polls_seeks_and_commits(namesrv: str) -> None:
    topic = "lite"
    async with AsyncProducer(namesrv=namesrv, group="senders") as producer:
        await send(producer, topic, 20)
    async with AsyncLitePullConsumer(
        namesrv=namesrv, group="lite-group", auto_commit=False
    ) as consumer:
        queues = await consumer.queues(topic)
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_begin(queue)
        got: list[ReceivedMessage] = []
        while len(got) < 20:
            got += await consumer.poll(timeout_ms=1000)
        assert {message.body for message in got} == numbers(20)
        await consumer.commit()
        committed = [await consumer.committed(queue) for queue in queues]
        assert sum(offset or 0 for offset in committed) == 20
        assert set((await consumer.lag()).values()) == {0}


@pytest.mark.parametrize("orderly", [False, True])
async def test_two_members_of_ours_come_and_go_and_nothing_is_lost(
    namesrv: str, *, orderly: bool
) -> None:
    topic, group = f"shared-{orderly}", f"shared-group-{orderly}"
    got: set[bytes] = set()
    by_queue: dict[int, list[int]] = defaultdict(list)
    at_work: set[int] = set()

    async def handle(message: ReceivedMessage) -> None:
        queue_id = message.queue.queue_id
        if orderly:
            assert queue_id not in at_work
            at_work.add(queue_id)
        await asyncio.sleep(0)
        by_queue[queue_id].append(message.queue_offset)
        got.add(message.body)
        at_work.discard(queue_id)

    def member() -> AsyncPushConsumer:
        return AsyncPushConsumer(
            namesrv=namesrv,
            group=group,
            subscriptions={topic: "*"},
            handler=handle,
            orderly=orderly,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        )

    async with AsyncProducer(namesrv=namesrv, group="senders") as producer:
        await send(producer, topic, 20)
        async with member() as first:
            await eventually(lambda: len(_of(topic, first)) == QUEUE_COUNT)
            sending = asyncio.create_task(send(producer, topic, 200, start=20))
            async with member() as second:
                half = QUEUE_COUNT // 2
                await eventually(lambda: len(_of(topic, first)) == len(_of(topic, second)) == half)
                assert not _of(topic, first) & _of(topic, second)
            await eventually(lambda: len(_of(topic, first)) == QUEUE_COUNT)
            await sending
            await eventually(lambda: got == numbers(220))
    for offsets in by_queue.values():
        assert sorted(set(offsets)) == list(range(max(offsets) + 1))
        if orderly:
            # In order, and handed over behind the last message that was handled.
            assert offsets == sorted(set(offsets))


async def test_every_member_of_a_broadcasting_group_gets_what_its_tags_want(
    namesrv: str, tmp_path: Path
) -> None:
    topic = "broadcast"
    got: dict[str, list[bytes]] = {"one": [], "two": []}

    def member(name: str) -> AsyncPushConsumer:
        async def handle(message: ReceivedMessage) -> None:
            got[name].append(message.body)

        return AsyncPushConsumer(
            namesrv=namesrv,
            group="broadcast-group",
            subscriptions={topic: "even"},
            handler=handle,
            model=MessageModel.BROADCASTING,
            instance_name=name,
            offset_directory=tmp_path,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        )

    async with AsyncProducer(namesrv=namesrv, group="senders") as producer:
        for number in range(20):
            tag = "odd" if number % 2 else "even"
            await producer.send(Message(topic=topic, body=b"%d" % number, tag=tag))
    wanted = {b"%d" % number for number in range(0, 20, 2)}
    async with member("one"), member("two"):
        await eventually(lambda: all(set(bodies) == wanted for bodies in got.values()))
    assert [len(bodies) for bodies in got.values()] == [10, 10]


async def test_a_broker_chooses_messages_by_their_properties(namesrv: str) -> None:
    topic = "by-sql"
    got: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        got.append(message.body)

    common: dict[str, Any] = {"namesrv": namesrv, "group": "sql-group", "handler": handle}
    async with AsyncProducer(namesrv=namesrv, group="senders") as producer:
        for number in range(12):
            await producer.send(
                Message(topic=topic, body=b"%d" % number, properties={"size": str(number)})
            )
    async with AsyncPushConsumer(
        subscriptions={topic: "size BETWEEN 3 AND 5 OR size > 10"},
        expression_type="SQL92",
        consume_from=ConsumeFrom.FIRST_OFFSET,
        **common,
    ):
        await eventually(lambda: len(got) == 4)
    assert set(got) == {b"3", b"4", b"5", b"11"}
    with pytest.raises(ResponseError, match="SUBSCRIPTION_PARSE_FAILED"):
        await AsyncPushConsumer(
            subscriptions={topic: "size >"}, expression_type="SQL92", **common
        ).start()


async def test_a_java_consumer_and_ours_split_the_queues_without_overlap(
    namesrv: str, work: Path
) -> None:
    log = work / "member.log"

    def java_got() -> list[tuple[int, bytes]]:
        # The last line may not be whole yet.
        lines = [line for line in log.read_text().splitlines(keepends=True) if line[-2:] == "}\n"]
        told = [json.loads(line) for line in lines if line.startswith("{")]
        return [(line["queueId"], line["body"].encode()) for line in told]

    topic, group = "mixed", "mixed-group"
    ours: list[tuple[int, bytes]] = []

    async def handle(message: ReceivedMessage) -> None:
        ours.append((message.queue.queue_id, message.body))

    async def is_split(
        producer: AsyncProducer, topic: str, start: int, consumer: AsyncPushConsumer
    ) -> bool:
        """Send some messages; return whether each came once, to the member of its queue.

        Shortly after a member has joined, the other may still have queues of both.
        """
        java_before, our_before = len(java_got()), len(ours)
        await send(producer, topic, BATCH_COUNT, start=start)
        expected = {b"%d" % number for number in range(start, start + BATCH_COUNT)}
        await eventually(
            lambda: (
                expected <= {body for _, body in (*java_got()[java_before:], *ours[our_before:])}
            )
        )
        new_java, new_ours = java_got()[java_before:], ours[our_before:]
        is_once = len(new_java) + len(new_ours) == BATCH_COUNT
        own = _of(topic, consumer)
        return (
            is_once
            and {queue_id for queue_id, _ in new_ours} == own
            and {queue_id for queue_id, _ in new_java} == set(range(QUEUE_COUNT)) - own
        )

    flags = (f"-Duser.home={work}", *HEAP_FLAGS, *HURRY_FLAGS)
    command = find_clients("4.9.8").command("Member", namesrv, group, topic, flags=flags)
    async with AsyncProducer(namesrv=namesrv, group="senders") as producer:
        await send(producer, topic, 20)
        with JavaProcess(command, log=log, environment={}) as member:
            await asyncio.to_thread(member.wait_for, "member started")
            await eventually(lambda: len(java_got()) == 20)
            async with AsyncPushConsumer(
                namesrv=namesrv,
                group=group,
                subscriptions={topic: "*"},
                handler=handle,
                consume_from=ConsumeFrom.FIRST_OFFSET,
            ) as consumer:
                await eventually(lambda: len(_of(topic, consumer)) == QUEUE_COUNT // 2)
                sent = 20
                while not await is_split(producer, topic, sent, consumer):
                    sent += BATCH_COUNT
                sent += BATCH_COUNT
                member.stop()
                # Its queues are ours now, and no message is lost on the way.
                await eventually(lambda: len(_of(topic, consumer)) == QUEUE_COUNT)
                await send(producer, topic, BATCH_COUNT, start=sent)
                everything = numbers(sent + BATCH_COUNT)
                await eventually(lambda: {body for _, body in (*java_got(), *ours)} == everything)


def _of(topic: str, consumer: AsyncPushConsumer) -> set[int]:
    return {queue.queue_id for queue in consumer.assigned if queue.topic == topic}
