"""Threads and a loop that share one connection: frames stay whole, and every call ends."""

import asyncio
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.remoting import RemotingClient, RemotingError
from flintmq.remoting.client_connection import ClientConnection
from flintmq.testing import AsyncTcpProxy
from tests.kits.broker.remoting_kit import HOST, PATIENT_MS, run, serving
from tests.kits.broker.thread_exchanges import ask, encoded, keep_little, open_to_threads
from tests.kits.leftovers import LEAVES_NOTHING

pytestmark = pytest.mark.usefixtures(LEAVES_NOTHING)

LARGE: Final = 300_000
sizes = st.lists(st.integers(0, 500) | st.integers(0, LARGE), max_size=12)


def body_of(who: int, number: int, size: int) -> bytes:
    """Return what nobody else sends, so that frames that are mixed are noticed."""
    return b"%d.%d:" % (who, number) + bytes([who * 16 + number]) * size


async def in_thread(connection: ClientConnection, who: int, plan: list[int]) -> int:
    """Ask from a thread, and by the loop where the thread may not; return how often it could."""
    loop = asyncio.get_running_loop()

    def work() -> int:
        own_count = 0
        for number, size in enumerate(plan):
            body = body_of(who, number, size)
            answer = ask(connection, body)
            own_count += answer is not None
            if answer is None:
                asked = connection.exchange(encoded(connection, body), timeout_ms=PATIENT_MS)
                answer = asyncio.run_coroutine_threadsafe(asked, loop).result()
            assert answer.body == body
        return own_count

    return await asyncio.to_thread(work)


async def in_loop(connection: ClientConnection, who: int, plan: list[int]) -> None:
    for number, size in enumerate(plan):
        body = body_of(who, number, size)
        answer = await connection.exchange(encoded(connection, body), timeout_ms=PATIENT_MS)
        assert answer.body == body


@given(threads=st.lists(sizes, min_size=1, max_size=4), loop=sizes, is_tight=st.booleans())
@settings(max_examples=60)
def test_every_request_gets_its_own_answer_whoever_sends(
    threads: list[list[int]], loop: list[int], is_tight: bool
) -> None:
    async def main() -> None:
        async with serving() as server, RemotingClient() as client:
            connection = await client.connect(f"{HOST}:{server.ports[0]}")
            await open_to_threads(connection)
            if is_tight:
                keep_little(connection)
            await asyncio.gather(
                in_loop(connection, 0, loop),
                *(in_thread(connection, who, plan) for who, plan in enumerate(threads, 1)),
            )
            assert connection.in_flight_count == 0

    run(main())


@given(
    threads=st.lists(sizes, min_size=1, max_size=4), loop=sizes, answer_size=st.integers(1, LARGE)
)
@settings(max_examples=40)
def test_every_call_ends_when_the_connection_does(
    threads: list[list[int]], loop: list[int], answer_size: int
) -> None:
    async def main() -> None:
        async with (
            serving() as server,
            AsyncTcpProxy(f"{HOST}:{server.ports[0]}") as proxy,
            RemotingClient() as client,
        ):
            connection = await client.connect(proxy.address)
            await open_to_threads(connection)
            proxy.cut_answers_after(answer_size)
            outcomes = await asyncio.gather(
                in_loop(connection, 0, loop),
                *(in_thread(connection, who, plan) for who, plan in enumerate(threads, 1)),
                return_exceptions=True,
            )
            for outcome in outcomes:
                assert outcome is None or isinstance(outcome, int | RemotingError)

    run(main())
