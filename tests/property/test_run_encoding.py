"""What is encoded in one go, in Python or by machine code, is what messages alone give."""

import struct
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.broker.compiled_sends import CompiledSends
from flintmq.broker.plain_properties import PlainProperties
from flintmq.broker.stored_answer import encode_stored_answer
from flintmq.format.batch import BatchItem, decode_batch, encode_batch, join_properties
from flintmq.format.headers.send import SendAnswer
from flintmq.format.index_file import file_size
from flintmq.format.message_id import encode_offset_id
from flintmq.format.record import dispatch_fields
from flintmq.store.batch_columns import ITEM_COUNT_MAX, NotPlainError
from flintmq.store.compiled_runs import PlacedSends
from flintmq.store.run_encoding import (
    Placed,
    Run,
    RunBatch,
    RunMessage,
    RunPlace,
    RunSends,
    RunTarget,
    encode_run,
)

HOST: Final = b"\x7f\0\0\1\0\0\x2a\x9f"
TARGETS: Final = [RunTarget("T", 0), RunTarget("T", 1, sys_flag=1), RunTarget("über", 3)]
PLACE: Final = RunPlace(7000, {("T", 1): 40}, 1_800_000_000_000, HOST, 900, 600)
SLOTS: Final = 7
ENTRIES: Final = 2000
SENDS: Final = CompiledSends()
COMPILED: Final = SENDS.encoder

Encode: TypeAlias = Callable[[list[RunBatch], RunPlace], tuple[Run, list[Placed]]]

both_ways = pytest.mark.parametrize(
    "encode", [encode_run, COMPILED.encode_batches], ids=["python", "compiled"]
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


@st.composite
def batches(draw: st.DrawFn) -> RunBatch:
    """Draw a batch whose messages look alike, or do not."""
    texts = draw(st.sampled_from([wild_texts, plain_texts, draw(wild_texts.map(st.just))]))
    items = st.builds(BatchItem, st.sampled_from([0, -7]), bodies, texts)
    body = encode_batch(draw(st.lists(items, min_size=1, max_size=6)))
    if draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(body) - 1))
        body = body[:at] + bytes([draw(st.integers(0, 255))]) + body[at + 1 :]
    return batch_of(body, draw(st.sampled_from(TARGETS)))


def batch_of(body: bytes, target: RunTarget = TARGETS[0]) -> RunBatch:
    """Return a batch as a broker would have it."""
    return RunBatch(target, 1_700_000_000_000, HOST, body, b"CLUSTER\x01c")


def one_by_one(given: list[RunBatch]) -> Run:
    """Return the run of all messages as if each had come alone."""
    messages = []
    for target, born, host, body, shared in given:
        for item in decode_batch(body):
            text = join_properties(item.properties, shared)
            tags, keys = dispatch_fields(b"", text, 0, None)
            messages.append(
                RunMessage(flagged(target, item.flag), born, host, item.body, text, keys, tags)
            )
    return encode_run(messages, PLACE)[0]


def flagged(target: RunTarget, flag: int) -> RunTarget:
    """Return the same target for messages with a flag."""
    topic, queue_id = target.queue
    return RunTarget(topic, queue_id, sys_flag=target.sys_flag, flag=flag)


def offsets_of(records: bytes) -> list[int]:
    """Return where records are that begin where a run does."""
    found, at = [], 0
    while at < len(records):
        found.append(PLACE.physical_offset + at)
        at += int.from_bytes(records[at : at + 4])
    return found


def content(run: Run) -> tuple[object, ...]:
    """Return all that a run says, its entries in an index among it."""
    index = bytearray(file_size(SLOTS, ENTRIES))
    used = run.keys.insert(memoryview(index), slots=SLOTS, first=1, seconds=9)
    return (
        bytes(run.records),
        run.end_offset,
        {key: (p.first, p.end, p.size, b"".join(p.units)) for key, p in run.parts.items()},
        run.keys.count,
        used,
        bytes(index),
    )


@given(given_batches=st.lists(batches(), min_size=1, max_size=4))
@settings(max_examples=300, deadline=None)
@pytest.mark.parametrize(
    "encode", [encode_run, COMPILED.encode_batches], ids=["python", "compiled"]
)
def test_a_batch_gives_what_its_messages_give(
    encode: Encode, given_batches: list[RunBatch]
) -> None:
    try:
        run, all_placed = encode(given_batches, PLACE)
    except NotPlainError:
        return
    assert content(run) == content(one_by_one(given_batches))
    following = dict(PLACE.next_offsets)
    for batch, placed in zip(given_batches, all_placed, strict=True):
        assert placed.queue_offset == following.get(batch.target.queue, 0)
        following[batch.target.queue] = placed.queue_offset + len(placed.physical_offsets) // 8
    packed = b"".join([placed.physical_offsets for placed in all_placed])
    assert [at for (at,) in struct.iter_unpack(">q", packed)] == offsets_of(bytes(run.records))


