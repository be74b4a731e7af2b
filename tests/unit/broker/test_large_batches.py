"""Without machine code large batches are prepared in slices, and nobody is overtaken."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.broker.waiting import waiting_sends
from flintmq.format.compression import CompressionType, compress
from flintmq.format.message_id import decode_offset_id
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.sys_flag import COMPRESSED
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.admin import TopicRequest
from flintmq.format.wire.headers.offsets import QueueBoundRequest
from flintmq.format.wire.headers.send import SendMessageResponse
from flintmq.model.message import MessageBatch
from flintmq.model.steps import Steps
from flintmq.remoting.refusal_counts import LARGE_BATCHES
from flintmq.store.append_group.batch_items import is_large_batch
from flintmq.store.appending import appender
from flintmq.store.appending.batch_preparation import PreparedBatch, prepare_batch
from flintmq.store.appending.put_admission import PutAdmission
from flintmq.store.errors import DiskFullError
from flintmq.store.files.allocation import Allocator
from flintmq.store.log.commit_log import CommitLog
from flintmq.store.results import NAMED_COUNT_MAX, PutResult
from tests.kits.broker.broker_kit import Site, Wire, eventually, send_header, site
from tests.kits.broker.remoting_kit import RawClient

TOPIC: Final = "orders"
CODE: Final = RequestCode.SEND_BATCH_MESSAGE
COUNT: Final = 4000
LARGE: Final = encode_batch([BatchItem(0, b"x", b"") for _ in range(COUNT)])
assert is_large_batch(LARGE)


class Preparing:
    """Stands before the preparation of batches: counts, and lets it go on when it may."""

    def __init__(self) -> None:
        self.begun = self.under_way = self.most = 0
        self.may_go_on = True

    def __call__(self, batch: MessageBatch, admission: PutAdmission) -> Steps[PreparedBatch]:
        self.begun += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            while not self.may_go_on:
                yield
            return (yield from prepare_batch(batch, admission))
        finally:
            self.under_way -= 1


@asynccontextmanager
async def preparing_site(root: Path, **more: Any) -> AsyncIterator[tuple[Site, Preparing]]:
    preparing = Preparing()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(appender, "prepare_batch", preparing)
        async with site(root, machineCode="false", **more) as here:
            try:
                yield here, preparing
            finally:
                preparing.may_go_on = True


def request(body: bytes, opaque: int, *, batch: bool = False) -> Command:
    fields = send_header(TOPIC, batch=batch).encode()
    code = CODE if batch else RequestCode.SEND_MESSAGE_V2
    return Command(code=code, opaque=opaque, ext_fields=fields, body=body)


async def begun(wire: Wire) -> Wire:
    """Have the topic made, so that sends to it are gathered."""
    await wire.send(TOPIC, b"before")
    return wire


async def max_offset(wire: Wire) -> int:
    header = QueueBoundRequest(topic=TOPIC, queue_id=0)
    answer = await wire.call(RequestCode.GET_MAX_OFFSET, header)
    return int(answer.ext_fields["offset"])


async def offset_of(answer: Command) -> int:
    assert answer.code == ResponseCode.SUCCESS, answer
    return SendMessageResponse.decode(answer.ext_fields).queue_offset


async def test_what_a_peer_sends_behind_it_is_stored_behind_it_and_others_do_not_wait(
    tmp_path: Path,
) -> None:
    async with preparing_site(tmp_path) as (here, preparing):
        wire = await begun(await here.client())
        port = int(here.broker.address.rpartition(":")[2])
        async with RawClient.connect(port) as peer:
            preparing.may_go_on = False
            await peer.send(
                request(b"one", 1),
                request(LARGE, 2, batch=True),
                request(b"two", 3),
                request(LARGE, 4, batch=True),
            )
            await eventually(lambda: preparing.under_way == 1)
            assert (await peer.receive()).opaque == 1
            await peer.send(request(b"three", 5))
            assert (await wire.send(TOPIC, b"of another")).queue_offset == 2
            assert preparing.begun == 1
            preparing.may_go_on = True
            answers = [await peer.receive() for _ in range(4)]
        assert [answer.opaque for answer in answers] == [2, 3, 4, 5]
        offsets = [await offset_of(answer) for answer in answers]
        assert offsets == [3, 3 + COUNT, 4 + COUNT, 4 + 2 * COUNT]
        await eventually(lambda: not here.broker.context.is_dispatching)
        assert await max_offset(wire) == 5 + 2 * COUNT
        assert [record.body for record in await wire.pull(TOPIC, queue_offset=2 + COUNT)][:3] == [
            *(b"x", b"two", b"x")
        ]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_the_answer_names_all_messages_and_keeps_its_promise(
    tmp_path: Path, flush: str
) -> None:
    async with preparing_site(tmp_path, flushDiskType=flush) as (here, preparing):
        wire = await begun(await here.client())
        answer = await wire.call(CODE, send_header(TOPIC, batch=True), LARGE)
        assert await offset_of(answer) == 1
        names = SendMessageResponse.decode(answer.ext_fields).msg_id.split(",")
        assert len(set(names)) == COUNT
        assert preparing.begun == 1
        store = here.broker.context.store
        if flush == "SYNC_FLUSH":
            assert store.log.files.flushed_where == store.log.end_offset
        await eventually(lambda: not here.broker.context.is_dispatching)
        assert await max_offset(wire) == 1 + COUNT


async def test_one_is_prepared_at_a_time(tmp_path: Path) -> None:
    async with preparing_site(tmp_path) as (here, preparing):
        wires = [await begun(await here.client()) for _ in range(3)]
        preparing.may_go_on = False
        header = send_header(TOPIC, batch=True)
        calls = [asyncio.create_task(wire.call(CODE, header, LARGE)) for wire in wires]
        waiting = here.broker.context.large_batches
        await eventually(lambda: waiting.count == 3)
        preparing.may_go_on = True
        assert sorted([await offset_of(await call) for call in calls]) == [
            *(3, 3 + COUNT, 3 + 2 * COUNT)
        ]
        assert (preparing.most, preparing.begun) == (1, 3)
        await eventually(lambda: not waiting.count)


@pytest.mark.parametrize(("name", "most"), [("SIZE_MAX", 2 * len(LARGE)), ("COUNT_MAX", 2)])
async def test_batches_that_wait_are_bounded_by_size_and_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    monkeypatch.setattr(waiting_sends, name, most)
    async with preparing_site(tmp_path) as (here, preparing):
        wires = [await begun(await here.client()) for _ in range(3)]
        preparing.may_go_on = False
        header = send_header(TOPIC, batch=True)
        calls = [asyncio.create_task(wire.call(CODE, header, LARGE)) for wire in wires[:2]]
        await eventually(lambda: here.broker.context.large_batches.count == 2)
        refused = await wires[2].call(CODE, header, LARGE)
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert here.broker.context.refused[LARGE_BATCHES] == 1
        preparing.may_go_on = True
        assert {(await call).code for call in calls} == {ResponseCode.SUCCESS}
        assert (await wires[2].call(CODE, header, LARGE)).code == ResponseCode.SUCCESS


async def test_a_batch_whose_topic_is_deleted_meanwhile_goes_where_a_send_would(
    tmp_path: Path,
) -> None:
    async with preparing_site(tmp_path, autoCreateTopicEnable="false") as (here, preparing):
        wire, other = await here.client(), await here.client()
        here.broker.context.topics.ensure(TOPIC, 4)
        await begun(wire)
        preparing.may_go_on = False
        call = asyncio.create_task(wire.call(CODE, send_header(TOPIC, batch=True), LARGE))
        await eventually(lambda: preparing.under_way == 1)
        await other.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest(topic=TOPIC))
        preparing.may_go_on = True
        assert (await call).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_batch_that_is_none_is_refused_as_ever(tmp_path: Path) -> None:
    async with preparing_site(tmp_path) as (here, preparing):
        wire = await begun(await here.client())
        answer = await wire.call(CODE, send_header(TOPIC, batch=True), LARGE[:-1])
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "2 left" in (answer.remark or "")
        assert preparing.begun == 1
        assert await max_offset(wire) == 1


async def test_a_compressed_batch_of_many_messages_is_prepared_before_the_next_is_unpacked(
    tmp_path: Path,
) -> None:
    async with preparing_site(tmp_path) as (here, preparing):
        wires = [await begun(await here.client()) for _ in range(2)]
        preparing.may_go_on = False
        body = compress(LARGE, CompressionType.ZLIB)
        header = send_header(TOPIC, batch=True, sys_flag=COMPRESSED)
        calls = [asyncio.create_task(wire.call(CODE, header, body)) for wire in wires]
        context = here.broker.context
        await eventually(lambda: context.large_batches.count == 1)
        assert context.packed_sends.count == 2
        preparing.may_go_on = True
        assert [await offset_of(await call) for call in calls] == [2, 2 + COUNT]
        assert preparing.most == 1


async def test_a_broker_that_stops_stores_what_waits(tmp_path: Path) -> None:
    async with preparing_site(tmp_path) as (here, preparing):
        wire = await begun(await here.client())
        preparing.may_go_on = False
        call = asyncio.create_task(wire.call(CODE, send_header(TOPIC, batch=True), LARGE))
        await eventually(lambda: preparing.under_way == 1)
    await asyncio.wait([call])
    call.exception()
    async with site(tmp_path) as here:
        assert await max_offset(await here.client()) == 1 + COUNT


async def test_its_place_in_the_log_is_made_ready_in_a_thread_and_its_ids_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[int, int, bool]] = []
    named: list[int] = []

    def make_ready(log: CommitLog, size: int) -> None:
        in_loop = threading.get_ident() == loop_thread
        made.append((size, log.end_offset, in_loop))
        make_ready_as_ever(log, size)

    def name_messages(result: PutResult) -> Steps[None]:
        for number, _ in enumerate(name_as_ever(result), 1):
            named.append(number)
            yield

    loop_thread = threading.get_ident()
    make_ready_as_ever, name_as_ever = CommitLog.make_ready, PutResult.name_messages
    monkeypatch.setattr(CommitLog, "make_ready", make_ready)
    monkeypatch.setattr(PutResult, "name_messages", name_messages)
    async with preparing_site(tmp_path) as (here, _):
        wire = await begun(await here.client())
        log = here.broker.context.store.log
        begin = log.end_offset
        answer = await wire.call(CODE, send_header(TOPIC, batch=True), LARGE)
        assert made == [(log.end_offset - begin, begin, False)]
        assert named == list(range(1, COUNT // NAMED_COUNT_MAX + 2))
        ids = SendMessageResponse.decode(answer.ext_fields).msg_id.split(",")
        offsets = [decode_offset_id(one)[1] for one in ids]
        assert (len(offsets), offsets[0]) == (COUNT, begin)
        assert {b - a for a, b in itertools.pairwise(offsets)} == {
            (log.end_offset - begin) // COUNT
        }


async def test_a_batch_whose_peer_is_gone_meanwhile_is_stored(tmp_path: Path) -> None:
    async with preparing_site(tmp_path) as (here, preparing):
        wire = await begun(await here.client())
        port = int(here.broker.address.rpartition(":")[2])
        preparing.may_go_on = False
        async with RawClient.connect(port) as peer:
            await peer.send(request(LARGE, 1, batch=True))
            await eventually(lambda: preparing.under_way == 1)
        preparing.may_go_on = True
        context = here.broker.context
        await eventually(lambda: not context.large_batches.count and not context.is_dispatching)
        assert await max_offset(wire) == 1 + COUNT


async def test_a_full_disk_is_told_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(_: Allocator, path: Path, *more: object) -> None:
        raise DiskFullError(path, 1)

    async with preparing_site(tmp_path, mappedFileSizeCommitLog=1 << 20) as (here, _):
        wire = await begun(await here.client())
        monkeypatch.setattr(Allocator, "prepare", no_space)
        monkeypatch.setattr(Allocator, "request", no_space)
        header, log = send_header(TOPIC, batch=True), here.broker.context.store.log
        codes: list[int] = []
        while len(codes) < 10:
            codes.append((await wire.call(CODE, header, LARGE)).code)
        assert codes[0] == ResponseCode.SUCCESS
        assert codes[-1] == ResponseCode.SYSTEM_ERROR
        assert log.end_offset < 1 << 20


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"transientStorePoolEnable": "true"}, ResponseCode.SUCCESS),
        ({"brokerRole": "SYNC_MASTER"}, ResponseCode.SLAVE_NOT_AVAILABLE),
        (
            {"brokerRole": "SYNC_MASTER", "flushDiskType": "SYNC_FLUSH"},
            ResponseCode.SLAVE_NOT_AVAILABLE,
        ),
    ],
)
async def test_whatever_is_promised_the_answer_names_all_messages(
    tmp_path: Path, settings: dict[str, str], code: ResponseCode
) -> None:
    async with preparing_site(tmp_path, **settings) as (here, _):
        wire = await here.client()
        answer = await wire.call(CODE, send_header(TOPIC, batch=True), LARGE)
        assert answer.code == code
        found = SendMessageResponse.decode(answer.ext_fields)
        assert (len(set(found.msg_id.split(","))), found.queue_offset) == (COUNT, 0)
        context = here.broker.context
        await eventually(lambda: context.store.max_offset_in_queue(TOPIC, 0) == COUNT)
