"""What consumers tell of themselves: their trace, and that members of a group disagree."""

from typing import Any

import pytest

from flintmq import AsyncLitePullConsumer, AsyncPushConsumer, ConsumeFrom, ReceivedMessage
from flintmq.testing.embedded import AsyncEmbeddedCluster
from tests.kits.broker.remoting_kit import eventually
from tests.kits.client.consumer_kit import GROUP, TOPIC, Collected

TRACE = "RMQ_SYS_TRACE_TOPIC"


def consumer(mq: AsyncEmbeddedCluster, handler: Any, **options: Any) -> AsyncPushConsumer:
    settings: dict[str, Any] = {
        "group": GROUP,
        "subscriptions": {TOPIC: "*"},
        "consume_from": ConsumeFrom.FIRST_OFFSET,
    }
    return AsyncPushConsumer(namesrv=mq.namesrv, handler=handler, **(settings | options))


def lines(mq: AsyncEmbeddedCluster) -> list[list[str]]:
    """Return the lines of the trace, each as its fields."""
    text = "".join(message.body.decode() for message in mq.messages(TRACE))
    return [line.split("\x01") for line in text.split("\x02") if line]


@pytest.mark.parametrize("orderly", [False, True])
async def test_the_trace_tells_of_every_message_before_and_after_its_handler(
    *, orderly: bool
) -> None:
    tries: list[int] = []

    async def handle(message: ReceivedMessage) -> bool:
        tries.append(message.reconsume_times)
        if message.body == b"bad" and not message.reconsume_times:
            raise ValueError("not yet")
        return True

    async with AsyncEmbeddedCluster(manual_clock=True) as mq:
        good = await mq.send(TOPIC, b"good", keys=["k1", "k2"])
        bad = await mq.send(TOPIC, b"bad")
        async with consumer(mq, handle, trace=True, orderly=orderly, suspend_queue_ms=10):
            await eventually(lambda: len(tries) >= 2)
            if not orderly:
                schedule = mq.broker.context.store.schedule
                await eventually(lambda: schedule.next_due_ms() is not None)
                mq.advance(10_000)
            await eventually(lambda: len(tries) == 3)
        told = lines(mq)
        (first, *_) = mq.messages(TRACE)
    befores = {(line[5], line[6]): line for line in told if line[0] == "SubBefore"}
    assert befores.keys() == {
        (good.message_id, "0"),
        (bad.message_id, "0"),
        (bad.message_id, "1"),
    }
    before = befores[good.message_id, "0"]
    assert before[2:5] == ["null", GROUP, before[4]]
    assert before[7] == "k1 k2"
    assert befores[bad.message_id, "0"][7] == "null", "Java's tools cannot read an empty field"
    afters = {line[1]: line for line in told if line[0] == "SubAfter"}
    assert afters.keys() == {line[4] for line in befores.values()}
    outcomes = {
        place: afters[line[4]][4:5] + afters[line[4]][6:7] for place, line in befores.items()
    }
    assert outcomes[good.message_id, "0"] == ["true", "0"]
    assert outcomes[bad.message_id, "0"] == ["false", "2"]
    assert outcomes[bad.message_id, "1"] == ["true", "0"]
    after = afters[before[4]]
    assert (after[2], after[5], after[8]) == (good.message_id, "k1 k2", GROUP)
    assert int(after[7]) >= int(before[1])
    assert {good.message_id, "k1", "k2"} <= set(first.keys)


async def test_the_trace_tells_of_every_message_that_a_poll_gives() -> None:
    async with AsyncEmbeddedCluster() as mq:
        sent = await mq.send(TOPIC, b"good", keys=["k1"])
        async with AsyncLitePullConsumer(
            namesrv=mq.namesrv,
            group=GROUP,
            subscriptions={TOPIC: "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
            trace=True,
        ) as lite:
            (message,) = await lite.poll(timeout_ms=30_000)
            assert await lite.poll(timeout_ms=0) == []
        before, after = lines(mq)
    assert message.message_id == sent.message_id
    assert (before[0], *before[3:]) == ("SubBefore", GROUP, after[1], sent.message_id, "0", "k1")
    assert (after[0], *after[2:3], *after[4:7]) == ("SubAfter", sent.message_id, "true", "k1", "0")
    assert after[8] == GROUP


async def test_the_trace_is_not_traced() -> None:
    got = Collected()
    async with AsyncEmbeddedCluster() as mq:
        await mq.send(TRACE, b"somebody's trace")
        async with consumer(mq, got, trace=True, subscriptions={TRACE: "*"}):
            await eventually(lambda: len(got.messages) == 1)
        assert len(mq.messages(TRACE)) == 1


@pytest.mark.parametrize(
    ("subscriptions", "named"),
    [({TOPIC: "paid"}, "here=paid elsewhere=open"), ({"other": "*"}, "here=None elsewhere=open")],
)
async def test_a_member_that_wants_something_else_is_warned(
    subscriptions: dict[str, str], named: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncEmbeddedCluster() as mq:
        await mq.send(TOPIC, b"x")
        await mq.send("other", b"x")
        common: dict[str, Any] = {"handler": Collected()}
        async with consumer(mq, subscriptions={TOPIC: "open"}, **common):
            assert "different things" not in caplog.text
            async with consumer(mq, subscriptions=subscriptions, **common):
                assert named in caplog.text
                assert f"group={GROUP} topic={TOPIC}" in caplog.text


async def test_members_that_want_the_same_are_not_warned(caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncEmbeddedCluster() as mq:
        await mq.send(TOPIC, b"x")
        common: dict[str, Any] = {"handler": Collected(), "subscriptions": {TOPIC: "a || b"}}
        async with consumer(mq, **common) as first, consumer(mq, **common) as second:
            await eventually(lambda: bool(first.assigned and second.assigned))
    assert "different things" not in caplog.text
