"""What a lite pull consumer counts as consumed, and what it commits of that."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from flintmq import AsyncLitePullConsumer, ConsumeFrom, LitePullConsumer
from flintmq.client.assigning.assigned_queue import AssignedQueue
from flintmq.client.assigning.offset_store import RemoteOffsets
from flintmq.client.pulling import lite_pull_consumer
from flintmq.client.pulling.puller import PullResult, PullStatus
from tests.kits.broker.remoting_kit import eventually
from tests.kits.client.consumer_kit import GROUP, TOPIC, Site, bodies, queue, site
from tests.kits.client.lost_end import KEPT, LOST, lose_the_end, site_with_a_copy


class BrokenError(Exception):
    """A failure of the user."""


SMALL: dict[str, Any] = {"queue_count_max": 10, "pull_count": 4}


def lite(here: Site, **options: Any) -> AsyncLitePullConsumer:
    settings: dict[str, Any] = {
        "group": GROUP,
        "consume_from": ConsumeFrom.FIRST_OFFSET,
        "offset_interval_ms": 3_600_000,
    }
    return AsyncLitePullConsumer(namesrv=here.namesrv, **(settings | options))


async def take(consumer: AsyncLitePullConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += bodies(await consumer.poll(timeout_ms=1000, count_max=count - len(found)))
    return found


async def test_a_user_who_keeps_the_offsets_gets_every_message(tmp_path: Path) -> None:
    """Messages given and not committed counted as held, until no more were pulled."""

    async with site(tmp_path) as here:
        await here.send(60, queue_count=1)
        async with lite(here, auto_commit=False, **SMALL) as consumer:
            await consumer.assign([queue(0)])
            assert await take(consumer, 30) == [b"%d" % number for number in range(30)]
            await consumer.commit({queue(0): 12})
            assert await take(consumer, 30) == [b"%d" % number for number in range(30, 60)]
        assert here.offsets() == {0: 12}


@pytest.mark.parametrize("auto_commit", [False, True])
@pytest.mark.parametrize("by_block", [False, True])
async def test_an_explicit_commit_is_not_overwritten_at_the_end(
    tmp_path: Path, *, auto_commit: bool, by_block: bool
) -> None:
    async with site(tmp_path) as here:
        await here.send(20, queue_count=1)
        consumer = lite(here, auto_commit=auto_commit)
        async with consumer:
            await consumer.assign([queue(0)])
            await take(consumer, 8)
            await consumer.commit()
            assert here.offsets() == {0: 8}
            await take(consumer, 4)
            await consumer.commit({queue(0): 3})
            if not by_block:
                await consumer.close()
        assert here.offsets() == {0: 3}


async def test_an_explicit_commit_is_not_overtaken_by_a_pull_that_brings_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull without messages said that all before it was consumed."""
    monkeypatch.setattr(lite_pull_consumer, "SUSPEND_MS", 50)
    async with site(tmp_path) as here:
        await here.send(8, queue_count=1)
        async with lite(here) as consumer:
            await consumer.assign([queue(0)])
            await take(consumer, 8)
            pulled: list[PullStatus] = []
            arrived = consumer.arrived

            def watch(one: AssignedQueue, result: PullResult) -> None:
                arrived(one, result)
                pulled.append(result.status)

            monkeypatch.setattr(consumer, "arrived", watch)
            await consumer.commit({queue(0): 3})
            await eventually(lambda: len(pulled) >= 2)
            assert consumer.offsets.noted(queue(0)) == 3
            await here.send(1, queue_count=1)
            assert len(await take(consumer, 1)) == 1
            await consumer.poll(timeout_ms=0)
            assert consumer.offsets.noted(queue(0)) == 9


async def test_a_consumer_of_assigned_queues_commits_while_it_runs(tmp_path: Path) -> None:
    """It committed at its end only: a process that was killed began anew."""
    async with site(tmp_path) as here:
        await here.send(8, queue_count=1)
        async with lite(here, offset_interval_ms=10) as consumer:
            await consumer.assign([queue(0)])
            await take(consumer, 8)
            await consumer.poll(timeout_ms=0)
            await eventually(lambda: here.offsets() == {0: 8})


