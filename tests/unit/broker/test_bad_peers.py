"""Peers that send nonsense or take their time: each is refused, counted, and harms nobody else."""

import asyncio
import contextlib
import struct
import zlib
from pathlib import Path
from typing import Final

import pytest

from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.sys_flag import COMPRESSED, CompressionType
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command, encode_command
from flintmq.remoting.refusal_counts import HALF_FRAMES
from tests.kits.broker.broker_kit import Site, eventually, site

DEPTH: Final = 200_000
SLOW_COUNT: Final = 40


async def connect(here: Site) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", here.broker.port)


def json_frame(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
async def test_json_that_nests_without_end_is_refused_wherever_it_stands(
    tmp_path: Path, opening: bytes
) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        deep = opening * DEPTH
        for code in (RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ):
            answer = await wire.call(code, None, deep)
            assert answer.code != ResponseCode.SUCCESS
        header = b'{"code":105,"opaque":1,"extFields":' + deep
        reader, writer = await connect(here)
        writer.write(json_frame(header))
        assert await reader.read() == b"", "no boundary is known any more: it is closed"
        writer.close()
        await wire.send("T", b"as ever")


async def test_a_batch_that_would_become_too_large_is_not_unpacked(tmp_path: Path) -> None:
    async with site(tmp_path, maxMessageSize=100_000) as here:
        wire = await here.client()
        await wire.send("T")
        end = here.broker.context.store.log.end_offset
        bomb = zlib.compress(encode_batch([BatchItem(0, bytes(200 << 20), b"")]), 9)
        answer = await wire.send_raw(
            "T",
            bomb,
            code=RequestCode.SEND_BATCH_MESSAGE,
            batch=True,
            sys_flag=COMPRESSED | CompressionType.ZLIB,
        )
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert here.broker.context.store.log.end_offset == end


async def test_peers_that_write_a_byte_at_a_time_hold_up_nobody(tmp_path: Path) -> None:
    frame = encode_command(Command(code=RequestCode.GET_BROKER_CONFIG, opaque=7, ext_fields={}))
    async with site(tmp_path) as here, contextlib.AsyncExitStack() as stack:
        wire = await here.client()
        peers = [await connect(here) for _ in range(SLOW_COUNT)]
        for _, writer in peers:
            stack.callback(writer.close)
        for at in range(len(frame)):
            for _, writer in peers:
                writer.write(frame[at : at + 1])
            await wire.send("T", b"%d" % at)
        for reader, _ in peers:
            assert await reader.readexactly(4)
        half_frames = here.broker.server.half_frames
        assert half_frames is not None
        await eventually(lambda: half_frames.total_size == 0)


async def test_large_frames_side_by_side_stay_below_their_bound(tmp_path: Path) -> None:
    """Each claims 16 MiB and stops before its end: those that began first have to go."""
    bound = 20 << 20
    async with (
        site(tmp_path, maxHalfFrameBytes=bound) as here,
        contextlib.AsyncExitStack() as stack,
    ):
        wire = await here.client()
        start = struct.pack(">ii", (16 << 20) - 1000, 100) + bytes(6 << 20)
        half_frames = here.broker.server.half_frames
        assert half_frames is not None
        for number in range(6):
            _, writer = await connect(here)
            stack.callback(writer.close)
            writer.write(start)
            wanted = min(number + 1, 3) * len(start) * 9 // 10
            await eventually(lambda: half_frames.total_size >= wanted)  # noqa: B023
            assert half_frames.total_size <= bound
        await eventually(lambda: here.broker.context.refused[HALF_FRAMES] >= 3)
        await wire.send("T", b"as ever")
