"""Large compressed batches are unpacked by a thread, one at a time, and nobody is overtaken."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.broker.processors import send as send_module
from flintmq.broker.sending import batch_bodies
from flintmq.broker.waiting import packed_sends, waiting_sends
from flintmq.format.compression import CompressionType, compress
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.sys_flag import COMPRESSED
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import ONE_WAY_FLAG, Command, encode_command
from flintmq.remoting.refusal_counts import PACKED_BATCHES
from tests.kits.broker.broker_kit import Site, Wire, eventually, send_header, site
from tests.kits.broker.remoting_kit import RawClient

TOPIC: Final = "orders"
CODE: Final = RequestCode.SEND_BATCH_MESSAGE
LIMIT: Final = 300_000


def packed(name: bytes, size: int) -> bytes:
    items = [BatchItem(0, name + b" first", b""), BatchItem(0, name + bytes(size), b"")]
    return compress(encode_batch(items), CompressionType.ZLIB)


LARGE: Final = packed(b"large", batch_bodies.UNPACKED_AT_ONCE_MAX)
SMALL: Final = packed(b"small", 100)
BOMB: Final = packed(b"bomb", LIMIT + 1)
assert max(map(len, (LARGE, BOMB))) < batch_bodies.PACKED_AT_ONCE_MAX


class Unpacking:
    """Stands before the unpacking: notes who unpacks what, and lets it go on when it may."""

    def __init__(self, unpack: Callable[..., bytes]) -> None:
        self._unpack = unpack
        self.threads: list[int] = []
        self.under_way = self.most = 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def __call__(self, body: bytes, sys_flag: int, *, limit: int) -> bytes:
        self.threads.append(threading.get_ident())
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        assert self.may_go_on.wait(30)
        try:
            return self._unpack(body, sys_flag, limit=limit)
        finally:
            self.under_way -= 1


@asynccontextmanager
async def unpacking_site(root: Path) -> AsyncIterator[tuple[Site, Unpacking]]:
    unpacking = Unpacking(batch_bodies.unpacked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(send_module, "unpacked", unpacking)
        async with site(root, maxMessageSize=LIMIT) as here:
            try:
                yield here, unpacking
            finally:
                unpacking.may_go_on.set()


def batch(body: bytes, opaque: int = 0, **more: Any) -> Command:
    header = send_header(TOPIC, batch=True, sys_flag=COMPRESSED)
    return Command(code=CODE, opaque=opaque, ext_fields=header.encode(), body=body, **more)


def single(body: bytes, opaque: int) -> Command:
    fields = send_header(TOPIC).encode()
    return Command(code=RequestCode.SEND_MESSAGE_V2, opaque=opaque, ext_fields=fields, body=body)


async def begun(wire: Wire) -> Wire:
    """Have the topic made, so that sends to it are gathered."""
    await wire.send(TOPIC, b"before")
    return wire


def port_of(here: Site) -> int:
    return int(here.broker.address.rpartition(":")[2])


async def bodies(wire: Wire) -> list[bytes]:
    return [bytes(one.body).rstrip(b"\0") for one in await wire.pull(TOPIC)]


async def test_a_batch_that_grows_is_unpacked_by_a_thread_and_a_small_one_is_not(
    tmp_path: Path,
) -> None:
    async with unpacking_site(tmp_path) as (here, unpacking):
        wire = await begun(await here.client())
        for body in (SMALL, LARGE):
            answer = await wire.call(
                CODE, send_header(TOPIC, batch=True, sys_flag=COMPRESSED), body
            )
            assert answer.code == ResponseCode.SUCCESS, answer
        assert await bodies(wire) == [b"before", b"small first", b"small", b"large first", b"large"]
    assert len(unpacking.threads) == 1
    assert threading.get_ident() not in unpacking.threads


async def test_what_a_peer_sends_behind_it_is_stored_behind_it_and_others_do_not_wait(
    tmp_path: Path,
) -> None:
    async with unpacking_site(tmp_path) as (here, unpacking):
        wire = await begun(await here.client())
        async with RawClient.connect(port_of(here)) as peer:
            unpacking.may_go_on.clear()
            await peer.send(single(b"one", 1), batch(LARGE, 2), single(b"two", 3), batch(SMALL, 4))
            await eventually(lambda: unpacking.under_way == 1)
            assert (await peer.receive()).opaque == 1
            await peer.send(single(b"three", 5))
            await wire.send(TOPIC, b"of another")
            assert await bodies(wire) == [b"before", b"one", b"of another"]
            unpacking.may_go_on.set()
            answers = [await peer.receive() for _ in range(4)]
        assert [answer.opaque for answer in answers] == [2, 3, 4, 5]
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        assert (await bodies(wire))[3:] == [
            *(b"large first", b"large", b"two", b"small first", b"small", b"three")
        ]


async def test_one_is_unpacked_at_a_time_and_stored_before_the_next(tmp_path: Path) -> None:
    async with unpacking_site(tmp_path) as (here, unpacking):
        wires = [await begun(await here.client()) for _ in range(3)]
        unpacking.may_go_on.clear()
        header = send_header(TOPIC, batch=True, sys_flag=COMPRESSED)
        calls = [asyncio.create_task(wire.call(CODE, header, LARGE)) for wire in wires]
        waiting = here.broker.context.packed_sends
        await eventually(lambda: waiting.count == 3 and unpacking.under_way == 1)
        unpacking.may_go_on.set()
        assert {(await call).code for call in calls} == {ResponseCode.SUCCESS}
        assert unpacking.most == 1
        assert len(unpacking.threads) == 3
        await eventually(lambda: not waiting.count)


async def test_a_bomb_is_refused_and_its_peer_goes_on(tmp_path: Path) -> None:
    async with unpacking_site(tmp_path) as (here, unpacking):
        wire = await begun(await here.client())
        answer = await wire.call(CODE, send_header(TOPIC, batch=True, sys_flag=COMPRESSED), BOMB)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert f"more than {LIMIT} bytes" in (answer.remark or "")
        await wire.send(TOPIC, b"after")
        assert await bodies(wire) == [b"before", b"after"]
        assert len(unpacking.threads) == 1


@pytest.mark.parametrize(("name", "most"), [("SIZE_MAX", 2 * len(LARGE)), ("COUNT_MAX", 2)])
async def test_bodies_that_wait_are_bounded_by_size_and_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    monkeypatch.setattr(waiting_sends, name, most)
    async with unpacking_site(tmp_path) as (here, unpacking):
        wires = [await begun(await here.client()) for _ in range(3)]
        unpacking.may_go_on.clear()
        header = send_header(TOPIC, batch=True, sys_flag=COMPRESSED)
        calls = [asyncio.create_task(wire.call(CODE, header, LARGE)) for wire in wires[:2]]
        await eventually(lambda: here.broker.context.packed_sends.count == 2)
        refused = await wires[2].call(CODE, header, LARGE)
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert here.broker.context.refused[PACKED_BATCHES] == 1
        unpacking.may_go_on.set()
        assert {(await call).code for call in calls} == {ResponseCode.SUCCESS}
        assert (await wires[2].call(CODE, header, LARGE)).code == ResponseCode.SUCCESS


async def test_a_batch_of_a_peer_that_has_gone_is_stored(tmp_path: Path) -> None:
    async with unpacking_site(tmp_path) as (here, unpacking):
        wire = await begun(await here.client())
        unpacking.may_go_on.clear()
        async with RawClient.connect(port_of(here)) as peer:
            peer.writer.write(encode_command(batch(LARGE, flag=ONE_WAY_FLAG)))
            await eventually(lambda: unpacking.under_way == 1)
        await eventually(lambda: len(here.broker.server.connections) == 1)
        unpacking.may_go_on.set()
        await eventually(lambda: not here.broker.context.packed_sends.count)
        assert await bodies(wire) == [b"before", b"large first", b"large"]


async def test_a_broker_that_stops_stores_what_it_unpacks(tmp_path: Path) -> None:
    async with unpacking_site(tmp_path) as (here, unpacking):
        wire = await begun(await here.client())
        unpacking.may_go_on.clear()
        header = send_header(TOPIC, batch=True, sys_flag=COMPRESSED)
        call = asyncio.create_task(wire.call(CODE, header, LARGE))
        await eventually(lambda: unpacking.under_way == 1)
        asyncio.get_running_loop().call_soon(unpacking.may_go_on.set)
        await here.broker.context.packed_sends.close()
        assert (await call).code == ResponseCode.SUCCESS
        refused = await wire.call(CODE, header, LARGE)
        assert refused.code == ResponseCode.SYSTEM_BUSY


# -- whoever sends what has to be refused ----------------------------------------------------

ELSEWHERE: Final = "127.0.0.2"


@asynccontextmanager
async def bombed_site(root: Path) -> AsyncIterator[tuple[Site, Unpacking]]:
    """A site to which one address has sent so many bombs that it goes the slow way."""
    async with unpacking_site(root) as (here, unpacking):
        wire = await begun(await here.client())
        header = send_header(TOPIC, batch=True, sys_flag=COMPRESSED)
        for _ in range(packed_sends.FAULTS_FREE):
            assert (await wire.call(CODE, header, BOMB)).code == ResponseCode.MESSAGE_ILLEGAL
        assert len(unpacking.threads) == packed_sends.FAULTS_FREE
        unpacking.threads.clear()
        yield here, unpacking


async def test_whoever_sent_bombs_waits_with_the_next_and_other_addresses_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_sends, "SLOW_PAUSE_S", 3600)
    async with bombed_site(tmp_path) as (here, unpacking), RawClient.connect(port_of(here)) as peer:
        await peer.send(batch(LARGE, 1), single(b"behind it", 2))
        waiting = here.broker.context.packed_sends
        await eventually(lambda: waiting.count == 1)
        async with RawClient.connect(port_of(here), address=ELSEWHERE) as other:
            for opaque in range(3):
                await other.send(batch(LARGE, opaque))
                assert (await other.receive()).code == ResponseCode.SUCCESS
        assert len(unpacking.threads) == 3, "nothing of the one who has to wait"
        # A broker that stops waits for nobody's punishment, and stores what it has taken.
        await waiting.close()
        answers = [await peer.receive() for _ in range(2)]
        assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 2
        assert len(unpacking.threads) == 4


async def test_only_so_many_wait_for_their_slow_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_sends, "SLOW_PAUSE_S", 3600)
    monkeypatch.setattr(packed_sends, "SLOW_COUNT_MAX", 1)
    async with bombed_site(tmp_path) as (here, unpacking), RawClient.connect(port_of(here)) as peer:
        await peer.send(batch(BOMB, 1))
        waiting = here.broker.context.packed_sends
        await eventually(lambda: waiting.count == 1)
        async with RawClient.connect(port_of(here)) as second:
            await second.send(batch(LARGE, 2), single(b"of the same address", 3))
            answers = [await second.receive() for _ in range(2)]
        assert [answer.code for answer in answers] == [
            ResponseCode.SYSTEM_BUSY,
            ResponseCode.SUCCESS,
        ]
        assert here.broker.context.refused[PACKED_BATCHES] == 1
        assert not unpacking.threads
        await waiting.close()
        assert (await peer.receive()).code == ResponseCode.MESSAGE_ILLEGAL


async def test_bodies_that_are_stored_lead_back_from_the_slow_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_sends, "SLOW_PAUSE_S", 0)
    async with bombed_site(tmp_path) as (here, _), RawClient.connect(port_of(here)) as peer:
        for body, code in (
            (BOMB, ResponseCode.MESSAGE_ILLEGAL),
            *[(LARGE, ResponseCode.SUCCESS)] * 2,
        ):
            await peer.send(batch(body))
            assert (await peer.receive()).code == code
        monkeypatch.setattr(packed_sends, "SLOW_COUNT_MAX", 0)
        await peer.send(batch(LARGE))
        assert (await peer.receive()).code == ResponseCode.SUCCESS, "it goes as all others do"


async def test_refused_bodies_are_counted_for_so_many_addresses_and_up_to_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packed_sends, "ADDRESSES_MAX", 2)
    way = packed_sends.SlowWay()
    for _ in range(100):
        way.note("first", is_refused=True)
    for _ in range(packed_sends.FAULTS_MAX - packed_sends.FAULTS_FREE):
        assert "first" in way
        way.note("first", is_refused=False)
    assert "first" in way
    way.note("first", is_refused=False)
    assert "first" not in way
    for address in ("first", "second", "third"):
        for _ in range(packed_sends.FAULTS_FREE):
            way.note(address, is_refused=True)
    assert [address in way for address in ("first", "second", "third")] == [False, True, True]
