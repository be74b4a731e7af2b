"""The HTTP endpoint of a server: ``/metrics``, ``/healthz`` and ``/readyz``.

It shares the event loop with the server, so it is made to cost little: a few connections, small
requests, a time limit, one scrape at a time, and a scrape gives the loop back every few
milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from flintmq.metrics.http_requests import (
    REQUEST_SIZE_MAX,
    HttpRequest,
    HttpRequestError,
    answer_head,
    chunk,
    parse_request,
)
from flintmq.metrics.readiness import readiness_report

if TYPE_CHECKING:
    import socket

    from flintmq.metrics.families import FamilyMaker, FamilySource
    from flintmq.metrics.readiness import ReadinessCheck

logger = logging.getLogger(__name__)

CONNECTION_COUNT_MAX: Final = 16
"""Connections at a time; one more is closed."""
REQUEST_TIMEOUT_S: Final = 5.0
"""How long a peer may take for its request."""
ANSWER_TIMEOUT_S: Final = 30.0
"""How long a peer may take to read the answer."""
SLICE_S: Final = 0.002
"""How long a scrape goes on before everybody else has a turn."""
BUFFER_SIZE: Final = 64 << 10

TEXT: Final = "text/plain; charset=utf-8"
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The notation of metrics that every release of Prometheus reads."""
METRICS, HEALTH, READY = "/metrics", "/healthz", "/readyz"


@dataclass(frozen=True, slots=True)
class Exposed:
    """What an endpoint shows of a server, and what writes it."""

    write: Callable[[Sequence[FamilySource], FamilyMaker], Iterator[bytes]]
    maker: FamilyMaker
    sources: Sequence[FamilySource]
    checks: Mapping[str, ReadinessCheck] = field(default_factory=dict)


class MetricsEndpoint:
    """Answers GET requests about a server.  Use `listen`."""

    def __init__(self, exposed: Exposed) -> None:
        self.exposed = exposed
        """What is shown now."""
        self._scraping = asyncio.Lock()
        self._connections: set[asyncio.Task[None]] = set()
        self.address = ""
        """Host and port, as one text."""

    @classmethod
    @asynccontextmanager
    async def listen(cls, bound: socket.socket, exposed: Exposed) -> AsyncIterator[MetricsEndpoint]:
        """Answer on a bound socket while the context lasts."""
        endpoint = cls(exposed)
        host, port = bound.getsockname()[:2]
        endpoint.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        server = await asyncio.start_server(
            endpoint._connected, sock=bound, limit=REQUEST_SIZE_MAX, backlog=CONNECTION_COUNT_MAX
        )
        logger.info("metrics endpoint ready: at=http://%s%s", endpoint.address, METRICS)
        try:
            yield endpoint
        finally:
            server.close()
            await endpoint.end_answers()
            await server.wait_closed()

    def show(self, exposed: Exposed) -> None:
        """Show something else from now on."""
        self.exposed = exposed

    async def end_answers(self) -> None:
        """Give up the answers that are under way: what they read of is going to close."""
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= CONNECTION_COUNT_MAX:
            writer.transport.abort()
            return
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            writer.transport.abort()  # A peer that went away or is too slow.
        except Exception:
            logger.exception("metrics could not be shown")
            writer.transport.abort()
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=BUFFER_SIZE)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            request = parse_request(head)
        except asyncio.LimitOverrunError:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            await _answer(writer, status, f"more than {REQUEST_SIZE_MAX} bytes\n")
            return
        except HttpRequestError as error:
            await _answer(writer, error.status, f"{error}\n")
            return
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await self._answer(request, writer)
            await writer.drain()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, request: HttpRequest, writer: asyncio.StreamWriter) -> None:
        has_body = request.method == "GET"
        if request.path == METRICS:
            await self._scrape(request, writer)
        elif request.path == HEALTH:
            await _answer(writer, HTTPStatus.OK, "ok\n", has_body=has_body)
        elif request.path == READY:
            is_ready, text = readiness_report(self.exposed.checks)
            status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
            await _answer(writer, status, text, has_body=has_body)
        else:
            text = f"there are {METRICS}, {HEALTH} and {READY}\n"
            await _answer(writer, HTTPStatus.NOT_FOUND, text, has_body=has_body)

    async def _scrape(self, request: HttpRequest, writer: asyncio.StreamWriter) -> None:
        is_chunked = not request.is_old
        writer.write(answer_head(HTTPStatus.OK, METRICS_TYPE, size=None, is_chunked=is_chunked))
        if request.method == "HEAD":
            return
        exposed = self.exposed
        async with self._scraping:
            pieces = exposed.write(exposed.sources, exposed.maker)
            async for data in _in_slices(pieces, asyncio.get_running_loop().time):
                writer.write(chunk(data) if is_chunked else data)
                await writer.drain()
        if is_chunked:
            writer.write(chunk(b""))


async def _in_slices(pieces: Iterator[bytes], now: Callable[[], float]) -> AsyncIterator[bytes]:
    """Yield what was made in each slice of time; between two slices the loop has its turn."""
    made: list[bytes] = []
    slice_end = now() + SLICE_S
    for piece in pieces:
        made.append(piece)
        if now() < slice_end:
            continue
        if data := b"".join(made):
            yield data
        made.clear()
        await asyncio.sleep(0)
        slice_end = now() + SLICE_S
    if data := b"".join(made):
        yield data


async def _answer(
    writer: asyncio.StreamWriter, status: HTTPStatus, text: str, *, has_body: bool = True
) -> None:
    body = text.encode()
    writer.write(answer_head(status, TEXT, size=len(body)) + (body if has_body else b""))
    await writer.drain()
