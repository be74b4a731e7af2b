import asyncio
import contextlib

import pytest

from flintmq.format.errors import HostError
from flintmq.format.host import parse_address
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.clients import NoFields
from flintmq.remoting import (
    Answer,
    ConnectError,
    ConnectionLostError,
    Limits,
    RemotingClient,
    RemotingServer,
    Request,
    RequestTable,
    TooManyInFlightError,
    bind,
)
from tests.kits.broker.remoting_kit import (
    ECHO,
    HOST,
    PATIENT_MS,
    echo,
    eventually,
    reserved_port,
    serving,
)


async def test_calls_to_one_address_share_one_connection() -> None:
    async with serving() as server, RemotingClient() as client:
        address = f"{HOST}:{server.ports[0]}"
        bodies = [b"%d" % number for number in range(50)]
        calls = (client.call(address, ECHO, None, body, timeout_ms=PATIENT_MS) for body in bodies)
        answers = await asyncio.gather(*calls)
        assert [answer.body for answer in answers] == bodies
        assert len(server.connections) == 1


async def test_a_lost_connection_fails_what_waits_and_the_next_call_makes_a_new_one() -> None:
    def hang_up(asked: Request[NoFields]) -> None:
        asked.connection.close()

    async with (
        serving({RequestCode.LOCK_BATCH_MQ: hang_up}) as server,
        RemotingClient() as client,
    ):
        address = f"{HOST}:{server.ports[0]}"
        with pytest.raises(ConnectionLostError):
            await client.call(address, RequestCode.LOCK_BATCH_MQ, timeout_ms=PATIENT_MS)
        answer = await client.call(address, ECHO, None, b"again", timeout_ms=PATIENT_MS)
        assert answer.body == b"again"


async def test_an_address_where_nobody_listens_is_an_error_at_once_and_tried_again_later() -> None:
    with reserved_port() as port:
        async with RemotingClient() as client:
            with pytest.raises(ConnectError, match=f"{HOST}:{port}"):
                await client.call(f"{HOST}:{port}", ECHO, timeout_ms=PATIENT_MS)
            table = RequestTable({ECHO: echo})
            async with RemotingServer.listen(table, sockets=[bind(HOST, port)]):
                answer = await client.call(
                    f"{HOST}:{port}", ECHO, None, b"up", timeout_ms=PATIENT_MS
                )
                assert answer.body == b"up"


async def test_a_caller_that_gives_up_does_not_take_the_connection_from_others() -> None:
    async with serving() as server, RemotingClient() as client:
        address = f"{HOST}:{server.ports[0]}"
        impatient = asyncio.create_task(client.call(address, ECHO, timeout_ms=PATIENT_MS))
        patient = asyncio.create_task(client.call(address, ECHO, None, b"x", timeout_ms=PATIENT_MS))
        await asyncio.sleep(0)
        impatient.cancel()
        assert (await patient).body == b"x"
        with contextlib.suppress(asyncio.CancelledError):
            await impatient


async def test_requests_in_flight_are_limited() -> None:
    async with (
        serving({RequestCode.LOCK_BATCH_MQ: lambda _: None}) as server,
        RemotingClient(limits=Limits(in_flight_count_max=2)) as client,
    ):
        address = f"{HOST}:{server.ports[0]}"
        calls = [
            asyncio.create_task(
                client.call(address, RequestCode.LOCK_BATCH_MQ, timeout_ms=PATIENT_MS)
            )
            for _ in range(2)
        ]
        connection = await client.connect(address)
        await eventually(lambda: connection.in_flight_count == 2)
        with pytest.raises(TooManyInFlightError):
            await client.call(address, ECHO, timeout_ms=PATIENT_MS)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        # Those who gave up make room.
        assert (await client.call(address, ECHO, None, b"y", timeout_ms=PATIENT_MS)).body == b"y"


async def test_closing_sends_what_was_told_before() -> None:
    seen: list[bytes] = []

    def note(asked: Request[NoFields]) -> Answer:
        seen.append(asked.body)
        return Answer()

    async with serving({RequestCode.LOCK_BATCH_MQ: note}) as server:
        async with RemotingClient() as client:
            address = f"{HOST}:{server.ports[0]}"
            for number in range(100):
                body = b"%d" % number
                await client.tell(
                    address, RequestCode.LOCK_BATCH_MQ, None, body, timeout_ms=PATIENT_MS
                )
        await eventually(lambda: len(seen) == 100)

    assert seen == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("text", ["", "host", "host:", ":9876", "host:port", "::1:9876", "h:70000"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(HostError):
        parse_address(text)
