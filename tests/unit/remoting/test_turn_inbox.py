"""What a turn of the loop brought from all connections is handled together."""

import asyncio
import itertools
import weakref
from collections.abc import Sequence
from typing import Any, Final

import pytest

from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.command import Command, encode_command
from flintmq.format.wire.frame import FrameDecoder, encode_frame
from flintmq.remoting import Answer, Connection, RemotingServer, Request, active_wait
from flintmq.remoting import turn_inbox as module
from flintmq.remoting.fair_turns import FairTurns
from flintmq.remoting.limits import Limits
from flintmq.remoting.received_request import ReceivedRequest
from flintmq.remoting.request_table import ReadHandler, RequestSource, RequestTable
from flintmq.remoting.turn_inbox import TurnInbox
from flintmq.remoting.unfinished_reads import UNFINISHED_CONNECTIONS_MAX
from tests.kits.broker.hostile_peer import MemoryTransport

CODE: Final = int(RequestCode.SEND_MESSAGE_V2)
ALONE: Final = int(RequestCode.HEART_BEAT)
TLS_HELLO: Final = b"\x16\x03\x01\x00"
PEER_COUNT: Final = 50


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

    def __init__(
        self,
        count: int,
        *,
        turns: bool = False,
        reads: ReadHandler | None = None,
        active_wait_s: float = 0.0,
    ) -> None:
        self.bulk = Gathering()
        self.processed: list[bytes] = []

        def process(request: Request[Any]) -> Answer:
            self.processed.append(request.body)
            return Answer()

        table = RequestTable({CODE: process, ALONE: process}, bulk={CODE: self.bulk}, reads=reads)
        self.table = table
        server = RemotingServer(table, limits=Limits())
        # Without turns an inbox keeps all reads.
        self.clock = 0.0
        server.turns = FairTurns(now=lambda: self.clock) if turns else None
        server.inbox = self.inbox = TurnInbox(server, active_wait_s=active_wait_s)
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


async def test_who_pulls_comes_behind_all_others_of_a_turn() -> None:
    """What is sent wakes pulls that wait: neither they nor the senders wait for other pulls."""
    here = Here(4)
    here.connections[0].pull_reads = here.connections[2].pull_reads = 1
    for number, body in enumerate([b"pull", b"send", b"pull", b"send"]):
        here.feed(number, body)
    here.feed(0, b"another")
    await asyncio.sleep(0)
    assert here.bulk.groups == [[b"send", b"send"], [b"pull", b"pull", b"another"]]
    assert here.written() == [[b"pullanother"], [b"send"], [b"pull"], [b"send"]]


class Taking:
    """Takes whole reads, so that nobody looks at a request."""

    is_ready = True

    def __init__(self) -> None:
        self.read_count = 0

    def take(self, reads: Sequence[tuple[RequestSource, bytes]]) -> Sequence[int]:
        self.read_count += len(reads)
        return [len(data) for _, data in reads]

    def take_at_once(self, connection: RequestSource, data: bytes) -> int:
        return self.take([(connection, data)])[0]


@pytest.mark.parametrize("body", [b"small", bytes(2 * module.SMALL_READ_SIZE)])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("pull_reads", [0, 100])
async def test_a_gate_that_is_not_open_to_all_sees_every_request(
    body: bytes, count: int, turns: bool, pull_reads: int
) -> None:
    """Whatever machine code could take by itself, alone, at once or with reads of others."""
    taking, seen = Taking(), 0
    here = Here(count, turns=turns, reads=taking)
    for connection in here.connections:
        connection.pull_reads = pull_reads

    def admit(connection: RequestSource, request: ReceivedRequest) -> None:
        nonlocal seen
        seen += 1

    for is_open in (True, False):
        if not is_open:
            here.table.admit = admit
        for number in range(count):
            here.feed(number, body)
        await asyncio.sleep(0)
        assert taking.read_count == count, "only while the gate was open"
    assert seen == count


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


