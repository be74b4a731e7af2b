import struct
from typing import Any

import pytest

from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.format.errors import (
    CorruptRecordError,
    EndOfRecords,
    HostError,
    RecordTooLargeError,
)
from flintmq.format.host import pack_host
from flintmq.format.properties import encode_properties
from flintmq.format.stored.dispatch_fields import dispatch_tags_code, index_keys
from flintmq.format.stored.record import (
    Blank,
    CheckedRecord,
    check_record,
    decode_record,
    read_store_timestamp,
)
from flintmq.format.stored.record_encoding import encode_blank, encode_record, record_size
from flintmq.format.stored.record_layout import (
    BLANK_SIZE,
    HEADERS,
    PHYSICAL_OFFSET_AT,
    PROPERTIES_LENGTH_MAX,
    QUEUE_OFFSET_AT,
    TOPIC_LENGTH_MAX,
)

LEVELS = DelayLevels.parse(DEFAULT_DELAY_LEVELS)
BORN_V4 = pack_host("192.168.1.10", 54321)
STORE_V4 = pack_host("10.0.0.1", 10911)
BORN_V6 = pack_host("2001:db8::1", 54321)
STORE_V6 = pack_host("2001:db8::2", 10911)

R1_FIELDS: dict[str, Any] = {
    "topic": b"TopicTest",
    "queue_id": 3,
    "flag": 0,
    "queue_offset": 0,
    "physical_offset": 0,
    "sys_flag": 0,
    "born_timestamp": 1700000000123,
    "born_host": BORN_V4,
    "store_timestamp": 1700000000456,
    "store_host": STORE_V4,
    "reconsume_times": 0,
    "prepared_transaction_offset": 0,
    "body": b"Hello RocketMQ",
    "properties": encode_properties(
        {"KEYS": "k1 k2", "UNIQ_KEY": "C0A8010A1F9818B4AAC22D2B1A2B0000", "TAGS": "TagA"}
    ),
}
R2_FIELDS = R1_FIELDS | {
    "queue_offset": 1,
    "physical_offset": 176,
    "sys_flag": 0x30,
    "born_host": BORN_V6,
    "store_host": STORE_V6,
    "body": b"v6",
    "properties": b"TAGS\x01TagB",
}
R3_FIELDS = R1_FIELDS | {
    "queue_offset": 2,
    "physical_offset": 311,
    "body": b"b1",
    "properties": b"TAGS\x01TagA\x02CLUSTER\x01DefaultCluster",
}
R4_FIELDS = R1_FIELDS | {
    "flag": 7,
    "queue_offset": 3,
    "physical_offset": 445,
    "body": b"b2",
    "properties": b"CLUSTER\x01DefaultCluster",
}
R1 = bytes.fromhex(
    "000000b0 daa320a7 69c865ed 00000003 00000000"
    "0000000000000000 0000000000000000 00000000"
    "0000018bcfe5687b c0a8010a0000d431"
    "0000018bcfe569c8 0a00000100002a9f"
    "00000000 0000000000000000"
    "0000000e 48656c6c6f20526f636b65744d51"
    "09 546f70696354657374"
    "003e 4b455953016b31206b3202554e49515f4b455901433041383031304131463938313842344141433232443242"
    "3141324230303030 02544147530154616741"
)
R2 = bytes.fromhex(
    "00000087daa320a7770659160000000300000000000000000000000100000000000000b0000000300000018bcfe5"
    "687b20010db80000000000000000000000010000d4310000018bcfe569c820010db80000000000000000000000"
    "0200002a9f00000000000000000000000000000002763609546f706963546573740009544147530154616742"
)
R3 = bytes.fromhex(
    "00000086daa320a747cc1be0000000030000000000000000000000020000000000000137000000000000018bcfe5"
    "687bc0a8010a0000d4310000018bcfe569c80a00000100002a9f00000000000000000000000000000002623109"
    "546f70696354657374002054414753015461674102434c55535445520144656661756c74436c7573746572"
)
R4 = bytes.fromhex(
    "0000007cdaa320a75ec54a5a0000000300000007000000000000000300000000000001bd000000000000018bcfe5"
    "687bc0a8010a0000d4310000018bcfe569c80a00000100002a9f00000000000000000000000000000002623209"
    "546f706963546573740016434c55535445520144656661756c74436c7573746572"
)
VECTORS = [(R1_FIELDS, R1), (R2_FIELDS, R2), (R3_FIELDS, R3), (R4_FIELDS, R4)]
HOSTS = [
    (0x00, BORN_V4, STORE_V4, 91),
    (0x10, BORN_V6, STORE_V4, 103),
    (0x20, BORN_V4, STORE_V6, 103),
    (0x30, BORN_V6, STORE_V6, 115),
]


