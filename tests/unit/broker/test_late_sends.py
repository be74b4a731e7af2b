"""Sends that find no next file in the log wait in their order, and nobody else does."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.broker import read_settings, run_broker
from flintmq.broker.waiting import late_sends
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.admin import TopicRequest
from flintmq.format.wire.headers.offsets import QueueBoundRequest
from flintmq.format.wire.headers.send import SendMessageResponse
from flintmq.remoting.refusal_counts import STUCK_DISK, WAITING_SENDS
from flintmq.store.append_group import batch_items
from flintmq.store.appending import appender
from flintmq.store.errors import DiskFullError
from flintmq.store.files.allocation import Allocator
from flintmq.store.files.local_files import LocalFiles
from flintmq.testing import ManualClock
from tests.kits.broker.broker_kit import (
    SMALL,
    START_MS,
    Site,
    Wire,
    eventually,
    send_header,
)

FILE_SIZE: Final = 8192
BODY: Final = b"x" * 1500


class SlowFiles(LocalFiles):
    """Makes durable files only while it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_make = threading.Event()
        self.may_make.set()

    def create_durable(self, path: Path, size: int) -> Any:
        assert self.may_make.wait(30)
        return super().create_durable(path, size)


@asynccontextmanager
async def slow_site(root: Path, **settings: str) -> AsyncIterator[tuple[Site, SlowFiles]]:
    files, clock = SlowFiles(), ManualClock(START_MS)
    changes = {"storePathRootDir": str(root), "mappedFileSizeCommitLog": str(FILE_SIZE)}
    config, store = read_settings(
        SMALL
        | changes
        | {"osPageCacheBusyTimeOutMills": "60000"}
        | {"maxMessageSize": "3000"}
        | settings
    )
    async with run_broker(config, store, clock=clock, files=files) as broker:
        here = Site(broker, clock)
        try:
            yield here, files
        finally:
            files.may_make.set()
            await here.close()


async def send_until_late(here: Site, files: SlowFiles, wire: Wire) -> list[asyncio.Task[Any]]:
    """Send until the log has no next file; return the sends, of which the last one waits."""
    await wire.send("T", BODY)
    files.may_make.clear()
    sends: list[asyncio.Task[Any]] = []
    late = here.broker.context.late_sends
    while not late.count:
        sends.append(asyncio.create_task(wire.send_raw("T", BODY)))
        await asyncio.wait(sends[-1:], timeout=0.05)
    return sends


async def fill_until_late(here: Site, files: SlowFiles, wire: Wire) -> list[asyncio.Task[Any]]:
    """Send until the log has no next file, and then some; return the sends, of which some wait."""
    sends = await send_until_late(here, files, wire)
    late = here.broker.context.late_sends
    sends += [asyncio.create_task(wire.send_raw("T", BODY)) for _ in range(20)]
    await eventually(lambda: late.count == 21)
    return sends


async def test_sends_wait_for_the_file_in_their_order_and_others_are_served(
    tmp_path: Path,
) -> None:
    async with slow_site(tmp_path) as (here, files):
        wire, other = await here.client(), await here.client()
        sends = await fill_until_late(here, files, wire)
        # Whoever does not send gets his answers meanwhile.
        answer = await other.call(
            RequestCode.GET_MAX_OFFSET, QueueBoundRequest(topic="T", queue_id=0)
        )
        assert answer.code == ResponseCode.SUCCESS
        files.may_make.set()
        answers = [await send for send in sends]
        offsets = [SendMessageResponse.decode(one.ext_fields).queue_offset for one in answers]
        assert offsets == list(range(1, len(sends) + 1))
        assert not here.broker.context.late_sends.count


async def test_a_send_that_has_waited_is_stored_with_its_body(tmp_path: Path) -> None:
    async with slow_site(tmp_path) as (here, files):
        wire = await here.client()
        sends = await fill_until_late(here, files, wire)
        body = encode_batch([BatchItem(0, b"first of two", b""), BatchItem(0, b"second", b"")])
        code = RequestCode.SEND_BATCH_MESSAGE
        sends.append(asyncio.create_task(wire.send_raw("T", body, code=code, batch=True)))
        await eventually(lambda: here.broker.context.late_sends.count == 22)
        files.may_make.set()
        assert {(await send).code for send in sends} == {ResponseCode.SUCCESS}
        stored: list[bytes] = []
        while found := await wire.pull("T", queue_offset=len(stored), suspend_timeout_millis=0):
            stored += [bytes(record.body) for record in found]
        assert stored == [BODY] * len(sends) + [b"first of two", b"second"]


