"""What is encoded as a group, in Python or by machine code, is what messages alone give."""

import struct
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.broker.sending.compiled_answers import CompiledAnswers
from flintmq.broker.sending.received_properties import received_properties
from flintmq.broker.sending.stored_answer import stored_header
from flintmq.format.errors import BatchError
from flintmq.format.message_id import encode_offset_id
from flintmq.format.stored.batch import BatchItem, encode_batch, join_properties, walk_batch
from flintmq.format.stored.consume_queue import ConsumeQueueUnit
from flintmq.format.stored.dispatch_fields import dispatch_fields
from flintmq.format.stored.index_file import (
    IndexEntry,
    entry_position,
    file_size,
    key_text_hash,
    slot_position,
)
from flintmq.format.stored.record_encoding import encode_record
from flintmq.format.sys_flag import with_hosts
from flintmq.format.wire.command import Command
from flintmq.format.wire.frame import HeaderType
from flintmq.format.wire.headers.send import SendAnswer
from flintmq.kernels.group_buffers import (
    IS_BATCH,
    MESSAGE_COLUMN_COUNT,
    PHYSICAL_OFFSET,
    QUEUE_OFFSET,
    SEND_COLUMN_COUNT,
)
from flintmq.remoting import Answer
from flintmq.store.append_group.batch_items import ITEM_COUNT_MAX
from flintmq.store.append_group.compiled_encoder import StoredColumns, ready_encoder
from flintmq.store.append_group.python_encoder import PythonEncoder
from flintmq.store.append_group.sends import (
    AppendGroup,
    AppendPosition,
    GroupEncoder,
    NotPlainError,
    Sends,
    SendTarget,
)

HOST: Final = b"\x7f\0\0\1\0\0\x2a\x9f"
IPV6_HOST: Final = bytes(range(16)) + b"\0\0\x2a\x9f"
CLUSTER: Final = "c"
LAST: Final = b"CLUSTER\x01c"
SINGLE_TARGETS: Final = [
    SendTarget("T", 0, flag=9),
    SendTarget("T", 1, sys_flag=1),
    SendTarget("über", 3, reconsume_times=2),
]
BATCH_TARGETS: Final = [
    SendTarget("T", 0, is_batch=True),
    SendTarget("T", 1, sys_flag=1, is_batch=True),
    SendTarget("über", 3, reconsume_times=2, is_batch=True),
]
POSITION: Final = AppendPosition(7000, {("T", 1): 40}, 1_800_000_000_000, HOST, 900, 6000)
SLOTS: Final = 7
ENTRIES: Final = 2000
PYTHON: Final = PythonEncoder()
COMPILED: Final = ready_encoder()
ANSWERS: Final = CompiledAnswers()

both_encoders = pytest.mark.parametrize(
    "encoder", [PYTHON, COMPILED], ids=["python", "machine code"]
)

ends = st.sampled_from([b"\x02", b"\x02", b"\x02", b""])
names = st.sampled_from([b"KEYS", b"TAGS", b"UNIQ_KEY", b"color", b"KEY", b"TAGSX", b"", b"\0"])
values = st.one_of(
    st.sampled_from([b"a", b"k1 k2", b" ", b"  k3 ", b"", b"x\x01y", "ü".encode(), b"\xff", b"\0"]),
    st.text("abc 1", min_size=1, max_size=40).map(str.encode),
)
wild_texts = st.builds(
    lambda pairs, end: b"\x02".join(pairs) + end,
    st.lists(st.builds(lambda name, value: name + b"\x01" + value, names, values), max_size=4),
    ends,
)
plain_texts = st.builds(
    lambda keys, tags, unique: b"KEYS\x01%bTAGS\x01%bUNIQ_KEY\x01%b" % (keys, tags, unique),
    *[st.sampled_from([b"one\x02", b"other\x02", b"one other\x02"])] * 3,
)
bodies = st.one_of(st.just(b"same size"), st.binary(max_size=50), st.just(b"b" * 800))
send_texts = st.builds(
    lambda pairs, end: ("\x02".join(pairs) + end).encode(),
    st.lists(
        st.sampled_from(
            [
                "KEYS\x01k1",
                "KEYS\x01k1  k2 ",
                "KEYS\x01größe",
                "TAGS\x01TagA",
                "TAGS\x01Äpfel",
                "UNIQ_KEY\x017F0000010000",
                "WAIT\x01true",
                "WAIT\x01false",
                "color\x01bläu",
                "colors\x01\0",
                "DELAY\x011",
                "DELAYED\x011",
                "TRAN_MSG\x01true",
                "CLUSTER\x01mine",
                "INNER_MULTI_DISPATCH\x01a,b",
                "a\x01b\x01c",
                "empty\x01",
                "\x01nameless",
                "nothing",
                "",
            ]
        ),
        max_size=4,
    ),
    st.sampled_from(["\x02", "\x02", ""]),
)


