"""Answers about everything a broker has are made in slices, between which others are served."""

import asyncio
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from flintmq.broker import context as broker_context
from flintmq.broker import housekeeping
from flintmq.broker.housekeeping import DELIVER_STEP, delivery_steps
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.admin import (
    BrokerConsumeStatsRequest,
    ConsumeStatsRequest,
    ConsumeTimeSpanRequest,
    CorrectionOffsetRequest,
    TopicRequest,
)
from flintmq.format.wire.headers.codec import Header
from flintmq.format.wire.headers.query import QueryMessageRequest
from flintmq.model.group_config import GroupConfig
from flintmq.model.steps import Steps, finish
from flintmq.model.topic_config import TopicConfig
from flintmq.remoting.fair_turns import FairTurns
from flintmq.store.run_limit import BATCH_REQUEST_COUNT_MAX, RUN_KEY_COUNT_MAX
from tests.kits.broker.broker_kit import Site, eventually, send_header, site

_T = TypeVar("_T")

COUNT: Final = 120
"""Topics and groups of the broker."""
LONG: Final[list[tuple[RequestCode, Header | None]]] = [
    (RequestCode.GET_ALL_TOPIC_CONFIG, None),
    (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, None),
    (RequestCode.GET_ALL_CONSUMER_OFFSET, None),
    (RequestCode.GET_BROKER_CONSUME_STATS, BrokerConsumeStatsRequest(is_order=False)),
    (RequestCode.GET_CONSUME_STATS, ConsumeStatsRequest(consumer_group="all")),
    (RequestCode.GET_TOPIC_STATS_INFO, TopicRequest(topic="wide")),
    (RequestCode.QUERY_CONSUME_TIME_SPAN, ConsumeTimeSpanRequest(topic="wide", group="all")),
    (
        RequestCode.QUERY_CORRECTION_OFFSET,
        CorrectionOffsetRequest(topic="wide", compare_group="all", filter_groups=""),
    ),
]


class Ticking:
    """A clock that goes on by a slice whenever it is looked at: every slice has one step."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 0.0007
        return self.seconds


def fill(here: Site) -> None:
    context = here.broker.context
    context.topics.put(TopicConfig(name="wide", read_queue_count=COUNT, write_queue_count=COUNT))
    for number in range(COUNT):
        context.topics.put(TopicConfig(name=f"t{number}"))
        context.groups.put(GroupConfig(name=f"g{number}"))
        context.offsets.commit(f"g{number}", "wide", number, 1)
        context.offsets.commit("all", f"t{number}", 0, 1)
        context.offsets.commit("all", "wide", number, 1)


@pytest.mark.parametrize(("code", "header"), LONG, ids=lambda one: getattr(one, "name", ""))
async def test_an_answer_is_made_in_slices_and_is_the_same(
    tmp_path: Path, code: RequestCode, header: Header | None
) -> None:
    async with site(tmp_path) as here:
        fill(here)
        wire = await here.client()
        whole: Any = (await wire.call(code, header)).body
        context = here.broker.context
        context.turns = FairTurns(now=Ticking())
        sliced = await wire.call(code, header)
        assert sliced.body == whole
        assert context.turns.postponed_count >= COUNT // 32


async def test_a_query_by_key_is_made_in_slices(tmp_path: Path) -> None:
    async with site(tmp_path, maxIndexNum=40_000) as here:
        wire = await here.client()
        await wire.send("T", properties={"KEYS": "hot"})
        context = here.broker.context
        context.dispatch()
        context.turns = FairTurns(now=Ticking())
        header = QueryMessageRequest(
            topic="T", key="hot", max_num=32, begin_timestamp=0, end_timestamp=1 << 60
        )
        assert (await wire.call(RequestCode.QUERY_MESSAGE, header)).code == 0
        assert context.turns.turn_count


async def test_delayed_messages_that_are_due_together_are_delivered_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "TICK_MS", 1 << 40)
    async with site(tmp_path) as here:
        wire = await here.client()
        count = 3 * DELIVER_STEP
        for _ in range(count):
            await wire.send("T", properties={"DELAY": "1"})
        here.clock.advance(5000)
        context, ends = here.broker.context, []
        for _ in delivery_steps(context):
            ends.append(context.store.max_offset_in_queue("T", 0))
        assert ends == [DELIVER_STEP, 2 * DELIVER_STEP, count]


async def test_a_batch_of_many_keys_is_dispatched_turn_by_turn(tmp_path: Path) -> None:
    async with site(tmp_path, machineCode="false", maxIndexNum=200_000) as here:
        wire, store = await here.client(), here.broker.context.store
        await wire.send("T")
        runs: list[int] = []
        run = store.dispatcher.run

        def noted() -> int:
            runs.append(run())
            return runs[-1]

        store.dispatcher.run = noted  # type: ignore[method-assign]  # It passes all on.
        text = " ".join(f"key{number}" for number in range(1000))
        items = [BatchItem(0, b"x", f"KEYS\x01{text}{n}\x02".encode()) for n in range(40)]
        code, header = RequestCode.SEND_BATCH_MESSAGE, send_header("T", batch=True)
        answer = await wire.call(code, header, encode_batch(items))
        assert answer.code == ResponseCode.SUCCESS, answer
        # Nobody asks for anything, and all of it comes into the queue.
        await eventually(lambda: not store.dispatcher.waiting)
        assert store.queues.get("T", 0).max_offset == 41  # type: ignore[union-attr]
        assert max(runs) <= RUN_KEY_COUNT_MAX // 1000 + 1
        await eventually(lambda: not here.broker.context.is_dispatching)
        assert len(await wire.pull("T", queue_offset=40)) == 1


class PausedTurns(FairTurns):
    """Does no work before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.paused: list[tuple[Steps[Any], asyncio.Future[Any]]] = []

    def run(self, steps: Steps[_T], name: str, owner: object = None) -> asyncio.Future[_T]:
        done: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self.paused.append((steps, done))
        return done

    def go_on(self) -> None:
        for steps, done in self.paused:
            done.set_result(finish(steps))


async def test_a_producer_of_large_batches_waits_for_the_dispatcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "TICK_MS", 1 << 40)
    monkeypatch.setattr(broker_context, "UNDISPATCHED_SIZE_MAX", 1 << 16)
    async with site(tmp_path, machineCode="false") as here:
        producer, other = await here.client(), await here.client()
        context = here.broker.context
        context.turns = turns = PausedTurns()
        batch = encode_batch([BatchItem(0, b"x", b"")] * (BATCH_REQUEST_COUNT_MAX + 1))
        code, header = RequestCode.SEND_BATCH_MESSAGE, send_header("T", batch=True)
        for _ in range(2):
            answer = await producer.call(code, header, batch)
            assert answer.code == ResponseCode.SUCCESS, answer
        assert context.store.dispatcher.behind > broker_context.UNDISPATCHED_SIZE_MAX
        behind = asyncio.ensure_future(producer.call(code, header, batch))
        for _ in range(8):
            await other.send("U")
        assert not behind.done()
        turns.go_on()
        assert (await behind).code == ResponseCode.SUCCESS
