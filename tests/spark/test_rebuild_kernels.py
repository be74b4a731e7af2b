"""What the kernels derive from records is what the serial derivation makes of them."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.format.stored.index_file import ENTRY, ENTRY_SIZE, key_text_hash
from flintmq.format.stored.record import CheckedRecord, check_record
from flintmq.format.stored.record_encoding import encode_record
from flintmq.kernels.compiled import as_bytes
from flintmq.kernels.derived_views import SplitViews
from flintmq.kernels.index import chain_breaks_at, first_entry_from, write_entries
from flintmq.kernels.queue_numbers import QUEUES_AT_FIRST
from flintmq.kernels.records import walk_records
from flintmq.offline.derive import Derivation, DerivedQueue
from flintmq.store.recovery.bulk_records import SortedKeys
from tests.kits.store.offline_stores import HOST, LEVELS, START_MS

NAMES = ("TAGS", "KEYS", "UNIQ_KEY", "DELAY", "INNER_MULTI_DISPATCH", "TAG", "KEYSX", "", "é")
VALUES = st.one_of(
    st.text(alphabet="ab ,0123é😀", max_size=12),
    st.sampled_from(["%LMQ%a,%LMQ%b", "3", "-1", " x  y ", "k" * 90]),
)
PAIRS = st.tuples(st.sampled_from(NAMES), VALUES).map(lambda pair: "\x01".join(pair).encode())
PROPERTIES = st.one_of(
    st.lists(PAIRS, max_size=5).map(b"\x02".join),
    st.lists(st.sampled_from([b"TAGS", b"KEYS", b"\x01", b"\x02", b" ", b"\xff", b"k"])).map(
        b"".join
    ),
)
TOPICS = st.sampled_from([b"orders", b"SCHEDULE_TOPIC_XXXX", "größe".encode(), b"\xff\xfe", b"o"])
RECORDS = st.lists(
    st.tuples(TOPICS, st.integers(0, 2), PROPERTIES, st.sampled_from([0, 4, 8, 12])), max_size=25
)

Written = tuple[bytes, int, bytes, int]


class Collected:
    """Takes what a serial derivation hands on."""

    def __init__(self) -> None:
        self.units: defaultdict[tuple[str, int], bytes] = defaultdict(bytes)
        self.entries: list[tuple[int, int, int]] = []
        self.bad_levels: list[int] = []

    def begin(self, queue: DerivedQueue) -> None:
        pass

    def take(self, queue: DerivedQueue) -> None:
        self.units[queue.topic, queue.queue_id] += bytes(queue.units)

    def jump(self, queue: DerivedQueue, queue_offset: int, physical_offset: int) -> bool:
        return True

    def bad_delay_level(self, record: CheckedRecord, reason: str) -> None:
        self.bad_levels.append(record.physical_offset)


class CollectedKeys:
    def __init__(self) -> None:
        self.entries: list[tuple[int, int, int]] = []

    def take(self, hashes: list[int], offsets: list[int], times: list[int]) -> None:
        self.entries += zip(hashes, offsets, times, strict=True)

    def take_many(self, keys: SortedKeys) -> None:
        self.take(*keys.lists())


def log_of(records: list[Written]) -> bytes:
    """Write records one after the other; those of a queue have consecutive offsets."""
    data = b""
    counts: Counter[tuple[bytes, int]] = Counter()
    for topic, queue_id, properties, sys_flag in records:
        offset = counts[topic, queue_id]
        counts[topic, queue_id] += sys_flag & 4 == 0
        time = START_MS + 10 * len(data)
        data += encode_record(
            topic,
            queue_id,
            0,
            offset,
            len(data),
            sys_flag,
            0,
            HOST,
            time,
            HOST,
            0,
            0,
            b"",
            properties,
        )
    return data


def derived(data: bytes, *, rows_max: int = 7) -> SplitViews:
    views = SplitViews(delay_levels=LEVELS, lmq=True, wants_units=True, wants_keys=True)
    position = 0
    while position < len(data):
        walk = walk_records(
            as_bytes(data),
            position,
            len(data),
            len(data),
            0,
            rows_max=rows_max,
            bytes_max=len(data),
        )
        assert len(walk.table)
        views.take(as_bytes(data), walk.table)
        position = walk.position
    return views


def serially(data: bytes) -> tuple[Collected, CollectedKeys]:
    units, keys = Collected(), CollectedKeys()
    derivation = Derivation(delay_levels=LEVELS, lmq=True, units=units, keys=keys)
    position = 0
    while position < len(data):
        record = check_record(data, position, len(data), check_crc=True, expected_offset=position)
        assert isinstance(record, CheckedRecord)
        derivation.feed([record])
        position += record.size
    derivation.finish()
    return units, keys


@settings(deadline=None)
@given(records=RECORDS)
def test_units_and_entries_are_those_of_the_serial_derivation(records: list[Written]) -> None:
    data = log_of(records)
    views = derived(data)
    units, keys = serially(data)
    slices, entries = views.slices(3), views.entries()
    made: defaultdict[tuple[str, int], bytes] = defaultdict(bytes)
    for number, queue in enumerate(slices.slice_queue.tolist()):
        topic, queue_id = slices.names[queue]
        made[topic.decode("utf-8", "replace"), queue_id] += slices.units_of(number).tobytes()
    assert made == units.units
    assert [level.physical_offset for level in views.bad_levels] == units.bad_levels
    columns = (entries.hashes.tolist(), entries.offsets.tolist(), entries.times.tolist())
    assert list(zip(*columns, strict=True)) == keys.entries


@pytest.mark.parametrize("size", range(1, 42))
@pytest.mark.parametrize("last", ["z", "é"])
def test_the_hash_of_a_key_is_that_of_all_its_letters(size: int, last: str) -> None:
    key = "".join(chr(33 + 7 * number % 90) for number in range(size - 1)) + last
    entries = derived(log_of([(b"orders", 0, f"UNIQ_KEY\x01{key}".encode(), 0)])).entries()
    assert entries.hashes.tolist() == [key_text_hash("orders", key)]


def test_more_queues_than_the_tables_had_room_for_at_first() -> None:
    count = 3 * QUEUES_AT_FIRST
    data = log_of([(b"t%d" % (number % 50), number, b"", 0) for number in range(count)] * 2)
    slices = derived(data, rows_max=1000).slices(8)
    assert len(slices.names) == len(set(slices.names)) == count
    assert len(slices.slice_at) == count
    assert sum(size for _, size in derived(data).topic_totals().values()) == len(data)


@settings(deadline=None)
@given(
    hashes=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=60),
    slots=st.integers(1, 9),
)
def test_entries_are_chained_as_a_hash_table_with_lists(hashes: list[int], slots: int) -> None:
    newest = np.zeros(slots, np.int32)
    target = np.zeros((len(hashes) + 1) * ENTRY_SIZE, np.uint8)
    offsets = np.arange(len(hashes), dtype=np.int64) * 10
    times = START_MS + np.arange(len(hashes), dtype=np.int64) * 700
    used = write_entries(
        np.array(hashes, np.int32), offsets, times, START_MS, newest, 1, target[ENTRY_SIZE:]
    )
    expected: dict[int, int] = {}
    for number, key_hash in enumerate(hashes, 1):
        entry = ENTRY.unpack_from(target.data, number * ENTRY_SIZE)
        elapsed = (number - 1) * 700 // 1000
        previous = expected.get(key_hash % slots, 0)
        assert entry == (key_hash, (number - 1) * 10, elapsed, previous)
        expected[key_hash % slots] = number
    assert used == len(expected)
    found = np.zeros(slots, np.int32)
    assert chain_breaks_at(as_bytes(target.tobytes()), 0, len(hashes) + 1, found) == 0
    assert np.array_equal(found, newest)
    assert {slot: int(number) for slot, number in enumerate(newest) if number} == expected
    middle = first_entry_from(as_bytes(target.tobytes()), 0, len(hashes) + 1, 15)
    assert middle == min(3, len(hashes) + 1)
