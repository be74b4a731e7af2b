"""Asks the HTTP endpoint of a server as Prometheus would, and reads metrics with its own parser."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families


class HttpAnswer(NamedTuple):
    """What an endpoint answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def exchange(address: str, request: bytes) -> bytes:
    """Send bytes and return all that comes until the other side closes."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(request)
        await writer.drain()
        return await reader.read()
    finally:
        writer.close()


async def http_get(
    address: str, path: str, *, method: str = "GET", version: str = "1.1"
) -> HttpAnswer:
    """Return the answer to a request without a body."""
    raw = await exchange(
        address, f"{method} {path} HTTP/{version}\r\nHost: {address}\r\n\r\n".encode()
    )
    return parse_answer(raw)


def parse_answer(raw: bytes) -> HttpAnswer:
    """Return an answer with its chunks joined; a body without its end fails."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    if headers.get("transfer-encoding") == "chunked" and body:
        body = _joined(body)
    return HttpAnswer(int(first.split(" ")[1]), headers, body)


def _joined(body: bytes) -> bytes:
    parts = []
    while True:
        size_text, _, rest = body.partition(b"\r\n")
        size = int(size_text, 16)
        assert rest[size : size + 2] == b"\r\n", "a chunk ends with a line break"
        parts.append(rest[:size])
        body = rest[size + 2 :]
        if not size:
            assert not body
            return b"".join(parts)


class Scraped:
    """All metrics of one scrape."""

    def __init__(self, text: str) -> None:
        self.text = text
        families = list(text_string_to_metric_families(text))
        self.families: dict[str, Metric] = {family.name: family for family in families}
        assert len(families) == len(self.families), "a family is told once"
        self._samples = [sample for family in families for sample in family.samples]

    @property
    def names(self) -> set[str]:
        """The names of families as boards write them, and of all samples."""
        typed = {line.split(" ")[2] for line in self.text.splitlines() if line.startswith("# TYPE")}
        return typed | {sample.name for sample in self._samples}

    def series(self, name: str, **labels: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Return the numbers of a metric by their labels."""
        return {
            tuple(sorted(sample.labels.items())): sample.value
            for sample in self._samples
            if sample.name == name and labels.items() <= sample.labels.items()
        }

    def value(self, name: str, **labels: str) -> float:
        """Return the number of the one series that has a name and labels."""
        found = self.series(name, **labels)
        assert len(found) == 1, (name, labels, found)
        return next(iter(found.values()))


async def scrape(address: str) -> Scraped:
    """Return all metrics of a server."""
    answer = await http_get(address, "/metrics")
    assert answer.status == 200, answer
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return Scraped(answer.body.decode())
