"""Every record the Java broker wrote is read as Java reads it, and written back the same."""

import hashlib
from typing import Any

import pytest

from flintmq.format import sys_flag
from flintmq.format.compression import decompress
from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.format.errors import CorruptRecordError, EndOfRecords
from flintmq.format.host import host_text
from flintmq.format.message_id import decode_offset_id, decode_unique_id, encode_unique_id
from flintmq.format.stored.dispatch_fields import dispatch_tags_code
from flintmq.format.stored.record import (
    Blank,
    CheckedRecord,
    Record,
    check_record,
    decode_record,
    read_store_timestamp,
)
from flintmq.format.stored.record_encoding import encode_record
from flintmq.format.sys_flag import compression_type
from tests.kits.golden.golden_sets import STORE_SET_NAMES, GoldenSet, damaged_set, golden_set

BODY_SIZE_MAX = 4 * 1024 * 1024
LEVELS = DelayLevels.parse(DEFAULT_DELAY_LEVELS)


def raw_records(stored: GoldenSet) -> list[tuple[dict[str, Any], bytes]]:
    """Return each expectation with the bytes it is about."""
    log = b"".join(content for _, content in stored.log_files())
    return [
        (message, log[message["physicalOffset"] : message["physicalOffset"] + message["size"]])
        for message in stored.messages()
    ]


def encode(record: Record) -> bytes:
    return encode_record(
        topic=record.topic.encode(),
        queue_id=record.queue_id,
        flag=record.flag,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_timestamp=record.store_timestamp,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        body=bytes(record.body),
        properties=record.properties_text,
    )


def body_of(record: Record) -> bytes:
    if record.sys_flag & sys_flag.COMPRESSED:
        kind = compression_type(record.sys_flag)
        return decompress(record.body, kind, limit=BODY_SIZE_MAX)
    return bytes(record.body)


def scan(stored: GoldenSet) -> tuple[list[CheckedRecord], list[tuple[int, int]], int, Exception]:
    """Check record after record; return them, the blanks, the end, and what ended the scan."""
    records: list[CheckedRecord] = []
    blanks: list[tuple[int, int]] = []
    end = 0
    for first_offset, content in stored.log_files():
        view = memoryview(content)
        position = 0
        while position < len(content):
            offset = first_offset + position
            try:
                found = check_record(
                    view, position, len(content), check_crc=True, expected_offset=offset
                )
            except CorruptRecordError as error:
                return records, blanks, end, error.located("log", first_offset)
            position += found.size
            if isinstance(found, Blank):
                blanks.append((offset, found.size))
            else:
                records.append(found)
                end = offset + found.size
    raise AssertionError("a log never fills its last file")


@pytest.mark.parametrize("name", STORE_SET_NAMES)
def test_every_record_is_decoded_as_java_decodes_it(name: str) -> None:
    for message, raw in raw_records(golden_set(name)):
        record = decode_record(raw)
        body = body_of(record)
        assert message == message | {
            "physicalOffset": record.physical_offset,
            "size": record.size,
            "topic": record.topic,
            "queueId": record.queue_id,
            "queueOffset": record.queue_offset,
            "sysFlag": record.sys_flag,
            "flag": record.flag,
            "bornTimestamp": record.born_timestamp,
            "bornHost": host_text(record.born_host),
            "storeTimestamp": record.store_timestamp,
            "storeHost": host_text(record.store_host),
            "reconsumeTimes": record.reconsume_times,
            "preparedTransactionOffset": record.prepared_transaction_offset,
            "bodyCRC": record.body_crc,
            "storedBodyLength": len(record.body),
            "bodyLength": len(body),
            "bodySha256": hashlib.sha256(body).hexdigest(),
            "properties": record.properties,
            "msgId": record.message_id,
            "dispatchTagsCode": dispatch_tags_code(
                record.topic.encode(),
                record.properties_text,
                record.store_timestamp,
                LEVELS,
            ),
        }
        assert record.crc_ok == message.get("crcOk", True)
        assert read_store_timestamp(raw) == message["storeTimestamp"]
        assert decode_offset_id(message["msgId"]) == (record.store_host, record.physical_offset)


