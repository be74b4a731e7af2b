import asyncio
import logging

import pytest

from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import ONE_WAY_FLAG, encode_command
from flintmq.format.wire.frame import HeaderType
from flintmq.format.wire.headers.clients import ConsumerGroupRequest, NoFields
from flintmq.remoting import (
    Answer,
    AnswerTimeoutError,
    BindError,
    Connection,
    Limits,
    RefusedError,
    RemotingClient,
    Request,
    RequestTable,
    bind,
)
from tests.kits.broker.remoting_kit import (
    ECHO,
    GROUP_HEADER,
    HOST,
    PATIENT_MS,
    RawClient,
    echo,
    eventually,
    request,
    serving,
)


async def test_all_requests_of_one_read_are_answered_in_order() -> None:
    async with serving() as server, RawClient.connect(server.ports[0]) as peer:
        await peer.send(*(request(number, b"%d" % number) for number in range(300)))
        answers = [await peer.receive() for _ in range(300)]
    assert [answer.opaque for answer in answers] == list(range(300))
    assert [answer.body for answer in answers] == [b"%d" % number for number in range(300)]


@pytest.mark.parametrize("kind", HeaderType)
async def test_an_answer_has_the_notation_of_its_request(kind: HeaderType) -> None:
    async with serving() as server, RawClient.connect(server.ports[0]) as peer:
        command = request(7, b"body")
        command.serialize_type = kind
        await peer.send(command)
        answer = await peer.receive()
    assert (answer.serialize_type, answer.body, answer.opaque) == (kind, b"body", 7)


async def test_an_unknown_code_is_answered_as_such() -> None:
    async with serving() as server, RawClient.connect(server.ports[0]) as peer:
        await peer.send(request(3, code=9999), request(4, b"still here"))
        answer, following = await peer.receive(), await peer.receive()
    assert (answer.code, answer.opaque) == (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 3)
    assert following.body == b"still here"


async def test_a_missing_field_is_named_and_the_connection_lives() -> None:
    table = {RequestCode.GET_CONSUMER_LIST_BY_GROUP: lambda request: Answer()}
    async with serving(table) as server, RawClient.connect(server.ports[0]) as peer:
        code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
        await peer.send(request(1, code=code), request(2, code=code, consumerGroup="g"))
        refused, served = await peer.receive(), await peer.receive()
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "consumerGroup" in (refused.remark or "")
    assert served.code == ResponseCode.SUCCESS


async def test_a_processor_that_fails_is_answered_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def explode(_: Request[NoFields]) -> Answer:
        raise ZeroDivisionError("by zero")

    def refuse(_: Request[NoFields]) -> Answer:
        raise RefusedError(ResponseCode.NO_PERMISSION, "not you")

    table = {RequestCode.LOCK_BATCH_MQ: explode, RequestCode.UNLOCK_BATCH_MQ: refuse}
    async with serving(table) as server, RawClient.connect(server.ports[0]) as peer:
        await peer.send(
            request(1, code=RequestCode.LOCK_BATCH_MQ),
            request(2, code=RequestCode.UNLOCK_BATCH_MQ),
        )
        exploded, refused = await peer.receive(), await peer.receive()
    assert exploded.code == ResponseCode.SYSTEM_ERROR
    assert "ZeroDivisionError" in (exploded.remark or "")
    assert (refused.code, refused.remark) == (ResponseCode.NO_PERMISSION, "not you")

    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_a_one_way_request_is_done_and_not_answered() -> None:
    seen: list[bytes] = []

    def note(asked: Request[NoFields]) -> Answer:
        seen.append(asked.body)
        return Answer()

    table = {RequestCode.LOCK_BATCH_MQ: note}
    async with serving(table) as server, RawClient.connect(server.ports[0]) as peer:
        command = request(1, b"one way", code=RequestCode.LOCK_BATCH_MQ)
        command.flag = ONE_WAY_FLAG
        await peer.send(command, request(2, b"asked"))
        assert (await peer.receive()).opaque == 2
    assert seen == [b"one way"]