class Walking:
    """A read handler that takes frames from the start of a read while it knows their bodies."""

    def __init__(self, known: bytes, *, is_ready: bool = True) -> None:
        self.is_ready = is_ready
        self.offered: list[list[bytes]] = []
        self.walked = 0
        self._known = known

    def take_at_once(self, connection: RequestSource, data: bytes) -> int:
        return self.take([(connection, data)])[0]

    def take(self, reads: Sequence[tuple[RequestSource, bytes]]) -> Sequence[int]:
        self.offered.append([data for _, data in reads])
        handled = []
        for connection, data in reads:
            size = 0
            for frame in FrameDecoder().frames(data):
                if frame.body == b"fatal":
                    raise ZeroDivisionError
                if frame.body != self._known:
                    break
                size += len(encode_frame(frame))
                self.walked += 1
                connection.send_all([frame.body])
            handled.append(size)
        return handled


async def test_a_small_read_that_came_alone_is_handled_by_machine_code_that_is_ready() -> None:
    walking = Walking(b"a")
    here = Here(1, turns=True, reads=walking)
    here.feed(0, b"a")
    here.feed(0, b"a", b"b", b"a")
    assert walking.walked == 2
    assert here.bulk.groups == [[b"b", b"a"]]
    assert here.written() == [[b"a", b"aba"]]


def pulling(count: int, *, turns: bool = False) -> tuple[Here, Walking]:
    """Return connections that pull, and who knows what they ask for."""
    walking = Walking(b"pull")
    here = Here(count, turns=turns, reads=walking)
    for connection in here.connections:
        connection.pull_reads = 100
    return here, walking


@pytest.mark.parametrize("turns", [False, True], ids=["crowded", "calm"])
async def test_known_pulls_are_answered_at_once_while_nothing_else_has_come(turns: bool) -> None:
    here, walking = pulling(3, turns=turns)
    for number in range(3):
        here.feed(number, b"pull", b"pull")
    assert here.written() == [[b"pullpull"]] * 3
    await asyncio.sleep(0)
    assert here.written() == [[b"pullpull"]] * 3
    assert len(walking.offered) == 3


async def test_whoever_goes_on_to_pull_alone_is_calm_again() -> None:
    here, walking = pulling(2, turns=True)
    here.feed(0, b"pull")
    here.feed(1, b"pull")
    for _ in range(module.CROWDED_TURNS):
        here.clock += 1
        here.feed(0, b"pull")
    assert walking.walked == module.CROWDED_TURNS + 2
    here.clock += 1
    here.feed(0, b"other")
    assert here.bulk.groups == [[b"other"]]


async def test_known_pulls_come_behind_what_others_have_sent_before() -> None:
    here, walking = pulling(3)
    here.connections[1].pull_reads = 0
    here.feed(0, b"pull")
    here.feed(1, b"send")
    here.feed(2, b"pull")
    assert here.written() == [[b"pull"], [], []]
    await asyncio.sleep(0)
    assert here.written() == [[b"pull"], [b"send"], [b"pull"]]
    assert here.bulk.groups == [[b"send"]]
    assert walking.walked == 2


async def test_pulls_are_kept_for_a_while_where_others_have_sent() -> None:
    """At once they would take the time of those who send again as soon as they are answered."""
    here, _ = pulling(2)
    here.connections[1].pull_reads = 0
    here.feed(1, b"send")
    for count in range(1, module.PULLS_KEPT + 1):
        here.feed(0, b"pull")
        assert len(here.written()[0]) == count - 1
        await asyncio.sleep(0)
        assert len(here.written()[0]) == count
        here.connections[0].pull_reads = 100
    here.feed(0, b"pull")
    assert len(here.written()[0]) == module.PULLS_KEPT + 1


async def test_what_is_not_known_behind_a_pull_waits_with_its_answer_for_the_end_of_the_turn() -> (
    None
):
    here, _ = pulling(2)
    here.feed(0, b"pull", b"other", b"pull")
    assert here.written() == [[], []]
    await asyncio.sleep(0)
    assert here.written() == [[b"pullotherpull"], []]
    assert here.bulk.groups == [[b"other", b"pull"]]


@pytest.mark.parametrize("turns", [False, True], ids=["crowded", "calm"])
async def test_whoever_sends_other_things_behind_pulls_is_offered_each_time(turns: bool) -> None:
    here, walking = pulling(1, turns=turns)
    count = module.UNKNOWN_READS_MIN + 3
    for _ in range(count):
        here.feed(0, b"pull", b"other")
        await asyncio.sleep(0)
    assert walking.walked == count