def check(data: bytes, *, limit: int | None = None, expected_offset: int | None = None) -> object:
    end = len(data) if limit is None else limit
    return check_record(data, 0, end, check_crc=True, expected_offset=expected_offset)


def patched(record: bytes, position: int, layout: str, value: int) -> bytes:
    """Return a record with one number replaced."""
    copy = bytearray(record)
    struct.pack_into(layout, copy, position, value)
    return bytes(copy)


@pytest.mark.parametrize(("fields", "expected"), VECTORS)
def test_records_are_written_as_the_reference_store_writes_them(
    fields: dict[str, Any], expected: bytes
) -> None:
    assert encode_record(**fields) == expected
    assert encode_record(*fields.values()) == expected


@pytest.mark.parametrize(("fields", "raw"), VECTORS)
def test_records_are_read_as_they_were_written(fields: dict[str, Any], raw: bytes) -> None:
    record = decode_record(b"junk" + raw + b"more", 4)
    for name, value in fields.items():
        stored = {"topic": record.topic.encode(), "properties": record.properties_text}
        assert stored.get(name, getattr(record, name)) == value
    assert record.size == len(raw)
    assert record.crc_ok


@pytest.mark.parametrize(("fields", "raw"), VECTORS)
def test_checking_gives_what_dispatch_needs(fields: dict[str, Any], raw: bytes) -> None:
    for source in (raw, bytearray(raw), memoryview(raw)):
        checked = check_record(
            source, 0, len(raw), check_crc=True, expected_offset=fields["physical_offset"]
        )
        assert checked == CheckedRecord(
            size=len(raw),
            **{
                name: fields[name]
                for name in CheckedRecord._fields
                if name not in ("size", "physical_offset")
            },
            physical_offset=fields["physical_offset"],
        )
        assert isinstance(checked, CheckedRecord)
        assert isinstance(checked.topic, bytes)
        assert isinstance(checked.properties, bytes)


def test_a_record_knows_its_id_its_properties_and_its_tags_code() -> None:
    record = decode_record(R3)
    assert record.message_id == "0A00000100002A9F0000000000000137"
    assert record.properties == {"TAGS": "TagA", "CLUSTER": "DefaultCluster"}
    assert dispatch_tags_code(b"", record.properties_text, 0, None) == 2598919
    assert decode_record(R4).message_id == "0A00000100002A9F00000000000001BD"
    assert dispatch_tags_code(b"", decode_record(R4).properties_text, 0, None) == 0


def test_a_body_need_not_be_copied() -> None:
    source = bytearray(R1)
    record = decode_record(source, copy_body=False)
    assert isinstance(record.body, memoryview)
    assert record.body.tobytes() == b"Hello RocketMQ"
    assert record.crc_ok
    source[88] ^= 1
    assert not record.crc_ok
    record.body.release()


@pytest.mark.parametrize(("flag", "born_host", "store_host", "fixed"), HOSTS)
def test_every_pair_of_host_families_has_its_layout(
    flag: int, born_host: bytes, store_host: bytes, fixed: int
) -> None:
    fields = R1_FIELDS | {"sys_flag": flag, "born_host": born_host, "store_host": store_host}
    raw = encode_record(**fields)
    assert len(raw) == fixed + 14 + 9 + 62 == record_size(flag, 14, 9, 62)
    record = decode_record(raw)
    assert (record.born_host, record.store_host) == (born_host, store_host)
    assert record.body == b"Hello RocketMQ"
    assert isinstance(check(raw), CheckedRecord)
    for at, layout, value in (
        (QUEUE_OFFSET_AT, ">q", 77),
        (PHYSICAL_OFFSET_AT, ">q", 88),
        (HEADERS[flag & 0x30].at("store_timestamp"), ">q", 99),
    ):
        raw = patched(raw, at, layout, value)
    record = decode_record(raw)
    assert (record.queue_offset, record.physical_offset, record.store_timestamp) == (77, 88, 99)
    assert read_store_timestamp(b"x" + raw, 1) == 99


