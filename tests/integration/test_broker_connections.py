"""Peers that misbehave in numbers: the others are served meanwhile, and memory stays bounded."""

import asyncio
import contextlib
import resource
import socket
import struct
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from flintmq.format.host import parse_address
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.sys_flag import COMPRESSED
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command, encode_command
from flintmq.remoting import RemotingClient
from tests.kits.broker.broker_kit import pull_header, send_header
from tests.kits.processes.serve_client import read_queue, run, send
from tests.kits.processes.serve_process import Group, serving

IDLE_COUNT: Final = 2000
RECONNECT_COUNT: Final = 3000
AT_ONCE: Final = 100
HALF_COUNT: Final = 50
HALF_SIZE: Final = 200_000
LARGE_COUNT: Final = 24
LARGE_PIECE: Final = 15 << 20
LARGE_SIZES_MAX: Final = 128 << 20
"""What unfinished frames may have in all: `maxHalfFrameBytes`."""
BOMB_PEERS: Final = 8
BOMBS: Final = 4
"""So many of each peer: more than are unpacked before its address has to wait."""
SLOW_COUNT: Final = 8
SLOW_PULL_COUNT: Final = 400
GROWTH_MAX_KIB: Final = 128 << 10
DESCRIPTORS: Final = 8192
SLACK: Final = 10
"""Descriptors that come and go for other reasons: connections of clients that behave, files."""


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """One group for all of these: what one attack left behind, the next one meets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    # The child inherits the limit.
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        data = tmp_path_factory.mktemp("connections") / "data"
        with serving(data, "--log-level", "warning") as running:
            run(warm_up(running))
            yield running
            ended = running.stop()
            assert ended.code == 0
            assert "Traceback" not in ended.err
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def warm_up(group: Group) -> None:
    async with RemotingClient() as client:
        for number in range(200):
            await send(client, group.brokers[0], b"%d" % number)


def own_memory_kib(group: Group, kind: str = "RssAnon:") -> int:
    """Return the memory of the server that no file stands behind."""
    for line in Path(f"/proc/{group.pid}/status").read_text().splitlines():
        if line.startswith(kind):
            return int(line.split()[1])
    raise AssertionError(f"no {kind}")


def peak_memory_kib(group: Group) -> int:
    """Return the most that the server ever had, pages of files included."""
    return own_memory_kib(group, "VmHWM:")


def descriptor_count(group: Group) -> int:
    return len(list(Path(f"/proc/{group.pid}/fd").iterdir()))


async def serve_the_good(group: Group) -> None:
    """Be a client that comes anew and is served."""
    async with RemotingClient() as client:
        stored = await send(client, group.brokers[0], b"served", queue_id=1)
        bodies = await read_queue(client, group.brokers[0], 1)
        assert bodies[stored.queue_offset] == b"served"


async def connect(address: str, *, receive_buffer: int = 0) -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    if receive_buffer:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    await asyncio.get_running_loop().sock_connect(made, parse_address(address))
    return made


@contextlib.asynccontextmanager
async def connections(address: str, count: int, **more: int) -> AsyncIterator[list[socket.socket]]:
    made: list[socket.socket] = []
    try:
        for start in range(0, count, AT_ONCE):
            some = range(start, min(start + AT_ONCE, count))
            made += await asyncio.gather(*(connect(address, **more) for _ in some))
        yield made
    finally:
        for one in made:
            one.close()


async def settled(group: Group, count: int) -> None:
    """Wait until the server has let go of connections that were closed."""
    while descriptor_count(group) > count + SLACK:  # noqa: ASYNC110 - polled
        await asyncio.sleep(0.01)


async def test_two_thousand_idle_connections_leave_room_for_others(group: Group) -> None:
    before, count = own_memory_kib(group), descriptor_count(group)
    for address in (group.brokers[0], group.namesrv):
        async with connections(address, IDLE_COUNT):
            while descriptor_count(group) < count + IDLE_COUNT - SLACK:  # noqa: ASYNC110 - polled
                await asyncio.sleep(0.01)
            await serve_the_good(group)
            assert own_memory_kib(group) - before < GROWTH_MAX_KIB
        await settled(group, count)
    await serve_the_good(group)


async def test_half_frames_hold_up_nobody(group: Group) -> None:
    whole = encode_command(Command(code=RequestCode.SEND_MESSAGE_V2, body=bytes(HALF_SIZE)))

    loop = asyncio.get_running_loop()
    before, count = own_memory_kib(group), descriptor_count(group)
    async with connections(group.brokers[0], HALF_COUNT) as peers:
        for number, peer in enumerate(peers):
            # From a lone byte to all but the last one.
            await loop.sock_sendall(peer, whole[: 1 + number * (len(whole) - 2) // HALF_COUNT])
        await serve_the_good(group)
        assert own_memory_kib(group) - before < GROWTH_MAX_KIB
        # The last bytes make a frame of it, however late they come.
        last = peers[-1]
        sent = 1 + (HALF_COUNT - 1) * (len(whole) - 2) // HALF_COUNT
        for at in range(sent, len(whole), 997):
            await loop.sock_sendall(last, whole[at : at + 997])
        assert await loop.sock_recv(last, 4)
    await settled(group, count)
    await serve_the_good(group)


async def test_slow_readers_hold_up_nobody(group: Group) -> None:
    loop = asyncio.get_running_loop()
    body = b"x" * 50_000
    async with RemotingClient() as client:
        for _ in range(20):
            await send(client, group.brokers[0], body, queue_id=2)
    before, count = peak_memory_kib(group), descriptor_count(group)
    header = pull_header("IntegrationTopic", queue_id=2).encode()
    pulls = b"".join(
        encode_command(Command(code=RequestCode.PULL_MESSAGE, opaque=n, ext_fields=header))
        for n in range(SLOW_PULL_COUNT)
    )
    async with connections(group.brokers[0], SLOW_COUNT, receive_buffer=4096) as peers:
        # Each asks for a hundred times what may lie unread, and reads nothing of it.
        asking = [asyncio.create_task(loop.sock_sendall(peer, pulls)) for peer in peers]
        for _ in range(20):
            await serve_the_good(group)
        assert peak_memory_kib(group) - before < GROWTH_MAX_KIB
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        # Whoever reads in the end finds whole frames.
        assert await loop.sock_recv(peers[0], 4)
    await settled(group, count)


async def test_a_flood_of_reconnects_leaves_nothing_behind(group: Group) -> None:
    ask = encode_command(Command(code=RequestCode.GET_BROKER_RUNTIME_INFO))

    async def come_and_go(number: int) -> None:
        loop = asyncio.get_running_loop()
        with await connect(group.brokers[0] if number % 2 else group.namesrv) as peer:
            if number % 3 == 0:
                await loop.sock_sendall(peer, ask)
            if number % 3 == 1:
                # Reset instead of a farewell.
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    before, count = own_memory_kib(group), descriptor_count(group)
    for start in range(0, RECONNECT_COUNT, AT_ONCE):
        await asyncio.gather(*map(come_and_go, range(start, start + AT_ONCE)))
        if start % 1000 == 0:
            await serve_the_good(group)
    await settled(group, count)
    await serve_the_good(group)
    assert own_memory_kib(group) - before < GROWTH_MAX_KIB


async def test_large_unfinished_frames_stay_below_their_bound(group: Group) -> None:
    start = struct.pack(">ii", (16 << 20) - 1000, 100) + bytes(LARGE_PIECE)
    loop = asyncio.get_running_loop()
    before, count = own_memory_kib(group), descriptor_count(group)
    async with connections(group.brokers[0], LARGE_COUNT) as peers:
        for peer in peers:
            # A peer that is dropped while it writes is told so.
            with contextlib.suppress(ConnectionError):
                await loop.sock_sendall(peer, start)
            assert own_memory_kib(group) - before < (LARGE_SIZES_MAX >> 10) + GROWTH_MAX_KIB
        await serve_the_good(group)
    await settled(group, count)
    await serve_the_good(group)


async def test_bombs_of_many_peers_stay_below_their_bound(group: Group) -> None:
    """Nearly all of what they send is refused without being unpacked."""
    bomb = encode_command(
        Command(
            code=RequestCode.SEND_BATCH_MESSAGE,
            ext_fields=send_header("IntegrationTopic", batch=True, sys_flag=COMPRESSED).encode(),
            body=zlib.compress(encode_batch([BatchItem(0, bytes(1000), b"")] * 100_000), 9),
        )
    )
    loop = asyncio.get_running_loop()
    before, count = own_memory_kib(group), descriptor_count(group)
    async with connections(group.brokers[0], BOMB_PEERS) as peers:
        for peer in peers:
            await loop.sock_sendall(peer, bomb * BOMBS)
        for _ in range(20):
            await serve_the_good(group)
        assert own_memory_kib(group) - before < GROWTH_MAX_KIB
        # The last of them are answered too.
        assert await loop.sock_recv(peers[-1], 4)
    await settled(group, count)
    await serve_the_good(group)


async def test_a_peer_of_another_protocol_is_closed_off(group: Group) -> None:
    loop = asyncio.get_running_loop()
    for address in (group.brokers[0], group.namesrv):
        with await connect(address) as peer:
            await loop.sock_sendall(peer, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert await loop.sock_recv(peer, 100) == b""
    async with RemotingClient() as client:
        answer = await client.call(
            group.namesrv, RequestCode.GET_BROKER_CLUSTER_INFO, timeout_ms=10_000
        )
        assert answer.code == ResponseCode.SUCCESS