async def test_a_pull_in_two_reads_is_answered_with_the_second() -> None:
    here, walking = pulling(2)
    frame = encode_command(Command(code=CODE, body=b"pull"))
    here.connections[0].data_received(frame + frame[:9])
    await asyncio.sleep(0)
    here.connections[0].data_received(frame[9:])
    assert walking.walked == 2
    assert b"".join(here.written()[0]) == b"pullpull"


async def test_pulls_of_a_turn_that_has_no_time_left_wait_for_its_end() -> None:
    here, walking = pulling(2, turns=True)
    here.feed(0, b"pull")
    here.feed(1, b"pull")
    turns = here.connections[0]._turns
    assert turns is not None
    turns._turn_end = here.clock
    here.feed(0, b"pull")
    assert walking.walked == 2
    await asyncio.sleep(0)
    assert walking.walked == 3


async def test_who_cannot_be_answered_at_once_is_closed_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    here, _ = pulling(2)
    here.feed(0, b"fatal")
    here.feed(1, b"pull")
    assert [one.is_closing() for one in here.transports] == [True, False]
    assert here.written() == [[], [b"pull"]]
    assert "requests could not be handled" in caplog.text


async def test_a_small_read_is_not_offered_to_machine_code_that_is_not_ready() -> None:
    walking = Walking(b"a", is_ready=False)
    here = Here(1, turns=True, reads=walking)
    here.feed(0, b"a")
    assert not walking.offered
    here.feed(0, b"b" * 2000)
    assert len(walking.offered) == 1
    assert here.bulk.groups == [[b"a"], [b"b" * 2000]]


async def test_a_small_read_that_begins_within_a_frame_is_joined_with_what_came_before() -> None:
    walking = Walking(b"a")
    here = Here(1, turns=True, reads=walking)
    frame = encode_command(Command(code=CODE, body=b"a"))
    here.connections[0].data_received(frame + frame[:9])
    here.connections[0].data_received(frame[9:])
    assert walking.walked == 2
    assert here.written() == [[b"a", b"a"]]


@pytest.mark.parametrize("size", [3, 2 * module.SMALL_READ_SIZE])
async def test_reads_that_end_in_half_a_frame_have_finished_those_before_it(size: int) -> None:
    """Whoever has many requests on the way came last, with those who finish none."""
    walking = Walking(b"a" * size)
    count = 2 * UNFINISHED_CONNECTIONS_MAX
    here = Here(count, turns=False, reads=walking)
    frame = encode_command(Command(code=CODE, body=b"a" * size))
    rest = b""
    for _ in range(4):
        for connection in here.connections:
            connection.data_received(rest + frame + frame[:9])
        rest = frame[9:]
        here.inbox.handle()
    await asyncio.sleep(0)
    walking.offered.clear()
    for connection in here.connections:
        connection.data_received(rest + frame)
    here.inbox.handle()
    assert [len(offered) for offered in walking.offered] == [count]


async def test_whoever_sends_nothing_known_is_offered_only_now_and_then() -> None:
    walking = Walking(b"a")
    here = Here(1, turns=True, reads=walking)
    for _ in range(module.UNKNOWN_READS_MIN + module.UNKNOWN_READS):
        here.feed(0, b"b")
    assert len(walking.offered) == module.UNKNOWN_READS_MIN
    here.feed(0, b"a")
    here.feed(0, b"a")
    assert walking.walked == 2


async def test_a_connection_whose_small_read_fails_in_machine_code_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    here = Here(1, turns=True, reads=Walking(b"a"))
    here.feed(0, b"fatal")
    assert here.transports[0].is_closing()
    assert "requests could not be handled" in caplog.text


@pytest.mark.parametrize("turns", [False, True], ids=["crowded", "calm"])
async def test_one_large_read_of_a_connection_is_enough_for_a_turn(turns: bool) -> None:
    here = Here(2, turns=turns)
    here.feed(0, bytes(module.LARGE_READ_SIZE))
    # Even where nobody else is busy: the loop would read on before it asks whether somebody is.
    assert not here.bulk.groups
    here.feed(1, b"small")
    assert [transport.is_reading() for transport in here.transports] == [False, True]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [transport.is_reading() for transport in here.transports] == [True, True]
    assert [len(written) for written in here.written()] == [1, 1]