@pytest.mark.parametrize(("flag", "born_host", "store_host", "fixed"), HOSTS)
@pytest.mark.parametrize("other_flag", [0x00, 0x10, 0x20, 0x30])
def test_hosts_that_contradict_the_sys_flag_are_refused(
    flag: int, born_host: bytes, store_host: bytes, fixed: int, other_flag: int
) -> None:
    fields = R1_FIELDS | {"sys_flag": other_flag, "born_host": born_host, "store_host": store_host}
    if flag == other_flag:
        assert len(encode_record(**fields)) == fixed + 85
    else:
        with pytest.raises(HostError):
            encode_record(**fields)


def test_topic_and_properties_have_limits() -> None:
    largest = R1_FIELDS | {
        "topic": b"t" * TOPIC_LENGTH_MAX,
        "properties": b"K\x01" + b"v" * (PROPERTIES_LENGTH_MAX - 2),
    }
    raw = encode_record(**largest)
    assert decode_record(raw).topic == "t" * TOPIC_LENGTH_MAX
    checked = check(raw)
    assert isinstance(checked, CheckedRecord)
    assert checked.properties == largest["properties"]
    for field, value, size, limit in (
        ("topic", b"t" * 128, 128, 127),
        ("properties", bytes(32768), 32768, 32767),
    ):
        with pytest.raises(RecordTooLargeError, match=field) as caught:
            encode_record(**R1_FIELDS | {field: value})
        assert (caught.value.value, caught.value.limit) == (size, limit)


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("queue_id", 1 << 31, (1 << 31) - 1),
        ("flag", -(1 << 31) - 1, (1 << 31) - 1),
        ("reconsume_times", 1 << 40, (1 << 31) - 1),
        ("sys_flag", 1 << 31, (1 << 31) - 1),
        ("body_crc", 1 << 31, (1 << 31) - 1),
        ("queue_offset", 1 << 63, (1 << 63) - 1),
        ("store_timestamp", 1 << 64, (1 << 63) - 1),
        ("prepared_transaction_offset", -(1 << 63) - 1, (1 << 63) - 1),
    ],
)
def test_numbers_that_do_not_fit_their_field_are_named(field: str, value: int, limit: int) -> None:
    with pytest.raises(RecordTooLargeError) as caught:
        encode_record(**R1_FIELDS | {field: value})
    error = caught.value
    assert (error.field, error.value, error.limit) == (field, value, limit)


def test_a_given_checksum_is_not_computed_again() -> None:
    assert decode_record(encode_record(**R1_FIELDS, body_crc=5)).body_crc == 5


@pytest.mark.parametrize(("fields", "raw"), VECTORS)
def test_a_record_that_is_cut_off_is_damage(fields: dict[str, Any], raw: bytes) -> None:
    for size in range(len(raw)):
        with pytest.raises(CorruptRecordError):
            decode_record(raw[:size])
        with pytest.raises(CorruptRecordError):
            check(raw, limit=size)


@pytest.mark.parametrize(("fields", "raw"), VECTORS)
def test_a_flipped_bit_in_a_length_the_magic_or_the_body_is_damage(
    fields: dict[str, Any], raw: bytes
) -> None:
    body_at = len(raw) - len(fields["properties"]) - 12 - len(fields["body"])
    lengths_end = len(raw) - len(fields["properties"])
    vital = {*range(12), *range(body_at - 4, lengths_end)} - {
        *range(lengths_end - 11, lengths_end - 2)
    }
    for at in vital:
        for bit in range(8):
            damaged = bytearray(raw)
            damaged[at] ^= 1 << bit
            with pytest.raises(CorruptRecordError):
                check(bytes(damaged))