async def test_a_send_that_has_waited_too_long_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with slow_site(tmp_path) as (here, files):
        wire = await here.client()
        # It waits for the first file itself, for as long as a busy disk takes.
        await wire.send("T", BODY)
        monkeypatch.setattr(late_sends, "WAIT_MS", 20)
        files.may_make.clear()
        codes = [ResponseCode.SUCCESS]
        while codes[-1] == ResponseCode.SUCCESS:
            answer = await wire.send_raw("T", BODY)
            codes.append(ResponseCode(answer.code))
        assert codes[-1] == ResponseCode.SYSTEM_ERROR
        files.may_make.set()


async def test_once_sends_have_waited_for_long_others_are_told_that_the_disk_is_stuck(
    tmp_path: Path,
) -> None:
    async with slow_site(tmp_path, osPageCacheBusyTimeOutMills="20") as (here, files):
        wire = await here.client()
        sends = await send_until_late(here, files, wire)
        late, refused = here.broker.context.late_sends, here.broker.context.refused
        await eventually(lambda: late.waited_ms > 20)
        answer = await wire.send_raw("T", BODY)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert refused[STUCK_DISK] == 1
        files.may_make.set()
        assert {(await send).code for send in sends} == {ResponseCode.SUCCESS}
        await wire.send("T", BODY)


async def test_more_than_may_wait_fails_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_sends, "COUNT_MAX", 21)
    async with slow_site(tmp_path) as (here, files):
        wire = await here.client()
        sends = await fill_until_late(here, files, wire)
        refused = await wire.send_raw("T", BODY)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        files.may_make.set()
        assert {(await send).code for send in sends} == {ResponseCode.SUCCESS}


async def test_who_may_not_wait_does_not_overtake_those_who_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_sends, "COUNT_MAX", 1)
    async with slow_site(tmp_path) as (here, files):
        wire = await here.client()
        await wire.send("T", BODY)
        # From now on nobody looks whether the file is there.
        monkeypatch.setattr(late_sends, "LOOK_MS", 1_000_000)
        sends = await send_until_late(here, files, wire)
        context = here.broker.context
        refused = await wire.send_raw("T", BODY)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert context.refused[WAITING_SENDS] == 1
        files.may_make.set()
        await eventually(lambda: not context.store.is_next_file_late)
        sends.append(asyncio.create_task(wire.send_raw("T", BODY)))
        answers = [await send for send in sends]
        offsets = [SendMessageResponse.decode(one.ext_fields).queue_offset for one in answers]
        assert offsets == list(range(2, 2 + len(sends)))


