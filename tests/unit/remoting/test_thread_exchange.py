"""Threads send requests by themselves, and the loop reads the answers."""

import asyncio
import contextlib
import os
import resource
import socket
import threading
from collections.abc import Iterator

import pytest

from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.clients import NoFields
from flintmq.remoting import (
    AnswerTimeoutError,
    ConnectionLostError,
    EncodedRequest,
    Limits,
    RemotingClient,
    Request,
    TooManyInFlightError,
)
from flintmq.remoting.client_connection import ClientConnection
from flintmq.testing import AsyncTcpProxy
from tests.kits.broker.remoting_kit import ECHO, HOST, PATIENT_MS, eventually, serving
from tests.kits.broker.thread_exchanges import ask, encoded, keep_little, open_to_threads

MIB = 1 << 20
WAIT_S = 20


def silent(_: Request[NoFields]) -> None:
    """Answer nothing."""


def ask_silent(connection: ClientConnection, timeout_ms: int) -> Command | None:
    request = encoded(connection, b"")
    frame = request.frame.replace(b'"code":%d' % ECHO, b'"code":%d' % RequestCode.LOCK_BATCH_MQ)
    unanswered = EncodedRequest(RequestCode.LOCK_BATCH_MQ, request.opaque, frame)
    return connection.exchange_in_thread(unanswered, timeout_ms=timeout_ms)


SILENT = {RequestCode.LOCK_BATCH_MQ: silent}


async def test_a_thread_gets_the_answer_to_its_own_request() -> None:
    async with serving() as server, RemotingClient() as client:
        connection = await client.connect(f"{HOST}:{server.ports[0]}")
        await open_to_threads(connection)
        for body in (b"one", b"", bytes(MIB), b"two"):
            answer = await asyncio.to_thread(ask, connection, body)
            assert answer is not None
            assert answer.body == body
        assert connection.in_flight_count == 0


async def test_large_requests_of_a_thread_leave_in_parts_and_whole() -> None:
    async with serving() as server, RemotingClient() as client:
        connection = await client.connect(f"{HOST}:{server.ports[0]}")
        await open_to_threads(connection)
        keep_little(connection)
        body = bytes(range(256)) * 4000
        answer = await asyncio.to_thread(ask, connection, body)
        assert answer is not None
        assert answer.body == body
        # The socket is released once all has left.
        await open_to_threads(connection)


async def test_a_thread_is_told_when_its_time_is_up_and_the_connection_is_probed() -> None:
    limits = Limits(probe_timeout_ms=PATIENT_MS)
    async with serving(SILENT) as server, RemotingClient(limits=limits) as client:
        connection = await client.connect(f"{HOST}:{server.ports[0]}")
        await open_to_threads(connection)
        for _ in range(limits.missing_count_max):
            with pytest.raises(AnswerTimeoutError):
                await asyncio.to_thread(ask_silent, connection, 5)
        await eventually(lambda: connection._probing is None)
        assert (await asyncio.to_thread(ask, connection, b"alive")) is not None


async def test_a_connection_that_is_forgotten_is_given_up_though_only_threads_ask() -> None:
    limits = Limits(probe_timeout_ms=50)
    async with (
        serving() as server,
        AsyncTcpProxy(f"{HOST}:{server.ports[0]}") as proxy,
        RemotingClient(limits=limits) as client,
    ):
        connection = await client.connect(proxy.address)
        await open_to_threads(connection)
        proxy.forget_connections()
        for _ in range(limits.missing_count_max):
            with pytest.raises(AnswerTimeoutError):
                await asyncio.to_thread(ask, connection, timeout_ms=5)
        await eventually(lambda: connection.is_lost)
        assert await asyncio.to_thread(ask, connection) is None


async def test_a_lost_connection_is_told_to_every_thread_that_waits() -> None:
    async with serving(SILENT) as server, RemotingClient() as client:
        connection = await client.connect(f"{HOST}:{server.ports[0]}")
        await open_to_threads(connection)
        waiting = [
            asyncio.create_task(asyncio.to_thread(ask_silent, connection, PATIENT_MS))
            for _ in range(4)
        ]
        await eventually(lambda: connection.in_flight_count == len(waiting))
        connection.abort()
        for one in waiting:
            with pytest.raises(ConnectionLostError):
                await one


async def test_nothing_is_sent_by_threads_once_a_connection_is_being_closed() -> None:
    async with serving() as server, RemotingClient() as client:
        connection = await client.connect(f"{HOST}:{server.ports[0]}")
        await open_to_threads(connection)
        connection.close()
        # In the same turn of the loop: nobody was told that the connection is lost.
        asked = threading.Thread(target=lambda: answers.append(ask(connection)))
        answers: list[Command | None] = []
        asked.start()
        asked.join(WAIT_S)
        assert answers == [None]


