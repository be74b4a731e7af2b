"""Each rule of the format is written once in Python and once as a kernel; both say the same."""

import struct
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flintmq.format import java
from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.format.properties import encode_properties
from flintmq.format.stored import dispatch_fields as python_fields
from flintmq.format.stored.consume_queue import UNIT
from flintmq.format.stored.index_file import key_text_hash
from flintmq.format.stored.record import CheckedRecord, check_record, decode_record
from flintmq.format.stored.record_encoding import encode_record
from flintmq.format.sys_flag import with_hosts
from flintmq.kernels import crc, dispatch_fields, plain_properties, record_encoding
from flintmq.kernels.compiled import Bytes, as_bytes, kernel
from flintmq.kernels.derived_views import SplitViews
from flintmq.kernels.properties import PAIRS_MAX
from flintmq.kernels.records import walk_records
from flintmq.model.message import PutMessage
from flintmq.model.property_names import STEERING
from flintmq.offline.derive import Derivation, DerivedQueue
from flintmq.store.append_group.plain_properties import NAME_COUNT_MAX, PlainProperties
from flintmq.store.config import StoreConfig
from flintmq.store.log.dispatch_request import request_from_record
from flintmq.store.message_store import MessageStore
from flintmq.store.results import PutStatus
from flintmq.testing import ROOT, ManualClock, SimulatedFiles

LEVELS: Final = DelayLevels.parse(DEFAULT_DELAY_LEVELS)
SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"
HOST: Final = b"\x7f\0\0\1\0\0\x2a\x9f"
TIME: Final = 1_700_000_000_456

ints = st.integers(-(1 << 31), (1 << 31) - 1)
longs = st.integers(-(1 << 63), (1 << 63) - 1)
hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
dispatched_names = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY"])
names = dispatched_names | st.sampled_from(
    ["WAIT", "TAG", "KEYSX", "UNIQ_KEYS", "UNIQ", "", "ä", *STEERING]
)
values = st.sampled_from(
    ["", "a", "k1 k2", " ", "  k3 ", "polygenelubricants", "my-tag", "ü", "\0", "x\x01y"]
)
pairs = st.builds("{}\x01{}".format, dispatched_names, values) | st.builds(
    "{}\x01{}".format, names, values | st.text("ab 1\x01", max_size=20)
)
texts = st.builds(
    lambda some, end: ("\x02".join(some) + end).encode(),
    st.lists(pairs | st.sampled_from(["", "TAGS", "\x01", "alone"]), max_size=5),
    st.sampled_from(["\x02", ""]),
) | st.binary(max_size=40)
paddings = st.binary(max_size=9)


@given(body=st.binary(max_size=100), before=paddings, behind=paddings)
@settings(deadline=None)
def test_the_checksum_of_a_body(body: bytes, before: bytes, behind: bytes) -> None:
    data = as_bytes(before + body + behind)
    assert crc.crc31(data, len(before), len(body)) == java.crc31(body)


@kernel
def _index_hash(unsigned: int) -> int:
    return dispatch_fields.index_hash(unsigned)


@given(unsigned=st.integers(0, (1 << 32) - 1) | st.sampled_from([1 << 31, (1 << 31) - 1]))
@settings(deadline=None)
def test_the_hash_of_the_index(unsigned: int) -> None:
    assert _index_hash(unsigned) == java.index_hash(unsigned)


def kernel_fields(topic: str, text: bytes) -> tuple[int, list[int]] | None:
    """Return tags code and key hashes by the kernel, None where it leaves them to Python."""
    found = dispatch_fields.DispatchTable(
        np.zeros(1, np.int64), np.zeros(1, np.int32), np.zeros(1, np.uint8), np.zeros(99, np.int32)
    )
    done, count = dispatch_fields.dispatch_records(
        as_bytes(b"\x02" + text + b"\x02KEYS\x01behind"),
        np.array([1]),
        np.array([len(text)], np.int32),
        np.zeros(1, np.int32),
        np.array([java.key_prefix_hash(topic)]),
        found,
        0,
        0,
    )
    assert done == 1
    if found.flags[0] & dispatch_fields.IS_SPECIAL:
        return None
    assert count == found.key_counts[0]
    return int(found.tags_codes[0]), found.hashes[:count].tolist()


