"""What connections hold of unfinished frames is bounded, one by one and together."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.format.wire.command import encode_command
from flintmq.remoting import Limits, RemotingServer
from flintmq.remoting.half_frames import RELEASED_COUNT, HalfFrames
from tests.kits.broker.remoting_kit import RawClient, eventually, request, serving

LIMIT: Final = 10_000
LIMITS: Final = Limits(frame_size_max=LIMIT, half_frames_size_max=LIMIT)
FRAME: Final = encode_command(request(1, b"x" * 5000))


def held(server: RemotingServer) -> int:
    assert server.half_frames is not None
    return server.half_frames.total_size


async def grow(server: RemotingServer, peer: RawClient, piece: bytes) -> None:
    """Send a piece and wait until it has arrived."""
    wanted = held(server) + len(piece)
    peer.writer.write(piece)
    await eventually(lambda: held(server) == wanted)


async def test_the_peer_whose_frame_began_first_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)

    async with serving(limits=LIMITS) as server, AsyncExitStack() as stack:
        peers = [
            await stack.enter_async_context(RawClient.connect(server.ports[0])) for _ in range(3)
        ]
        oldest, second, third = peers
        await grow(server, oldest, FRAME[:1000])
        await grow(server, second, FRAME[:4000])
        await grow(server, third, FRAME[:4000])
        # It goes on with its frame, which is still the oldest.
        await grow(server, oldest, FRAME[1000:1900])
        third.writer.write(FRAME[4000:4900])
        assert await oldest.is_cut_off()
        await eventually(lambda: held(server) == 4000 + 4900)
        for peer, sent in ((second, 4000), (third, 4900)):
            peer.writer.write(FRAME[sent:])
            assert (await peer.receive()).body == b"x" * 5000
        assert held(server) == 0

    (record,) = (one for one in caplog.records if one.name.startswith("flintmq.remoting"))
    assert "began first" in record.getMessage()


async def test_a_busy_peer_whose_reads_end_within_frames_is_not_the_oldest() -> None:
    async with (
        serving(limits=LIMITS) as server,
        RawClient.connect(server.ports[0]) as busy,
        RawClient.connect(server.ports[0]) as slow,
    ):
        await grow(server, busy, FRAME[:4000])
        await grow(server, slow, FRAME[:4000])
        busy.writer.write(FRAME[4000:] + FRAME[:4900])
        await busy.receive()
        await eventually(lambda: held(server) == 4000 + 4900)
        async with RawClient.connect(server.ports[0]) as third:
            third.writer.write(FRAME[:2000])
            assert await slow.is_cut_off()
        busy.writer.write(FRAME[4900:])
        assert (await busy.receive()).opaque == 1


async def test_a_lost_connection_holds_nothing() -> None:
    async with serving(limits=LIMITS) as server:
        async with RawClient.connect(server.ports[0]) as peer:
            await grow(server, peer, FRAME[:4000])
        await eventually(lambda: not server.connections)
        assert held(server) == 0


def test_a_single_frame_has_to_fit() -> None:
    with pytest.raises(ValueError, match="half_frames_size_max"):
        Limits(frame_size_max=LIMIT, half_frames_size_max=LIMIT - 1)


@given(
    notes=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 100), st.booleans()), max_size=60)
)
def test_the_total_is_what_is_held_and_never_above_the_limit(
    notes: list[tuple[int, int, bool]],
) -> None:
    model: dict[int, int] = {}

    def drop(owner: int, size: int) -> None:
        assert next(iter(model.items())) == (owner, size)
        del model[owner]

    half_frames = HalfFrames(100, drop=drop)
    for owner, size, is_new in notes:
        if is_new or not size:
            model.pop(owner, None)
        if size:
            model[owner] = size
        half_frames.note(owner, size, is_new=is_new)
        assert half_frames.total_size == sum(model.values()) <= 100


class Piece(bytes):
    """Bytes that tell when they are given back."""

    given_back: Callable[[], object]

    def __del__(self) -> None:
        self.given_back()


async def test_a_large_half_frame_is_given_back_a_little_in_each_turn_of_the_loop() -> None:
    count = 0

    def given_back() -> None:
        nonlocal count
        count += 1

    def pieces(number: int) -> list[Piece]:
        made = [Piece(b"x") for _ in range(number)]
        for piece in made:
            piece.given_back = given_back
        return made

    half_frames = HalfFrames[str](LIMIT, drop=lambda owner, size: None)
    half_frames.release([])
    half_frames.release(pieces(RELEASED_COUNT + 1))
    half_frames.release(pieces(RELEASED_COUNT))
    counts = []
    for _ in range(4):
        counts.append(count)
        await asyncio.sleep(0)
    assert counts == [0, RELEASED_COUNT, 2 * RELEASED_COUNT, 2 * RELEASED_COUNT + 1]
    half_frames.release(pieces(1))
    await asyncio.sleep(0)
    assert count == 2 * RELEASED_COUNT + 2