@pytest.mark.parametrize("name", STORE_SET_NAMES)
def test_encoding_a_decoded_record_gives_its_bytes_again(name: str) -> None:
    for _, raw in raw_records(golden_set(name)):
        assert encode(decode_record(raw)) == raw
        assert encode(decode_record(memoryview(raw), copy_body=False)) == raw


@pytest.mark.parametrize("name", STORE_SET_NAMES)
def test_a_scan_finds_the_records_the_blanks_and_the_end(name: str) -> None:
    stored = golden_set(name)
    expected = stored.expected()
    records, blanks, end, stop = scan(stored)
    assert [
        (
            record.physical_offset,
            record.size,
            record.topic.decode(),
            record.queue_id,
            record.queue_offset,
            record.sys_flag,
            record.store_timestamp,
            record.prepared_transaction_offset,
        )
        for record in records
    ] == [
        (
            message["physicalOffset"],
            message["size"],
            message["topic"],
            message["queueId"],
            message["queueOffset"],
            message["sysFlag"],
            message["storeTimestamp"],
            message["preparedTransactionOffset"],
        )
        for message in stored.messages()
    ]
    assert blanks == [(blank["physicalOffset"], blank["size"]) for blank in expected["blanks"]]
    assert end == expected["scanEnd"]
    assert isinstance(stop, EndOfRecords)


@pytest.mark.parametrize("name", STORE_SET_NAMES)
def test_unique_ids_of_java_clients_are_taken_apart_and_put_together(name: str) -> None:
    ids = [
        message["properties"]["UNIQ_KEY"]
        for message in golden_set(name).messages()
        if "UNIQ_KEY" in message["properties"]
    ]
    assert ids
    made_by_clients = [text for text in ids if len(text) in (32, 56)]
    assert made_by_clients
    for text in made_by_clients:
        assert encode_unique_id(*decode_unique_id(text)) == text


@pytest.mark.parametrize(
    ("name", "end", "stop", "reason"),
    [
        ("body-byte-flipped-first-file", 15178, CorruptRecordError, "checksum"),
        ("body-byte-flipped-last-file", 242602, CorruptRecordError, "checksum"),
        ("body-byte-flipped-previous-file", 206232, CorruptRecordError, "checksum"),
        ("record-length-wrong", 242602, CorruptRecordError, "size 554 leaves"),
        ("tail-record-half-zero", 249479, CorruptRecordError, "size 338"),
        ("tail-record-zero-from-30", 249479, CorruptRecordError, "size 338"),
        ("consumequeue-ahead", 247099, EndOfRecords, "nothing"),
        ("garbage-after-end", 249817, CorruptRecordError, "no magic code"),
        ("garbage-after-gap", 249817, EndOfRecords, "nothing"),
        ("preallocated-file", 249817, EndOfRecords, "nothing"),
        ("only-commitlog", 249817, EndOfRecords, "nothing"),
    ],
)
def test_a_scan_stops_at_the_damage(
    name: str, end: int, stop: type[CorruptRecordError], reason: str
) -> None:
    records, _, scan_end, error = scan(damaged_set(name))
    assert scan_end == end
    assert type(error) is stop
    assert isinstance(error, CorruptRecordError)
    assert error.offset == end
    assert error.source == "log"
    assert reason in error.reason
    whole = golden_set("rolled").messages()
    assert [record.physical_offset for record in records] == [
        message["physicalOffset"] for message in whole if message["physicalOffset"] < end
    ]


def test_a_flipped_body_byte_is_seen_by_a_decoded_record() -> None:
    stored = damaged_set("body-byte-flipped-last-file")
    log = b"".join(content for _, content in stored.log_files())
    damaged = decode_record(log, 242602)
    assert not damaged.crc_ok
    assert decode_record(log, damaged.physical_offset + damaged.size).crc_ok
