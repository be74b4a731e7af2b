"""What operators ask of a consumer through its broker."""

import asyncio
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from flintmq import (
    ConsumeFrom,
    LitePullConsumer,
    Message,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
)
from flintmq.format.wire.bodies.dialect import loads_body
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.clients import (
    ConsumeDirectlyRequest,
    ConsumerRunningInfoRequest,
    ResetOffsetRequest,
)
from flintmq.format.wire.headers.codec import Header
from flintmq.model.message_queue import MessageQueue
from flintmq.remoting import RemotingClient
from tests.kits.broker.remoting_kit import eventually
from tests.kits.client.consumer_kit import (
    GROUP,
    QUEUE_COUNT,
    TOPIC,
    Collected,
    Site,
    numbers,
    queue,
    site,
)


async def ask(here: Site, code: int, header: Header) -> Command:
    async with RemotingClient() as client:
        answer = await client.call(here.broker.address, code, header, timeout_ms=10_000)
    assert answer.code == ResponseCode.SUCCESS, answer
    return answer


async def test_a_reset_has_the_group_consume_again(tmp_path: Path) -> None:
    got = Collected()
    async with site(tmp_path) as here:
        here.clock.advance(1000)
        await here.send(8)
        for orderly in (False, True):
            got.messages.clear()
            group = f"{GROUP}-{orderly}"
            async with here.push(got, group=group, orderly=orderly):
                await eventually(lambda: len(got.messages) == 8)
                # The broker resets groups only where they have committed something.
                await eventually(lambda group=group: len(here.offsets(group)) == QUEUE_COUNT)  # type: ignore[misc]
                header = ResetOffsetRequest(
                    topic=TOPIC, group=group, timestamp=here.clock.now_ms() - 500, is_force=True
                )
                await ask(here, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
                await eventually(lambda: len(got.messages) == 16)
            assert set(Counter(got.bodies).values()) == {2}
            assert here.offsets(group) == dict.fromkeys(range(QUEUE_COUNT), 2)


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_reset_is_carried_out_though_its_broker_has_gone_meanwhile(
    tmp_path: Path, *, orderly: bool
) -> None:
    """Its queues stayed dropped: nothing was pulled from them for two minutes."""
    got: list[bytes] = []
    is_handling, may_end = asyncio.Event(), asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        got.append(message.body)
        is_handling.set()
        await may_end.wait()

    async with site(tmp_path) as here:
        await here.send(4, queue_count=1)
        async with here.push(handle, orderly=orderly) as consumer:
            await is_handling.wait()
            serving = asyncio.create_task(consumer.move({queue(0): 2}))
            await asyncio.sleep(0)
            # So a connection ends the requests that came by it.
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            may_end.set()
            await eventually(lambda: here.offsets().get(0) == 4 and b"3" in got)
            assert not consumer.held[queue(0)].is_dropped


async def test_queues_are_given_up_side_by_side(tmp_path: Path) -> None:
    """One after the other, each waited for a broker that did not answer."""
    got = Collected()
    async with site(tmp_path) as here:
        await here.send(8)
        async with here.push(got, offset_interval_ms=3_600_000) as consumer:
            await eventually(lambda: len(got.messages) == 8)
            asked: list[MessageQueue] = []
            is_all = asyncio.Event()
            commit = consumer.offsets.persist

            async def persist(queues: Collection[MessageQueue]) -> None:
                asked.extend(queues)
                if len(asked) == QUEUE_COUNT:
                    is_all.set()
                # No one gets an answer before all have asked.
                await is_all.wait()
                await commit(queues)

            consumer.offsets.persist = persist  # type: ignore[method-assign]
            await consumer.subscribe("others")
            await consumer.unsubscribe(TOPIC)
            consumer.offsets.persist = commit  # type: ignore[method-assign]
            assert here.offsets() == dict.fromkeys(range(QUEUE_COUNT), 2)


async def test_running_info_tells_settings_queues_rates_and_stacks(tmp_path: Path) -> None:
    got = Collected()
    async with site(tmp_path) as here:
        await here.send(8)
        async with here.push(got, concurrency=7) as consumer:
            await eventually(lambda: len(got.messages) == 8)
            header = ConsumerRunningInfoRequest(
                consumer_group=GROUP, client_id=consumer.client.client_id, jstack_enable=True
            )
            answer = await ask(here, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    info = loads_body(answer.body)
    assert info["properties"]["PROP_THREADPOOL_CORE_SIZE"] == "7"
    assert info["properties"]["PROP_CONSUMEORDERLY"] == "false"
    assert {one["topic"] for one in info["subscriptionSet"]} == {TOPIC, f"%RETRY%{GROUP}"}
    assert len(info["mqTable"]) >= QUEUE_COUNT
    assert info["statusTable"][TOPIC]["consumeFailedMsgs"] == 0
    assert info["statusTable"][TOPIC]["consumeOKTPS"] > 0
    assert "task pull" in info["jstack"]


async def test_a_message_is_consumed_directly_and_failures_are_told(tmp_path: Path) -> None:
    got = []

    async def handle(message: ReceivedMessage) -> None:
        got.append(message.body)
        if len(got) == 3:
            raise ValueError("the third is bad")

    async with site(tmp_path) as here:
        await here.send(1)
        message = Message(topic=TOPIC, body=b"direct")
        stored = await here.producer.send(message, queue=queue(1))
        async with here.push(handle) as consumer:
            await eventually(lambda: len(got) == 2)
            header = ConsumeDirectlyRequest(
                consumer_group=GROUP,
                client_id=consumer.client.client_id,
                msg_id=stored.offset_message_id,
            )
            for expected in ("CR_THROW_EXCEPTION", "CR_SUCCESS"):
                answer = await ask(here, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
                told = loads_body(answer.body)
                assert told["consumeResult"] == expected
                assert ("the third is bad" in told.get("remark", "")) == (
                    expected == "CR_THROW_EXCEPTION"
                )
        assert got[2:] == [b"direct", b"direct"]


async def test_blocking_consumers_do_the_same(tmp_path: Path) -> None:
    def use(namesrv: str) -> None:
        with PullConsumer(namesrv=namesrv, group="by-hand") as puller:
            assert len(puller.queues(TOPIC)) == QUEUE_COUNT
            assert [one.body for one in puller.pull(queue(1), 0).messages] == [b"1", b"5"]
            puller.commit(queue(1), 1)
            assert (puller.committed(queue(1)), puller.lag(queue(1))) == (1, 1)
        options: dict[str, Any] = {"namesrv": namesrv, "consume_from": ConsumeFrom.FIRST_OFFSET}
        subscriptions = {TOPIC: "*"}
        with LitePullConsumer(group=GROUP, subscriptions=subscriptions, **options) as consumer:
            found = {message.body for _, message in zip(range(8), consumer, strict=False)}
            assert found == numbers(8)
            assert sum(consumer.lag().values()) == 0
        pushed: SimpleQueue[ReceivedMessage] = SimpleQueue()
        with PushConsumer(
            group="pushed", subscriptions=subscriptions, handler=pushed.put, **options
        ):
            assert {pushed.get(timeout=10).body for _ in range(8)} == numbers(8)

    async with site(tmp_path) as here:
        await here.send(8)
        await asyncio.to_thread(use, here.namesrv)
        assert here.offsets() == dict.fromkeys(range(QUEUE_COUNT), 2)
