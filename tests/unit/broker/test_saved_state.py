"""Topics, groups and offsets are written in a thread; no answer leaves before its state."""

import asyncio
import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from flintmq.broker.tables.offset_table import OffsetTable
from flintmq.broker.tables.state_keeper import StateKeeper
from flintmq.format import fastjson
from flintmq.format.message_id import decode_offset_id
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.send_back import SendBackRequest
from flintmq.store.errors import StoreError
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.state_file import StateFile
from tests.kits.broker.broker_kit import eventually, site


class SlowFile(StateFile):
    """A state file whose saves wait until a test lets them go on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, files=LocalFiles())
        self.may_go_on = threading.Event()
        self.begun = 0
        self.saved: list[Any] = []
        self.failure: StoreError | None = None

    def save(self, value: Any) -> None:
        self.begun += 1
        assert self.may_go_on.wait(10)
        if self.failure is not None:
            raise self.failure
        super().save(value)
        self.saved.append(value)


class Counter:
    """A table with one number."""

    def __init__(self, file: StateFile, *, is_eager: bool = True) -> None:
        self.number = 0
        self.keeper = StateKeeper(file, self._snapshot, is_eager=is_eager)

    def _snapshot(self) -> Any:
        number = self.number
        return lambda: {"number": number}

    def add(self) -> None:
        self.number += 1
        self.keeper.changed()


async def test_changes_that_come_while_one_is_written_are_written_together(tmp_path: Path) -> None:
    file = SlowFile(tmp_path / "state.json")
    table = Counter(file)
    told: list[int] = []
    for number in range(1, 6):
        table.add()
        table.keeper.when_saved(lambda failure, number=number: told.append(number))  # type: ignore[misc]
        await eventually(lambda: file.begun >= 1)
    assert told == []
    file.may_go_on.set()
    await eventually(lambda: len(told) == 5)
    assert file.saved == [{"number": 1}, {"number": 5}]
    assert table.keeper.is_saved


async def test_a_write_that_began_earlier_never_replaces_a_later_one(tmp_path: Path) -> None:
    file = SlowFile(tmp_path / "state.json")
    table = Counter(file, is_eager=False)
    table.add()
    earlier = asyncio.create_task(table.keeper.save_in_thread())
    await eventually(lambda: file.begun == 1)
    table.add()
    last = threading.Thread(target=table.keeper.save_now)
    last.start()
    earlier.cancel()
    file.may_go_on.set()
    await asyncio.to_thread(last.join)
    assert json.loads((tmp_path / "state.json").read_text()) == {"number": 2}


async def test_who_waits_is_told_that_the_disk_refused_and_the_next_change_tries_again(
    tmp_path: Path,
) -> None:
    file = SlowFile(tmp_path / "state.json")
    table = Counter(file)
    file.failure = StoreError("the disk is full")
    file.may_go_on.set()
    told: list[StoreError | None] = []
    table.add()
    table.keeper.when_saved(told.append)
    await eventually(lambda: told == [file.failure])
    file.failure = None
    table.add()
    table.keeper.when_saved(told.append)
    await eventually(lambda: len(told) == 2)
    assert told[1] is None
    assert file.saved == [{"number": 2}]


async def test_no_send_to_a_new_topic_is_acknowledged_before_the_topic_is_on_the_disk(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        first, second = await here.client(), await here.client()
        context = here.broker.context
        real, slow = context.topics.keeper.file, SlowFile(tmp_path / "elsewhere.json")
        context.topics.keeper.file = slow
        answers = [
            asyncio.create_task(first.send("new", body=b"creates it")),
            asyncio.create_task(second.send("new", body=b"finds it")),
            asyncio.create_task(first.send("new", queue_id=1, body=b"another")),
        ]
        await eventually(lambda: slow.begun == 1)
        await eventually(lambda: context.store.max_offset_in_queue("new", 1) == 1)
        done, _ = await asyncio.wait(answers, timeout=0.05)
        assert done == set()
        slow.may_go_on.set()
        await asyncio.gather(*answers)
        assert "new" in fastjson.loads(slow.saved[0])["topicConfigTable"]
        context.topics.keeper.file = real
        context.topics.bump_version()


async def test_a_send_to_a_known_topic_does_not_wait_for_a_new_one(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire, other = await here.client(), await here.client()
        await wire.send("known")
        context = here.broker.context
        real, slow = context.topics.keeper.file, SlowFile(tmp_path / "elsewhere.json")
        context.topics.keeper.file = slow
        waiting = asyncio.create_task(wire.send("new"))
        await eventually(lambda: slow.begun == 1)
        await other.send("known")
        assert not waiting.done()
        slow.may_go_on.set()
        await waiting
        context.topics.keeper.file = real
        context.topics.bump_version()


@pytest.mark.parametrize("level", [1, -1])
async def test_no_message_given_back_is_acknowledged_before_its_topic_is_on_the_disk(
    tmp_path: Path, level: int
) -> None:
    async with site(tmp_path) as here:
        wire, other = await here.client(), await here.client()
        sent = await wire.send("orders")
        _, offset = decode_offset_id(sent.msg_id)
        header = SendBackRequest(offset=offset, group="g", delay_level=level)
        context = here.broker.context
        context.topics.ensure("%RETRY%g", 1)
        await eventually(lambda: context.topics.keeper.is_saved)
        if level > 0:
            context.topics.delete("%RETRY%g")
            await eventually(lambda: context.topics.keeper.is_saved)
        real, slow = context.topics.keeper.file, SlowFile(tmp_path / "elsewhere.json")
        context.topics.keeper.file = slow
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        makes_it = asyncio.create_task(wire.call(code, header))
        await eventually(lambda: slow.begun == 1)
        finds_it = asyncio.create_task(other.call(code, header))
        done, _ = await asyncio.wait([makes_it, finds_it], timeout=0.2)
        assert done == set()
        slow.may_go_on.set()
        assert [(await one).code for one in (makes_it, finds_it)] == [0, 0]
        context.topics.keeper.file = real
        context.topics.bump_version()


@pytest.mark.parametrize("entry", ["null", "7", '{"0":null}', '{"0":true}', '{"x":1}', '{"0":[]}'])
def test_odd_entries_of_the_offsets_come_from_the_backup_one_by_one(
    tmp_path: Path, entry: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_text('{"offsetTable":{"T@good":{0:5},"T@odd":' + entry + ',"T@lost":null}}')
    path.with_name(path.name + ".bak").write_text(
        '{"offsetTable":{"T@good":{0:3},"T@odd":{0:4,1:6}}}'
    )
    table = OffsetTable(StateFile(path, files=LocalFiles()))
    with caplog.at_level(logging.WARNING):
        table.load()
    assert table.get("good", "T", 0) == 5
    assert dict(table.queues("odd", "T")) == {0: 4, 1: 6}
    assert table.get("lost", "T", 0) is None
    assert "count=2 from_backup=1" in caplog.text


async def test_the_last_offsets_are_kept_when_a_stop_meets_a_save_under_way(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.send("orders")
        offsets = here.broker.context.offsets
        assert offsets.commit("G", "orders", 0, 1)
        # The copy of this moment is still to be written when the broker stops.
        version, encode = offsets.keeper.version, offsets.keeper._snapshot()
        assert offsets.commit("G", "orders", 0, 2)
    await asyncio.to_thread(offsets.keeper._write, version, encode)
    async with site(tmp_path) as again:
        assert again.broker.context.offsets.get("G", "orders", 0) == 2
