"""Records behind each other: the short way gives what the long one gives."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.format.errors import FormatError
from flintmq.format.stored.pulled_records import decode_records
from flintmq.format.stored.record import Record, decode_record
from flintmq.format.stored.record_encoding import encode_record

SIZES = {0: (8, 8), 0x10: (20, 8), 0x20: (8, 20), 0x30: (20, 20)}
INTS = st.integers(-(1 << 31), (1 << 31) - 1)
LONGS = st.integers(0, (1 << 63) - 1)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    bits = draw(st.sampled_from([0, 0, 0, 0x10, 0x20, 0x30]))
    born_size, store_size = SIZES[bits]
    topic = draw(st.sampled_from(["orders", "%RETRY%readers", "a", "bestellungen-ä"]))
    return encode_record(
        topic=topic.encode(),
        queue_id=draw(INTS),
        flag=draw(INTS),
        queue_offset=draw(LONGS),
        physical_offset=draw(LONGS),
        sys_flag=bits | draw(st.sampled_from([0, 1, 4])),
        born_timestamp=draw(LONGS),
        born_host=draw(st.binary(min_size=born_size, max_size=born_size)),
        store_timestamp=draw(LONGS),
        store_host=draw(st.binary(min_size=store_size, max_size=store_size)),
        reconsume_times=draw(INTS),
        prepared_transaction_offset=draw(LONGS),
        body=draw(st.binary(max_size=40)),
        properties=draw(st.binary(max_size=300)),
    )


def runs(*, max_size: int) -> st.SearchStrategy[list[bytes]]:
    """Records that are alike are cut in a shorter way still, and others may stand between them."""
    some = st.lists(records(), min_size=1, max_size=max_size)
    return some | some.flatmap(
        lambda kinds: st.lists(st.sampled_from(kinds), min_size=1, max_size=2 * max_size)
    )


@given(stored=st.just([]) | runs(max_size=6))
def test_a_run_is_its_records(stored: list[bytes]) -> None:
    assert decode_records(b"".join(stored)) == [decode_record(one) for one in stored]


@given(stored=runs(max_size=3), data=st.data())
def test_a_run_that_is_cut_off_is_found_out(stored: list[bytes], data: st.DataObject) -> None:
    run = b"".join(stored)
    cut = data.draw(st.integers(len(run) - len(stored[-1]) + 1, len(run) - 1))
    with pytest.raises(FormatError):
        decode_records(run[:cut])


def by_the_long_way(run: bytes) -> list[Record]:
    found: list[Record] = []
    at = 0
    while at < len(run):
        size = int.from_bytes(run[at : at + 4], signed=True)
        if not 0 < size <= len(run) - at:
            raise FormatError("no record")
        found.append(decode_record(run[at : at + size]))
        at += size
    return found


@given(stored=runs(max_size=2), data=st.data())
def test_damage_is_judged_as_by_the_long_way(stored: list[bytes], data: st.DataObject) -> None:
    damaged = bytearray(b"".join(stored))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    run = bytes(damaged)
    expected: list[Record] | None = None
    with contextlib.suppress(FormatError):
        expected = by_the_long_way(run)
    if expected is None:
        with pytest.raises(FormatError):
            decode_records(run)
    else:
        assert decode_records(run) == expected
