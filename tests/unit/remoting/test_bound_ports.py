"""A port that the system chose is nobody else's, before it listens too, and can be had again."""

import asyncio
import socket

import pytest

from flintmq.remoting import BindError, RemotingServer, RequestTable, bind
from tests.kits.broker.remoting_kit import run_within

HOST = "127.0.0.1"


def port_of(bound: socket.socket) -> int:
    port: int = bound.getsockname()[1]
    return port


def test_a_port_that_was_chosen_is_nobody_elses_before_it_listens() -> None:
    with bind(HOST, 0) as chosen, pytest.raises(BindError):
        bind(HOST, port_of(chosen))


def test_a_port_that_has_to_be_free_is_nobody_elses_either() -> None:
    with bind(HOST, 0) as chosen:
        port = port_of(chosen)
    with bind(HOST, port, is_free=True), pytest.raises(BindError):
        bind(HOST, port)


def test_a_port_can_be_had_again_while_old_connections_linger() -> None:
    async def scenario() -> None:
        bound = bind(HOST, 0)
        port = port_of(bound)
        async with RemotingServer.listen(RequestTable({}), sockets=[bound]):
            reader, writer = await asyncio.open_connection(HOST, port)
            # An answer to nonsense: the server is the one who closes, and whose end lingers.
            writer.write(b"\x7f\xff\xff\xff\0\0\0\0")
            assert await reader.read() == b""
        writer.close()
        with pytest.raises(BindError):
            bind(HOST, port, is_free=True)
        bind(HOST, port).close()

    run_within(scenario(), 30)