@given(topic=st.sampled_from(["T", "über"]), text=texts)
@example(topic="T", text=b"TAGS\x01a\x02TAGS\x01")
@example(topic="T", text=b"TAGS\x01polygenelubricants\x02KEYS\x01tbaekxa")
@example(topic="T", text=b"UNIQ_KEY\x01u\x02UNIQ_KEY\x01")
@settings(max_examples=400, deadline=None)
def test_tags_code_and_keys(topic: str, text: bytes) -> None:
    code, keys = python_fields.dispatch_fields(topic.encode(), text, 0, None)
    by_kernel = kernel_fields(topic, text)
    if by_kernel is None:
        assert not text.isascii()
        return
    decoded = [key.decode("utf-8", "replace") for key in keys]
    assert by_kernel == (code, [key_text_hash(topic, key) for key in decoded])


@given(text=texts)
@settings(max_examples=400, deadline=None)
def test_which_messages_are_plain(text: bytes) -> None:
    judged = PlainProperties().judge(text, b"")
    cut_at, cut_end = plain_properties.judge_properties(
        as_bytes(b"\x02" + text + b"\x02\x01"),
        1,
        1 + len(text),
        np.empty(PAIRS_MAX, np.int64),
        np.empty(PAIRS_MAX, np.int32),
    )
    assert (judged is not None) == (cut_at != plain_properties.NOT_PLAIN)
    if judged is not None:
        left = text[: cut_at - 1] + text[cut_end - 1 :]
        assert left.removesuffix(b"\x02") == judged[0].removesuffix(b"\x02")


@pytest.mark.parametrize("name", STEERING)
@pytest.mark.parametrize("before", [b"", b"color\x01red\x02"])
def test_no_name_that_steers_is_plain(name: str, before: bytes) -> None:
    text = before + name.encode() + b"\x01value\x02"
    assert PlainProperties().judge(text, b"") is None
    scratch = np.empty(PAIRS_MAX, np.int64), np.empty(PAIRS_MAX, np.int32)
    judged = plain_properties.judge_properties(as_bytes(text), 0, len(text), *scratch)
    assert judged[0] == plain_properties.NOT_PLAIN


@st.composite
def record_fields(draw: st.DrawFn) -> dict[str, Any]:
    born_host, store_host = draw(hosts), draw(hosts)
    return {
        "topic": draw(st.text(max_size=31).map(str.encode)),
        "queue_id": draw(ints),
        "flag": draw(ints),
        "queue_offset": draw(longs),
        "physical_offset": draw(st.integers(0, (1 << 62))),
        "sys_flag": with_hosts(draw(ints), born_host=born_host, store_host=store_host),
        "born_timestamp": draw(longs),
        "born_host": born_host,
        "store_timestamp": draw(longs),
        "store_host": store_host,
        "reconsume_times": draw(ints),
        "prepared_transaction_offset": draw(longs),
        "body": draw(st.binary(max_size=50)),
        "properties": draw(st.binary(max_size=50)),
    }


def column(pieces: list[bytes]) -> record_encoding.PieceColumn:
    at = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
    return record_encoding.PieceColumn(as_bytes(b"".join(pieces)), at)


def kernel_records(rows: list[dict[str, Any]], sizes: list[int]) -> Bytes:
    """Return records that the kernel has encoded, one behind the other."""
    numbers = {
        name: np.array([row[name] for row in rows], np.int64)
        for name in record_encoding.HeadColumns._fields
        if name not in ("size", "body_crc", "body_length")
    }
    heads = record_encoding.HeadColumns(
        size=np.array(sizes, np.int64),
        body_crc=np.array([java.crc31(row["body"]) for row in rows], np.int64),
        body_length=np.array([len(row["body"]) for row in rows], np.int64),
        **numbers,
    )
    packed = [row[name].ljust(20, b"\0") for row in rows for name in ("born_host", "store_host")]
    records = np.zeros(sum(sizes), np.uint8)
    record_encoding.encode_rows(
        record_encoding.RecordRows(
            heads,
            as_bytes(b"".join(packed)),
            column([row["body"] for row in rows]),
            column([row["topic"] for row in rows]),
            column([row["properties"] for row in rows]),
            np.zeros(len(rows), np.bool_),
            column([b""] * len(rows)),
        ),
        np.cumsum([0, *sizes], dtype=np.int64),
        records,
    )
    return records