def test_a_wrong_size_is_damage_even_with_room_behind() -> None:
    for size in (-1, 0, 1, 90, 91, 175, 177, 1 << 20, (1 << 31) - 1):
        with pytest.raises(CorruptRecordError) as caught:
            check(patched(R1, 0, ">i", size) + bytes(1000))
        assert type(caught.value) is CorruptRecordError


def test_a_record_at_the_wrong_place_is_damage() -> None:
    assert isinstance(check(R2, expected_offset=176), CheckedRecord)
    for expected_offset in (0, 175):
        with pytest.raises(CorruptRecordError, match="claims the offset 176"):
            check(R2, expected_offset=expected_offset)


def test_the_checksum_is_looked_at_only_when_asked_for() -> None:
    damaged = patched(R1, 90, ">b", 0)
    with pytest.raises(CorruptRecordError, match="checksum"):
        check(damaged)
    found = check_record(damaged, 0, len(damaged), check_crc=False, expected_offset=None)
    assert isinstance(found, CheckedRecord)
    assert not decode_record(damaged).crc_ok


def test_the_checksum_of_an_empty_body_is_not_looked_at_since_java_does_not() -> None:
    raw = encode_record(**R1_FIELDS | {"body": b""}, body_crc=5)
    assert isinstance(check(raw), CheckedRecord)
    assert decode_record(raw).crc_ok


def test_lengths_below_zero_are_read_as_zero_like_java_does() -> None:
    bare = encode_record(**R1_FIELDS | {"body": b"", "properties": b""})
    for raw in (
        bare,
        patched(bare, 84, ">i", -1),
        patched(bare, 98, ">h", -1),
        patched(bare, 98, ">h", -32768),
    ):
        assert isinstance(check(raw), CheckedRecord)
        record = decode_record(raw)
        assert (record.body, record.properties_text) == (b"", b"")
        assert record.crc_ok
    with pytest.raises(CorruptRecordError):
        check(patched(R1, 84, ">i", -1))
    with pytest.raises(CorruptRecordError):
        check(patched(R1, 112, ">h", -1))


def test_a_negative_topic_length_is_damage() -> None:
    raw = encode_record(**R1_FIELDS | {"topic": b"t" * 100, "properties": bytes(100)})
    with pytest.raises(CorruptRecordError):
        check(patched(raw, 88 + 14, ">b", -56))


def test_a_topic_that_is_not_utf_8_is_damage_to_a_decoder() -> None:
    raw = encode_record(**R1_FIELDS | {"topic": b"\xff\xfe"})
    with pytest.raises(CorruptRecordError, match="UTF-8"):
        decode_record(raw)


def test_an_ipv6_header_that_is_cut_off_is_damage() -> None:
    bare = encode_record(**R2_FIELDS | {"body": b"", "topic": b"", "properties": b""})
    with pytest.raises(CorruptRecordError, match="header is cut off"):
        check(bare, limit=100)


def test_a_blank_reaches_to_the_end_of_its_file() -> None:
    assert encode_blank(0x384).hex() == "00000384cbd43194"
    assert encode_blank(0x1000).hex() == "00001000cbd43194"
    assert check(encode_blank(900) + bytes(892)) == Blank(900)
    assert check(encode_blank(8)) == Blank(8)
    for size in (8, 899, 901):
        with pytest.raises(CorruptRecordError, match="blank"):
            check(encode_blank(size) + bytes(892))
    with pytest.raises(CorruptRecordError, match="blank"):
        decode_record(encode_blank(100) + bytes(92))


@pytest.mark.parametrize("size", [-1, 0, BLANK_SIZE - 1, 1 << 31])
def test_a_blank_has_a_size_that_can_be_written(size: int) -> None:
    with pytest.raises(RecordTooLargeError):
        encode_blank(size)