class Send(NamedTuple):
    """A send before it is put into columns."""

    target: SendTarget
    born_timestamp: int
    body: bytes
    text: bytes
    born_host: bytes = HOST


hosts = st.sampled_from([HOST, HOST, b"\x0a\0\0\2\0\0\1\0", IPV6_HOST])


@st.composite
def batches(draw: st.DrawFn) -> Send:
    """Draw a batch whose messages look alike, or do not."""
    texts = draw(st.sampled_from([wild_texts, plain_texts, draw(wild_texts.map(st.just))]))
    items = st.builds(BatchItem, st.sampled_from([0, -7]), bodies, texts)
    body = encode_batch(draw(st.lists(items, min_size=1, max_size=6)))
    if draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(body) - 1))
        body = body[:at] + bytes([draw(st.integers(0, 255))]) + body[at + 1 :]
    text = draw(st.sampled_from([b"", b"", b"color\x01red", b"KEYS\x01 ", b"TAGS\x01\0", b"x"]))
    target, host = draw(st.sampled_from(BATCH_TARGETS)), draw(hosts)
    return batch_of(body, target, text)._replace(born_host=host)


def batch_of(body: bytes, target: SendTarget = BATCH_TARGETS[0], text: bytes = b"") -> Send:
    return Send(target, 1_700_000_000_000, body, text)


singles = st.builds(
    Send, st.sampled_from(SINGLE_TARGETS), st.integers(0, 1 << 59), bodies, send_texts, hosts
)


def columns(sends: list[Send]) -> Sends:
    targets, born_timestamps, given_bodies, texts, born_hosts = zip(*sends, strict=True)
    return Sends(targets, born_timestamps, given_bodies, texts, born_hosts, LAST)


def messages_of(send: Send) -> list[tuple[int, bytes, bytes]]:
    """Return flag, body and stored properties of the messages of a send, as a processor would."""
    _, stored_text = received_properties(send.text.decode(), CLUSTER)
    if not send.target.is_batch:
        return [(send.target.flag, send.body, stored_text)]
    return [
        (item.flag, item.body, join_properties(item.properties, stored_text))
        for item in walk_batch(send.body)
    ]


def one_by_one(sends: list[Send]) -> tuple[object, ...]:
    """Return what all messages give if each is encoded alone; see `content`."""
    records, keys = b"", []
    following = dict(POSITION.next_offsets)
    slices: dict[tuple[str, int], list[bytes]] = {}
    for send in sends:
        target = send.target
        topic, queue_id = target.queue
        for flag, body, text in messages_of(send):
            offset = POSITION.physical_offset + len(records)
            queue_offset = following.get(target.queue, 0)
            following[target.queue] = queue_offset + 1
            record = encode_record(
                topic=topic.encode(),
                queue_id=queue_id,
                flag=flag,
                queue_offset=queue_offset,
                physical_offset=offset,
                sys_flag=with_hosts(
                    target.sys_flag, born_host=send.born_host, store_host=POSITION.store_host
                ),
                born_timestamp=send.born_timestamp,
                born_host=send.born_host,
                store_timestamp=POSITION.store_timestamp,
                store_host=HOST,
                reconsume_times=target.reconsume_times,
                prepared_transaction_offset=0,
                body=body,
                properties=text,
            )
            code, own_keys = dispatch_fields(topic.encode(), text, 0, None)
            unit = ConsumeQueueUnit(offset, len(record), code).pack()
            slices.setdefault(target.queue, [struct.pack(">q", queue_offset)]).append(unit)
            keys += [
                (key_text_hash(topic, key.decode("utf-8", "replace")), offset) for key in own_keys
            ]
            records += record
    end = POSITION.physical_offset + len(records)
    return (records, end, {key: b"".join(one) for key, one in slices.items()}, *index_of(keys))


def index_of(keys: list[tuple[int, int]]) -> tuple[int, int, bytes]:
    """Return how many keys there are, how many slots they take, and the file they make."""
    index = bytearray(file_size(SLOTS, ENTRIES))
    newest: dict[int, int] = {}
    for number, (key_hash, offset) in enumerate(keys, 1):
        entry = IndexEntry(key_hash, offset, 9, newest.get(key_hash % SLOTS, 0))
        at = entry_position(SLOTS, number)
        index[at : at + 20] = entry.pack()
        newest[key_hash % SLOTS] = number
        struct.pack_into(">i", index, slot_position(key_hash % SLOTS), number)
    return len(keys), len(newest), bytes(index)


