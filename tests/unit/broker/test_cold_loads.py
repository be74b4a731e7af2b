"""What is on the disk only is loaded by threads: the event loop never reads a cold page."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from flintmq.broker.waiting.cold_loads import ROUND_COUNT_MAX
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.query import QueryMessageRequest, ViewMessageRequest
from flintmq.store.errors import StoreIOError
from flintmq.store.files.local_region import LocalRegion
from flintmq.store.reading import cold_reads
from tests.kits.broker.broker_kit import Site, Wire, eventually, records, site

PAGE = 4096
COUNT = 60


class ColdDisk:
    """Files of which no page is in memory until it is loaded."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._loop_thread = threading.get_ident()
        self._loaded: set[tuple[Path, int]] = set()
        self.asked_count = 0
        """How often the kernel was asked about pages of the log."""
        self.loads: list[tuple[str, bool]] = []
        """The directory of each file that was loaded from, and whether the loop waited for it."""
        self.may_load = threading.Event()
        self.may_load.set()
        self.forgets = False
        self.is_broken = False
        patch.setattr(LocalRegion, "is_resident", lambda *range_: self._is_resident(*range_))
        patch.setattr(LocalRegion, "load", lambda *range_: self._load(*range_))
        # Nothing is recent enough to go without asking.
        patch.setattr(cold_reads, "RECENT_SIZE", 0)
        patch.setattr(cold_reads, "RECENT_UNIT_COUNT", -1)

    def _pages(self, region: LocalRegion, start: int, size: int) -> Iterator[tuple[Path, int]]:
        for page in range(start // PAGE, (start + size - 1) // PAGE + 1):
            yield region.path, page

    def _is_resident(self, region: LocalRegion, start: int, size: int) -> bool:
        self.asked_count += region.path.parts[-2] == "commitlog"
        return self._loaded.issuperset(self._pages(region, start, size))

    def _load(self, region: LocalRegion, start: int, size: int) -> None:
        on_loop = threading.get_ident() == self._loop_thread
        self.loads.append((region.path.parts[-2], on_loop))
        assert self.may_load.wait(60)
        if self.is_broken:
            raise StoreIOError(region.path, "read", OSError(5, "broken"))
        if not self.forgets:
            self._loaded.update(self._pages(region, start, size))


async def filled(here: Site) -> Wire:
    wire = await here.client()
    for number in range(COUNT):
        await wire.send("topic", b"%d" % number, properties={"KEYS": f"k{number}", "TAGS": "odd"})
    here.broker.context.dispatch()
    return wire


async def test_a_pull_of_cold_messages_waits_in_a_thread_and_others_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path) as here:
        wire, other = await filled(here), await here.client()
        disk = ColdDisk(monkeypatch)
        disk.may_load.clear()
        pulling = asyncio.create_task(wire.pull("topic"))
        await eventually(lambda: bool(disk.loads))
        # The thread still waits for the disk.
        await other.send("other")
        assert not pulling.done()
        disk.may_load.set()
        assert [one.body for one in await pulling] == [b"%d" % number for number in range(32)]
        assert not any(on_loop for _, on_loop in disk.loads)
        # Units first: without them nobody knows where the records are.
        assert [name for name, _ in disk.loads] == ["0", "commitlog"]
        loads = len(disk.loads)
        assert len(await wire.pull("topic")) == 32
        assert len(disk.loads) == loads


async def test_who_reads_on_finds_what_follows_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path) as here:
        wire = await filled(here)
        disk = ColdDisk(monkeypatch)
        for offset in range(0, COUNT, 10):
            assert len(await wire.pull("topic", queue_offset=offset, max_msg_nums=10)) == 10
        assert [name for name, _ in disk.loads] == ["0", "commitlog"]


async def test_a_filtered_pull_loads_what_its_filter_may_want(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path) as here:
        wire = await filled(here)
        disk = ColdDisk(monkeypatch)
        assert len(await wire.pull("topic", subscription="odd", max_msg_nums=5)) == 5
        assert {name for name, _ in disk.loads} == {"0", "commitlog"}
        answer = await wire.pull_raw("topic", subscription="none", sys_flag=4)
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert not any(on_loop for _, on_loop in disk.loads)


async def test_records_that_are_looked_up_are_loaded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path) as here:
        wire = await filled(here)
        first = (await wire.pull("topic"))[0]
        disk = ColdDisk(monkeypatch)
        view = ViewMessageRequest(offset=first.physical_offset)
        answer = await wire.call(RequestCode.VIEW_MESSAGE_BY_ID, view)
        assert records(answer.body)[0].body == b"0"
        assert disk.loads == [("commitlog", False)]
        query = QueryMessageRequest(
            topic="topic", key="k59", max_num=5, begin_timestamp=0, end_timestamp=1 << 62
        )
        answer = await wire.call(RequestCode.QUERY_MESSAGE, query)
        assert [one.body for one in records(answer.body)] == [b"59"]
        assert not any(on_loop for _, on_loop in disk.loads)


@pytest.mark.parametrize("trouble", ["forgets", "is_broken"])
async def test_a_pull_is_answered_even_if_loading_is_of_no_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    async with site(tmp_path) as here:
        wire = await filled(here)
        disk = ColdDisk(monkeypatch)
        setattr(disk, trouble, True)
        assert len(await wire.pull("topic")) == 32
        assert len(disk.loads) == ROUND_COUNT_MAX


async def test_who_reads_on_is_asked_for_once_in_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path) as here:
        wire = await filled(here)
        disk = ColdDisk(monkeypatch)
        clock = [1000.0]
        reads = here.broker.context.store.reader.cold_reads
        monkeypatch.setattr(reads, "now", lambda: clock[0])
        file = here.broker.context.store.log.files.snapshot()[0]
        file.region.load(0, file.readable)
        disk.loads.clear()
        for offset in range(0, 30, 10):
            assert len(await wire.pull("topic", queue_offset=offset, max_msg_nums=10)) == 10
        assert disk.asked_count == 1
        # What was in memory need not stay there.
        disk._loaded.clear()
        clock[0] += 2 * cold_reads.KNOWN_S
        assert len(await wire.pull("topic", queue_offset=30, max_msg_nums=10)) == 10
        assert ("commitlog", False) in disk.loads


async def test_what_was_just_written_is_served_without_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path) as here:
        wire = await filled(here)
        disk = ColdDisk(monkeypatch)
        monkeypatch.setattr(cold_reads, "RECENT_SIZE", 1 << 20)
        monkeypatch.setattr(cold_reads, "RECENT_UNIT_COUNT", 1000)
        assert len(await wire.pull("topic")) == 32
        assert not disk.loads


async def test_a_broker_that_stops_waits_for_the_disk_once_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path) as here:
        wire = await filled(here)
        disk = ColdDisk(monkeypatch)
        disk.may_load.clear()
        pulling = asyncio.create_task(wire.pull_raw("topic"))
        await eventually(lambda: bool(disk.loads))
        disk.may_load.set()
        await pulling
    assert not [one for one in threading.enumerate() if one.name.startswith("flintmq-cold")]
