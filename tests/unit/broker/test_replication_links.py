"""What a slave and a master hold against each other, without sockets."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.broker.replication.errors import (
    AheadOfMasterError,
    DivergedError,
    ForeignBytesError,
    GapError,
    ReplicationError,
)
from flintmq.broker.replication.ha_client import HaClient, StreamEndedError
from flintmq.broker.replication.master_link import (
    IDLE_HEARTBEATS_MAX,
    MasterLink,
    MasterRange,
    must_start_anew,
)
from flintmq.broker.replication.slave_link import SlaveLink
from flintmq.broker.replication.slave_table import SlaveTable
from flintmq.broker.waiting.positions import GrowingPosition
from flintmq.format.stored.record_layout import BLANK, BLANK_MAGIC, MESSAGE_MAGIC
from flintmq.format.wire.ha_stream import (
    TRANSFER_SIZE_MAX,
    encode_report,
    encode_transfer_header,
)
from flintmq.format.wire.remoting_errors import RemoteProtocolError

FILE_SIZE: Final = 4096


class ListLog:
    """A `ReplicaLog` in memory."""

    def __init__(self, content: bytes = b"", *, start: int = 0) -> None:
        self.file_size = FILE_SIZE
        self.start = start
        self.content = bytearray(content)
        self.pieces: list[bytes] = []

    @property
    def end(self) -> int:
        return self.start + len(self.content)

    @property
    def promised_end(self) -> int:
        return self.end

    def is_same(self, offset: int, data: memoryview) -> bool:
        at = offset - self.start
        return self.content[at : at + len(data)] == data

    def append(self, offset: int, data: memoryview | bytearray) -> None:
        if not self.content:
            self.start = offset
        assert offset == self.end
        self.content += data
        self.pieces.append(bytes(data))


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return self.ms


def record(size: int, fill: bytes = b"r") -> bytes:
    return BLANK.pack(size, MESSAGE_MAGIC) + fill * (size - BLANK.size)


def blank(size: int) -> bytes:
    return BLANK.pack(size, BLANK_MAGIC) + bytes(size - BLANK.size)


def transfer(offset: int, data: bytes = b"") -> memoryview:
    return memoryview(encode_transfer_header(offset, len(data)) + data)


def master_link(log: ListLog, clock: Clock | None = None) -> MasterLink:
    return MasterLink(log, now_ms=clock or Clock(), heartbeat_ms=100, silence_ms=400)


def slave_link(clock: Clock | None = None) -> SlaveLink:
    return SlaveLink("slave", now_ms=clock or Clock(), heartbeat_ms=100, silence_ms=400)


# -- the slave ---------------------------------------------------------------------------------


def whole_log() -> bytes:
    first = record(200) + record(1000) + record(300)
    return first + blank(FILE_SIZE - len(first)) + record(100) + record(101)


def streamed(content: bytes, transfer_size: int) -> bytearray:
    """Return a log as a master sends it, from its second byte on."""
    stream, at = bytearray(), 1
    while at < len(content):
        size = min(transfer_size, FILE_SIZE - at % FILE_SIZE, len(content) - at)
        stream += transfer(at, content[at : at + size])
        at += size
    return stream


@given(seed=st.integers(), transfer_size=st.integers(min_value=1, max_value=FILE_SIZE))
def test_a_log_does_not_depend_on_how_its_stream_is_cut(seed: int, transfer_size: int) -> None:
    content, rng = whole_log(), Random(seed)
    stream = streamed(content, transfer_size)
    log = ListLog()
    link = master_link(log)
    # An empty slave asks for the whole log, from its second byte on.
    assert link.request() == 1
    while stream:
        size = rng.randint(1, min(len(stream), 700))
        link.received(memoryview(bytes(stream[:size])))
        del stream[:size]
        assert len(log.content) == 0 or log.content == content[: len(log.content)]
    assert log.content == content
    assert all(piece.startswith(b"\0\0") for piece in log.pieces), "an append begins with a record"


def test_small_transfers_that_come_together_are_appended_together() -> None:
    log, content = ListLog(), whole_log()
    link = master_link(log)
    link.request(0)
    link.received(memoryview(streamed(content, 32)))
    assert log.content == content
    # A write never crosses a file.
    assert log.pieces == [content[:FILE_SIZE], content[FILE_SIZE:]]


def test_a_slave_that_is_cut_off_in_mid_record_has_none_of_it() -> None:
    log = ListLog()
    link = master_link(log)
    link.request(0)
    link.received(transfer(1, (record(200) + record(500))[1:400]))
    assert log.end == 200
    assert link.due_report() == 200


def test_a_slave_compares_before_it_appends() -> None:
    log = ListLog(record(200) + record(300))
    link = master_link(log)
    assert link.request() == 1
    assert not link.is_joined
    link.received(transfer(1, (record(200) + record(300))[1:]))
    assert link.is_joined
    link.received(transfer(500, record(100)))
    assert log.end == 600

    other = master_link(ListLog(record(200) + record(300)))
    other.request()
    with pytest.raises(DivergedError, match="another log"):
        other.received(transfer(1, (record(200) + record(300, b"x"))[1:]))


def test_a_slave_promises_nothing_before_it_has_compared() -> None:
    clock = Clock()
    link = master_link(ListLog(record(200) + record(300)), clock)
    assert link.request() > 0
    assert link.due_report() is None
    clock.ms += 100
    # A sign of life.
    assert link.due_report() == 0


def test_a_slave_ahead_of_its_master_says_so() -> None:
    log = ListLog(record(200) + record(300))
    with pytest.raises(AheadOfMasterError, match="300 bytes that the master lacks"):
        must_start_anew(log, MasterRange(0, 200))
    # Where the master cannot be asked, its stream shows it: it has no more than it has sent.
    link = master_link(log)
    link.request()
    link.received(transfer(1, record(200)[1:]))
    for _ in range(IDLE_HEARTBEATS_MAX - 1):
        link.received(transfer(200))
    with pytest.raises(AheadOfMasterError):
        link.received(transfer(200))
    assert log.end == 500


def test_a_slave_begins_anew_only_where_its_master_has_nothing_that_follows() -> None:
    log = ListLog(record(200))
    assert not must_start_anew(log, MasterRange(0, 5000))
    assert not must_start_anew(ListLog(), MasterRange(FILE_SIZE, 5000))
    assert must_start_anew(log, MasterRange(FILE_SIZE, 5000))
    with pytest.raises(ForeignBytesError, match="mid-file"):
        must_start_anew(log, MasterRange(FILE_SIZE + 1, 5000))


def test_a_slave_compares_only_what_its_master_still_has() -> None:
    """It asked for what was deleted, got what follows, and called that a gap for ever."""
    content = blank(FILE_SIZE) + record(200) + record(300)
    log = ListLog(content)
    link = master_link(log)
    assert link.request(FILE_SIZE) == FILE_SIZE
    link.received(transfer(FILE_SIZE, content[FILE_SIZE:] + record(100)))
    assert link.is_joined
    assert log.end == len(content) + 100
    # Nothing that could be compared is left.
    assert must_start_anew(ListLog(blank(FILE_SIZE)), MasterRange(FILE_SIZE, 5000))


def test_an_empty_slave_begins_with_the_first_file_of_its_master() -> None:
    log = ListLog()
    link = master_link(log)
    assert link.request(2 * FILE_SIZE) == 2 * FILE_SIZE
    link.received(transfer(2 * FILE_SIZE, record(100)))
    assert (log.start, log.end) == (2 * FILE_SIZE, 2 * FILE_SIZE + 100)


def test_a_gap_in_the_stream_ends_it() -> None:
    log = ListLog(record(200))
    link = master_link(log)
    link.request()
    with pytest.raises(GapError, match="goes on at 300"):
        link.received(transfer(300, record(100)))
    heartbeat = master_link(log)
    heartbeat.request()
    with pytest.raises(GapError):
        heartbeat.received(transfer(300))


@pytest.mark.parametrize(
    "bad",
    [
        b"\0" * 100,
        record(200)[:4] + b"!!!!" + bytes(192),
        BLANK.pack(FILE_SIZE, MESSAGE_MAGIC) + bytes(100),
        BLANK.pack(20, MESSAGE_MAGIC) + bytes(100),
        blank(100),
    ],
    ids=["zeros", "other magic", "record that fills a file", "record too small", "short blank"],
)
def test_what_is_no_record_is_not_appended(bad: bytes) -> None:
    log = ListLog(record(200))
    link = master_link(log)
    link.request()
    link.received(transfer(1, record(200)[1:]))
    with pytest.raises(ForeignBytesError, match="no record"):
        link.received(transfer(200, bad))
    assert log.end == 200


@given(garbage=st.binary(max_size=200))
def test_hostile_bytes_end_a_stream_and_change_nothing(garbage: bytes) -> None:
    log = ListLog(record(200))
    link = master_link(log)
    link.request()
    with contextlib.suppress(ReplicationError, RemoteProtocolError):
        link.received(memoryview(garbage))
    assert log.content == record(200)


@pytest.mark.parametrize(("offset", "size"), [(-1, 0), (0, -1), (0, TRANSFER_SIZE_MAX + 1)])
def test_a_transfer_is_bounded(offset: int, size: int) -> None:
    link = master_link(ListLog())
    with pytest.raises(RemoteProtocolError):
        link.received(memoryview(encode_transfer_header(offset, size)))


def test_a_silent_master_is_given_up() -> None:
    clock = Clock()
    link = master_link(ListLog(), clock)
    clock.ms = 399
    link.received(transfer(0))
    clock.ms = 700
    assert not link.is_silent
    clock.ms = 800
    assert link.is_silent


# -- the master --------------------------------------------------------------------------------


def test_the_first_report_asks_and_promises_nothing() -> None:
    link = slave_link()
    assert not link.received(encode_report(300)[:5], log_start=0, log_end=1000)
    assert not link.is_streaming
    assert not link.received(encode_report(300)[5:], log_start=0, log_end=1000)
    assert (link.is_streaming, link.next_offset, link.acknowledged) == (True, 300, -1)
    assert link.received(encode_report(400) + encode_report(500), log_start=0, log_end=1000)
    assert link.acknowledged == 500
    assert not link.received(encode_report(450), log_start=0, log_end=1000)
    assert link.acknowledged == 500, "a promise is not taken back"


@pytest.mark.parametrize("requested", [0, 1, 100])
def test_a_slave_behind_the_retention_begins_with_the_first_file(requested: int) -> None:
    link = slave_link()
    link.received(encode_report(requested), log_start=FILE_SIZE, log_end=9000)
    assert link.next_offset == FILE_SIZE


def test_a_slave_that_claims_more_than_there_is_is_refused() -> None:
    with pytest.raises(AheadOfMasterError):
        slave_link().received(encode_report(1 << 62), log_start=0, log_end=1000)
    link = slave_link()
    link.received(encode_report(0), log_start=0, log_end=1000)
    with pytest.raises(AheadOfMasterError):
        link.received(encode_report(1001), log_start=0, log_end=1000)
    with pytest.raises(RemoteProtocolError):
        slave_link().received(encode_report(-1), log_start=0, log_end=1000)


def test_a_master_shows_a_new_slave_at_once_that_it_is_there() -> None:
    clock = Clock()
    link = slave_link(clock)
    assert not link.is_heartbeat_due
    link.received(encode_report(0), log_start=0, log_end=0)
    assert link.is_heartbeat_due
    link.transferred(0)
    assert not link.is_heartbeat_due
    clock.ms += 100
    assert link.is_heartbeat_due


def test_the_lag_of_a_slave_is_told_in_time() -> None:
    clock = Clock()
    link = slave_link(clock)
    link.received(encode_report(0) + encode_report(1000), log_start=0, log_end=1000)
    assert link.lag_ms(1000) == 0
    clock.ms += 250
    assert link.lag_ms(1500) == 250


# -- positions ---------------------------------------------------------------------------------


def test_who_waits_for_a_position_is_told_once() -> None:
    position = GrowingPosition()
    told: list[tuple[str, bool]] = []
    position.advance(10)
    position.when_reached(10, 1.0, lambda is_reached: told.append(("at once", is_reached)))
    position.when_reached(30, 2.0, lambda is_reached: told.append(("later", is_reached)))
    position.when_reached(20, 3.0, lambda is_reached: told.append(("sooner", is_reached)))
    position.when_reached(40, 4.0, lambda is_reached: told.append(("never", is_reached)))
    assert position.next_deadline == 2.0
    position.advance(25)
    position.advance(5)
    assert position.value == 25
    position.expire(2.5)
    position.advance(35)
    position.expire(9.0)
    position.advance(100)
    assert told == [("at once", True), ("sooner", True), ("later", False), ("never", False)]
    assert position.waiting_count == 0


def test_a_slave_is_worth_waiting_for_only_if_it_is_near() -> None:
    slaves = SlaveTable(lag_size_max=100)
    assert not slaves.can_promise(50)
    link = slave_link()
    slaves.add(link)
    # Whoever has connected and said nothing is no slave: nobody waits for it.
    assert not slaves.can_promise(99)
    link.received(encode_report(0), log_start=0, log_end=1000)
    assert slaves.can_promise(99)
    assert not slaves.can_promise(100)
    link.received(encode_report(60), log_start=0, log_end=1000)
    slaves.advanced(link)
    assert slaves.can_promise(159)
    (status,) = slaves.statuses(200)
    assert (status.acknowledged, status.lag_size) == (60, 140)
    slaves.remove(link)
    assert not slaves.can_promise(61)
    assert slaves.acknowledged.value == 60


def test_a_slave_of_an_empty_master_is_not_a_byte_behind() -> None:
    link = master_link(ListLog())
    asked = link.request(0)
    link.received(transfer(asked))
    assert link.master_end == 0


def test_half_a_report_is_no_sign_of_life() -> None:
    clock = Clock()
    link = slave_link(clock)
    for _ in range(7):
        clock.ms += 60
        link.received(b"\0", log_start=0, log_end=1000)
    assert link.is_silent
    link.received(b"\0", log_start=0, log_end=1000)
    assert not link.is_silent


async def test_a_name_that_is_none_ends_the_stream_before_it_begins() -> None:
    link = master_link(ListLog())
    with pytest.raises(StreamEndedError, match="cannot be connected to"):
        await HaClient(link, on_append=lambda: None).run("a..b:10912", link.request())


async def test_whatever_goes_wrong_with_a_chunk_ends_its_stream() -> None:
    """What was left of the chunk was lost, and the next one taken for what followed."""

    class BrokenLog(ListLog):
        def append(self, offset: int, data: memoryview | bytearray) -> None:
            raise LookupError("a fault of ours")

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(transfer(0, record(200)))
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        ended.set()

    link, ended = master_link(BrokenLog()), asyncio.Event()
    server = await asyncio.start_server(send, "127.0.0.1", 0)
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(LookupError):
            await HaClient(link, on_append=lambda: None).run(address, link.request())
        await ended.wait()
