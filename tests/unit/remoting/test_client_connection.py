"""The client's side of a connection: room for requests, answers that are read, silence."""

import asyncio
import contextlib
import socket

import pytest

from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import decode_command, encode_command
from flintmq.format.wire.frame import Frame, FrameDecoder
from flintmq.format.wire.headers.clients import NoFields
from flintmq.remoting import (
    Answer,
    AnswerTimeoutError,
    ClosedError,
    ConnectError,
    ConnectionLostError,
    Limits,
    NotSentError,
    RemotingClient,
    RemotingError,
    Request,
    bind,
)
from flintmq.testing import AsyncTcpProxy
from tests.kits.broker.remoting_kit import ECHO, HOST, PATIENT_MS, eventually, serving

MIB = 1 << 20
QUICK = Limits(probe_timeout_ms=100)


def silent(_: Request[NoFields]) -> None:
    """Answer nothing."""


async def test_a_thousand_large_requests_at_once_wait_for_room_and_all_are_answered() -> None:
    limits = Limits(write_pause_size=MIB, write_drop_size=16 * MIB)
    async with serving() as server, RemotingClient(limits=limits) as client:
        address = f"{HOST}:{server.ports[0]}"
        body = bytes(100_000)
        calls = (client.call(address, ECHO, None, body, timeout_ms=50_000) for _ in range(1000))
        answers = await asyncio.gather(*calls)
        assert {len(answer.body) for answer in answers} == {len(body)}
        assert len(server.connections) == 1


