"""The bytes that all peers together leave unread have one budget."""

import asyncio
import contextlib
import random

import pytest

from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.clients import NoFields
from flintmq.remoting import Limits, RequestTable
from flintmq.remoting.processors import Answer, Request
from flintmq.remoting.server import RemotingServer, bind
from flintmq.remoting.unread_answers import SHARE_MIN, UnreadAnswers
from tests.kits.broker.remoting_kit import ECHO, HOST, RawClient, echo, eventually, request

OWN_PAUSE = 1 << 20
PAUSE = 8 << 20
MAX = 16 << 20
LIMITS = Limits(
    write_pause_size=OWN_PAUSE,
    write_drop_size=4 << 20,
    unread_answers_pause_size=PAUSE,
    unread_answers_size_max=MAX,
)


class Writer:
    """A connection whose peer reads when it is told to."""

    def __init__(self, account: UnreadAnswers) -> None:
        self._account = account
        self.unread_size = 0
        self.pauses_above = OWN_PAUSE
        self.dropped_because = ""

    def write(self, size: int) -> None:
        self._account.make_room(size)
        if not self.dropped_because:
            self.unread_size += size
            self._account.note(self, self.unread_size)

    def pause_above(self, size: int) -> None:
        self.pauses_above = size

    def drop(self, reason: str) -> None:
        self.dropped_because = reason
        self.unread_size = 0


def account_of_limits() -> UnreadAnswers:
    return UnreadAnswers(own_pause_size=OWN_PAUSE, pause_size=PAUSE, size_max=MAX)


def test_those_with_the_most_unread_bytes_are_paused_first() -> None:
    account = account_of_limits()
    small = [Writer(account) for _ in range(32)]
    large = [Writer(account) for _ in range(9)]
    for writer in small:
        writer.write(10_000)
    for writer in large:
        writer.write(OWN_PAUSE)
    assert account.total_size > PAUSE
    assert {writer.pauses_above for writer in small} == {OWN_PAUSE}
    assert all(SHARE_MIN <= writer.pauses_above < OWN_PAUSE for writer in large)
    # Once much was read, they may have as much as before.
    for writer in large:
        writer.unread_size = 0
        account.note(writer, 0)
    assert {writer.pauses_above for writer in large} == {OWN_PAUSE}


def test_the_one_with_the_most_is_dropped_before_there_is_too_much() -> None:
    account = account_of_limits()
    writers = [Writer(account) for _ in range(4)]
    for size, writer in zip((3, 5, 4, 2), writers, strict=True):
        writer.write(size << 20)
    writers[0].write(3 << 20)
    assert [bool(writer.dropped_because) for writer in writers] == [False, True, False, False]
    assert "5242880 bytes" in writers[1].dropped_because
    assert account.total_size == (6 + 4 + 2) << 20


def test_what_was_read_meanwhile_drops_nobody() -> None:
    account = account_of_limits()
    writers = [Writer(account) for _ in range(20)]
    for writer in writers:
        writer.write(700 << 10)
        writer.unread_size = 0
    writers[0].write(5 << 20)
    assert not any(writer.dropped_because for writer in writers)
    assert account.total_size == 5 << 20


@pytest.mark.parametrize("seed", range(20))
def test_the_total_is_never_above_the_budget(seed: int) -> None:
    dice, account = random.Random(seed), account_of_limits()
    writers = [Writer(account) for _ in range(50)]
    for _ in range(3000):
        number = dice.randrange(len(writers))
        writer = writers[number]
        if writer.dropped_because:
            account.forget(writer)
            writers[number] = Writer(account)
        elif dice.random() < 0.3:
            writer.unread_size = dice.randrange(writer.unread_size + 1)
            if dice.random() < 0.5:
                account.note(writer, writer.unread_size)
        else:
            writer.write(dice.randrange(1 << dice.randrange(1, 22)))
        real = sum(one.unread_size for one in writers)
        assert real <= account.total_size <= account.peak_size <= MAX
    assert account.dropped_count


def large(asked: Request[NoFields]) -> Answer:
    return Answer(parts=[bytes(300 << 10)])


async def test_peers_that_do_not_read_share_one_budget_and_others_are_served() -> None:
    table = RequestTable({ECHO: echo, RequestCode.LOCK_BATCH_MQ: large})
    async with (
        asyncio.timeout(20),
        RemotingServer.listen(table, sockets=[bind(HOST, 0)], limits=LIMITS) as server,
        RawClient.connect(server.ports[0]) as good,
        contextlib.AsyncExitStack() as stack,
    ):
        account = server.unread_answers
        assert account is not None
        for number in range(40):
            peer = await stack.enter_async_context(
                RawClient.connect(server.ports[0], receive_buffer=4096)
            )
            asks = (request(n, code=RequestCode.LOCK_BATCH_MQ) for n in range(60))
            await peer.send(*asks)
            await good.send(request(number, b"still served"))
            assert (await good.receive()).body == b"still served"
        await eventually(lambda: account.total_size > PAUSE // 2)
        assert account.peak_size <= MAX
        assert sum(one.unread_size for one in server.connections) <= account.total_size
        await good.send(request(1, b"at the end"))
        assert (await good.receive()).body == b"at the end"
        await stack.aclose()
        await eventually(lambda: account.total_size == 0)
