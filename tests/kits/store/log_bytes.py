"""Logs of arbitrary records for tests, and their rows as plain Python reads them."""

import contextlib
import functools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from flintmq.format.errors import CorruptRecordError
from flintmq.format.host import host_text
from flintmq.format.properties import decode_properties
from flintmq.format.stored.record import CheckedRecord, check_record, decode_record
from flintmq.format.stored.record_encoding import encode_record
from flintmq.format.sys_flag import COMPRESSED, host_sizes
from flintmq.spark.rows.row_filter import TIME_MAX_MS, TIME_MIN_MS

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

ints = st.integers(~INT_MAX, INT_MAX)
longs = st.integers(~LONG_MAX, LONG_MAX)
times = st.one_of(longs, st.integers(TIME_MIN_MS - 2, TIME_MIN_MS + 2), st.integers(0, 1 << 41))
words = st.sampled_from(
    [b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", b"abcdefgh", b"", "é€𝄞".encode(), b"\xff", b"\xc3"]
)
separators = st.sampled_from([b"\x01", b"\x01", b"\x02", b"\x02", b"", b"\x01\x02", b"\x00"])
property_texts = st.one_of(
    st.lists(st.tuples(words, separators), max_size=30).map(
        lambda parts: b"".join(word + end for word, end in parts)
    ),
    st.binary(max_size=60),
    st.just(b"\x02".join(b"%d\x01x" % number for number in range(80))),
)
topics = st.one_of(
    st.just("orders"), st.text(max_size=9).filter(lambda text: len(text.encode()) < 127)
)

RecordMaker = functools.partial[bytes]


@st.composite
def records(draw: st.DrawFn, *, compressed: bool = True) -> RecordMaker:
    """Return what makes a record once its physical offset is known."""
    sys_flag = draw(ints) & (-1 if compressed else ~COMPRESSED)
    born_host_size, store_host_size = host_sizes(sys_flag)
    hosts = st.sampled_from([b"\x0a\x00\x00\x01\x00\x00\x2a\x9f", b"\xff" * 8, bytes(8)])
    return functools.partial(
        encode_record,
        draw(topics).encode(),
        draw(ints),
        draw(ints),
        draw(longs),
        sys_flag=sys_flag,
        born_timestamp=draw(times),
        born_host=(draw(hosts) * 3)[:born_host_size],
        store_timestamp=draw(times),
        store_host=(draw(hosts) * 3)[:store_host_size],
        reconsume_times=draw(ints),
        prepared_transaction_offset=draw(longs),
        body=draw(st.binary(max_size=70)),
        properties=draw(property_texts),
    )


def join(base: int, makers: list[RecordMaker]) -> bytes:
    """Return a log of these records whose first byte has the offset ``base``."""
    log = b""
    for make in makers:
        log += make(physical_offset=base + len(log))
    return log


def chain(log: bytes, position: int, limit: int, base: int) -> Iterator[tuple[int, CheckedRecord]]:
    """Yield the records from ``position`` on and where they are, up to anything else."""
    with contextlib.suppress(CorruptRecordError):
        while position < limit:
            record = check_record(
                log, position, limit, check_crc=True, expected_offset=base + position
            )
            if not isinstance(record, CheckedRecord):
                return
            yield position, record
            position += record.size


def time_of(milliseconds: int) -> datetime | None:
    """Return a time as a column shows it."""
    if not TIME_MIN_MS <= milliseconds <= TIME_MAX_MS:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def row_of(log: bytes, position: int) -> dict[str, Any]:
    """Return the row of a record, without the columns that tell of its file."""
    record = decode_record(log, position)
    properties = decode_properties(record.properties_text)
    offset_id = (record.store_host + record.physical_offset.to_bytes(8, "big")).hex().upper()
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "body": bytes(record.body),
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "properties": list(properties.items()),
        "storeTimestamp": time_of(record.store_timestamp),
        "bornTimestamp": time_of(record.born_timestamp),
        "bornHost": host_text(record.born_host),
        "storeHost": host_text(record.store_host),
        "msgId": properties.get("UNIQ_KEY", offset_id),
        "offsetMsgId": offset_id,
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "physicalOffset": record.physical_offset,
        "storeSize": record.size,
        "bodyCRC": record.body_crc,
        "crcOk": True,
    }