def content(group: AppendGroup) -> tuple[object, ...]:
    """Return all that a group says, its entries in an index among it."""
    index = bytearray(file_size(SLOTS, ENTRIES))
    used = group.keys.insert(memoryview(index), slots=SLOTS, first=1, seconds=9)
    slices = {
        key: struct.pack(">q", one.first) + b"".join(one.units) for key, one in group.slices.items()
    }
    units = sum(len(units) - 8 for units in slices.values())
    assert units == 20 * group.message_count
    assert sum(one.size for one in group.slices.values()) == len(group.records)
    return (
        bytes(group.records),
        group.end_offset,
        slices,
        group.keys.count,
        used,
        bytes(index),
    )


def assert_stored(group: AppendGroup, sends: list[Send]) -> None:
    """Check that a group tells for each send where it is."""
    following = dict(POSITION.next_offsets)
    all_stored = list(group.stored)
    for send, stored in zip(sends, all_stored, strict=True):
        assert stored.queue_offset == following.get(send.target.queue, 0)
        following[send.target.queue] = stored.queue_offset + len(stored.physical_offsets) // 8
    packed = b"".join([stored.physical_offsets for stored in all_stored])
    found, at = [], 0
    while at < len(group.records):
        found.append(POSITION.physical_offset + at)
        at += int.from_bytes(group.records[at : at + 4])
    assert [offset for (offset,) in struct.iter_unpack(">q", packed)] == found


@given(sends=st.lists(batches(), min_size=1, max_size=4))
@settings(max_examples=300, deadline=None)
@both_encoders
def test_a_batch_gives_what_its_messages_give(encoder: GroupEncoder, sends: list[Send]) -> None:
    try:
        group = encoder.encode(columns(sends), POSITION)
    except NotPlainError:
        return
    assert content(group) == one_by_one(sends)
    assert_stored(group, sends)


@given(
    texts=st.lists(plain_texts, min_size=1, max_size=40),
    body=st.binary(max_size=50),
    varies=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_plain_batches_are_encoded(texts: list[bytes], body: bytes, varies: bool) -> None:
    """Without this the test above would hold for encoders that refuse everything."""
    items = [BatchItem(0, body + b"x" * (n * varies), text) for n, text in enumerate(texts)]
    sends = columns([batch_of(encode_batch(items))])
    compiled = content(COMPILED.encode(sends, POSITION))
    assert compiled == content(PYTHON.encode(sends, POSITION))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        encode_batch([BatchItem(0, b"b" * 900, b"")]),
        encode_batch([BatchItem(0, b"", b"a\x01" + b"v" * 32_765)]),
        encode_batch([BatchItem(0, b"x", b"")] * (ITEM_COUNT_MAX + 1)),
        encode_batch([BatchItem(0, b"x" * (n % 2), b"") for n in range(ITEM_COUNT_MAX + 1)]),
        encode_batch([BatchItem(0, b"x", b"")])[:-1],
        encode_batch([BatchItem(0, b"x", b"")])[:-1] + b"\1",
    ],
    ids=["nothing", "large record", "properties", "many", "many of all sizes", "cut", "too long"],
)
@both_encoders
def test_what_cannot_be_a_group_is_refused(encoder: GroupEncoder, body: bytes) -> None:
    limit = 1 << 20 if len(body) > 2000 else 900
    position = POSITION._replace(record_size_max=limit, body_size_max=1 << 20)
    with pytest.raises(NotPlainError):
        encoder.encode(columns([batch_of(body)]), position)


@both_encoders
def test_a_body_above_the_limit_is_refused(encoder: GroupEncoder) -> None:
    batch = batch_of(encode_batch([BatchItem(0, b"b" * 100, b"")] * 9))
    for send in (batch, Send(SINGLE_TARGETS[0], 1, b"b" * len(batch.body), b"")):
        position = POSITION._replace(body_size_max=len(batch.body), record_size_max=9999)
        encoder.encode(columns([send]), position)
        with pytest.raises(NotPlainError):
            encoder.encode(columns([send]), position._replace(body_size_max=len(batch.body) - 1))


