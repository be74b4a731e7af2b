"""Queues that became shorter under their consumers, at either end."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from flintmq import ClientInstance, ClientOptions, ReceivedMessage
from flintmq.client.assigning.offset_store import RemoteOffsets
from flintmq.testing import AsyncEmbeddedCluster
from tests.kits.broker.remoting_kit import eventually
from tests.kits.client.consumer_kit import (
    GROUP,
    TOPIC,
    Collected,
    got_count,
    numbers,
    queue,
    site,
    turns,
)
from tests.kits.client.lost_end import KEPT, LOST, lose_the_end, site_with_a_copy


@pytest.mark.parametrize("orderly", [False, True])
async def test_messages_that_a_broker_still_has_are_handled_after_it_has_lost_others(
    tmp_path: Path, *, orderly: bool
) -> None:
    """They were dropped, and the corrected offset was committed past them."""

    handled, go = Collected(), asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset >= 5:
            await go.wait()
        await handled(message)

    async with site_with_a_copy(tmp_path) as here:
        async with here.push(handle, orderly=orderly) as consumer:
            await eventually(lambda: consumer.held[queue(0)].max_offset == KEPT + LOST - 1)
            await got_count(handled.messages, 5)
            before = consumer._assignment.queues[queue(0)]
            await lose_the_end(here, tmp_path)
            if orderly:
                # The restart waits for the batch at work.
                await eventually(lambda: before.held.is_dropped)
                go.set()
            await eventually(lambda: consumer._assignment.queues.get(queue(0)) is not before)
            await consumer.persist_offsets()
            assert set(handled.bodies) >= numbers(here.offsets().get(0, 0))
            go.set()
            await eventually(lambda: here.offsets().get(0) == KEPT)
            assert set(handled.bodies) >= numbers(KEPT)
            await here.send(2, start=100, queue_count=1)
            await eventually(lambda: set(handled.bodies) >= numbers(2, start=100))
        assert here.offsets()[0] == KEPT + 2
    if orderly:
        assert Counter(handled.bodies) == Counter(numbers(KEPT) | numbers(2, start=100))


async def test_a_member_whose_messages_are_all_handled_goes_on_at_the_new_end(
    tmp_path: Path,
) -> None:
    handled = Collected()
    async with site_with_a_copy(tmp_path) as here:
        async with here.push(handled):
            await got_count(handled.messages, KEPT + LOST)
            await eventually(lambda: here.offsets().get(0) == KEPT + LOST)
            await lose_the_end(here, tmp_path)
            await eventually(lambda: here.offsets().get(0) == KEPT)
            await here.send(1, start=100, queue_count=1)
            await eventually(lambda: handled.bodies[-1] == b"100")
        assert here.offsets()[0] == KEPT + 1


async def test_what_was_pulled_before_the_broker_deleted_it_is_handled(tmp_path: Path) -> None:
    """It was dropped with the correction of the next pull."""

    handled, go = Collected(), asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        await go.wait()
        await handled(message)

    async with site(tmp_path) as here:
        await here.send(8, queue_count=1)
        async with here.push(handle, pull_count=4, queue_count_max=3) as consumer:
            await eventually(lambda: consumer.held[queue(0)].count == 4)
            one = consumer._assignment.queues[queue(0)]
            stored = here.broker.context.store.queues.get(TOPIC, 0)
            assert stored is not None
            unit = stored.unit_at(6)
            assert unit is not None
            stored.correct_min_offset(unit[0])
            go.set()
            await got_count(handled.messages, 6)
            assert consumer._assignment.queues[queue(0)] is one
        assert handled.bodies == [b"0", b"1", b"2", b"3", b"6", b"7"]
        assert here.offsets()[0] == 8


@pytest.mark.parametrize("by_hand", [False, True])
async def test_a_commit_on_its_way_does_not_count_for_an_offset_that_was_lowered_since(
    *, by_hand: bool
) -> None:
    """The broker kept what was behind its end, and the next owner passed over what came there."""
    async with (
        AsyncEmbeddedCluster(proxied=True) as mq,
        ClientInstance(ClientOptions(namesrv=mq.namesrv)) as client,
    ):
        await mq.create_topic(TOPIC, queue_count=1)
        offsets = RemoteOffsets(client, GROUP)
        await offsets.read(queue(0))
        with mq.proxy.stall():
            if by_hand:
                under_way = asyncio.create_task(offsets.commit(queue(0), 7))
            else:
                offsets.update(queue(0), 7, increase_only=True)
                under_way = asyncio.create_task(offsets.persist([queue(0)]))
            await turns()
            offsets.update(queue(0), 3, increase_only=False)
            lowering = asyncio.create_task(offsets.persist([queue(0)]))
            await turns()
        await asyncio.gather(under_way, lowering)
        assert mq.broker.context.offsets.get(GROUP, TOPIC, 0) == 3
        assert offsets.noted(queue(0)) == 3