async def test_threads_count_among_the_requests_that_may_wait() -> None:
    limits = Limits(in_flight_count_max=1)
    async with serving(SILENT) as server, RemotingClient(limits=limits) as client:
        connection = await client.connect(f"{HOST}:{server.ports[0]}")
        await open_to_threads(connection)
        waiting = asyncio.create_task(asyncio.to_thread(ask_silent, connection, PATIENT_MS))
        await eventually(lambda: connection.in_flight_count == 1)
        with pytest.raises(TooManyInFlightError):
            await asyncio.to_thread(ask, connection)
        connection.abort()
        with pytest.raises(ConnectionLostError):
            await waiting


async def test_while_the_server_reads_slowly_threads_leave_it_to_the_loop() -> None:
    limits = Limits(write_pause_size=64 << 10)
    async with (
        serving() as server,
        AsyncTcpProxy(f"{HOST}:{server.ports[0]}") as proxy,
        RemotingClient(limits=limits) as client,
    ):
        connection = await client.connect(proxy.address)
        await open_to_threads(connection)
        with proxy.stall():
            full = asyncio.create_task(
                client.call(proxy.address, ECHO, None, bytes(15 * MIB), timeout_ms=PATIENT_MS)
            )
            await eventually(lambda: connection.unread_size > limits.write_pause_size)
            assert await asyncio.to_thread(ask, connection) is None
        assert len((await full).body) == 15 * MIB
        await open_to_threads(connection)


async def test_a_thread_that_was_stopped_in_mid_frame_costs_the_connection_only() -> None:
    async with serving() as server, RemotingClient() as client:
        address = f"{HOST}:{server.ports[0]}"
        connection = await client.connect(address)
        await open_to_threads(connection)
        assert connection._shared is not None
        assert connection._shared._lock.acquire(blocking=False)
        with pytest.raises(ConnectionLostError):
            await client.call(address, ECHO, None, b"first", timeout_ms=PATIENT_MS)
        answer = await client.call(address, ECHO, None, b"again", timeout_ms=PATIENT_MS)
        assert answer.body == b"again"


async def test_behind_a_broken_frame_nothing_is_sent_when_the_connection_is_closed() -> None:
    """A broker took what came behind half a message for the rest of its body, and stored it."""
    with socket.create_server((HOST, 0)) as listener:
        async with RemotingClient() as client:
            connection = await client.connect(f"{HOST}:{listener.getsockname()[1]}")
            peer, _ = await asyncio.to_thread(listener.accept)
            connection._share()
            shared, half = connection._shared, encoded(connection, bytes(1000)).frame[:-500]
            assert shared is not None
            assert shared._lock.acquire(blocking=False)
            assert shared._socket.send(half) == len(half)
            connection.tell(ECHO, None, bytes(500))
            connection.close()
            with peer, contextlib.suppress(ConnectionResetError):
                received = b""
                while chunk := await asyncio.to_thread(peer.recv, 1 << 16):
                    received += chunk
    assert received == half


async def test_threads_that_ask_for_the_socket_at_once_get_the_same() -> None:
    """Each had one of its own, and with two locks their frames could be mixed."""
    async with serving() as server, RemotingClient() as client:
        connection = await client.connect(f"{HOST}:{server.ports[0]}")
        await open_to_threads(connection)
        first = connection._shared
        connection._share()
        assert connection._shared is first
        assert await asyncio.to_thread(ask, connection, b"still") is not None


@contextlib.contextmanager
def no_descriptors_left() -> Iterator[None]:
    """Have the system give this process no descriptor within a block."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in held:
            os.close(descriptor)


async def test_without_a_descriptor_for_threads_the_loop_goes_on_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A callback of the loop failed with a traceback that nobody could do anything about."""
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, failure: failures.append(failure))
    async with serving() as server, RemotingClient() as client:
        connection = await client.connect(f"{HOST}:{server.ports[0]}")
        await asyncio.to_thread(lambda: None)  # It may take descriptors to have a thread.
        with no_descriptors_left():
            assert await asyncio.to_thread(ask, connection) is None
            assert (await connection.call(ECHO, timeout_ms=PATIENT_MS)).body == b""
        assert await asyncio.to_thread(ask, connection) is None
    assert failures == []
    assert "only the loop sends on a connection: reason=" in caplog.text