async def test_a_turn_brings_a_bounded_number_of_large_reads_and_each_connection_has_its_own() -> (
    None
):
    count, most = 7, module.LARGE_READS_MAX
    here = Here(count)
    reads = [0] * count
    for number in range(count):
        here.feed(number, bytes(module.LARGE_READ_SIZE))
    in_a_turn: list[int] = []
    while min(reads) < 3 and len(in_a_turn) < 100:
        await asyncio.sleep(0)
        # The loop asks all sockets that it may read from.
        ready = [number for number in range(count) if here.transports[number].is_reading()]
        in_a_turn.append(len(ready))
        for number in ready:
            reads[number] += 1
            here.feed(number, bytes(module.LARGE_READ_SIZE))
    assert max(in_a_turn) == most
    assert max(reads) - min(reads) <= 1
    # No turn is wasted while somebody waits.
    assert in_a_turn.count(0) <= 2


async def test_connections_that_may_bring_much_are_not_all_asked_in_one_turn() -> None:
    count, most = 5, module.LARGE_READS_MAX
    here = Here(count)
    for number in range(count):
        here.feed(number, bytes(module.LARGE_READ_SIZE))
    for _ in range(count + 1):
        await asyncio.sleep(0)
    assert all(transport.is_reading() for transport in here.transports)
    # All have been idle since; now they bring much again, and the loop asks one after the other.
    for number in range(most):
        here.feed(number, bytes(module.LARGE_READ_SIZE))
    assert not any(transport.is_reading() for transport in here.transports)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    # Those that were not asked are next.
    reading = [number for number in range(count) if here.transports[number].is_reading()]
    assert len(reading) == most
    assert min(reading) >= most


class Collected(weakref.WeakSet[Any]):
    """A set whose last member the garbage collector takes once somebody has looked at it."""

    def __len__(self) -> int:
        return 1


async def test_a_connection_that_is_collected_meanwhile_holds_up_nobody() -> None:
    here = Here(module.LARGE_READS_MAX)
    here.inbox._resumed = Collected()
    for number in range(module.LARGE_READS_MAX):
        here.feed(number, bytes(module.LARGE_READ_SIZE))
    await asyncio.sleep(0)
    assert [len(written) for written in here.written()] == [1] * module.LARGE_READS_MAX


async def test_a_connection_whose_large_request_was_left_over_waits_for_its_turn_to_be_read() -> (
    None
):
    here = Here(4, turns=True)
    here.feed(0, b"one")
    here.feed(1, b"crowded")
    await asyncio.sleep(0)
    for number in range(4):
        here.feed(number, bytes(module.LARGE_READ_SIZE), b"rest", code=ALONE)
    in_a_turn: list[int] = []
    before = 0
    while before < 4 and len(in_a_turn) < 20:
        await asyncio.sleep(0)
        now = sum(transport.is_reading() for transport in here.transports)
        in_a_turn.append(now - before)
        before = now
    assert before == 4
    assert max(in_a_turn) <= module.LARGE_READS_MAX


async def test_a_connection_with_something_left_is_read_from_when_that_is_handled() -> None:
    here = Here(2, turns=True)
    here.feed(0, b"one")
    here.feed(1, b"crowded")
    await asyncio.sleep(0)
    size = module.LARGE_READ_SIZE + 1
    # The body is more than a slice takes in, so what follows it waits for the next turn.
    here.feed(0, bytes(size), b"rest", code=ALONE)
    assert not here.transports[0].is_reading()
    here.inbox.handle()
    assert here.processed[-1] == bytes(size)
    assert not here.transports[0].is_reading()
    for _ in range(4):
        await asyncio.sleep(0)
    assert here.processed[-1] == b"rest"
    assert here.transports[0].is_reading()


async def test_a_connection_that_is_lost_meanwhile_is_not_read_from() -> None:
    here = Here(2)
    here.feed(0, bytes(module.LARGE_READ_SIZE))
    here.connections[0].connection_lost(None)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not here.transports[0].is_reading()


# -- peers that finish no frames keep nobody waiting, however many there are ---------------------


