from pathlib import Path

from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.offsets import (
    EarliestStoreTimeResponse,
    OffsetResponse,
    QueryConsumerOffsetRequest,
    QueueBoundRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from tests.kits.broker.broker_kit import START_MS, Wire, site


async def committed(wire: Wire, *, set_zero_if_not_found: bool | None = None) -> int | None:
    header = QueryConsumerOffsetRequest(
        consumer_group="g",
        topic="orders",
        queue_id=0,
        set_zero_if_not_found=set_zero_if_not_found,
    )
    answer = await wire.call(RequestCode.QUERY_CONSUMER_OFFSET, header)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    assert answer.code == ResponseCode.SUCCESS
    return OffsetResponse.decode(answer.ext_fields).offset


async def commit(wire: Wire, offset: int) -> None:
    header = UpdateConsumerOffsetRequest(
        consumer_group="g", topic="orders", queue_id=0, commit_offset=offset
    )
    assert (await wire.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0


async def test_a_new_group_starts_at_the_beginning_of_a_young_queue(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.send("orders")
        assert await committed(wire) == 0
        assert await committed(wire, set_zero_if_not_found=False) == 0
        await commit(wire, 5)
        assert await committed(wire) == 5
        await commit(wire, 2)
        assert await committed(wire) == 2


async def test_offsets_survive_a_restart(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await commit(await here.client(), 42)
    async with site(tmp_path) as here:
        assert await committed(await here.client()) == 42


async def test_offsets_are_written_while_the_broker_runs(tmp_path: Path) -> None:
    async with site(tmp_path, flushConsumerOffsetInterval=10) as here:
        await commit(await here.client(), 42)
        file = tmp_path / "config" / "consumerOffset.json"
        while not file.exists() or b"42" not in file.read_bytes():
            await (await here.client()).send("orders")


async def test_the_bounds_and_times_of_a_queue(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        for _ in range(4):
            await wire.send("orders")
            here.clock.advance(1000)
        bound = QueueBoundRequest(topic="orders", queue_id=0)
        unknown = QueueBoundRequest(topic="none", queue_id=0)

        async def offset(code: int, header: QueueBoundRequest | SearchOffsetRequest) -> int:
            answer = await wire.call(code, header)
            return OffsetResponse.decode(answer.ext_fields).offset

        assert await offset(RequestCode.GET_MAX_OFFSET, bound) == 4
        assert await offset(RequestCode.GET_MIN_OFFSET, bound) == 0
        assert await offset(RequestCode.GET_MAX_OFFSET, unknown) == 0
        for time, expected in ((0, 0), (START_MS + 1000, 1), (START_MS + 9000, 3)):
            search = SearchOffsetRequest(topic="orders", queue_id=0, timestamp=time)
            assert await offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search) == expected
        for header, expected in ((bound, START_MS), (unknown, -1)):
            answer = await wire.call(RequestCode.GET_EARLIEST_MSG_STORETIME, header)
            found = EarliestStoreTimeResponse.decode(answer.ext_fields)
            assert found.timestamp == expected
