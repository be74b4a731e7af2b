"""Connections share the turns of the loop: none handles more in a turn than its slice allows."""

import asyncio
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.command import decode_command, encode_command
from flintmq.format.wire.frame import FrameDecoder
from flintmq.format.wire.headers.clients import NoFields
from flintmq.model.steps import Steps, finish
from flintmq.remoting import Answer, Connection, Limits, RemotingServer, Request, RequestTable
from flintmq.remoting.fair_turns import (
    LARGE_HEADER_WEIGHT,
    SLICE_BODY_SIZE,
    FairTurns,
)
from flintmq.remoting.request_table import Shedding
from tests.kits.broker.hostile_peer import MemoryTransport
from tests.kits.broker.remoting_kit import ECHO, request, run

TURN_MS: Final = 8
SLICE_MS: Final = 2


class Worked:
    """A server whose every request takes a millisecond by a clock of its own."""

    def __init__(self, shed: Shedding | None = None) -> None:
        self.seconds = 0.0
        self.cost_ms = 1
        self.handled: list[tuple[int, bytes]] = []
        """The port of the peer and the body of each request, in the order of handling."""
        table = RequestTable({ECHO: self._echo}, shed=shed)
        self.server = RemotingServer(table, limits=Limits())
        self.turns = FairTurns(turn_ms=TURN_MS, slice_ms=SLICE_MS, now=lambda: self.seconds)
        self.server.turns = self.turns
        self.ports = iter(range(5000, 6000))

    def _echo(self, asked: Request[NoFields]) -> Answer:
        self.spend_ms(self.cost_ms)
        self.handled.append((asked.connection.peer[1], bytes(asked.body)))
        return Answer(parts=[asked.body])

    def spend_ms(self, ms: int) -> None:
        self.seconds += ms / 1000

    def connect(self) -> tuple[Connection, "PausableTransport"]:
        connection = Connection(self.server)
        transport = PausableTransport(connection, next(self.ports))
        connection.connection_made(transport)
        return connection, transport

    async def finish(self) -> int:
        """Let the loop come round until nobody waits; return how often it had to."""
        rounds = 0
        while self.turns.waiting_count:
            await asyncio.sleep(0)
            rounds += 1
        return rounds


class PausableTransport(MemoryTransport):
    reads = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


def pipelined(count: int, start: int = 0) -> bytes:
    return b"".join(
        encode_command(request(number, str(number).encode()))
        for number in range(start, start + count)
    )


def answers(transport: MemoryTransport) -> list[bytes]:
    frames = FrameDecoder().frames(b"".join(transport.written))
    return [decode_command(frame).body for frame in frames]


async def test_what_one_read_brought_is_handled_in_slices_and_in_its_order() -> None:
    worked = Worked()
    connection, transport = worked.connect()
    connection.data_received(pipelined(9))
    assert len(worked.handled) == SLICE_MS
    # One read more is kept; whatever comes after that waits in the socket.
    assert transport.reads
    connection.data_received(pipelined(3, start=9))
    assert len(worked.handled) == SLICE_MS
    assert not transport.reads
    assert await worked.finish() >= 4
    assert answers(transport) == [str(number).encode() for number in range(12)]
    assert transport.reads


async def test_on_a_busy_loop_each_time_round_is_a_turn_of_its_own() -> None:
    worked = Worked()
    connections = [worked.connect()[0] for _ in range(3)]
    for _ in range(40):
        # All that this turn brings together takes less than a turn may.
        for connection in connections:
            connection.data_received(pipelined(1))
        await asyncio.sleep(0)
    assert len(worked.handled) == 120
    assert worked.turns.postponed_count == 0


async def test_a_small_request_waits_for_one_slice_of_each_other_and_not_for_all_their_work() -> (
    None
):
    worked = Worked()
    hostile = [worked.connect()[0] for _ in range(3)]
    for connection in hostile:
        connection.data_received(pipelined(100))
    small, transport = worked.connect()
    small.data_received(pipelined(1))
    while not answers(transport):  # noqa: ASYNC110 - the loop comes round
        await asyncio.sleep(0)
    assert len(worked.handled) <= 1 + 2 * len(hostile) * SLICE_MS


async def test_a_turn_ends_however_many_connections_have_something() -> None:
    worked = Worked()
    for _ in range(50):
        worked.connect()[0].data_received(pipelined(4))
    assert len(worked.handled) == TURN_MS
    before = worked.turns.turn_count
    while worked.turns.waiting_count:
        handled = len(worked.handled)
        await asyncio.sleep(0)
        assert len(worked.handled) - handled <= TURN_MS
    assert len(worked.handled) == 200
    assert worked.turns.turn_count - before >= (200 - TURN_MS) // TURN_MS


async def test_a_connection_that_is_lost_while_it_waits_is_passed_over() -> None:
    worked = Worked()
    connection, transport = worked.connect()
    other, read = worked.connect()
    connection.data_received(pipelined(9))
    other.data_received(pipelined(9))
    transport.close()
    await worked.finish()
    assert [body for port, body in worked.handled if port == 5000] == [b"0", b"1"]
    assert len(answers(read)) == 9


