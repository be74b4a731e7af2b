"""As much of HTTP as a scrape needs: the head of a GET request in, an answer out.  No I/O."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, NamedTuple

from flintmq.errors import FlintError

REQUEST_SIZE_MAX: Final = 8 << 10
"""Bytes of a request, with all its headers."""

_METHODS: Final = frozenset({"GET", "HEAD"})


class HttpRequestError(FlintError):
    """A request that is not answered with what it asks for."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class HttpRequest(NamedTuple):
    """What somebody asks for."""

    method: str
    path: str
    is_old: bool
    """Whether it is HTTP/1.0, which does not know chunks."""


def parse_request(head: bytes) -> HttpRequest:
    """Return the request of a head; HttpRequestError if it is none or not allowed."""
    line = head.split(b"\r\n", 1)[0]
    words = line.decode("latin-1").split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise HttpRequestError(HTTPStatus.BAD_REQUEST, "no HTTP/1.1 request")
    method, target, version = words
    if method not in _METHODS:
        raise HttpRequestError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered here")
    return HttpRequest(method, target.split("?", 1)[0], version == "HTTP/1.0")


def answer_head(
    status: HTTPStatus, content_type: str, *, size: int | None, is_chunked: bool = False
) -> bytes:
    """Return the head of an answer; the connection ends with it."""
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {content_type}",
        "Connection: close",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
    ]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    if size is not None:
        lines.append(f"Content-Length: {size}")
    if is_chunked:
        lines.append("Transfer-Encoding: chunked")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """Return a piece of a chunked body; one without data ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)
