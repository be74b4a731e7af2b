"""Requests of one turn of the loop leave together, and none is left behind."""

import asyncio

import pytest

from flintmq.format.wire.command import decode_command
from flintmq.format.wire.frame import FrameDecoder
from flintmq.remoting import AnswerTimeoutError, Limits, RemotingClient
from flintmq.remoting.connection import Connection
from tests.kits.broker.remoting_kit import ECHO, HOST, PATIENT_MS, serving


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": (HOST, 1), "sockname": (HOST, 2)})
        self.writes: list[bytes] = []
        self.is_over = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Have none."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True

    @property
    def told(self) -> list[list[bytes]]:
        """The bodies of the requests, write by write."""
        return [
            [decode_command(frame).body for frame in FrameDecoder().frames(chunk)]
            for chunk in self.writes
        ]


def connected() -> tuple[Connection, Wire]:
    connection, wire = Connection(RemotingClient()), Wire()
    connection.connection_made(wire)
    return connection, wire


async def test_the_first_request_of_a_turn_leaves_at_once_and_the_others_together() -> None:
    connection, wire = connected()
    for turn in range(2):
        for number in range(4):
            connection.tell(ECHO, None, b"%d%d" % (turn, number))
        await asyncio.sleep(0)
    assert wire.told == [
        [b"00"],
        [b"01", b"02", b"03"],
        [b"10"],
        [b"11", b"12", b"13"],
    ]


async def test_what_was_told_leaves_before_the_connection_closes() -> None:
    connection, wire = connected()
    connection.tell(ECHO, None, b"1")
    connection.tell(ECHO, None, b"2")
    connection.close()
    assert wire.told == [[b"1"], [b"2"]]
    await asyncio.sleep(0)
    assert len(wire.writes) == 2


async def test_many_calls_at_once_get_their_own_answers() -> None:
    async with serving() as server, RemotingClient() as client:
        address = f"{HOST}:{server.ports[0]}"
        answers = await asyncio.gather(
            *(
                client.call(address, ECHO, None, b"%d" % number, timeout_ms=PATIENT_MS)
                for number in range(500)
            )
        )
    assert [answer.body for answer in answers] == [b"%d" % number for number in range(500)]


async def test_a_call_that_is_not_answered_ends_in_time_and_leaves_nothing() -> None:
    connection, _ = connected()
    with pytest.raises(AnswerTimeoutError, match="request 34 within 10 ms"):
        await connection.call(ECHO, timeout_ms=10)
    assert connection.in_flight_count == 0


async def test_a_connection_that_exists_is_used_without_waiting() -> None:
    async with serving() as server, RemotingClient(limits=Limits()) as client:
        address = f"{HOST}:{server.ports[0]}"
        first = await client.connect(address)
        assert await client.connect(address) is first
        first.close()
        await first.lost
        assert await client.connect(address) is not first