async def test_what_is_given_after_an_explicit_commit_counts_as_before(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await here.send(20, queue_count=1)
        async with lite(here) as consumer:
            await consumer.assign([queue(0)])
            await take(consumer, 8)
            await consumer.commit({queue(0): 3})
            await take(consumer, 2)
        assert here.offsets() == {0: 10}


async def test_a_message_whose_handling_raised_is_not_committed_by_close(tmp_path: Path) -> None:
    async def handle_and_close(here: Site) -> None:
        consumer = await lite(here).start()
        try:
            await consumer.assign([queue(0)])
            await take(consumer, 2)
            await take(consumer, 1)
            raise BrokenError
        finally:
            await consumer.close()

    async with site(tmp_path) as here:
        await here.send(5, queue_count=1)
        with pytest.raises(BrokenError):
            await handle_and_close(here)
        assert here.offsets() == {0: 2}


def use_and_close(namesrv: str) -> None:
    consumer = LitePullConsumer(
        namesrv=namesrv, group=GROUP, consume_from=ConsumeFrom.FIRST_OFFSET
    ).start()
    consumer.assign([queue(0)])
    assert len(consumer.poll(count_max=2)) == 2
    assert len(consumer.poll(count_max=1)) == 1
    consumer.close()


async def test_the_blocking_face_closes_in_the_same_way(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await here.send(5, queue_count=1)
        await asyncio.to_thread(use_and_close, here.namesrv)
        assert here.offsets() == {0: 2}


SEEKS: dict[str, tuple[Callable[[AsyncLitePullConsumer], Awaitable[None]], int]] = {
    "back": (lambda one: one.seek(queue(0), 3), 3),
    "forward": (lambda one: one.seek(queue(0), 15), 15),
    "to the end": (lambda one: one.seek_to_end(queue(0)), 20),
}


@pytest.mark.parametrize("where", SEEKS)
async def test_a_seek_forgets_no_progress_and_counts_like_a_message_given(
    tmp_path: Path, where: str
) -> None:
    seek, position = SEEKS[where]
    async with site(tmp_path) as here:
        await here.send(20, queue_count=1)
        async with lite(here) as consumer:
            await consumer.assign([queue(0)])
            await take(consumer, 8)
            await take(consumer, 2)
            await seek(consumer)
            assert consumer.position(queue(0)) == position
            await consumer.persist_offsets()
            # The two given last may still fail.
            assert here.offsets() == {0: 8}
            await consumer.poll(timeout_ms=0, count_max=1)
            await consumer.persist_offsets()
            assert here.offsets() == {0: position}


async def test_progress_before_a_seek_is_kept_when_the_user_fails(tmp_path: Path) -> None:
    async def fail(here: Site) -> None:
        async with lite(here) as consumer:
            await consumer.assign([queue(0)])
            await take(consumer, 8)
            await take(consumer, 2)
            await consumer.seek_to_end(queue(0))
            raise BrokenError

    async with site(tmp_path) as here:
        await here.send(20, queue_count=1)
        with pytest.raises(BrokenError):
            await fail(here)
        assert here.offsets() == {0: 8}


async def test_paused_queues_do_not_starve_the_others(tmp_path: Path) -> None:
    """Their messages used the limit up that all queues share."""

    async with site(tmp_path) as here:
        await here.send(40, queue_count=2)
        async with lite(here, total_count_max=11, **SMALL) as consumer:
            await consumer.assign([queue(0)])
            await eventually(lambda: consumer._assignment.queues[queue(0)].held.count > 10)
            consumer.pause(queue(0))
            await consumer.assign([queue(0), queue(1)])
            got = await take(consumer, 20)
            assert got == [b"%d" % number for number in range(1, 40, 2)]
            consumer.resume(queue(0))
            assert await take(consumer, 20) == [b"%d" % number for number in range(0, 40, 2)]


async def test_messages_that_nobody_wants_are_committed_past(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await here.send(8, queue_count=1)
        async with lite(here) as consumer:
            await consumer.assign([queue(0)], "C")
            await eventually(lambda: consumer.offsets.noted(queue(0)) == 8)
            await consumer.commit()
            assert here.offsets() == {0: 8}
        async with lite(here, auto_commit=False, group="others") as consumer:
            await consumer.assign([queue(0)], "C")
            await eventually(lambda: consumer.position(queue(0)) == 8)
        assert here.offsets("others") == {}


async def test_a_commit_of_everything_given_does_not_set_the_group_back(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await here.send(8, queue_count=1)
        async with lite(here, auto_commit=False) as consumer:
            await consumer.assign([queue(0)])
            await take(consumer, 4)
            assert isinstance(consumer.offsets, RemoteOffsets)
            consumer.offsets._known.clear()  # as after a long time
            here.broker.context.offsets.commit(GROUP, TOPIC, 0, 7)
            await consumer.commit()
            assert here.offsets() == {0: 7}
            await consumer.commit({queue(0): 4})
            assert here.offsets() == {0: 4}


async def test_what_a_broker_still_has_is_given_after_it_has_lost_others(tmp_path: Path) -> None:
    async with site_with_a_copy(tmp_path) as here:
        async with lite(here) as consumer:
            await consumer.assign([queue(0)])
            got = await take(consumer, 5)
            one = consumer._assignment.queues[queue(0)]
            await eventually(lambda: one.held.max_offset == KEPT + LOST - 1)
            await lose_the_end(here, tmp_path)
            await eventually(lambda: consumer._assignment.queues[queue(0)] is not one)
            await consumer.persist_offsets()
            # What was given last does not count yet.
            assert not here.offsets().get(0)
            got += await take(consumer, KEPT - 5)
            assert got == [b"%d" % number for number in range(KEPT)]
        assert here.offsets()[0] == KEPT
