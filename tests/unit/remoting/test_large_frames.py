"""Large frames are joined by a thread: nobody else waits, and nothing overtakes them."""

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from flintmq.format.wire.command import encode_command
from flintmq.format.wire.partial_frame import PartialFrame
from tests.kits.broker.remoting_kit import RawClient, eventually, request, serving

LARGE: Final = b"x" * (3 << 20)
SMALL: Final = b"y" * (300 << 10)


class Joining:
    """Stands before the joining: notes who joins, and lets it go on when it may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[int] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        split = PartialFrame.split

        def noted(
            partial: PartialFrame, check: Callable[[bytes], object] | None = None
        ) -> tuple[bytes, bytes]:
            self.threads.append(threading.get_ident())
            assert self.may_go_on.wait(30)
            return split(partial, check)

        monkeypatch.setattr(PartialFrame, "split", noted)


@pytest.fixture
def joining(monkeypatch: pytest.MonkeyPatch) -> Iterator[Joining]:
    made = Joining(monkeypatch)
    yield made
    made.may_go_on.set()


async def test_a_large_frame_is_joined_by_a_thread_and_others_are_served_meanwhile(
    joining: Joining,
) -> None:
    async with (
        serving() as server,
        RawClient.connect(server.ports[0]) as peer,
        RawClient.connect(server.ports[0]) as other,
    ):
        joining.may_go_on.clear()
        bodies = [b"before", LARGE, b"between", LARGE + b"second", b"behind"]
        wire = b"".join(encode_command(request(at, body)) for at, body in enumerate(bodies))
        peer.writer.write(wire)
        await eventually(lambda: len(joining.threads) == 1)
        assert (await peer.receive()).opaque == 0
        await other.send(request(9, b"of another"))
        assert (await other.receive()).body == b"of another"
        joining.may_go_on.set()
        answers = [await peer.receive() for _ in bodies[1:]]
        assert [answer.opaque for answer in answers] == [1, 2, 3, 4]
        assert [answer.body for answer in answers] == bodies[1:]
        # The answers were joined by their reader, here.
        away = [one for one in joining.threads if one != threading.get_ident()]
        assert len(away) == len(joining.threads) - 2 == 2
        half_frames = server.half_frames
        assert half_frames is not None
        await eventually(lambda: not half_frames.total_size)


async def test_smaller_frames_are_joined_at_once(joining: Joining) -> None:
    async with serving() as server, RawClient.connect(server.ports[0]) as peer:
        await peer.send(request(1, SMALL))
        assert (await peer.receive()).body == SMALL
    # As a rule it came in several reads; where it came whole there was nothing to join.
    assert set(joining.threads) <= {threading.get_ident()}


async def test_a_peer_may_leave_while_its_frame_is_joined(joining: Joining) -> None:
    async with serving() as server, RawClient.connect(server.ports[0]) as other:
        joining.may_go_on.clear()
        async with RawClient.connect(server.ports[0]) as peer:
            peer.writer.write(encode_command(request(1, LARGE)))
            await eventually(lambda: len(joining.threads) == 1)
        await eventually(lambda: len(server.connections) == 1)
        joining.may_go_on.set()
        await other.send(request(2, b"as ever"))
        assert (await other.receive()).body == b"as ever"
        assert server.half_frames is not None
        assert server.half_frames.total_size == 0


@pytest.mark.parametrize("is_awaited", [True, False])
async def test_a_large_frame_with_a_wrong_header_ends_its_connection(
    joining: Joining, is_awaited: bool, caplog: pytest.LogCaptureFixture
) -> None:
    wire = bytearray(encode_command(request(1, LARGE)))
    wire[8:12] = b"nope"
    async with serving() as server:
        joining.may_go_on.clear()
        async with RawClient.connect(server.ports[0]) as peer:
            peer.writer.write(wire)
            await eventually(lambda: len(joining.threads) == 1)
            if is_awaited:
                joining.may_go_on.set()
            else:
                # That its peer has gone might be noticed later, since nothing is read meanwhile.
                (connection,) = server.connections
                connection.abort()
            await eventually(lambda: not server.connections)
        joining.may_go_on.set()
        assert server.half_frames is not None
        assert server.half_frames.total_size == 0
    gc.collect()
    # Nobody is told of an error that nobody waits for any more.
    told = [record.levelname for record in caplog.records]
    assert told == (["WARNING"] if is_awaited else [])


async def test_what_a_peer_left_unfinished_goes_with_its_connection() -> None:
    """Not when the collector finds it: that is late, and it may be megabytes of each peer."""
    wire = encode_command(request(1, LARGE))
    async with serving() as server:
        gc.collect()
        gc.disable()
        try:
            async with RawClient.connect(server.ports[0]) as peer:
                peer.writer.write(wire[:-1])
                half_frames = server.half_frames
                assert half_frames is not None
                await eventually(lambda: half_frames.total_size == len(wire) - 1)
                assert len(partial_frames()) == 1
            await eventually(lambda: not server.connections)
            assert not partial_frames()
        finally:
            gc.enable()


def partial_frames() -> list[object]:
    return [one for one in gc.get_objects() if isinstance(one, PartialFrame)]


async def test_what_a_peer_left_unfinished_is_given_back_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire, released = encode_command(request(1, LARGE)), list[bytes]()
    async with serving() as server:
        half_frames = server.half_frames
        assert half_frames is not None
        monkeypatch.setattr(half_frames, "release", released.extend)
        async with RawClient.connect(server.ports[0]) as peer:
            peer.writer.write(wire[:-1])
            await eventually(lambda: half_frames.total_size == len(wire) - 1)
        await eventually(lambda: not server.connections)
    assert len(released) > 1
    assert b"".join(released) == wire[:-1]
    assert half_frames.total_size == 0