async def test_senders_that_send_again_at_once_do_not_wait_behind_each_other_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many sends come as are answered, so that those that wait never become fewer."""
    async with slow_site(tmp_path, mappedFileSizeCommitLog=str(4 << 20)) as (here, files):
        files.may_make.clear()
        late, store = here.broker.context.late_sends, here.broker.context.store
        # From now on nobody looks whether the file is there.
        monkeypatch.setattr(late_sends, "LOOK_MS", 1_000_000)
        wires = [await here.client() for _ in range(5)]
        sends = [asyncio.create_task(wire.send_raw("T", BODY)) for wire in wires * 10]
        await eventually(lambda: late.count == len(sends))
        files.may_make.set()
        await eventually(lambda: not store.is_next_file_late)
        while before := late.count:
            sends.append(asyncio.create_task(wires[0].send_raw("T", BODY)))
            await eventually(lambda: late.count != before)
            assert late.count in (before + 1 - late_sends.TRIED_COUNT, 0)
        answers = [await send for send in sends]
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        assert store.max_offset_in_queue("T", 0) == len(sends)


async def test_large_batches_behind_a_late_file_do_not_wait_for_it_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"mappedFileSizeCommitLog": str(4 << 20), "maxMessageSize": str(1 << 20)}
    async with slow_site(tmp_path, machineCode="false", **sizes) as (here, files):
        context = here.broker.context
        context.topics.ensure("T", 4)
        files.may_make.clear()
        wires = [await here.client() for _ in range(4)]
        first = asyncio.create_task(wires[0].send_raw("T", BODY))
        await eventually(lambda: context.late_sends.count == 1)
        waited: list[int] = []
        monkeypatch.setattr(context.store.log, "make_ready", waited.append)
        body = encode_batch([BatchItem(0, b"x", b"") for _ in range(9000)])
        header = send_header("T", batch=True)
        calls = [
            asyncio.create_task(wire.call(RequestCode.SEND_BATCH_MESSAGE, header, body))
            for wire in wires[1:]
        ]
        await eventually(lambda: context.late_sends.count == 4)
        assert not waited
        files.may_make.set()
        assert {(await one).code for one in (first, *calls)} == {ResponseCode.SUCCESS}
        await eventually(lambda: context.store.max_offset_in_queue("T", 0) == 27_001)


async def test_a_large_batch_is_answered_whatever_goes_wrong_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"mappedFileSizeCommitLog": str(4 << 20), "maxMessageSize": str(1 << 20)}
    async with slow_site(tmp_path, machineCode="false", **sizes) as (here, _):
        context, wire = here.broker.context, await here.client()
        await wire.send("T", BODY)

        def make_ready(_: int) -> None:
            raise OSError("no memory")

        monkeypatch.setattr(context.store.log, "make_ready", make_ready)
        body = encode_batch([BatchItem(0, b"x", b"") for _ in range(9000)])
        header = send_header("T", batch=True)
        answer = await wire.call(RequestCode.SEND_BATCH_MESSAGE, header, body)
        assert answer.code == ResponseCode.SUCCESS
        await eventually(lambda: context.store.max_offset_in_queue("T", 0) == 9001)


async def test_a_send_that_waited_and_then_made_its_topic_is_answered_when_the_topic_is_saved(
    tmp_path: Path,
) -> None:
    async with slow_site(tmp_path) as (here, files):
        wire, other = await here.client(), await here.client()
        sends = await fill_until_late(here, files, wire)
        context = here.broker.context
        save, saving, may_save = (
            context.topics.keeper.file.save,
            threading.Event(),
            threading.Event(),
        )

        def slow_save(value: Any) -> None:
            saving.set()
            assert may_save.wait(30)
            save(value)

        context.topics.keeper.file.save = slow_save  # type: ignore[method-assign]
        made = asyncio.create_task(other.send_raw("new", BODY))
        await eventually(lambda: context.late_sends.count == 22)
        assert "new" not in context.topics
        files.may_make.set()
        for send in sends:
            await send
        assert await asyncio.to_thread(saving.wait, 10)
        await eventually(lambda: context.store.max_offset_in_queue("new", 0) == 1)
        done, _ = await asyncio.wait([made], timeout=0.1)
        assert not done
        may_save.set()
        assert (await made).code == ResponseCode.SUCCESS


async def test_a_large_batch_waits_as_it_was_prepared_and_is_not_overtaken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with slow_site(tmp_path, machineCode="false") as (here, files):
        wire = await here.client()
        sends = await fill_until_late(here, files, wire)
        monkeypatch.setattr(batch_items, "LARGE_BATCH_SIZE", 100)
        monkeypatch.setattr(batch_items, "LARGE_BATCH_COUNT", 2)
        body = encode_batch([BatchItem(0, b"x%d" % number, b"") for number in range(50)])
        header = send_header("T", batch=True)
        sends += [
            asyncio.create_task(wire.call(RequestCode.SEND_BATCH_MESSAGE, header, body)),
            asyncio.create_task(wire.send_raw("T", BODY)),
        ]
        late = here.broker.context.late_sends
        await eventually(lambda: late.count == 23)
        # Whatever had to be prepared from now on would never be ready.
        monkeypatch.setattr(appender, "prepare_batch", lambda *_: itertools.repeat(None))
        files.may_make.set()
        answers = [await one for one in sends]
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        before, batch, after = (
            SendMessageResponse.decode(answer.ext_fields).queue_offset for answer in answers[-3:]
        )
        assert (batch, after) == (before + 1, before + 51)


@pytest.mark.parametrize("batch", [False, True])
async def test_the_first_sends_wait_for_the_first_file_in_their_order_and_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: bool
) -> None:
    monkeypatch.setattr(batch_items, "LARGE_BATCH_SIZE", 100)
    monkeypatch.setattr(batch_items, "LARGE_BATCH_COUNT", 2)
    async with slow_site(tmp_path, machineCode="false") as (here, files):
        files.may_make.clear()
        asked: list[bool] = []

        def request(allocator: Allocator, *args: Any) -> Any:
            asked.append(files.may_make.is_set())
            return request_as_ever(allocator, *args)

        request_as_ever = Allocator.request
        monkeypatch.setattr(Allocator, "request", request)
        wire, other = await here.client(), await here.client()
        late, large = here.broker.context.late_sends, here.broker.context.large_batches
        first = (
            wire.call(
                RequestCode.SEND_BATCH_MESSAGE,
                send_header("T", batch=True),
                encode_batch([BatchItem(0, b"x%d" % number, b"") for number in range(20)]),
            )
            if batch
            else wire.send_raw("T", BODY)
        )
        sends = [asyncio.create_task(first)]
        await eventually(lambda: large.count + late.count == 1)
        sends.append(asyncio.create_task(wire.send_raw("T", BODY)))
        answer = await other.call(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert answer.code == ResponseCode.SUCCESS
        assert not here.broker.context.store.log.end_offset
        files.may_make.set()
        answers = [await send for send in sends]
        assert {one.code for one in answers} == {ResponseCode.SUCCESS}
        offsets = [SendMessageResponse.decode(one.ext_fields).queue_offset for one in answers]
        assert offsets == [0, 20 if batch else 1]
        # Whoever asks before it is there waits in the loop, for five seconds.
        assert asked
        assert all(asked)


@asynccontextmanager
async def waiting_batch(
    root: Path, **settings: str
) -> AsyncIterator[tuple[Site, SlowFiles, asyncio.Task[Any]]]:
    """Run a broker in which a large batch is prepared, and waits for the first file of the log."""
    sizes = {"mappedFileSizeCommitLog": str(1 << 20), "maxMessageSize": str(1 << 20)}
    async with slow_site(root, machineCode="false", **(sizes | settings)) as (here, files):
        context = here.broker.context
        context.topics.ensure("T", 4)
        asked, make_ready = threading.Event(), context.store.log.make_ready

        def told(size: int) -> None:
            asked.set()
            make_ready(size)

        context.store.log.make_ready = told  # type: ignore[method-assign]
        files.may_make.clear()
        wire = await here.client()
        body = encode_batch([BatchItem(0, b"x%d" % number, b"") for number in range(4000)])
        header = send_header("T", batch=True)
        call = asyncio.create_task(wire.call(RequestCode.SEND_BATCH_MESSAGE, header, body))
        await eventually(asked.is_set)
        assert (context.large_batches.count, context.late_sends.count) == (1, 0)
        yield here, files, call


async def test_a_large_batch_whose_topic_is_deleted_while_it_waits_for_a_file_is_refused(
    tmp_path: Path,
) -> None:
    async with waiting_batch(tmp_path, autoCreateTopicEnable="false") as (here, files, call):
        other = await here.client()
        await other.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest(topic="T"))
        files.may_make.set()
        assert (await call).code == ResponseCode.TOPIC_NOT_EXIST
        assert not here.broker.context.store.log.end_offset


async def test_a_large_batch_that_waits_for_a_file_of_a_full_disk_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: SlowFiles, path: Path, size: int) -> Any:
        raise DiskFullError(path, size)

    async with waiting_batch(tmp_path) as (here, files, call):
        monkeypatch.setattr(LocalFiles, "create_durable", full)
        files.may_make.set()
        answer = await call
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert not here.broker.context.store.log.end_offset


async def test_a_broker_that_stops_while_a_large_batch_waits_for_a_file_stores_it(
    tmp_path: Path,
) -> None:
    async with waiting_batch(tmp_path) as (_, _, call):
        pass  # It may have its file when the broker begins to stop, and not before.
    await asyncio.wait([call])
    call.exception()
    async with slow_site(tmp_path, mappedFileSizeCommitLog=str(1 << 20)) as (here, _):
        assert here.broker.context.store.max_offset_in_queue("T", 0) == 4000


async def test_producers_that_send_on_do_not_keep_each_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of all that waits a send or two are stored in each turn, and their answers bring as many.
    monkeypatch.setattr(late_sends, "RETRY_MS", 0.02)
    async with slow_site(tmp_path, mappedFileSizeCommitLog=str(64 << 20)) as (here, files):
        late = here.broker.context.late_sends
        files.may_make.clear()
        is_over = False

        async def produce(wire: Wire) -> None:
            while not is_over:
                answer = await wire.send_raw("T", BODY)
                assert answer.code == ResponseCode.SUCCESS

        wires = [await here.client() for _ in range(3)]
        producers = [asyncio.create_task(produce(wire)) for wire in wires * 8]
        await eventually(lambda: late.count == len(producers))
        files.may_make.set()
        await eventually(lambda: not late.count)
        is_over = True
        await asyncio.gather(*producers)
