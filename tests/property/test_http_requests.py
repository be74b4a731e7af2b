"""Hostile bytes before the endpoint of metrics: a request or an error, and nothing else."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from flintmq.metrics.http_requests import HttpRequestError, chunk, parse_request
from tests.kits.broker.scrape_kit import parse_answer

words = st.sampled_from([b"GET", b"HEAD", b"POST", b"/metrics", b"HTTP/1.1", b"HTTP/1.0", b" "])


@given(head=st.one_of(st.binary(max_size=200), st.lists(words, max_size=6).map(b" ".join)))
def test_bytes_are_a_request_or_raise_the_error_of_requests(head: bytes) -> None:
    with contextlib.suppress(HttpRequestError):
        request = parse_request(head)
        assert request.method in ("GET", "HEAD")
        assert "?" not in request.path


@given(parts=st.lists(st.binary(min_size=1, max_size=50), max_size=5))
def test_chunks_joined_are_what_was_written(parts: list[bytes]) -> None:
    body = b"".join(map(chunk, [*parts, b""]))
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body
    assert parse_answer(raw).body == b"".join(parts)
