"""Pulls of large messages: what they bring, and what a peer that reads nothing of it costs."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from flintmq.broker.pulling import pull_fast_path
from flintmq.format.buffer import Buffer
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.command import Command
from flintmq.store.message_store import MessageStore
from flintmq.store.reading import read_engines
from tests.kits.broker.at_once import AtOnce
from tests.kits.broker.broker_kit import Site, Wire, eventually, pull_header, records, site
from tests.kits.broker.remoting_kit import RawClient

SIZE: Final = 20_000
COUNT: Final = 40
FITTING: Final = 13
"""So many records of that size are in 256 KiB."""
HEAD_SIZE_MAX: Final = 1000


@pytest.fixture
def machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    for module in (pull_fast_path, read_engines):
        monkeypatch.setattr(module, "LoadOnDemand", AtOnce)


def body(number: int) -> bytes:
    return b"%05d" % number * (SIZE // 5)


async def filled(here: Site) -> Wire:
    wire = await here.client()
    for number in range(COUNT):
        await wire.send("topic", body(number))
        await wire.send("other", body(COUNT + number))
    here.broker.context.dispatch()
    return wire


@pytest.mark.usefixtures("machine_code")
async def test_an_answer_with_large_messages_is_copied_and_written_in_one_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its messages was a view, which took longer to make than to copy what it shows."""
    piece_counts: list[int] = []
    write = os.writev

    def counted(descriptor: int, pieces: Sequence[Buffer]) -> int:
        piece_counts.append(len(pieces))
        return write(descriptor, pieces)

    async with site(tmp_path) as here:
        wire = await filled(here)
        for _ in range(3):  # Until pulls of this kind are known, and their header too.
            await wire.pull("topic", max_msg_nums=32)
        monkeypatch.setattr(MessageStore, "get_messages", None)
        monkeypatch.setattr(os, "writev", counted)
        for offset in range(0, COUNT, FITTING):
            answer = await wire.pull_raw("topic", max_msg_nums=32, queue_offset=offset)
            end = min(offset + FITTING, COUNT)
            assert [one.body for one in records(answer.body)] == [
                body(number) for number in range(offset, end)
            ]
            assert answer.ext_fields["nextBeginOffset"] == str(end)
    # The last one brings one message, and so little is joined.
    assert piece_counts == [1] * (COUNT // FITTING)


@pytest.mark.usefixtures("machine_code")
async def test_a_peer_that_reads_nothing_has_a_bound_of_copies(tmp_path: Path) -> None:
    """What does not fit into its socket is kept; then its pulls wait until it has read."""
    asked_count = 60

    def pull(number: int) -> Command:
        header = pull_header("topic", max_msg_nums=32)
        fields = header.encode()
        return Command(code=RequestCode.PULL_MESSAGE, opaque=number, ext_fields=fields)

    async with site(tmp_path) as here:
        await filled(here)
        server = here.broker.server
        pause_size = server.limits.write_pause_size
        async with RawClient.connect(server.ports[0], receive_buffer=4096) as peer:
            for number in range(3):
                await peer.send(pull(number))
                answer = await peer.receive()
            first = answer.body
            assert asked_count * len(first) > 3 * pause_size
            (connection,) = (one for one in server.connections if one.peer[1] == peer_port(peer))
            await peer.send(*map(pull, range(asked_count)))
            await eventually(lambda: not connection.has_room)
            assert connection.unread_size <= pause_size + len(first) + HEAD_SIZE_MAX
            for number in range(asked_count):
                answer = await peer.receive()
                assert (answer.opaque, answer.body) == (number, first)


def peer_port(peer: RawClient) -> int:
    port: int = peer.writer.get_extra_info("sockname")[1]
    return port
