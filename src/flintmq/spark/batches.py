"""From records to Arrow batches: only the columns that are asked for, a bounded size each."""

import functools
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import accumulate, chain
from typing import Any, Final

import pyarrow as pa

from flintmq.format.compression import decompress
from flintmq.format.errors import CompressionError
from flintmq.format.host import host_text
from flintmq.format.properties import decode_properties, find_property
from flintmq.format.record import CheckedRecord
from flintmq.format.sys_flag import (
    BORN_HOST_V6,
    COMPRESSED,
    HOSTS_MASK,
    STORE_HOST_V6,
    compression_type,
    host_sizes,
)
from flintmq.model import property_names
from flintmq.offline.messages import BODY_SIZE_MAX
from flintmq.spark.columns import CORRUPT_REASON, CORRUPT_SIZE
from flintmq.spark.errors import CorruptLogError
from flintmq.spark.options import OnCorrupt
from flintmq.spark.row_filter import TIME_MAX_MS, TIME_MIN_MS, RowFilter
from flintmq.spark.split_scan import Damage, Found, LogSplit, SplitScan

BATCH_ROWS_MAX: Final = 8192
BATCH_BYTES_MAX: Final = 16 << 20
"""Of stored records; a single body may be larger once it is decompressed."""

_HOSTS_CACHED_MAX: Final = 4096
_TOPICS_CACHED_MAX: Final = 65_536
_cached_host_text: Final = functools.lru_cache(maxsize=_HOSTS_CACHED_MAX)(host_text)
_topic_text: Final = functools.lru_cache(maxsize=_TOPICS_CACHED_MAX)(bytes.decode)

_host_hex: Final = functools.lru_cache(maxsize=_HOSTS_CACHED_MAX)(lambda host: host.hex().upper())


_CHECKED: Final = {
    "storeSize": "size",
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "physicalOffset": "physical_offset",
    "sysFlag": "sys_flag",
    "preparedTransactionOffset": "prepared_transaction_offset",
}
"""Columns that are a field of a checked record as it is."""

_CHECKED_AT: Final = {name: CheckedRecord._fields.index(field) for name, field in _CHECKED.items()}
_TIME_AT: Final = CheckedRecord._fields.index("store_timestamp")
_TOPIC_AT: Final = CheckedRecord._fields.index("topic")
_PROPERTIES_AT: Final = CheckedRecord._fields.index("properties")


def _rest_header(born_host_size: int, store_host_size: int) -> struct.Struct:
    """Return the layout up to the body length, of what a checked record does not tell.

    The whole layout is in ``flintmq.format.record``.
    """
    return struct.Struct(
        ">8x"
        "i4xi"  # body_crc, flag
        f"20xq{born_host_size}s"  # born_timestamp, born_host
        f"8x{store_host_size}s"  # store_host
        "i8xi"  # reconsume_times, body length
    )


_REST: Final = {
    bits: _rest_header(*host_sizes(bits))
    for bits in (0, BORN_HOST_V6, STORE_HOST_V6, BORN_HOST_V6 | STORE_HOST_V6)
}
assert all(header.size == 72 + sum(host_sizes(bits)) for bits, header in _REST.items())

_REST_COLUMNS: Final = (
    "bodyCRC",
    "flag",
    "bornTimestamp",
    "bornHost",
    "storeHost",
    "reconsumeTimes",
    "body",
    "offsetMsgId",
    "msgId",
)
_PROPERTY_COLUMNS: Final = {
    "tags": property_names.TAGS,
    "keys": property_names.KEYS,
    "msgId": property_names.UNIQ_KEY,
}


