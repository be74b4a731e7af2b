"""Records come back as they were written, and damaged ones raise only a CorruptRecordError."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.format.errors import CorruptRecordError
from flintmq.format.properties import decode_properties
from flintmq.format.stored.dispatch_fields import (
    BadDelayLevelError,
    dispatch_fields,
    dispatch_fields_of_map,
    dispatch_tags_code,
    index_keys,
)
from flintmq.format.stored.record import Blank, CheckedRecord, check_record, decode_record
from flintmq.format.stored.record_encoding import encode_blank, encode_record, record_size
from flintmq.format.sys_flag import with_hosts

LEVELS = DelayLevels.parse(DEFAULT_DELAY_LEVELS)
ints = st.integers(-(1 << 31), (1 << 31) - 1)
longs = st.integers(-(1 << 63), (1 << 63) - 1)
hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
topics = st.text(max_size=31).map(str.encode)
padding = st.binary(max_size=20)


@st.composite
def record_fields(draw: st.DrawFn) -> dict[str, Any]:
    born_host, store_host = draw(hosts), draw(hosts)
    return {
        "topic": draw(topics),
        "queue_id": draw(ints),
        "flag": draw(ints),
        "queue_offset": draw(longs),
        "physical_offset": draw(st.integers(0, (1 << 63) - 1)),
        "sys_flag": with_hosts(draw(ints), born_host=born_host, store_host=store_host),
        "born_timestamp": draw(longs),
        "born_host": born_host,
        "store_timestamp": draw(longs),
        "store_host": store_host,
        "reconsume_times": draw(ints),
        "prepared_transaction_offset": draw(longs),
        "body": draw(st.binary()),
        "properties": draw(st.binary()),
    }


def check(data: bytes, position: int, limit: int) -> CheckedRecord | Blank:
    return check_record(data, position, limit, check_crc=True, expected_offset=None)


@given(fields=record_fields(), before=padding, after=padding)
def test_records_come_back(fields: dict[str, Any], before: bytes, after: bytes) -> None:
    raw = encode_record(**fields)
    record = decode_record(before + raw + after, len(before))
    back = record._asdict()
    back["topic"] = record.topic.encode()
    back["properties"] = back.pop("properties_text")
    assert back.pop("size") == len(raw)
    assert encode_record(**back) == raw
    del back["body_crc"]
    assert back == fields
    assert record.crc_ok
    sizes = [len(fields[name]) for name in ("body", "topic", "properties")]
    assert record_size(record.sys_flag, *sizes) == len(raw)


@given(fields=record_fields(), before=padding, after=padding)
def test_checking_agrees_with_decoding(fields: dict[str, Any], before: bytes, after: bytes) -> None:
    data = before + encode_record(**fields) + after
    record = decode_record(data, len(before))
    checked = check_record(
        memoryview(data),
        len(before),
        len(data),
        check_crc=True,
        expected_offset=fields["physical_offset"],
    )
    assert checked == CheckedRecord(
        record.size,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.sys_flag,
        record.store_timestamp,
        record.topic.encode(),
        record.properties_text,
        record.prepared_transaction_offset,
    )


@given(fields=record_fields(), data=st.data())
def test_a_record_that_is_cut_off_is_always_noticed(
    fields: dict[str, Any], data: st.DataObject
) -> None:
    raw = encode_record(**fields)
    size = data.draw(st.integers(0, len(raw) - 1))
    for attempt in (
        lambda: check(raw[:size], 0, size),
        lambda: check(raw, 0, size),
        lambda: decode_record(raw[:size]),
    ):
        with pytest.raises(CorruptRecordError):
            attempt()


@given(fields=record_fields(), data=st.data())
def test_a_tail_of_zeros_is_noticed_unless_it_changes_nothing_that_is_checked(
    fields: dict[str, Any], data: st.DataObject
) -> None:
    raw = encode_record(**fields)
    kept = data.draw(st.integers(0, len(raw) - 1))
    torn = raw[:kept] + bytes(len(raw) - kept)
    try:
        checked = check(torn, 0, len(torn))
    except CorruptRecordError:
        return
    # No checksum covers topic and properties, so zeros in those may stay unseen; and in a record
    # that has nothing but its header there is nothing that the zeros contradict.
    assert isinstance(checked, CheckedRecord)
    topic_at = len(raw) - len(fields["properties"]) - 2 - len(fields["topic"])
    empty = not (fields["body"] or fields["topic"] or fields["properties"])
    assert torn == raw or kept >= topic_at or empty


@given(
    fields=record_fields(),
    after=padding,
    at=st.integers(min_value=0),
    mask=st.integers(1, 255),
)
def test_a_flipped_byte_raises_only_a_corrupt_record_error(
    fields: dict[str, Any], after: bytes, at: int, mask: int
) -> None:
    raw = bytearray(encode_record(**fields))
    at %= len(raw)
    raw[at] ^= mask
    vital = at < 8 or (fields["body"] and 8 <= at < 12)
    try:
        checked = check(bytes(raw + after), 0, len(raw) + len(after))
        assert isinstance(checked, CheckedRecord)
        assert checked.size == len(raw)
        decode_record(bytes(raw + after))
    except CorruptRecordError:
        return
    assert not vital, f"byte {at} was flipped unnoticed"


@given(data=st.binary(max_size=300), position=st.integers(0, 300), crc=st.booleans())
def test_hostile_bytes_raise_only_a_corrupt_record_error(
    data: bytes, position: int, crc: bool
) -> None:
    # A record has so many bytes that must be right that these are none; a blank or an end may be.
    with pytest.raises(CorruptRecordError) as caught:
        decode_record(data, position)
    assert caught.value.offset == position
    with contextlib.suppress(CorruptRecordError):
        found = check_record(data, position, len(data), check_crc=crc, expected_offset=None)
        assert found == Blank(len(data) - position)


@given(
    fields=record_fields(),
    edits=st.lists(st.tuples(st.integers(min_value=0), st.integers(0, 255)), max_size=8),
)
def test_a_record_with_many_changes_is_refused_or_consistent(
    fields: dict[str, Any], edits: list[tuple[int, int]]
) -> None:
    raw = bytearray(encode_record(**fields))
    for at, value in edits:
        raw[at % len(raw)] = value
    try:
        record = decode_record(raw)
    except CorruptRecordError:
        return
    sizes = len(record.body), len(record.topic.encode()), len(record.properties_text)
    assert record_size(record.sys_flag, *sizes) == record.size <= len(raw)


@given(size=st.integers(8, 5000), declared=st.integers(8, 5000))
def test_a_blank_is_true_only_if_it_fills_its_file(size: int, declared: int) -> None:
    file = encode_blank(declared) + b"\xaa" * (size - 8)
    try:
        found = check(file, 0, size)
    except CorruptRecordError:
        assert declared != size
    else:
        assert found == Blank(size)
        assert declared == size


@given(topic=st.sampled_from([b"T", b"SCHEDULE_TOPIC_XXXX"]), properties=st.binary())
def test_hostile_properties_raise_only_a_corrupt_record_error(
    topic: bytes, properties: bytes
) -> None:
    assert all(index_keys(properties))
    for text in (properties, b"DELAY\x01" + properties, b"KEYS\x01" + properties):
        assert all(index_keys(text))
        try:
            code = dispatch_tags_code(topic, text, 0, LEVELS)
        except CorruptRecordError:
            assert topic == b"SCHEDULE_TOPIC_XXXX"
        else:
            assert -(1 << 31) <= code < 1 << 31


property_soup = st.lists(
    st.sampled_from(
        [b"\x01", b"\x02", b"\n", b" ", b"x", b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"3"]
    )
).map(b"".join)


@given(topic=st.sampled_from([b"T", b"SCHEDULE_TOPIC_XXXX"]), properties=property_soup)
def test_dispatch_finds_the_same_in_a_text_and_in_a_map(topic: bytes, properties: bytes) -> None:
    as_map = decode_properties(properties)
    if topic == b"SCHEDULE_TOPIC_XXXX" and LEVELS.level_of(as_map.get("DELAY", "0")) is None:
        with pytest.raises(BadDelayLevelError) as of_map:
            dispatch_fields_of_map(topic.decode(), as_map, 5, LEVELS)
        with pytest.raises(BadDelayLevelError) as of_text:
            dispatch_fields(topic, properties, 5, LEVELS)
        assert of_text.value.fields == of_map.value.fields == (5, index_keys(properties))
        return
    expected = dispatch_fields_of_map(topic.decode(), as_map, 5, LEVELS)
    assert dispatch_fields(topic, properties, 5, LEVELS) == expected
    assert dispatch_tags_code(topic, properties, 5, LEVELS) == expected[0]
    assert index_keys(properties) == expected[1]