@given(
    texts=st.lists(plain_texts, min_size=1, max_size=40),
    body=st.binary(max_size=50),
    varies=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_plain_batches_are_taken(texts: list[bytes], body: bytes, varies: bool) -> None:
    """Without this the test above would hold for encoders that never take anything."""
    items = [BatchItem(0, body + b"x" * (n * varies), text) for n, text in enumerate(texts)]
    batch = batch_of(encode_batch(items))
    taken, _ = COMPILED.encode_batches([batch], PLACE)
    assert content(taken) == content(encode_run([batch], PLACE)[0])


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
@pytest.mark.parametrize(
    "encode", [encode_run, COMPILED.encode_batches], ids=["python", "compiled"]
)
def test_what_cannot_be_a_run_is_refused(encode: Encode, body: bytes) -> None:
    with pytest.raises(NotPlainError):
        encode(
            [batch_of(body)], PLACE._replace(record_size_max=1 << 20 if len(body) > 2000 else 900)
        )


def test_a_run_larger_than_the_room_of_machine_code_is_refused() -> None:
    """The code in Python takes it."""
    batch = batch_of(encode_batch([BatchItem(0, b"b" * (1 << 20), b"")]))
    place = PLACE._replace(record_size_max=4 << 20)
    with pytest.raises(NotPlainError):
        COMPILED.encode_batches([batch] * 9, place)
    assert encode_run([batch] * 9, place)[0].message_count == 9
    many = batch_of(encode_batch([BatchItem(0, b"", b"KEYS\x01" + b"k " * 10_000)] * 8))
    with pytest.raises(NotPlainError):
        COMPILED.encode_batches([many], place)
    assert encode_run([many], place)[0].keys.count == 80_000


send_texts = st.builds(
    lambda pairs, end: "\x02".join(pairs) + end,
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


@st.composite
def sends(draw: st.DrawFn) -> tuple[RunTarget, int, bytes, str]:
    """Draw target, time, body and properties of a message."""
    return (
        draw(st.sampled_from(TARGETS)),
        draw(st.integers(0, 1 << 59)),
        draw(bodies),
        draw(send_texts),
    )


@given(messages=st.lists(sends(), min_size=1, max_size=6))
@settings(max_examples=500, deadline=None)
def test_machine_code_judges_sends_as_python_does(
    messages: list[tuple[RunTarget, int, bytes, str]],
) -> None:
    judge = PlainProperties()
    judge.last_text = "CLUSTER\x01c"
    judged = [(one, judge.judge(one[3])) for one in messages]
    plain = [
        RunMessage(target, born, HOST, body, *fields)
        for (target, born, body, _), fields in judged
        if fields is not None
    ]
    is_ascii = all(text.isascii() for _, _, _, text in messages)
    targets, borns, given_bodies, texts = zip(*messages, strict=True)
    encoded = [text.encode() for text in texts]
    sent = RunSends(targets, borns, given_bodies, encoded, HOST, b"CLUSTER\x01c")
    try:
        expected, all_placed = encode_run(plain, PLACE)
    except NotPlainError:
        plain = []
    if len(plain) < len(messages):
        with pytest.raises(NotPlainError):
            COMPILED.encode_sends(sent, PLACE)
        return
    try:
        run, placed = COMPILED.encode_sends(sent, PLACE)
    except NotPlainError:
        assert not is_ascii
        return
    assert content(run) == content(expected)
    assert placed.physical_offsets.tobytes() == b"".join([p.physical_offsets for p in all_placed])
    assert placed.queue_offsets.tolist() == [p.queue_offset for p in all_placed]
    assert placed.queue_ids.tolist() == [target.queue_id for target in targets]


@given(
    opaques=st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=1, max_size=5),
    offset=st.integers(0, (1 << 63) - 1),
    queue=st.tuples(st.integers(0, 99), st.integers(0, (1 << 62))),
    region=st.text(max_size=10),
)
@settings(max_examples=100, deadline=None)
def test_answers_by_machine_code_are_those_of_python(
    opaques: list[int], offset: int, queue: tuple[int, int], region: str
) -> None:
    json_start = SendAnswer(region=region, trace_on=True).encode_json()[:-1]
    count = len(opaques)
    packed = struct.pack(f">{count}q", *[offset] * count)
    placed = PlacedSends(
        np.full(count, queue[0]), np.full(count, queue[1]), np.frombuffer(packed, np.uint8)
    )
    taken = SENDS.opaques(opaques)
    assert taken is not None
    message_id = encode_offset_id(HOST, offset)
    assert SENDS.answers(json_start, HOST, taken, placed) == b"".join(
        [encode_stored_answer(json_start, one, message_id, *queue) for one in opaques]
    )


def test_opaques_of_more_than_32_bits_are_left_to_python() -> None:
    assert SENDS.opaques([1, 1 << 31]) is None
    assert SENDS.opaques([-1 - (1 << 31)]) is None