async def test_a_later_answer_does_not_hold_up_the_others() -> None:
    waiting: list[Request[NoFields]] = []

    def keep(asked: Request[NoFields]) -> None:
        waiting.append(asked)

    table = {RequestCode.LOCK_BATCH_MQ: keep}
    async with serving(table) as server, RawClient.connect(server.ports[0]) as peer:
        await peer.send(request(1, code=RequestCode.LOCK_BATCH_MQ), request(2))
        assert (await peer.receive()).opaque == 2
        waiting[0].answer(Answer(remark="at last"))
        answer = await peer.receive()
        assert (answer.opaque, answer.remark) == (1, "at last")


async def test_what_is_no_frame_ends_only_its_own_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        serving() as server,
        RawClient.connect(server.ports[0]) as good,
        RawClient.connect(server.ports[0]) as bad,
    ):
        bad.writer.write(encode_command(request(1, b"first")) + b"GET / HTTP/1.1\r\n\r\n")
        assert (await bad.receive()).body == b"first"
        assert await bad.is_cut_off()
        await good.send(request(2, b"unharmed"))
        assert (await good.receive()).body == b"unharmed"

    assert len(caplog.records) == 1


async def test_a_frame_over_the_limit_ends_the_connection() -> None:
    limits = Limits(frame_size_max=1000)
    async with serving(limits=limits) as server, RawClient.connect(server.ports[0]) as peer:
        await peer.send(request(1, b"x" * 500))
        assert len((await peer.receive()).body) == 500
        await peer.send(request(2, b"x" * 1000))
        assert await peer.is_cut_off()


async def test_one_connection_too_many_is_closed_and_the_others_are_served() -> None:
    async with serving(limits=Limits(connection_count_max=2)) as server:
        port = server.ports[0]
        async with RawClient.connect(port) as first, RawClient.connect(port) as second:
            for peer in (first, second):
                await peer.send(request(1))
                await peer.receive()
            async with RawClient.connect(port) as third:
                assert await third.is_cut_off()
            await first.send(request(2, b"still"))
            assert (await first.receive()).body == b"still"


async def test_a_peer_that_does_not_read_is_dropped_at_the_limit() -> None:
    body = b"x" * 100_000
    lost: list[Connection] = []

    limits = Limits(write_pause_size=200_000, write_drop_size=8_000_000)
    pushed: list[Connection] = []

    def remember(asked: Request[NoFields]) -> Answer:
        assert isinstance(asked.connection, Connection)
        pushed.append(asked.connection)
        return Answer()

    table = {RequestCode.LOCK_BATCH_MQ: remember}
    async with (
        serving(table, limits=limits, on_close=lost.append) as server,
        RawClient.connect(server.ports[0], receive_buffer=4096) as peer,
        RawClient.connect(server.ports[0]) as other,
    ):
        await peer.send(request(1, code=RequestCode.LOCK_BATCH_MQ))
        await eventually(lambda: bool(pushed))
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
        while not lost:
            pushed[0].tell(ECHO, None, body)
            await other.send(request(2, b"served"))
            assert (await other.receive()).body == b"served"
    assert lost[0] is pushed[0]


async def test_a_peer_that_does_not_read_its_answers_is_not_read_from() -> None:
    limits = Limits(write_pause_size=100_000, write_drop_size=50_000_000)
    async with (
        serving(limits=limits) as server,
        RawClient.connect(server.ports[0], receive_buffer=4096) as peer,
    ):
        frames = encode_command(request(1, b"x" * 50_000)) * 400
        peer.writer.write(frames)
        await eventually(lambda: bool(server.connections))
        (connection,) = server.connections
        unread = connection.unread_size
        await eventually(lambda: connection.unread_size > 100_000)
        for _ in range(50):
            await asyncio.sleep(0)
            unread = max(unread, connection.unread_size)
        assert unread < 10_000_000
        # Once it reads, everything comes.
        for _ in range(400):
            assert len((await peer.receive()).body) == 50_000