def test_a_group_larger_than_the_buffers_of_machine_code_is_refused() -> None:
    """The encoder in Python takes it."""
    batch = batch_of(encode_batch([BatchItem(0, b"b" * (1 << 20), b"")]))
    position = POSITION._replace(record_size_max=4 << 20, body_size_max=4 << 20)
    with pytest.raises(NotPlainError):
        COMPILED.encode(columns([batch] * 9), position)
    assert PYTHON.encode(columns([batch] * 9), position).message_count == 9
    many = batch_of(encode_batch([BatchItem(0, b"", b"KEYS\x01" + b"k " * 10_000)] * 8))
    with pytest.raises(NotPlainError):
        COMPILED.encode(columns([many]), position)
    # Python takes longer for so many keys than a turn of the loop may last.
    with pytest.raises(NotPlainError):
        PYTHON.encode(columns([many]), position)
    some = batch_of(encode_batch([BatchItem(0, b"", b"KEYS\x01" + b"k " * 1000)] * 8))
    assert PYTHON.encode(columns([some]), position).keys.count == 8000


def holds_boundary(send: Send) -> bool:
    """Whether an item of a batch holds what Python puts between items to search all at once."""
    if not send.target.is_batch:
        return False
    try:
        items = list(walk_batch(send.body))
    except BatchError:
        return False
    return any(b"\0\x02" in item.properties + b"\x02" for item in items)


@given(sends=st.lists(singles | batches(), min_size=1, max_size=6))
@settings(max_examples=500, deadline=None)
def test_machine_code_encodes_what_python_does(sends: list[Send]) -> None:
    try:
        expected = PYTHON.encode(columns(sends), POSITION)
    except NotPlainError:
        if not any(map(holds_boundary, sends)):
            with pytest.raises(NotPlainError):
                COMPILED.encode(columns(sends), POSITION)
        return
    assert content(expected) == one_by_one(sends)
    assert_stored(expected, sends)
    try:
        group = COMPILED.encode(columns(sends), POSITION)
    except NotPlainError:
        assert not all((send.text + send.body).isascii() for send in sends)
        return
    assert content(group) == content(expected)
    assert list(group.stored) == list(expected.stored)


@given(sends=st.lists(singles | batches(), min_size=1, max_size=6))
@settings(max_examples=200, deadline=None)
def test_the_encoder_in_python_tells_which_sends_are_special(sends: list[Send]) -> None:
    special = []
    for row, send in enumerate(sends):
        try:
            PYTHON.encode(columns([send]), POSITION)
        except NotPlainError:
            special.append(row)
    if special:
        with pytest.raises(NotPlainError) as caught:
            PYTHON.encode(columns(sends), POSITION)
        assert caught.value.rows == special
    else:
        PYTHON.encode(columns(sends), POSITION)


@given(
    requests=st.lists(
        st.tuples(
            st.integers(-(1 << 31), (1 << 31) - 1), st.sampled_from(HeaderType), st.integers(1, 3)
        ),
        min_size=1,
        max_size=5,
    ),
    offset=st.integers(0, 1 << 62),
    queue=st.tuples(st.integers(0, 99), st.integers(0, (1 << 62))),
    region=st.text(max_size=10),
    host=st.sampled_from([HOST, IPV6_HOST]),
)
@settings(max_examples=100, deadline=None)
def test_answers_by_machine_code_are_those_of_python(
    requests: list[tuple[int, HeaderType, int]],
    offset: int,
    queue: tuple[int, int],
    region: str,
    host: bytes,
) -> None:
    opaques, header_types, message_counts = zip(*requests, strict=True)
    firsts = np.array([0, *accumulate(message_counts)], np.int64)
    messages = np.zeros((firsts[-1], MESSAGE_COLUMN_COUNT), np.int64)
    messages[:, PHYSICAL_OFFSET] = range(offset, offset + firsts[-1])
    messages[:, QUEUE_OFFSET] = queue[1]
    targets = np.full((1, IS_BATCH + 1), queue[0], np.int64)
    sends = np.zeros((len(requests), SEND_COLUMN_COUNT), np.int64)
    stored = StoredColumns(messages, firsts, sends, targets)
    shared = SendAnswer(region=region, trace_on=True)
    joined, ends = ANSWERS.encode_for(shared, host, stored, opaques, header_types)
    expected = []
    for number, (opaque, header_type, count) in enumerate(requests):
        first = offset + int(firsts[number])
        ids = ",".join(encode_offset_id(host, first + at) for at in range(count))
        command = Command(code=310, opaque=opaque, serialize_type=header_type)
        expected.append(Answer(header=stored_header(shared, ids, *queue)).encode(command))
    assert bytes(joined) == b"".join(expected)
    assert ends == list(accumulate(map(len, expected)))