async def test_answers_are_read_while_the_server_reads_nothing() -> None:
    """Each side would wait for the other if a client stopped reading when it cannot write."""
    limits = Limits(write_pause_size=64 << 10)
    asked, release, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def answer_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and read nothing more before the answer has left."""
        frames: list[Frame] = []
        decoder = FrameDecoder()
        while not frames:
            frames = list(decoder.frames(await reader.read(4096)))
        asked.set()
        await release.wait()
        answer = decode_command(frames[0]).answer(ResponseCode.SUCCESS)
        answer.body = bytes(8 * MIB)
        writer.write(encode_command(answer))
        await writer.drain()
        with contextlib.suppress(OSError):
            while await reader.read(MIB):
                pass
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(answer_first, HOST, 0, limit=4096)
    async with server, RemotingClient(limits=limits) as client:
        address = f"{HOST}:{server.sockets[0].getsockname()[1]}"
        first = asyncio.create_task(client.call(address, ECHO, timeout_ms=50_000))
        await asked.wait()
        others = [
            asyncio.create_task(client.call(address, ECHO, None, bytes(MIB), timeout_ms=50_000))
            for _ in range(32)
        ]
        connection = await client.connect(address)
        await eventually(lambda: connection.unread_size > limits.write_pause_size)
        release.set()
        assert len((await first).body) == 8 * MIB
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await client.close()
        await ended.wait()


async def test_a_request_that_finds_no_room_in_time_was_not_sent_and_says_so() -> None:
    limits = Limits(write_pause_size=64 << 10)
    async with (
        serving() as server,
        AsyncTcpProxy(f"{HOST}:{server.ports[0]}") as proxy,
        RemotingClient(limits=limits) as client,
    ):
        with proxy.stall():
            full = asyncio.create_task(
                client.call(proxy.address, ECHO, None, bytes(15 * MIB), timeout_ms=50_000)
            )
            connection = await client.connect(proxy.address)
            await eventually(lambda: connection.unread_size > limits.write_pause_size)
            with pytest.raises(NotSentError):
                await client.call(proxy.address, ECHO, None, b"late", timeout_ms=50)
            with pytest.raises(NotSentError):
                await client.tell(proxy.address, ECHO, None, b"late", timeout_ms=50)
        assert len((await full).body) == 15 * MIB


async def test_a_forgotten_connection_is_probed_and_replaced() -> None:
    async with (
        serving() as server,
        AsyncTcpProxy(f"{HOST}:{server.ports[0]}") as proxy,
        RemotingClient(limits=QUICK) as client,
    ):
        await client.call(proxy.address, ECHO, timeout_ms=PATIENT_MS)
        proxy.forget_connections()
        waiting = asyncio.create_task(client.call(proxy.address, ECHO, timeout_ms=50_000))
        for _ in range(QUICK.missing_count_max):
            with pytest.raises(AnswerTimeoutError):
                await client.call(proxy.address, ECHO, timeout_ms=20)
        # What still waits is told as soon as the connection is given up, not after its own time.
        with pytest.raises(ConnectionLostError):
            await waiting
        answer = await client.call(proxy.address, ECHO, None, b"again", timeout_ms=PATIENT_MS)
        assert answer.body == b"again"
        assert proxy.accepted_count == 2


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LOCK_BATCH_MQ])
async def test_a_server_that_leaves_some_requests_unanswered_keeps_its_connection(
    code: RequestCode,
) -> None:
    async with (
        serving({RequestCode.LOCK_BATCH_MQ: silent}) as server,
        RemotingClient(limits=Limits(probe_timeout_ms=PATIENT_MS)) as client,
    ):
        address = f"{HOST}:{server.ports[0]}"
        connection = await client.connect(address)
        for _ in range(2 * QUICK.missing_count_max):
            with contextlib.suppress(AnswerTimeoutError):
                await client.call(address, code, timeout_ms=5)
        # The probe is answered: it is not the connection that is at fault.
        answer = await client.call(address, ECHO, None, b"alive", timeout_ms=PATIENT_MS)
        assert answer.body == b"alive"
        assert await client.connect(address) is connection


async def test_one_request_that_times_out_takes_no_others_along() -> None:
    async def late(request: Request[NoFields]) -> Answer:
        await asyncio.sleep(0.3)
        return Answer(parts=[request.body])

    async with (
        serving({RequestCode.LOCK_BATCH_MQ: late, RequestCode.UNLOCK_BATCH_MQ: silent}) as server,
        RemotingClient() as client,
    ):
        address = f"{HOST}:{server.ports[0]}"
        others = [
            asyncio.create_task(
                client.call(address, RequestCode.LOCK_BATCH_MQ, None, b"x", timeout_ms=20_000)
            )
            for _ in range(100)
        ]
        await asyncio.sleep(0)
        with pytest.raises(AnswerTimeoutError):
            await client.call(address, RequestCode.UNLOCK_BATCH_MQ, timeout_ms=20)
        assert {answer.body for answer in await asyncio.gather(*others)} == {b"x"}


async def test_the_system_looks_after_idle_connections() -> None:
    async with serving() as server, RemotingClient() as client:
        connection = await client.connect(f"{HOST}:{server.ports[0]}")
        assert connection._transport is not None
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


async def test_the_time_of_a_call_includes_that_for_its_connection() -> None:
    # A socket that listens and whose backlog is full lets nobody in and tells nobody.
    with bind(HOST, 0) as full:
        full.listen(0)
        host, port = full.getsockname()
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect((host, port))
            fillers.append(filler)
        async with RemotingClient(limits=Limits(connect_timeout_ms=30_000)) as client:
            began = asyncio.get_running_loop().time()
            with pytest.raises(ConnectError):
                await client.call(f"{host}:{port}", ECHO, timeout_ms=100)
            assert asyncio.get_running_loop().time() - began < 10
        for filler in fillers:
            filler.close()


async def test_a_closed_client_makes_no_connections() -> None:
    async with serving() as server:
        address = f"{HOST}:{server.ports[0]}"
        client = RemotingClient()
        await client.call(address, ECHO, timeout_ms=PATIENT_MS)
        # Calls that are still on their way when it is closed end too.
        calls = [
            asyncio.create_task(
                client.call(address, ECHO, None, b"%d" % one, timeout_ms=PATIENT_MS)
            )
            for one in range(20)
        ]
        await client.close()
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, RemotingError) or not isinstance(outcome, BaseException)
        for _ in range(3):
            with pytest.raises(ClosedError):
                await client.call(address, ECHO, timeout_ms=PATIENT_MS)
        await eventually(lambda: not server.connections)


async def test_callers_that_give_up_early_count_as_answers_that_are_missing() -> None:
    async with (
        serving() as server,
        AsyncTcpProxy(f"{HOST}:{server.ports[0]}") as proxy,
        RemotingClient(limits=QUICK) as client,
    ):
        connection = await client.connect(proxy.address)
        await client.call(proxy.address, ECHO, timeout_ms=PATIENT_MS)
        proxy.forget_connections()
        for _ in range(QUICK.missing_count_max):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await client.call(proxy.address, ECHO, timeout_ms=50_000)
        await connection.lost
        assert (
            await client.call(proxy.address, ECHO, None, b"y", timeout_ms=PATIENT_MS)
        ).body == b"y"


async def test_a_request_that_was_given_up_before_it_was_sent_keeps_nothing() -> None:
    """Bodies of sends that their callers had cancelled were kept while the server did not read."""
    limits = Limits(write_pause_size=64 << 10, missing_count_max=1000)
    with bind(HOST, 0) as paused:
        paused.listen()
        async with RemotingClient(limits=limits) as client:
            address = f"{HOST}:{paused.getsockname()[1]}"
            calls = [
                asyncio.create_task(client.call(address, ECHO, None, bytes(MIB), timeout_ms=50_000))
                for _ in range(32)
            ]
            connection = await client.connect(address)
            await eventually(lambda: len(connection._unsent) > 0)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            assert not connection._unsent