async def test_small_requests_with_large_answers_wait_for_a_peer_that_does_not_read() -> None:
    size, count = 100_000, 200

    limits = Limits(write_pause_size=500_000, write_drop_size=1_500_000)
    handled: list[int] = []

    def large(asked: Request[NoFields]) -> Answer:
        handled.append(asked.command.opaque)
        return Answer(parts=[bytes(size)])

    async with (
        serving({RequestCode.LOCK_BATCH_MQ: large}, limits=limits) as server,
        RawClient.connect(server.ports[0], receive_buffer=4096) as peer,
    ):
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
        # One read of the server brings all of them.
        await peer.send(*(request(n, code=RequestCode.LOCK_BATCH_MQ) for n in range(count)))
        await eventually(lambda: bool(handled))
        (connection,) = server.connections
        for _ in range(50):
            await asyncio.sleep(0)
            assert connection.unread_size < limits.write_pause_size + 2 * size
        assert len(handled) < count
        peer.reader._transport.resume_reading()  # type: ignore[attr-defined]
        answers = [await peer.receive() for _ in range(count)]
    assert [answer.opaque for answer in answers] == handled == list(range(count))


async def test_too_many_waiting_requests_are_told_to_come_later() -> None:
    release = asyncio.Event()

    async def wait(_: Request[NoFields]) -> Answer:
        await release.wait()
        return Answer()

    table = {RequestCode.LOCK_BATCH_MQ: wait}
    limits = Limits(waiting_count_max=2)
    async with (
        serving(table, limits=limits) as server,
        RawClient.connect(server.ports[0]) as peer,
    ):
        await peer.send(*(request(n, code=RequestCode.LOCK_BATCH_MQ) for n in range(3)))
        busy = await peer.receive()
        assert (busy.opaque, busy.code) == (2, ResponseCode.SYSTEM_BUSY)
        assert (busy.remark or "").startswith("[OVERLOAD]")
        release.set()
        assert {(await peer.receive()).opaque for _ in range(2)} == {0, 1}


async def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    async with (
        serving(limits=Limits(idle_timeout_ms=1500)) as server,
        RawClient.connect(server.ports[0]) as idle,
        RawClient.connect(server.ports[0]) as busy,
    ):
        gone = asyncio.create_task(idle.is_cut_off())
        while not gone.done():
            await busy.send(request(1))
            await busy.receive()
            await asyncio.sleep(0.01)
        await busy.send(request(2, b"alive"))
        assert (await busy.receive()).body == b"alive"


async def test_the_end_of_a_server_lets_requests_under_way_finish() -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def wait(_: Request[NoFields]) -> Answer:
        started.set()
        await release.wait()
        return Answer(remark="finished")

    async with serving({RequestCode.LOCK_BATCH_MQ: wait}) as server:
        peer_context = RawClient.connect(server.ports[0])
        peer = await peer_context.__aenter__()
        await peer.send(request(1, code=RequestCode.LOCK_BATCH_MQ))
        await started.wait()
        asyncio.get_running_loop().call_later(0.05, release.set)
    assert (await peer.receive()).remark == "finished"
    await peer_context.__aexit__(None, None, None)


async def test_both_sides_may_ask_on_one_connection() -> None:
    async def ask_back(asked: Request[ConsumerGroupRequest]) -> Answer:
        answer = await asked.connection.call(ECHO, None, b"and you?", timeout_ms=PATIENT_MS)
        return Answer(parts=[answer.body])

    code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    async with (
        serving({code: ask_back}) as server,
        RemotingClient(RequestTable({ECHO: echo})) as client,
    ):
        address = f"{HOST}:{server.ports[0]}"
        answer = await client.call(address, code, GROUP_HEADER, timeout_ms=PATIENT_MS)
    assert answer.body == b"and you?"


async def test_an_answer_that_fits_no_frame_becomes_a_refusal() -> None:
    huge = {RequestCode.LOCK_BATCH_MQ: lambda _: Answer(parts=[bytes(17 << 20)])}
    async with serving(huge) as server, RawClient.connect(server.ports[0]) as peer:
        await peer.send(request(1, code=RequestCode.LOCK_BATCH_MQ))
        answer = await peer.receive()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "limit" in (answer.remark or "")


