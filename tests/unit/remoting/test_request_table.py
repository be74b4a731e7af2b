"""Which way a request goes: admitted first, then gathered or processed, in the order it came."""

from collections.abc import Sequence
from typing import Any, Final

import pytest

from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import ONE_WAY_FLAG, Command, encode_command
from flintmq.remoting import Answer, RefusedError, RemotingClient, RemotingServer, Request
from flintmq.remoting.limits import Limits
from flintmq.remoting.received_request import ReceivedRequest
from flintmq.remoting.request_table import RequestSource, RequestTable, admit_all
from tests.kits.broker.gate_kit import request_of
from tests.kits.broker.hostile_peer import HostilePeer, MemoryTransport, inbox_connection
from tests.kits.broker.remoting_kit import ECHO, HOST, PATIENT_MS, echo, request, serving

FIRST: Final = int(RequestCode.SEND_MESSAGE_V2)
SECOND: Final = int(RequestCode.PULL_MESSAGE)
ALONE: Final = int(RequestCode.HEART_BEAT)


class Diary:
    """What happened to requests, in order, and the handlers that write it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.refused: set[int] = set()

    def process(self, request: Request[Any]) -> Answer:
        self.lines.append(f"process {request.command.opaque}")
        return Answer()

    def admit(self, connection: RequestSource, request: ReceivedRequest) -> None:
        self.lines.append(f"admit {request.opaque}")
        if request.opaque in self.refused:
            raise RefusedError(ResponseCode.NO_PERMISSION, "no")


class Gathering:
    """A bulk handler that gathers what has a body."""

    def __init__(self, diary: Diary, name: str) -> None:
        self._diary = diary
        self._name = name
        self._gathered: list[int] = []

    def gather(self, connection: RequestSource, request: ReceivedRequest) -> bool:
        if request.body:
            self._gathered.append(request.opaque)
        return bool(request.body)

    def finish(self) -> None:
        if self._gathered:
            self._diary.lines.append(f"{self._name} {self._gathered}")
        self._gathered = []


def feed(diary: Diary, *requests: dict[str, Any]) -> None:
    table = RequestTable(
        dict.fromkeys((FIRST, SECOND, ALONE), diary.process),
        bulk={FIRST: Gathering(diary, "first"), SECOND: Gathering(diary, "second")},
        admit=diary.admit,
    )
    peer = HostilePeer(RemotingServer(table, limits=Limits()), 5000)
    commands = [Command(opaque=number, **one) for number, one in enumerate(requests)]
    peer.connection.data_received(b"".join(map(encode_command, commands)))


async def test_what_was_gathered_is_handled_before_what_comes_behind_it() -> None:
    diary = Diary()
    first, second, alone = (request_of(code) for code in (FIRST, SECOND, ALONE))
    feed(diary, first, first, alone, second, first, first)
    assert diary.lines == [
        *("admit 0", "admit 1", "first [0, 1]"),
        *("admit 2", "process 2"),
        *("admit 3", "second [3]"),
        *("admit 4", "admit 5", "first [4, 5]"),
    ]


async def test_what_is_not_gathered_is_processed_behind_what_was() -> None:
    diary = Diary()
    feed(diary, request_of(FIRST), request_of(FIRST, body=b""))
    assert diary.lines == ["admit 0", "admit 1", "first [0]", "process 1"]


class TakesAll:
    """Says that it has handled all of every read, and notes how often it was asked."""

    is_ready = False

    def __init__(self) -> None:
        self.count = 0

    def take(self, reads: Sequence[tuple[RequestSource, bytes]]) -> list[int]:
        self.count += 1
        return [len(data) for _, data in reads]

    def take_at_once(self, connection: RequestSource, data: bytes) -> int:
        return self.take([(connection, data)])[0]


@pytest.mark.parametrize("is_open", [False, True])
async def test_only_a_gate_that_is_open_to_all_lets_requests_be_handled_unseen(
    is_open: bool,
) -> None:
    diary, taker = Diary(), TakesAll()
    table = RequestTable({ECHO: echo}, reads=taker, admit=admit_all if is_open else diary.admit)
    server = RemotingServer(table, limits=Limits())
    peer = HostilePeer(server, 5000)
    peer.connection = inbox_connection(server)
    peer.connection.connection_made(MemoryTransport(peer.connection, 5000))
    assert server.inbox is not None
    large: dict[str, Any] = {"code": ECHO, "body": bytes(2000)}
    peer.connection.data_received(encode_command(Command(opaque=1, **large)))
    server.inbox.handle()
    assert (taker.count, diary.lines) == ((1, []) if is_open else (0, ["admit 1"]))
    # Whoever puts up a gate later is asked from then on.
    table.admit = diary.admit
    diary.lines.clear()
    peer.connection.data_received(encode_command(Command(opaque=2, **large)))
    server.inbox.handle()
    assert (taker.count, diary.lines) == (int(is_open), ["admit 2"])


async def test_a_refused_request_is_neither_gathered_nor_processed() -> None:
    diary = Diary()
    diary.refused = {1, 3}
    feed(diary, *[request_of(FIRST)] * 3, request_of(ALONE))
    assert diary.lines == [
        *("admit 0", "admit 1", "first [0]"),
        *("admit 2", "first [2]", "admit 3"),
    ]


async def test_an_admission_that_fails_lets_nothing_in(caplog: pytest.LogCaptureFixture) -> None:
    def broken(connection: RequestSource, request: ReceivedRequest) -> None:
        raise ZeroDivisionError("no gatekeeper")

    async with serving() as server, RemotingClient() as client:
        server.requests.admit = broken
        answer = await client.call(
            f"{HOST}:{server.ports[0]}", ECHO, None, b"b", timeout_ms=PATIENT_MS
        )
    assert (answer.code, answer.remark) == (1, "ZeroDivisionError: no gatekeeper")
    assert not answer.body
    assert "request failed" in caplog.text


async def test_a_one_way_request_that_is_refused_gets_no_answer() -> None:
    diary = Diary()
    diary.refused = {0}
    table = RequestTable({ECHO: echo}, admit=diary.admit)
    peer = HostilePeer(RemotingServer(table, limits=Limits()), 5000)
    one_way = Command(code=ECHO, flag=ONE_WAY_FLAG, body=b"b")
    # The peer fails at an answer that it is not owed.
    peer.feed(encode_command(one_way))
    peer.feed(encode_command(request(1)))
    assert diary.lines == ["admit 0", "admit 1"]
    assert not peer.owed


async def test_answers_to_our_own_requests_are_not_admitted() -> None:
    diary = Diary()
    async with (
        serving() as server,
        RemotingClient(RequestTable({ECHO: echo}, admit=diary.admit)) as client,
    ):
        answer = await client.call(
            f"{HOST}:{server.ports[0]}", ECHO, None, b"b", timeout_ms=PATIENT_MS
        )
        assert answer.body == b"b"
        (connection,) = server.connections
        assert (await connection.call(ECHO, None, b"c", timeout_ms=PATIENT_MS)).body == b"c"
    assert diary.lines == ["admit 1"]


async def test_the_admission_sees_the_whole_request() -> None:
    seen: list[Any] = []

    def look(connection: RequestSource, request: ReceivedRequest) -> None:
        seen.append((connection.peer[0], request.code, request.body, dict(request.ext_fields)))
        seen.append((request.language.name, request.version > 0, request.flag))

    async with serving() as server, RemotingClient() as client:
        server.requests.admit = look
        await client.call(f"{HOST}:{server.ports[0]}", ECHO, None, b"b", timeout_ms=PATIENT_MS)
    assert seen == [(HOST, ECHO, b"b", {}), ("JAVA", True, 0)]
