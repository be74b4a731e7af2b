"""The HTTP endpoint: what it answers, what it refuses, and that it gives the loop back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import pytest

from flintmq.metrics import metrics_endpoint as endpoint_module
from flintmq.metrics.exposition import exposition
from flintmq.metrics.families import Family, FamilyKind, FamilyMaker
from flintmq.metrics.http_requests import REQUEST_SIZE_MAX
from flintmq.metrics.metrics_endpoint import CONNECTION_COUNT_MAX, Exposed, MetricsEndpoint
from flintmq.remoting import bind
from tests.kits.broker.remoting_kit import eventually
from tests.kits.broker.scrape_kit import Scraped, exchange, http_get, parse_answer, scrape

FamilySteps = Iterator[Family | None]


def one_family(make: FamilyMaker) -> FamilySteps:
    yield make.one(FamilyKind.GAUGE, "flintmq_things", "Things.", 5)


@contextlib.asynccontextmanager
async def serving(
    sources: Sequence[Callable[[FamilyMaker], FamilySteps]] = (one_family,),
    **checks: str,
) -> AsyncIterator[str]:
    told = {name: (lambda reason=reason: reason) for name, reason in checks.items()}
    shown = Exposed(exposition, FamilyMaker({}, series_max=100_000), sources, told)
    async with MetricsEndpoint.listen(bind("127.0.0.1", 0), shown) as endpoint:
        yield endpoint.address


async def test_metrics_come_in_chunks_that_prometheus_can_read() -> None:
    async with serving() as address:
        assert (await scrape(address)).value("flintmq_things") == 5


async def test_an_old_client_gets_metrics_without_chunks() -> None:
    async with serving() as address:
        answer = await http_get(address, "/metrics?name=x", version="1.0")
        assert "transfer-encoding" not in answer.headers
        assert Scraped(answer.body.decode()).value("flintmq_things") == 5


async def test_a_server_that_answers_is_healthy() -> None:
    async with serving(store="disk full") as address:
        answer = await http_get(address, "/healthz")
        assert (answer.status, answer.body) == (200, b"ok\n")


async def test_a_server_is_ready_when_every_check_passes() -> None:
    async with serving(store="", registration="") as address:
        answer = await http_get(address, "/readyz")
        assert answer.status == 200
        assert answer.body == b"[+] store: ok\n[+] registration: ok\nready\n"


async def test_a_server_that_is_not_ready_says_why() -> None:
    async with serving(store="disk full:\n97 %", registration="") as address:
        answer = await http_get(address, "/readyz")
        assert answer.status == 503
        assert answer.body.splitlines()[0] == b"[-] store: disk full: 97 %"
        assert answer.body.splitlines()[-1] == b"not ready"


async def test_a_head_request_gets_no_body() -> None:
    async with serving() as address:
        for path in ("/metrics", "/healthz", "/readyz", "/nowhere"):
            raw = await exchange(address, f"HEAD {path} HTTP/1.1\r\n\r\n".encode())
            assert raw.endswith(b"\r\n\r\n"), path


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /other HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"GET /metrics HTTP/2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * REQUEST_SIZE_MAX + b"\r\n\r\n", 431),
    ],
)
async def test_what_is_no_small_get_request_is_refused(request_bytes: bytes, status: int) -> None:
    async with serving() as address:
        assert parse_answer(await exchange(address, request_bytes)).status == status


async def test_half_a_request_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "REQUEST_TIMEOUT_S", 0.01)
    async with serving() as address:
        with contextlib.suppress(ConnectionResetError):
            assert await exchange(address, b"GET /metrics HTT") == b""


async def test_one_connection_too_many_is_closed_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint_module, "REQUEST_TIMEOUT_S", 600)
    async with serving() as address:
        host, _, port = address.rpartition(":")
        async with contextlib.AsyncExitStack() as stack:
            idle = []
            for _ in range(CONNECTION_COUNT_MAX):
                reader, writer = await asyncio.open_connection(host, int(port))
                stack.callback(writer.close)
                idle.append((reader, writer))
            refused, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
            with contextlib.suppress(ConnectionResetError):
                assert await refused.read() == b""
            reader, writer = idle[0]
            writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert parse_answer(await reader.read()).status == 200


async def test_a_long_scrape_lets_others_have_their_turn() -> None:
    turns_between: list[int] = []
    turn = 0

    def long_source(make: FamilyMaker) -> FamilySteps:
        family = make.gauge("flintmq_things", "Things.", ["number"])
        for number in range(20_000):
            family.add(number, str(number))
            if number % 100 == 0:
                turns_between.append(turn)
                yield None
        yield family

    async def count_turns() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    async with serving([long_source]) as address:
        counting = asyncio.create_task(count_turns())
        scraped = await scrape(address)
        counting.cancel()
    assert len(scraped.series("flintmq_things")) == 20_000
    assert len(set(turns_between)) > 1, "the loop had turns while the scrape went on"


async def test_a_source_that_fails_leaves_an_answer_without_its_end() -> None:
    def broken(make: FamilyMaker) -> FamilySteps:
        yield make.one(FamilyKind.GAUGE, "flintmq_things", "Things.", 5)
        raise RuntimeError("broken on purpose")

    async with serving([broken]) as address:
        with contextlib.suppress(ConnectionResetError):
            raw = await exchange(address, b"GET /metrics HTTP/1.1\r\n\r\n")
            assert not raw.endswith(b"0\r\n\r\n")
        assert (await http_get(address, "/healthz")).status == 200


async def test_a_stop_does_not_wait_for_peers_that_are_silent() -> None:
    async with serving() as address:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /met")
        await writer.drain()
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    await eventually(writer.is_closing)
