"""Workers of concurrent consumption: as many as handlers that wait, and no more than allowed."""

import asyncio
from typing import Final

import pytest

from flintmq import ReceivedMessage
from flintmq.client.assigning.assigned_queue import AssignedQueue
from flintmq.client.assigning.offset_store import NotedOffsets
from flintmq.client.consuming.concurrent_service import STINT_COUNT, ConcurrentService
from flintmq.client.consuming.consume_statistics import ConsumeStatistics
from flintmq.client.consuming.handlers import Handler, HandlerRunner
from flintmq.client.consuming.push_settings import PushSettings
from tests.kits.client.consumer_model import NOW_MS, QUEUE, message

CONCURRENCY: Final = 3


def consuming(handler: Handler) -> ConcurrentService:
    return ConcurrentService(
        HandlerRunner(handler, thread_count=1, takes_list=False),
        PushSettings(concurrency=CONCURRENCY),
        offsets=NotedOffsets(),  # type: ignore[arg-type]
        send_back=None,
        statistics=ConsumeStatistics(),
        now_ms=lambda: NOW_MS,
    )


def pull(service: ConcurrentService, one: AssignedQueue, count: int) -> None:
    messages = [message(offset) for offset in range(one.next_offset, one.next_offset + count)]
    one.next_offset += count
    one.held.put(messages, next_offset=one.next_offset)
    service.arrived(one, messages)


def workers() -> set[asyncio.Task[None]]:
    return {task for task in asyncio.all_tasks() if task.get_name() == "consume"}


@pytest.mark.parametrize("is_eager", [False, True])
async def test_handlers_that_never_wait_are_served_by_one_worker(is_eager: bool) -> None:
    factory = getattr(asyncio, "eager_task_factory", None)
    if is_eager and factory is None:
        pytest.skip("tasks begin later before Python 3.12")
    handled: list[int] = []

    async def handle(one: ReceivedMessage) -> None:
        handled.append(one.queue_offset)

    service, one = consuming(handle), AssignedQueue(QUEUE, 0, now_ms=NOW_MS)
    asyncio.get_running_loop().set_task_factory(factory if is_eager else None)
    counts = []
    for _ in range(8):
        pull(service, one, 2 * STINT_COUNT)
        counts.append(len(workers()))
        await asyncio.sleep(0)
        counts.append(len(workers()))
    await asyncio.gather(*workers())
    assert handled == list(range(one.next_offset))
    assert max(counts) == 1
    assert one.held.count == 0


async def test_a_worker_that_waits_has_the_next_batch_begun_by_another() -> None:
    begun: list[int] = []
    may_end = asyncio.Event()

    async def handle(one: ReceivedMessage) -> None:
        begun.append(one.queue_offset)
        await may_end.wait()

    service, one = consuming(handle), AssignedQueue(QUEUE, 0, now_ms=NOW_MS)
    pull(service, one, 5)
    for _ in range(2 * CONCURRENCY):
        await asyncio.sleep(0)
    assert begun == [0, 1, 2]
    may_end.set()
    await asyncio.gather(*workers())
    assert begun == [0, 1, 2, 3, 4]
    assert one.held.count == 0


async def test_a_worker_that_is_cancelled_before_it_begins_is_replaced() -> None:
    handled: list[int] = []

    async def handle(one: ReceivedMessage) -> None:
        handled.append(one.queue_offset)

    service, one = consuming(handle), AssignedQueue(QUEUE, 0, now_ms=NOW_MS)
    pull(service, one, 1)
    (first,) = workers()
    first.cancel()
    await asyncio.wait({first})
    await asyncio.gather(*workers())
    assert handled == [0]