@given(rows=st.lists(record_fields(), min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_records_are_written_alike(rows: list[dict[str, Any]]) -> None:
    expected = [encode_record(**row) for row in rows]
    assert kernel_records(rows, list(map(len, expected))).tobytes() == b"".join(expected)


@given(fields=record_fields())
@settings(max_examples=200, deadline=None)
def test_records_are_read_alike(fields: dict[str, Any]) -> None:
    raw = encode_record(**fields)
    record = decode_record(raw)
    base = fields["physical_offset"]
    table = walk_records(
        as_bytes(raw), 0, len(raw), len(raw), base, rows_max=1, bytes_max=len(raw)
    ).table
    assert len(table) == 1
    for name in record._fields:
        if name in table.__dataclass_fields__:
            assert int(getattr(table, name)[0]) == getattr(record, name), name
    for name in ("born_host", "store_host"):
        at, host = int(getattr(table, f"{name}_at")[0]), getattr(record, name)
        assert raw[at : at + len(host)] == host


level_texts = st.one_of(
    st.integers(-(1 << 33), 1 << 33).map(str),
    st.builds(
        lambda sign, zeros, digits: sign + "0" * zeros + digits,
        st.sampled_from(["", "+", "-", "+-"]),
        st.sampled_from([0, 1, 9, 60, 5000]),
        st.sampled_from(["", "0", "3", "18", "19", "2147483647", "2147483648", "9999999999"]),
    ),
    st.sampled_from(["\uff13", "\u0663", "1\u0663", "\U0001d7d1", "\u00b2", "\u2167", "3 ", " 3"]),
    st.sampled_from(["1_0", "3s", "0x3", "3.0", "\u22123", "\0", "three", "3\n"]),
    st.text(min_size=1, max_size=4).filter(lambda text: "\x02" not in text),
).filter(bool)


class Units:
    """Takes the units of a rebuild."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.bad_count = 0

    def begin(self, queue: DerivedQueue) -> None:
        """Learn of a queue."""

    def take(self, queue: DerivedQueue) -> None:
        """Take units."""
        self.codes += [code for _, _, code in UNIT.iter_unpack(queue.units)]

    def jump(self, queue: DerivedQueue, queue_offset: int, physical_offset: int) -> bool:
        """Accept any offset."""
        return True

    def bad_delay_level(self, record: CheckedRecord, reason: str) -> None:
        """Count what is no level."""
        self.bad_count += 1


def delayed_record(level: str, store_timestamp: int) -> bytes:
    """Return a record of the schedule topic with a level and a tag."""
    properties = encode_properties({"DELAY": level, "TAGS": "TagA"})
    fields = (SCHEDULE_TOPIC, 0, 0, 0, 0, 0, 0, HOST, store_timestamp, HOST, 0, 0, b"", properties)
    return encode_record(*fields)


@given(
    level=level_texts, levels=st.sampled_from([LEVELS, DelayLevels.parse("1s"), DelayLevels(())])
)
@settings(max_examples=300, deadline=None)
def test_the_delay_level_is_read_alike_by_all(level: str, levels: DelayLevels) -> None:
    raw = delayed_record(level, TIME)
    record = check_record(raw, 0, len(raw), check_crc=True, expected_offset=0)
    assert isinstance(record, CheckedRecord)
    dispatched = request_from_record(record, delay_levels=levels, multi_dispatch=False, lmq=False)
    units = Units()
    derivation = Derivation(delay_levels=levels, lmq=False, units=units)
    derivation.feed([record])
    derivation.finish()
    views = SplitViews(delay_levels=levels, lmq=False, wants_units=True, wants_keys=True)
    data = as_bytes(raw)
    walk = walk_records(data, 0, len(raw), len(raw), 0, rows_max=1, bytes_max=len(raw))
    views.take(data, walk.table)
    (by_kernels,) = [code for _, _, code in UNIT.iter_unpack(unit_bytes(views))]
    assert units.codes == [dispatched.tags_code] == [by_kernels] == [expected_code(level, levels)]
    assert views.bad_level_count == units.bad_count
    with store_with(levels) as store:
        assert_put_reads(store, level, is_level=not units.bad_count, code=dispatched.tags_code)


def expected_code(text: str, levels: DelayLevels) -> int:
    """Return the tags code of a delayed record: when it is due, at once if its level is none."""
    level = java.parse_int(text)
    if level is None:
        return TIME
    capped = min(level, len(levels.delays_ms))
    return TIME + levels.delays_ms[capped - 1] if capped > 0 else java.tags_code("TagA")


def unit_bytes(views: SplitViews) -> bytes:
    """Return the units that the views of a split hold."""
    return views.slices().units.tobytes()


def store_with(levels: DelayLevels) -> MessageStore:
    text = " ".join(f"{delay // 1000}s" for delay in levels.delays_ms)
    config = StoreConfig(
        root=ROOT, commit_log_file_size=32_768, index_enabled=False, delay_levels=text
    )
    files = SimulatedFiles(clock=ManualClock(TIME))
    return MessageStore.open(config, files=files, clock=files.clock, background=False)


def assert_put_reads(store: MessageStore, level: str, *, is_level: bool, code: int) -> None:
    """Check that a put refuses what is no level, and gives others the code that dispatch gives."""
    message = PutMessage(
        topic="T",
        body=b"",
        properties={"DELAY": level, "TAGS": "TagA"},
        born_timestamp=1,
        born_host=HOST,
        store_host=HOST,
    )
    result = store.put(message)
    if not is_level:
        assert result.status is PutStatus.MESSAGE_ILLEGAL
        return
    assert result.status is PutStatus.PUT_OK
    store.dispatch()
    record = store.look(result.physical_offset)
    assert record is not None
    queue = store.queues.get(record.topic, record.queue_id)
    assert queue is not None
    assert queue.unit_at(0) == (result.physical_offset, record.size, code)
    is_delayed = code != java.tags_code("TagA")
    assert (record.topic == SCHEDULE_TOPIC.decode()) == is_delayed
    if is_delayed:
        delays = store.delay_levels.delays_ms
        assert TIME + delays[record.queue_id] == code
        assert record.properties["DELAY"] == str(record.queue_id + 1)


def test_python_remembers_as_many_names_as_the_kernel_compares() -> None:
    """Above that both leave a message to whoever puts it alone, or judge it anew."""
    assert NAME_COUNT_MAX == PAIRS_MAX
    many = b"".join(b"n%d\x01v\x02" % number for number in range(PAIRS_MAX + 1))
    scratch = np.empty(PAIRS_MAX, np.int64), np.empty(PAIRS_MAX, np.int32)
    judged = plain_properties.judge_properties(as_bytes(many), 0, len(many), *scratch)
    assert judged[0] == plain_properties.NOT_PLAIN
    assert PlainProperties().judge(many, b"") is not None


def test_java_reads_these_numbers() -> None:
    """As the JDK's ``Integer.parseInt`` was seen to do."""
    read = {"\u0663": 3, "\uff13": 3, "\u096a2": 42, "+3": 3, "-3": -3, "0" * 72 + "3": 3}
    read |= {"2147483647": 2147483647, "-2147483648": -2147483648}
    assert {text: java.parse_int(text) for text in read} == read
    for text in ["", "+", "-", "+-3", "2147483648", "-2147483649", "\U0001d7d1", "3 ", "1_0"]:
        assert java.parse_int(text) is None, text


def test_the_layout_is_that_of_the_description() -> None:
    """The named offsets are computed, so one record of known bytes proves them all."""
    raw = encode_record(
        b"TopicTest", 3, 7, 5, 176, 0, 11, HOST, 13, HOST[::-1], 17, 19, b"body", b"K\x01v"
    )
    assert struct.unpack(">iiiiiqqiq8sq8siqi", raw[:88])[3:] == (
        *(3, 7, 5, 176, 0, 11),
        HOST,
        13,
        HOST[::-1],
        *(17, 19, 4),
    )
    assert raw[88:] == b"body\x09TopicTest\0\x03K\x01v"