@settings(max_examples=60, deadline=None)
@given(
    reads=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 9), st.booleans()), min_size=1, max_size=20
    ),
    cut=st.integers(1, 40),
)
def test_every_request_is_answered_once_and_in_order(
    reads: list[tuple[int, int, bool]], cut: int
) -> None:
    async def main() -> None:
        worked = Worked()
        peers = [worked.connect() for _ in range(4)]
        sent = [0] * 4
        for peer, count, comes_round in reads:
            connection, transport = peers[peer]
            wire = pipelined(count, sent[peer])
            sent[peer] += count
            # A transport may bring what it had read before it was paused.
            connection.data_received(wire[:cut])
            connection.data_received(wire[cut:])
            if comes_round:
                await asyncio.sleep(0)
        await worked.finish()
        for (_, transport), count in zip(peers, sent, strict=True):
            assert answers(transport) == [str(number).encode() for number in range(count)]
            assert transport.reads

    run(main())


async def test_a_slice_takes_in_no_more_than_its_share_of_bodies() -> None:
    """Requests that are gathered take their time only at the end of the slice."""
    worked = Worked()
    worked.cost_ms = 0
    connection, transport = worked.connect()
    large = b"x" * (SLICE_BODY_SIZE // 4)
    wire = b"".join(encode_command(request(number, large)) for number in range(20))
    connection.data_received(wire)
    assert len(worked.handled) == 5
    await worked.finish()
    assert answers(transport) == [large] * 20


async def test_a_slice_takes_in_no_more_than_its_share_of_large_headers() -> None:
    worked = Worked()
    worked.cost_ms = 0
    connection, transport = worked.connect()
    asked = [request(number, b"small") for number in range(20)]
    for one in asked:
        one.ext_fields = {"properties": "x" * (SLICE_BODY_SIZE // LARGE_HEADER_WEIGHT // 4)}
    connection.data_received(b"".join(map(encode_command, asked)))
    assert len(worked.handled) <= 5
    await worked.finish()
    assert answers(transport) == [b"small"] * 20


# -- work that takes long by itself ------------------------------------------------------------


async def test_work_is_done_in_slices_of_one_turn_each() -> None:
    worked = Worked()

    def steps() -> Steps[str]:
        for _ in range(9):
            worked.spend_ms(1)
            yield
        return "done"

    done = worked.turns.run(steps(), "walk")
    rounds = 0
    while not done.done():
        before = worked.seconds
        await asyncio.sleep(0)
        assert worked.seconds - before <= SLICE_MS / 1000 + 1e-9
        rounds += 1
    assert rounds >= 9 // SLICE_MS
    assert await done == "done"


async def test_many_walks_share_one_turn_with_requests() -> None:
    worked = Worked()

    def steps() -> Steps[None]:
        for _ in range(6):
            worked.spend_ms(1)
            yield

    walks = [worked.turns.run(steps(), "walk") for _ in range(40)]
    small, transport = worked.connect()
    small.data_received(pipelined(1))
    while not all(walk.done() for walk in walks):
        before = worked.seconds
        await asyncio.sleep(0)
        assert worked.seconds - before <= (TURN_MS + SLICE_MS) / 1000
    assert answers(transport) == [b"0"]


async def test_work_that_nobody_waits_for_any_more_ends_where_it_was() -> None:
    worked = Worked()
    ended: list[str] = []

    def steps() -> Steps[None]:
        try:
            while True:
                worked.spend_ms(1)
                yield
        finally:
            ended.append("closed")

    done = worked.turns.run(steps(), "walk")
    await asyncio.sleep(0)
    done.cancel()
    await asyncio.sleep(0)
    assert ended == ["closed"]
    await asyncio.sleep(0)
    assert not worked.turns.waiting_count


async def test_what_goes_wrong_in_a_slice_reaches_whoever_waits() -> None:
    worked = Worked()

    def steps() -> Steps[None]:
        worked.spend_ms(SLICE_MS)
        yield
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await worked.turns.run(steps(), "walk")
    with pytest.raises(ValueError, match="wrong"):
        finish(steps())


async def test_work_that_one_owner_asks_for_again_and_again_delays_nobody_else() -> None:
    worked = Worked()
    begun: set[int] = set()

    def long_work(number: int) -> Steps[int]:
        for _ in range(20):
            begun.add(number)
            worked.spend_ms(1)
            yield
        return number

    hostile = [worked.turns.run(long_work(number), "much", "hostile") for number in range(100)]
    other = worked.turns.run(long_work(1000), "little", "other")
    small, transport = worked.connect()
    small.data_received(pipelined(1))
    before = worked.seconds
    while not answers(transport):  # noqa: ASYNC110 - the loop comes round
        await asyncio.sleep(0)
    assert worked.seconds - before <= 3 * SLICE_MS / 1000
    assert await other == 1000
    # They have had as much as the other one, each in its order: what is begun takes memory.
    assert worked.seconds - before <= 3 * 20 / 1000
    assert begun - {1000} <= {0, 1, 2}
    hostile[50].cancel()
    done = await asyncio.gather(*hostile, return_exceptions=True)
    assert [one for one in done if isinstance(one, int)] == [*range(50), *range(51, 100)]
    assert not worked.turns.waiting_count


async def test_connections_that_always_have_something_leave_work_its_slices() -> None:
    worked = Worked()
    worked.cost_ms = 2 * TURN_MS

    def work() -> Steps[str]:
        for _ in range(5):
            worked.spend_ms(TURN_MS)
            yield
        return "done"

    connection, _ = worked.connect()
    connection.data_received(pipelined(30))
    result = worked.turns.run(work(), "work")
    assert await result == "done"
    assert len(worked.handled) < 20
    await worked.finish()
    assert len(worked.handled) == 30


# -- what has waited too long ----------------------------------------------------------------


def too_old_after(seconds: float) -> Shedding:
    return lambda code, waited_s: "too old" if waited_s >= seconds else None


def answer_codes(transport: MemoryTransport) -> list[int]:
    frames = FrameDecoder().frames(b"".join(transport.written))
    return [decode_command(frame).code for frame in frames]


async def test_requests_that_waited_too_long_are_refused_and_later_ones_are_not() -> None:
    worked = Worked(too_old_after(0.1))
    connected = [worked.connect() for _ in range(20)]
    for connection, _ in connected:
        connection.data_received(pipelined(30))
    await worked.finish()
    codes = [answer_codes(transport) for _, transport in connected]
    assert {len(one) for one in codes} == {30}
    for one in codes:
        # Once one of them is too old, so are all that stand behind it.
        assert one == sorted(one)
        assert set(one) == {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}
    connection, transport = connected[0]
    transport.written.clear()
    connection.data_received(pipelined(2))
    assert answer_codes(transport) == [ResponseCode.SUCCESS] * 2


async def test_a_stall_of_the_whole_process_makes_no_request_too_old() -> None:
    worked = Worked(too_old_after(0.1))
    connection, transport = worked.connect()
    worked.cost_ms = 10_000
    connection.data_received(pipelined(1))
    worked.cost_ms = 1
    connection.data_received(pipelined(6, start=1))
    worked.spend_ms(10_000)
    await worked.finish()
    assert answer_codes(transport) == [ResponseCode.SUCCESS] * 7


async def test_what_waited_for_the_peer_to_read_is_not_too_old() -> None:
    worked = Worked(too_old_after(0.0))
    connection, transport = worked.connect()
    connection.pause_writing()
    connection.data_received(pipelined(1))
    connection.resume_writing()
    await worked.finish()
    assert answer_codes(transport) == [ResponseCode.SUCCESS]


async def test_what_cannot_be_interrupted_has_a_turn_for_itself() -> None:
    worked = Worked()
    connection, _ = worked.connect()
    slices: list[int] = []
    calls: list[tuple[int, int]] = []

    def steps() -> Steps[None]:
        while len(slices) < 12:
            worked.spend_ms(SLICE_MS)
            slices.append(worked.turns.turn_count)
            yield

    def call() -> None:
        worked.spend_ms(TURN_MS)
        calls.append((worked.turns.turn_count, len(worked.handled)))
        connection.data_received(pipelined(1))

    work = worked.turns.run(steps(), "work")
    lone = [worked.turns.run_alone(call, "append") for _ in range(2)]
    connection.data_received(pipelined(1))
    await worked.finish()
    assert work.done()
    assert all(one.done() for one in lone)
    (first, handled_first), (second, handled_second) = calls
    # What was read before and in the same turn has no slice any more.
    assert handled_first == 0
    assert not {first, second} & set(slices)
    # Others had the turn between the two.
    assert second == first + 2
    assert first + 1 in slices
    assert handled_second == 2
    assert len(worked.handled) == 3


async def test_what_goes_wrong_in_a_turn_for_itself_reaches_whoever_waits() -> None:
    worked = Worked()

    def call() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        await worked.turns.run_alone(call, "append")
    assert not worked.turns.waiting_count


async def test_a_turn_alone_that_nobody_waits_for_any_more_is_passed_over() -> None:
    worked = Worked()
    called: list[int] = []
    first = worked.turns.run_alone(lambda: called.append(1), "append")
    second = worked.turns.run_alone(lambda: called.append(2), "append")
    first.cancel()
    await worked.finish()
    assert second.done()
    assert called == [2]


async def test_whatever_goes_wrong_with_one_the_others_have_their_turns() -> None:
    class Broken:
        def go_on(self) -> None:
            raise RuntimeError("no")

    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(what))
    worked = Worked()
    worked.turns.postpone(Broken())
    work = worked.turns.run((None for _ in range(3)), "work")
    connection, _ = worked.connect()
    worked.spend_ms(TURN_MS)
    connection.data_received(pipelined(3))
    await worked.finish()
    assert work.done()
    assert len(worked.handled) == 3
    assert [str(one["exception"]) for one in told] == ["no"]