class BatchReader:
    """Gives one split as Arrow batches."""

    def __init__(
        self, split: LogSplit, schema: pa.Schema, row_filter: RowFilter, on_corrupt: OnCorrupt
    ) -> None:
        self._split = split
        self._schema = schema
        self._filter = row_filter
        self._on_corrupt = on_corrupt
        self._scan = SplitScan(split)
        names = frozenset(schema.names)
        self._names = names
        self._checked = [(name, at) for name, at in _CHECKED_AT.items() if name in names]
        self._needs_rest = not names.isdisjoint(_REST_COLUMNS)
        self._constants = {
            "brokerName": split.broker_name,
            "fileName": split.path.rpartition("/")[2],
            "path": split.store,
        }
        self._topics: set[bytes] = set()
        self._clear()

    def _clear(self) -> None:
        self._columns: dict[str, list[Any]] = {
            name: [] for name in self._schema.names if name not in self._constants
        }
        self._rows = 0
        self._bytes = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the wanted rows; CorruptLogError at damage if that is asked for."""
        with closing(self._scan.found()) as every:
            for found in every:
                for part in self._parts(found):
                    if isinstance(part, Damage):
                        self._add_damage(part)
                    else:
                        self._add(part)
                    if self._rows >= BATCH_ROWS_MAX or self._bytes >= BATCH_BYTES_MAX:
                        yield self._take()
        if self._rows:
            yield self._take()

    def _parts(self, found: Found) -> Iterator[Found]:
        """Yield what is to be added at once: wanted records of known topics, or damage.

        Records with a compressed body come one by one, since nobody knows how they grow.
        """
        if isinstance(found, Damage):
            yield found
            return
        if not self._topics.issuperset(record[_TOPIC_AT] for record in found):
            yield from self._with_new_topics(found)
            return
        if not self._filter.is_open:
            found = list(filter(self._filter.wants, found))
        if "body" in self._names and any(record.sys_flag & COMPRESSED for record in found):
            yield from ([record] for record in found)
        elif found:
            yield found

    def _with_new_topics(self, found: list[CheckedRecord]) -> Iterator[Found]:
        for record in found:
            try:
                record.topic.decode()
            except UnicodeDecodeError:
                start, end = record.physical_offset, record.physical_offset + record.size
                yield Damage(start, end, "the topic is not UTF-8")
                continue
            if len(self._topics) >= _TOPICS_CACHED_MAX:
                self._topics.clear()
            self._topics.add(record.topic)
            yield from self._parts([record])

    def _take(self) -> pa.RecordBatch:
        arrays = []
        for field in self._schema:
            if field.name in self._constants:
                value = pa.scalar(self._constants[field.name], field.type)
                arrays.append(pa.repeat(value, self._rows))
            elif field.name == "properties":
                arrays.append(_map_array(self._columns[field.name], field.type))
            else:
                arrays.append(pa.array(self._columns[field.name], field.type))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._clear()
        return batch

    def _add(self, records: list[CheckedRecord], damage: Damage | None = None) -> None:
        """Add records; ``damage`` tells what is wrong with the one that they are."""
        assert damage is None or len(records) == 1
        columns, names = self._columns, self._names
        fields = list(zip(*records, strict=True))
        for name, at in self._checked:
            columns[name].extend(fields[at])
        if "topic" in names:
            columns["topic"].extend(map(_topic_text, fields[_TOPIC_AT]))
        if "storeTimestamp" in names:
            columns["storeTimestamp"].extend(map(_microseconds, fields[_TIME_AT]))
        self._add_properties(fields[_PROPERTIES_AT])
        reason = None if damage is None else damage.reason
        if self._needs_rest:
            fault = self._add_rest(records, is_damaged=damage is not None)
            reason = reason or fault
        count = len(records)
        size = None if reason is None else records[0].size
        for name, value in (
            (CORRUPT_REASON, reason),
            (CORRUPT_SIZE, size),
            ("crcOk", damage is None),
        ):
            if name in names:
                columns[name].extend([value] * count)
        self._rows += count
        self._bytes += sum(fields[0])

    def _add_properties(self, texts: Sequence[bytes]) -> None:
        columns, names = self._columns, self._names
        if "properties" not in names:
            for name, key in _PROPERTY_COLUMNS.items():
                if name in names:
                    columns[name].extend([_property(text, key.encode()) for text in texts])
            return
        # Where all are taken apart anyway, there is no need to look for some.
        maps = list(map(decode_properties, texts))
        columns["properties"].extend(maps)
        for name, key in _PROPERTY_COLUMNS.items():
            if name in names:
                columns[name].extend([one.get(key) for one in maps])

    def _add_rest(self, records: list[CheckedRecord], *, is_damaged: bool) -> str | None:
        """Add what only the log itself tells; return why a body is missing."""
        view, base = self._scan.view, self._split.file_start
        columns, names = self._columns, self._names
        rest = [
            _REST[record[4] & HOSTS_MASK].unpack_from(view, record[3] - base) for record in records
        ]
        crcs, flags, born_times, born_hosts, store_hosts, reconsumed, sizes = zip(
            *rest, strict=True
        )
        for name, values in (("bodyCRC", crcs), ("flag", flags), ("reconsumeTimes", reconsumed)):
            if name in names:
                columns[name].extend(values)
        if "bornTimestamp" in names:
            columns["bornTimestamp"].extend(map(_microseconds, born_times))
        for name, hosts in (("bornHost", born_hosts), ("storeHost", store_hosts)):
            if name in names:
                columns[name].extend(map(_cached_host_text, hosts))
        if "offsetMsgId" in names or "msgId" in names:
            self._add_ids(records, store_hosts)
        if "body" not in names:
            return None
        fault = None
        for record, size in zip(records, sizes, strict=True):
            at = record[3] - base + _REST[record[4] & HOSTS_MASK].size
            body: bytes | None = bytes(view[at : at + size]) if size > 0 else b""
            if record[4] & COMPRESSED and body:
                body, fault = self._decompress(record, body, is_damaged=is_damaged)
            columns["body"].append(body)
        return fault

    def _add_ids(self, records: list[CheckedRecord], store_hosts: Sequence[bytes]) -> None:
        offset_ids = [
            f"{_host_hex(host)}{record[3]:016X}"
            for host, record in zip(store_hosts, records, strict=True)
        ]
        if "offsetMsgId" in self._names:
            self._columns["offsetMsgId"].extend(offset_ids)
        if "msgId" in self._names:
            # The unique id of the producer's client stands there already, if there is one.
            column = self._columns["msgId"]
            first = len(column) - len(offset_ids)
            for number, offset_id in enumerate(offset_ids, first):
                column[number] = column[number] or offset_id

    def _decompress(
        self, record: CheckedRecord, stored: bytes, *, is_damaged: bool
    ) -> tuple[bytes | None, str | None]:
        """Return the body as it was sent, or None and why that cannot be."""
        try:
            body = decompress(stored, compression_type(record.sys_flag), limit=BODY_SIZE_MAX)
        except CompressionError as error:
            if self._on_corrupt is OnCorrupt.FAIL and not is_damaged:
                start = record.physical_offset
                raise CorruptLogError(
                    self._split.path, start, start + record.size, error.reason
                ) from error
            return None, error.reason
        self._bytes += len(body)
        return body, None

    def _add_damage(self, damage: Damage) -> None:
        if damage.is_tail and self._on_corrupt is not OnCorrupt.ROW:
            return
        if self._on_corrupt is OnCorrupt.FAIL:
            raise CorruptLogError(self._split.path, damage.start, damage.end, damage.reason)
        if self._on_corrupt is OnCorrupt.SKIP:
            return
        if damage.record is not None:
            if self._filter.wants(damage.record):
                self._add([damage.record], damage)
            return
        if self._filter.drops_damage:
            return
        known = {
            "physicalOffset": damage.start,
            CORRUPT_REASON: damage.reason,
            CORRUPT_SIZE: damage.end - damage.start,
        }
        for name, values in self._columns.items():
            values.append(known.get(name))
        self._rows += 1


def _property(text: bytes, name: bytes) -> str | None:
    found = find_property(text, name)
    return None if found is None else found.decode(errors="replace")


def _microseconds(time: int) -> int | None:
    return time * 1000 if TIME_MIN_MS <= time <= TIME_MAX_MS else None


def _map_array(maps: Sequence[dict[str, str] | None], kind: pa.DataType) -> pa.Array:
    if None in maps:
        return pa.array([None if one is None else list(one.items()) for one in maps], kind)
    known = [one for one in maps if one is not None]
    # From flat lists Arrow builds maps several times as fast as from pairs.
    offsets = [0, *accumulate(map(len, known))]
    names = list(chain.from_iterable(known))
    values = list(chain.from_iterable(one.values() for one in known))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(names, pa.string()), pa.array(values, pa.string())
    )
