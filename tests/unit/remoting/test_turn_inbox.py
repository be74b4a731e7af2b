"""What a turn of the loop brought from all connections is handled together."""

import asyncio
from typing import Any, Final

import pytest

from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.command import Command, encode_command
from flintmq.remoting import Answer, Connection, RemotingServer, Request
from flintmq.remoting import turn_inbox as module
from flintmq.remoting.fair_turns import FairTurns
from flintmq.remoting.limits import Limits
from flintmq.remoting.received_request import ReceivedRequest
from flintmq.remoting.request_table import RequestSource, RequestTable
from flintmq.remoting.turn_inbox import TurnInbox
from tests.kits.broker.hostile_peer import MemoryTransport

CODE: Final = int(RequestCode.SEND_MESSAGE_V2)
ALONE: Final = int(RequestCode.HEART_BEAT)


class Gathering:
    """A bulk handler that answers all it has gathered with its body."""

    def __init__(self) -> None:
        self.groups: list[list[bytes]] = []
        self._gathered: list[tuple[RequestSource, ReceivedRequest]] = []

    def gather(self, connection: RequestSource, request: ReceivedRequest) -> bool:
        if request.body == b"fatal":
            raise ZeroDivisionError
        self._gathered.append((connection, request))
        return True

    def finish(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            self.groups.append([request.body for _, request in gathered])
        for connection, request in gathered:
            if request.body == b"late":
                raise ZeroDivisionError
            connection.send(request.body)


class Here:
    """A server with an inbox and some connections that are fed by hand."""

    def __init__(self, count: int, *, turns: bool = False) -> None:
        self.bulk = Gathering()
        self.processed: list[bytes] = []

        def process(request: Request[Any]) -> Answer:
            self.processed.append(request.body)
            return Answer()

        table = RequestTable({CODE: process, ALONE: process}, bulk={CODE: self.bulk})
        server = RemotingServer(table, limits=Limits())
        # Without turns an inbox keeps all reads.
        self.clock = 0.0
        server.turns = FairTurns(now=lambda: self.clock) if turns else None
        server.inbox = TurnInbox(server)
        self.connections = [Connection(server) for _ in range(count)]
        self.transports = [
            MemoryTransport(one, 5000 + number) for number, one in enumerate(self.connections)
        ]
        for connection, transport in zip(self.connections, self.transports, strict=True):
            connection.connection_made(transport)

    def feed(self, number: int, *bodies: bytes, code: int = CODE) -> None:
        frames = [encode_command(Command(code=code, body=body)) for body in bodies]
        self.connections[number].data_received(b"".join(frames))

    def written(self) -> list[list[bytes]]:
        return [transport.written for transport in self.transports]


async def test_requests_of_all_connections_are_one_group_and_each_gets_one_write() -> None:
    here = Here(3)
    here.feed(0, b"a", b"b")
    here.feed(1, b"c")
    here.feed(0, b"d")
    here.feed(2, b"e")
    assert not here.bulk.groups
    await asyncio.sleep(0)
    assert here.bulk.groups == [[b"a", b"b", b"c", b"d", b"e"]]
    assert here.written() == [[b"abd"], [b"c"], [b"e"]]


async def test_what_stands_alone_comes_behind_what_came_before_it() -> None:
    here = Here(2)
    here.feed(0, b"a")
    here.feed(1, b"beat", code=ALONE)
    here.feed(1, b"b")
    await asyncio.sleep(0)
    assert here.bulk.groups == [[b"a"], [b"b"]]
    assert here.processed == [b"beat"]


async def test_a_read_that_cannot_be_handled_costs_nobody_else_his_answer() -> None:
    here = Here(3)
    here.feed(0, b"a")
    here.feed(1, b"fatal")
    here.feed(2, b"c")
    await asyncio.sleep(0)
    assert here.written() == [[b"a"], [], [b"c"]]
    assert [one.is_closing() for one in here.transports] == [False, True, False]


async def test_connections_whose_group_failed_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    here = Here(2)
    here.feed(0, b"late")
    here.feed(1, b"b")
    await asyncio.sleep(0)
    assert [one.is_closing() for one in here.transports] == [True, True]
    assert "requests could not be handled" in caplog.text


async def test_reads_of_a_connection_that_was_lost_meanwhile_are_dropped() -> None:
    here = Here(2)
    here.feed(0, b"a")
    here.feed(1, b"b")
    here.connections[0].connection_lost(None)
    await asyncio.sleep(0)
    assert here.bulk.groups == [[b"b"]]


async def test_a_group_has_only_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHERED_SIZE_MAX", 300)
    here = Here(3)
    for number in range(3):
        here.feed(number, b"x" * 200)
    await asyncio.sleep(0)
    assert [len(group) for group in here.bulk.groups] == [1, 1, 1]


async def test_reads_of_one_connection_that_is_busy_alone_are_handled_at_once() -> None:
    here = Here(2, turns=True)
    here.feed(0, b"a")
    here.feed(0, b"b" * 2000)
    here.clock += 1
    here.feed(1, b"c")
    assert here.bulk.groups == [[b"a"], [b"b" * 2000], [b"c"]]


async def test_reads_are_kept_for_a_while_once_two_connections_are_busy() -> None:
    here = Here(2, turns=True)
    here.feed(0, b"a")
    here.feed(1, b"b")
    here.feed(0, b"c")
    assert here.bulk.groups == [[b"a"]]
    await asyncio.sleep(0)
    assert here.bulk.groups == [[b"a"], [b"b", b"c"]]
    for _ in range(module.CROWDED_TURNS):
        here.clock += 1
        here.feed(0, b"d")
        assert here.bulk.groups[-1] != [b"e"]
        await asyncio.sleep(0)
    here.feed(0, b"e")
    assert here.bulk.groups[-1] == [b"e"]