def test_a_port_that_is_taken_is_a_clear_error() -> None:
    with bind(HOST, 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BindError, match=f"{HOST}:{port}"):
            bind(HOST, port)


async def test_views_are_given_back_once_they_were_copied() -> None:
    released: list[bool] = []

    def lend(_: Request[NoFields]) -> Answer:
        view = memoryview(b"abc")

        def release() -> None:
            view.release()
            released.append(True)

        return Answer(parts=[view], release=release)

    async with (
        serving({RequestCode.LOCK_BATCH_MQ: lend}) as server,
        RawClient.connect(server.ports[0]) as peer,
    ):
        command = request(1, code=RequestCode.LOCK_BATCH_MQ)
        command.flag = ONE_WAY_FLAG
        await peer.send(command, request(2, code=RequestCode.LOCK_BATCH_MQ))
        assert (await peer.receive()).body == b"abc"

    assert released == [True, True]


async def test_a_call_without_an_answer_times_out() -> None:
    silent = {RequestCode.LOCK_BATCH_MQ: lambda _: None}
    async with serving(silent) as server, RemotingClient() as client:
        address = f"{HOST}:{server.ports[0]}"
        await client.connect(address)  # Its time would count too.
        with pytest.raises(AnswerTimeoutError, match="within 50 ms"):
            await client.call(address, RequestCode.LOCK_BATCH_MQ, timeout_ms=50)
        answer = await client.call(address, ECHO, None, b"later", timeout_ms=PATIENT_MS)
        assert answer.body == b"later"


async def test_what_a_peer_asks_behind_work_it_waits_for_is_handled_after_it() -> None:
    done = asyncio.get_running_loop().create_future()
    seen: list[bytes] = []

    def wait(asked: Request[NoFields]) -> None:
        asked.connection.wait_for(done)
        done.add_done_callback(lambda _: asked.answer(Answer()))

    def note(asked: Request[NoFields]) -> Answer:
        seen.append(asked.body)
        return Answer(parts=[asked.body])

    table = {RequestCode.LOCK_BATCH_MQ: wait, RequestCode.UNLOCK_BATCH_MQ: note}
    code = RequestCode.UNLOCK_BATCH_MQ
    async with (
        serving(table) as server,
        RawClient.connect(server.ports[0]) as peer,
        RawClient.connect(server.ports[0]) as other,
    ):
        await peer.send(request(1, code=RequestCode.LOCK_BATCH_MQ), request(2, b"a", code=code))
        await eventually(lambda: len(server.connections) == 2)
        # What comes in later reads waits too, and is not read without end.
        for number in range(3, 40):
            await peer.send(request(number, bytes(50_000), code=code))
            await other.send(request(number, b"other"))
            assert (await other.receive()).body == b"other"
        assert seen == []
        done.set_result(None)
        answers = [await peer.receive() for _ in range(1, 40)]
    assert [answer.opaque for answer in answers] == list(range(1, 40))


async def test_a_peer_that_waits_for_two_works_goes_on_after_both() -> None:
    works: list[asyncio.Future[None]] = []

    def wait(asked: Request[NoFields]) -> Answer:
        works.extend(asyncio.get_running_loop().create_future() for _ in range(2))
        for work in works:
            asked.connection.wait_for(work)
        return Answer()

    async with (
        serving({RequestCode.LOCK_BATCH_MQ: wait}) as server,
        RawClient.connect(server.ports[0]) as peer,
        RawClient.connect(server.ports[0]) as other,
    ):
        await peer.send(request(1, code=RequestCode.LOCK_BATCH_MQ), request(2, b"behind"))
        assert (await peer.receive()).opaque == 1
        behind = asyncio.ensure_future(peer.receive())
        for work in works:
            for number in range(8):
                await other.send(request(number, b"other"))
                assert (await other.receive()).body == b"other"
            assert not behind.done()
            work.set_result(None)
        assert (await behind).body == b"behind"