async def test_whoever_finishes_frames_is_answered_before_many_that_do_not() -> None:
    here = Here(PEER_COUNT + 1, turns=True)
    here.clock = 1.0
    here.feed(PEER_COUNT, b"first")
    await asyncio.sleep(0)
    for connection in here.connections[:PEER_COUNT]:
        connection.data_received(TLS_HELLO)
    here.feed(PEER_COUNT, b"second")
    here.inbox.handle()
    assert here.bulk.groups == [[b"first"], [b"second"]]
    closed = [0]
    while closed[-1] < PEER_COUNT and len(closed) < 2 * PEER_COUNT:
        closed.append(sum(transport.is_closing() for transport in here.transports))
        here.inbox.handle()
    assert max(after - before for before, after in itertools.pairwise(closed)) == (
        UNFINISHED_CONNECTIONS_MAX
    )
    assert closed[-1] == PEER_COUNT
    assert not here.transports[PEER_COUNT].is_closing()


async def test_what_comes_while_a_read_waits_stays_behind_it_and_nothing_more_is_read() -> None:
    here = Here(PEER_COUNT)
    bodies = [b"body %d" % number for number in range(PEER_COUNT)]
    frames = [encode_command(Command(code=CODE, body=body)) for body in bodies]
    for cut in range(3):
        for connection, frame in zip(here.connections, frames, strict=True):
            connection.data_received([frame[:3], frame[3:9], frame[9:]][cut])
    here.inbox.handle()
    waiting = here.transports[UNFINISHED_CONNECTIONS_MAX:]
    assert not any(transport.is_reading() for transport in waiting)
    for _ in range(PEER_COUNT):
        here.inbox.handle()
    assert sorted(body for group in here.bulk.groups for body in group) == sorted(bodies)
    assert here.written() == [[body] for body in bodies]
    assert all(transport.is_reading() for transport in here.transports)


async def test_a_read_that_comes_alone_does_not_overtake_one_that_waits() -> None:
    here = Here(PEER_COUNT, turns=True)
    frame = encode_command(Command(code=CODE, body=b"whole"))
    for connection in here.connections:
        connection.data_received(frame[:9])
    here.inbox.handle()
    # So many may wait that the crowd is forgotten before they had their turn.
    here.inbox._crowded_turns, here.clock = 0, 100.0
    here.connections[-1].data_received(frame[9:])
    for _ in range(PEER_COUNT):
        here.inbox.handle()
    assert here.written()[-1] == [b"whole"]


async def test_a_connection_that_ends_while_its_read_waits_is_forgotten() -> None:
    here = Here(PEER_COUNT, turns=True)
    here.clock = 1.0
    for number in range(PEER_COUNT):
        here.feed(number, b"%d" % number)
    here.inbox.handle()
    for connection in here.connections[PEER_COUNT // 2 :]:
        connection.connection_lost(None)
    for _ in range(PEER_COUNT):
        here.inbox.handle()
    answered = [bool(written) for written in here.written()]
    assert answered == [number < PEER_COUNT // 2 for number in range(PEER_COUNT)]


@pytest.mark.parametrize("count", [1, UNFINISHED_CONNECTIONS_MAX])
async def test_few_that_are_new_are_gathered_with_the_others(count: int) -> None:
    here = Here(count + 1)
    here.feed(count, b"known")
    here.inbox.handle()
    for number in range(count + 1):
        here.feed(number, b"%d" % number)
    here.inbox.handle()
    assert here.bulk.groups[1:] == [[b"%d" % number for number in range(count + 1)]]


async def test_a_client_that_asks_one_at_a_time_keeps_the_loop_awake_until_another_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(active_wait, "_core_count", lambda: 2)
    here = Here(2, turns=True, active_wait_s=3600)
    ready: list[object] = []
    with monkeypatch.context() as patched:
        patched.setattr(
            asyncio.get_running_loop(), "call_soon", lambda call, *_: ready.append(call)
        )
        for number in range(active_wait.QUICK_COUNT + 1):
            assert not ready, number
            here.feed(0, b"a")
        (stay,) = ready
        here.feed(1, b"b")
        ready.clear()
        assert callable(stay)
        stay()
        assert not ready
