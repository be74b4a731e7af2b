import struct
import tracemalloc

import pytest

from flintmq.format.wire.frame import (
    FRAME_SIZE_MAX,
    Frame,
    FrameDecoder,
    HeaderType,
    encode_frame,
    encode_prefix,
)
from flintmq.format.wire.partial_frame import TAIL_SIZE_MAX, PartialFrame
from flintmq.format.wire.remoting_errors import FrameError, LocalProtocolError, RemoteProtocolError

FRAME = Frame(HeaderType.ROCKETMQ, b"head", b"the body")
WIRE = bytes.fromhex("00000010 01000004") + b"head" + b"the body"


def decode(wire: bytes, frame_size_max: int = FRAME_SIZE_MAX) -> list[Frame]:
    decoder = FrameDecoder(frame_size_max=frame_size_max)
    decoder.feed(wire)
    return list(iter(decoder.next_frame, None))


def test_a_frame_is_its_size_its_header_and_its_body() -> None:
    assert encode_frame(FRAME) == WIRE
    assert decode(WIRE) == [FRAME]


def test_a_frame_may_have_neither_header_nor_body() -> None:
    assert decode(bytes.fromhex("00000004 00000000")) == [Frame(HeaderType.JSON, b"", b"")]


def test_no_frame_before_its_last_byte() -> None:
    decoder = FrameDecoder()
    for at in range(len(WIRE)):
        assert decoder.next_frame() is None
        decoder.feed(WIRE[at : at + 1])
    assert decoder.next_frame() == FRAME
    assert decoder.next_frame() is None


def test_what_follows_a_frame_waits_for_the_rest() -> None:
    decoder = FrameDecoder()
    decoder.feed(memoryview(WIRE + WIRE[:7]))
    assert decoder.next_frame() == FRAME
    assert decoder.pending_size == 7
    decoder.feed(bytearray(WIRE[7:]))
    assert decoder.next_frame() == FRAME
    assert decoder.pending_size == 0


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (struct.pack(">i", -1), "frame of -1 bytes"),
        (struct.pack(">i", 3), "frame of 3 bytes"),
        (b"GET / HTTP/1.1", "frame of 1195725856 bytes"),
        (b"\x16\x03\x01\x02\x00\x01", "a TLS handshake"),
        (struct.pack(">iI", 8, 2 << 24), "header type 2"),
        (struct.pack(">iI", 8, 5), "header of 5 bytes in a frame of 8"),
    ],
)
def test_an_impossible_start_is_refused_before_more_is_waited_for(
    start: bytes, reason: str
) -> None:
    decoder = FrameDecoder()
    decoder.feed(start)
    with pytest.raises(FrameError, match=reason):
        decoder.next_frame()


def test_frames_before_a_broken_one_are_whole() -> None:
    decoder = FrameDecoder()
    decoder.feed(WIRE + b"\xff" * 8)
    assert decoder.next_frame() == FRAME
    with pytest.raises(RemoteProtocolError):
        decoder.next_frame()


def test_a_broken_stream_stays_broken_and_holds_nothing() -> None:
    decoder = FrameDecoder()
    decoder.feed(b"\xff" * 8)
    with pytest.raises(FrameError):
        decoder.next_frame()
    decoder.feed(WIRE)
    assert decoder.pending_size == 0
    with pytest.raises(FrameError):
        decoder.next_frame()


def test_the_limit_counts_the_size_field() -> None:
    assert decode(WIRE, frame_size_max=len(WIRE)) == [FRAME]
    assert encode_frame(FRAME, frame_size_max=len(WIRE)) == WIRE
    with pytest.raises(FrameError):
        decode(WIRE, frame_size_max=len(WIRE) - 1)
    with pytest.raises(LocalProtocolError):
        encode_frame(FRAME, frame_size_max=len(WIRE) - 1)


def test_the_limit_is_that_of_rocketmq() -> None:
    largest = struct.pack(">iI", 16 * 1024 * 1024 - 4, 0)
    assert decode(largest) == []
    with pytest.raises(FrameError):
        decode(struct.pack(">iI", 16 * 1024 * 1024 - 3, 0))


def test_a_header_has_at_most_24_bits_of_size() -> None:
    with pytest.raises(LocalProtocolError, match="header of 16777216 bytes"):
        encode_prefix(HeaderType.JSON, header_size=1 << 24, body_size=0, frame_size_max=1 << 30)


def test_reads_of_a_large_frame_are_not_copied_before_it_is_whole() -> None:
    chunk_size, chunk_count = 256 << 10, 32
    body_size = chunk_size * chunk_count
    prefix = encode_prefix(HeaderType.JSON, header_size=4, body_size=body_size)
    chunks = [bytes([number]) * chunk_size for number in range(chunk_count)]
    decoder = FrameDecoder()
    assert list(decoder.frames(prefix[:3])) == []
    assert list(decoder.frames(prefix[3:] + b"head")) == []
    tracemalloc.start()
    try:
        for chunk in chunks[:-1]:
            assert list(decoder.frames(chunk)) == []
        _, most_size = tracemalloc.get_traced_memory()
        assert most_size < chunk_size // 8
        assert decoder.pending_size == len(prefix) + 4 + body_size - chunk_size
        tracemalloc.reset_peak()
        (frame,) = decoder.frames(chunks[-1] + WIRE[:9])
        _, most_size = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The body is made once; the last chunk is cut in two before.
    assert most_size < body_size + 3 * chunk_size
    assert frame == Frame(HeaderType.JSON, b"head", b"".join(chunks))
    assert decoder.pending_size == 9


def test_a_large_frame_that_is_only_announced_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        decoder = FrameDecoder()
        assert list(decoder.frames(struct.pack(">iI", FRAME_SIZE_MAX - 4, 100))) == []
        _, most_size = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_size < 4096


def test_a_large_frame_that_comes_byte_by_byte_is_no_object_for_each_byte() -> None:
    partial = PartialFrame(frame_size=4 * TAIL_SIZE_MAX, body_at=9)
    for number in range(3 * TAIL_SIZE_MAX + 5):
        partial.add(bytes([number & 255]))
    assert partial.piece_count == 4
    assert partial.missing_size == TAIL_SIZE_MAX - 5
    partial.add(bytes(partial.missing_size))
    head, body = partial.split()
    assert head == bytes(range(9))
    assert len(body) == 4 * TAIL_SIZE_MAX - 9
    assert body[: 3 * TAIL_SIZE_MAX - 4][-1] == 4


def test_a_large_frame_of_an_impossible_header_is_refused_at_its_start() -> None:
    for start in (struct.pack(">iI", 1 << 20, 2 << 24), struct.pack(">iI", 1 << 20, 1 << 20)):
        for cut in (0, 5):
            decoder = FrameDecoder()
            with pytest.raises(FrameError):  # noqa: PT012 - either of the two may raise
                list(decoder.frames(start[:cut]))
                list(decoder.frames(start[cut:] + bytes(100)))


def test_the_body_of_a_frame_that_is_refused_by_its_header_is_never_joined() -> None:
    partial = PartialFrame(frame_size=3 * TAIL_SIZE_MAX, body_at=9)
    for _ in range(3):
        partial.add(bytes(TAIL_SIZE_MAX))
    seen: list[bytes] = []

    def refuse(head: bytes) -> None:
        seen.append(head)
        raise ValueError("no such header")

    tracemalloc.start()
    with pytest.raises(ValueError, match="no such header"):
        partial.split(refuse)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen == [bytes(9)]
    assert partial.piece_count == 0
    # The first piece is cut behind the header.
    assert peak < 2 * TAIL_SIZE_MAX