@pytest.mark.parametrize("size", [8, 20, 90, 91, 500])
def test_zeros_are_the_end_of_the_records(size: int) -> None:
    with pytest.raises(EndOfRecords) as caught:
        check(bytes(size))
    assert caught.value.offset == 0


def test_what_is_neither_record_nor_zero_is_damage_not_an_end() -> None:
    for raw in (b"\x00\x00\x00\x10" + bytes(96), bytes(4) + b"\x01" + bytes(95), R1[8:]):
        with pytest.raises(CorruptRecordError, match="magic") as caught:
            check(raw)
        assert type(caught.value) is CorruptRecordError


def test_an_error_tells_the_position_in_what_was_read() -> None:
    with pytest.raises(CorruptRecordError) as caught:
        check_record(R1 + R1[:80], 176, 256, check_crc=True, expected_offset=None)
    assert caught.value.offset == 176
    for position in (-1, 176, 1000):
        with pytest.raises(CorruptRecordError):
            decode_record(R1, position)


def test_a_store_timestamp_needs_a_whole_record() -> None:
    with pytest.raises(CorruptRecordError):
        read_store_timestamp(R1[:90])
    with pytest.raises(CorruptRecordError):
        read_store_timestamp(R1, -200)


@pytest.mark.parametrize(
    ("topic", "properties", "expected"),
    [
        (b"T", b"", 0),
        (b"T", b"TAGS\x01TagA", 2598919),
        (b"T", b"TAGS\x01", 0),
        (b"T", b"DELAY\x013\x02TAGS\x01TagA", 2598919),
        (b"SCHEDULE_TOPIC_XXXX", b"TAGS\x01TagA", 2598919),
        (b"SCHEDULE_TOPIC_XXXX", b"DELAY\x013\x02TAGS\x01TagA", 1700000010456),
        (b"SCHEDULE_TOPIC_XXXX", b"TAGS\x01TagA\x02DELAY\x01+1", 1700000001456),
        (b"SCHEDULE_TOPIC_XXXX", b"DELAY\x0199", 1700007200456),
        # Java's parseInt takes digits of any script, and any number of zeros.
        (b"SCHEDULE_TOPIC_XXXX", "DELAY\x01\u0663".encode(), 1700000010456),
        (b"SCHEDULE_TOPIC_XXXX", b"DELAY\x01" + b"0" * 5000 + b"3", 1700000010456),
        (b"SCHEDULE_TOPIC_XXXX", b"DELAY\x010\x02TAGS\x01TagA", 2598919),
        (b"SCHEDULE_TOPIC_XXXX", b"DELAY\x01-3\x02TAGS\x01TagA", 2598919),
    ],
)
def test_the_tags_code_of_a_delayed_message_is_its_time_of_delivery(
    topic: bytes, properties: bytes, expected: int
) -> None:
    assert dispatch_tags_code(topic, properties, 1700000000456, LEVELS) == expected


def test_without_levels_a_delayed_message_has_the_code_of_its_tags() -> None:
    properties = b"DELAY\x013\x02TAGS\x01TagA"
    assert dispatch_tags_code(b"SCHEDULE_TOPIC_XXXX", properties, 1, None) == 2598919


@pytest.mark.parametrize(
    "level", [b"x", b"3 ", b" 3", b"1_0", b"1.0", b"-", b"2147483648", b"9" * 5000]
)
def test_a_delay_that_is_no_number_fails_the_record(level: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="delay level"):
        dispatch_tags_code(b"SCHEDULE_TOPIC_XXXX", b"DELAY\x01" + level, 1, LEVELS)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (b"", []),
        (b"KEYS\x01k1 k2", [b"k1", b"k2"]),
        (b"KEYS\x01 k1  k2 ", [b"k1", b"k2"]),
        (b"KEYS\x01k1\x02UNIQ_KEY\x01u", [b"u", b"k1"]),
        (b"UNIQ_KEY\x01u", [b"u"]),
        (b"KEYS\x01 ", []),
        (b"KEYS\x01a\tb", [b"a\tb"]),
    ],
)
def test_the_unique_key_is_indexed_before_the_others(
    properties: bytes, expected: list[bytes]
) -> None:
    assert index_keys(properties) == expected
