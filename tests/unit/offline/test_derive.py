"""What is derived from records is what dispatch makes of them."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from flintmq.format.properties import decode_properties, encode_properties
from flintmq.format.stored.consume_queue import UNIT, UNIT_SIZE
from flintmq.format.stored.dispatch_fields import dispatch_tags_code, index_keys
from flintmq.format.stored.index_file import key_text_hash
from flintmq.format.stored.queue_claims import queue_claims
from flintmq.format.stored.record import CheckedRecord
from flintmq.offline import derive
from flintmq.offline.derive import Derivation, DerivedQueue
from flintmq.store.recovery.bulk_records import SortedKeys
from tests.kits.store.offline_stores import LEVELS

texts = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), max_size=40)
properties = st.dictionaries(
    st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "X", "TAGSX", "XKEYS"]), texts, max_size=6
)
records = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "\u8ba2\u5355"]),
        st.integers(min_value=0, max_value=2),
        properties,
        st.sampled_from([0, 4, 8, 12]),
    ),
    max_size=40,
)


class Units:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.units: dict[tuple[str, int], bytearray] = defaultdict(bytearray)
        self.jumps: list[tuple[int, int]] = []
        self.bad_levels: list[int] = []
        self.accept = True

    def begin(self, queue: DerivedQueue) -> None:
        assert queue.first == queue.next

    def take(self, queue: DerivedQueue) -> None:
        assert len(queue.units) == (queue.next - queue.first) * UNIT_SIZE
        self.units[queue.topic, queue.queue_id] += queue.units

    def jump(self, queue: DerivedQueue, queue_offset: int, physical_offset: int) -> bool:
        self.jumps.append((queue.next, queue_offset))
        return self.accept

    def bad_delay_level(self, record: CheckedRecord, reason: str) -> None:
        self.bad_levels.append(record.physical_offset)


class Keys:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, int]] = []

    def take(self, hashes: list[int], offsets: list[int], times: list[int]) -> None:
        self.entries += zip(hashes, offsets, times, strict=True)

    def take_many(self, keys: SortedKeys) -> None:
        self.take(*keys.lists())


def record(
    offset: int, topic: str, queue_id: int, queue_offset: int, sys_flag: int, text: bytes
) -> CheckedRecord:
    return CheckedRecord(
        100, queue_id, queue_offset, offset, sys_flag, 5000 + offset, topic.encode(), text, 0
    )


@given(drawn=records)
def test_units_and_keys_are_those_of_dispatch(
    drawn: list[tuple[str, int, dict[str, str], int]],
) -> None:
    log, offsets = [], defaultdict[tuple[str, int], int](int)
    for number, (topic, queue_id, pairs, sys_flag) in enumerate(drawn):
        text = encode_properties(pairs)
        in_queue = sys_flag in (0, 8)
        at = offsets[topic, queue_id] if in_queue else 0
        log.append(record(number * 100, topic, queue_id, at, sys_flag, text))
        offsets[topic, queue_id] += in_queue
    units, keys = Units(), Keys()
    derivation = Derivation(delay_levels=LEVELS, lmq=True, units=units, keys=keys)
    derivation.feed(log)
    derivation.finish()
    expected_units = defaultdict[tuple[str, int], bytearray](bytearray)
    expected_keys = []
    for one in log:
        topic = one.topic.decode()
        code = dispatch_tags_code(one.topic, one.properties, one.store_timestamp, LEVELS)
        if one.sys_flag in (0, 8):
            expected_units[topic, one.queue_id] += UNIT.pack(one.physical_offset, 100, code)
        if one.sys_flag != 12:
            expected_keys += [
                (key_text_hash(topic, key.decode()), one.physical_offset, one.store_timestamp)
                for key in index_keys(one.properties)
            ]
    assert units.units == expected_units
    assert keys.entries == expected_keys
    assert units.jumps == []


def test_a_run_is_handed_on_when_it_is_long_or_all_are_many() -> None:
    units = Units()
    derivation = Derivation(delay_levels=LEVELS, lmq=True, units=units)
    count = derive.JOINED_SIZE // UNIT_SIZE + 1
    derivation.feed([record(n * 100, "t", 0, n, 0, b"") for n in range(count)])
    assert len(units.units["t", 0]) == count * UNIT_SIZE
    derivation.feed([record(n * 100, "t", 0, n, 0, b"") for n in range(count, count + 3)])
    assert len(units.units["t", 0]) == count * UNIT_SIZE
    derivation.finish()
    assert len(units.units["t", 0]) == (count + 3) * UNIT_SIZE


def test_a_record_out_of_turn_is_taken_if_the_sink_says_so() -> None:
    for accept, expected in ((True, [0, 700, 800, 200]), (False, [0, 200])):
        units = Units()
        units.accept = accept
        derivation = Derivation(delay_levels=LEVELS, lmq=True, units=units)
        derivation.feed(
            [
                record(0, "t", 0, 0, 0, b""),
                record(700, "t", 0, 7, 0, b""),
                record(800, "t", 0, 8, 0, b""),
                record(200, "t", 0, 1, 0, b""),
            ]
        )
        derivation.finish()
        found = [unit[0] for unit in UNIT.iter_unpack(units.units["t", 0])]
        assert found == expected


def test_further_queues_of_a_message_get_units_too() -> None:
    text = encode_properties(
        {"INNER_MULTI_DISPATCH": "%LMQ%a,plain", "INNER_MULTI_QUEUE_OFFSET": "4,6"}
    )
    one = record(0, "t", 3, 9, 0, text)
    assert decode_properties(text)["INNER_MULTI_DISPATCH"] == "%LMQ%a,plain"
    assert queue_claims(one, lmq=True) == [("t", 3, 9), ("%LMQ%a", 0, 4), ("plain", 3, 6)]
    assert queue_claims(one, lmq=False)[1] == ("%LMQ%a", 3, 4)
    assert queue_claims(record(0, "t", 3, 9, 4, text), lmq=True) == []
    units = Units()
    derivation = Derivation(delay_levels=LEVELS, lmq=True, units=units)
    derivation.feed([one])
    derivation.finish()
    assert set(units.units) == {("t", 3), ("%LMQ%a", 0), ("plain", 3)}


def test_a_delayed_record_without_a_level_is_due_when_it_was_stored() -> None:
    units = Units()
    derivation = Derivation(delay_levels=LEVELS, lmq=True, units=units)
    text = encode_properties({"DELAY": "soon", "TAGS": "x"})
    derivation.feed([record(300, "SCHEDULE_TOPIC_XXXX", 0, 0, 0, text)])
    derivation.finish()
    assert units.bad_levels == [300]
    assert UNIT.unpack(units.units["SCHEDULE_TOPIC_XXXX", 0])[2] == 5300
