"""Sends that are stored together leave what sends one by one leave: the same files and answers."""

import random
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from flintmq.broker.hosts import packed_host
from flintmq.broker.sending import send_fast_path
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.stored.consume_queue import UNIT_SIZE
from flintmq.format.stored.record import decode_record
from flintmq.format.wire.command import decode_command
from flintmq.format.wire.frame import FrameDecoder, HeaderType
from flintmq.store.append_group import encoder_choice
from flintmq.store.append_group.sends import AppendGroup, Sends
from flintmq.store.appending.group_appender import NotAppended
from tests.kits.broker.at_once import AtOnce
from tests.kits.broker.fed_broker import PEER_PORT, chunks_of, fed_broker
from tests.kits.broker.remoting_kit import run_within

SETTINGS: Final = {
    "listenPort": "0",
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": "32768",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "50",
    "maxIndexNum": "400",
    "maxMessageSize": "3000",
    "transactionCheckInterval": "1000000",
}
LARGER_FILES: Final = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": str(1000 * UNIT_SIZE),
    "maxIndexNum": "1000",
}

plain_pairs = st.sampled_from(
    [
        "KEYS\x01k1",
        "KEYS\x01k1 k2  k3",
        "TAGS\x01TagA",
        "UNIQ_KEY\x017F0000010000000000000000",
        "WAIT\x01true",
        "color\x01bläu",
    ]
)
odd_pairs = st.sampled_from(
    [
        "WAIT\x01false",
        "KEYS\x01\u20acuro",
        "DELAY\x011",
        "DELAY\x01x",
        "TRAN_MSG\x01true",
        "TRAN_MSG\x01false",
        "CLUSTER\x01mine",
        "empty\x01",
        "\x01nameless",
        "nothing",
        "",
        "a\x01b\x01c",
        "\0",
        "UNIQ_KEY\x01" + "K" * 70,
    ]
)
pairs = st.integers(0, 9).flatmap(lambda number: plain_pairs if number else odd_pairs)
texts = st.builds(
    lambda parts, end: "\x02".join(parts) + end,
    st.lists(pairs, max_size=5, unique_by=lambda pair: pair[:4]),
    st.sampled_from(["\x02", "\x02", ""]),
)
small_bodies = st.binary(max_size=40)
bodies = st.integers(0, 19).flatmap(
    lambda number: small_bodies if number else st.integers(2900, 3200).map(lambda n: b"b" * n)
)
items = st.builds(BatchItem, st.sampled_from([0, 7]), bodies, texts.map(str.encode))
whole_batches = st.lists(items, min_size=1, max_size=6).map(encode_batch)
odd_batches = st.one_of(whole_batches.map(lambda body: body[:-1]), st.binary(max_size=30))
batches = st.integers(0, 9).flatmap(lambda number: whole_batches if number else odd_batches)
ODD_FIELDS: Final[dict[str, list[str | None]]] = {
    "a": ["other", "", None],
    "c": ["other", None],
    "d": ["8", "x", None],
    "l": ["3", "x"],
    "b": ["U", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", None],
    "e": ["1", "3", "-1", "9", "x", None],
    "f": ["1", "2", "4", "16", "x"],
    "g": ["1700000000001", "-1", " 5", "²", "9" * 30, None],
    "h": ["5", None],
    "i": ["WAIT\x01true\x02", "WAIT\x01true", "KEYS\x01all\x02", "DELAY\x012\x02", None],
    "j": ["3", "", None],
    "m": ["1", "maybe", None],
}


@st.composite
def sends(draw: st.DrawFn, batches_too: st.SearchStrategy[bool]) -> dict[str, Any]:
    """Draw one request: mostly a plain send, else something is odd about it."""
    is_batch = draw(batches_too)
    fields: dict[str, Any] = dict.fromkeys("efhj", "0") | {
        "a": "pg",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "g": "1700000000000",
        "i": "" if is_batch else draw(texts),
        "k": "false",
        "m": "true" if is_batch else "false",
    }
    if draw(st.integers(0, 4)) == 0:
        name = draw(st.sampled_from(sorted(ODD_FIELDS)))
        fields[name] = draw(st.sampled_from(ODD_FIELDS[name]))
    is_odd = draw(st.integers(0, 9)) == 0
    return {
        "code": draw(st.sampled_from([10, 30, 310, 320])) if is_odd else 320 if is_batch else 310,
        "flag": draw(st.sampled_from([0, 2])) if is_odd else 0,
        "ext_fields": {name: text for name, text in fields.items() if text is not None},
        "body": draw(batches if is_batch else bodies),
    }


SINGLE: Final = "one by one"
GATHERED: Final = "gathered"
WALKED: Final = "walked"


async def serve(root: Path, chunks: list[bytes], flush: str, way: str) -> tuple[bytes, bytes]:
    """Feed a broker with reads; return its answers and its address as records have it."""
    random.seed(5)
    settings = SETTINGS | {"flushDiskType": flush}
    async with fed_broker(
        root, settings, gather=way != SINGLE, inbox=way == WALKED, peers=["fe80::7"]
    ) as fed:
        for chunk in chunks:
            await fed.feed_and_wait(chunk)
        return fed.answers, fed.broker.context.store_host


def compare(root: Path, chunks: list[bytes], flush: str, way: str) -> None:
    """Assert that a way leaves the files and answers that the ordinary way leaves."""
    answers, host = run_within(serve(root / "one", chunks, flush, way), 60)
    single, other_host = run_within(serve(root / "other", chunks, flush, SINGLE), 60)
    assert answers.replace(host.hex().upper().encode(), b"HOST") == single.replace(
        other_host.hex().upper().encode(), b"HOST"
    )
    left = {path: data.replace(host, b"HOST") for path, data in files_of(root / "one").items()}
    assert left == {
        path: data.replace(other_host, b"HOST") for path, data in files_of(root / "other").items()
    }


def load_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(encoder_choice, "LoadOnDemand", AtOnce)
    patch.setattr(send_fast_path, "LoadOnDemand", AtOnce)


def files_of(root: Path) -> dict[str, bytes]:
    """Return the contents of log, queues and index by name."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for folder in ("commitlog", "consumequeue", "index")
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }


@given(
    reads=st.lists(
        st.sampled_from([st.booleans(), st.just(False), st.just(True)]).flatmap(
            lambda batches_too: st.lists(sends(batches_too), min_size=1, max_size=30)
        ),
        min_size=1,
        max_size=4,
    ),
    header_type=st.sampled_from([HeaderType.JSON, HeaderType.JSON, HeaderType.ROCKETMQ]),
    compiled=st.booleans(),
    flush=st.sampled_from(["ASYNC_FLUSH", "SYNC_FLUSH"]),
)
@settings(
    max_examples=50,
    deadline=None,
    # Two brokers for each example: making a failing one small would take minutes.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_gathered_sends_leave_the_same_bytes(
    reads: list[list[dict[str, Any]]], header_type: HeaderType, compiled: bool, flush: str
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        if compiled:
            load_at_once(patch)
        compare(Path(name), chunks_of(reads, header_type), flush, GATHERED)


many_sends = st.lists(
    st.sampled_from([st.just(False), st.just(False), st.just(True)]).flatmap(
        lambda batches_too: st.lists(sends(batches_too), min_size=1, max_size=30)
    ),
    min_size=2,
    max_size=5,
)


@given(
    reads=many_sends,
    header_type=st.sampled_from(HeaderType),
    flush=st.sampled_from(["ASYNC_FLUSH", "ASYNC_FLUSH", "SYNC_FLUSH"]),
    cuts=st.lists(st.floats(0, 1), max_size=3),
    flips=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), max_size=2),
)
@settings(
    max_examples=60,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_walked_sends_leave_the_same_bytes(
    reads: list[list[dict[str, Any]]],
    header_type: HeaderType,
    flush: str,
    cuts: list[float],
    flips: list[tuple[float, int]],
) -> None:
    chunks = chunks_of(reads, header_type)
    last = bytearray(chunks[-1])
    for share, bits in flips:
        last[int(share * (len(last) - 1))] ^= bits
    ends = sorted({int(share * len(last)) for share in cuts} | {len(last)})
    pieces = [bytes(last[start:end]) for start, end in pairwise([0, *ends])]
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        load_at_once(patch)
        compare(Path(name), [*chunks[:-1], *filter(None, pieces)], flush, WALKED)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("way", [GATHERED, WALKED])
@pytest.mark.parametrize("size", [5, 29, 64])
def test_sends_that_meet_ends_of_files_leave_the_same_bytes(
    flush: str, way: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {name: "0" for name in "defghj"} | {"a": "g", "b": "T", "c": "TBW102"}
    fields |= {"i": "KEYS\x01k\x02WAIT\x01true\x02", "k": "false", "m": "false", "g": "1"}
    one = {"code": 310, "ext_fields": fields | {"d": "4"}, "body": b"x" * 100}
    monkeypatch.setitem(SETTINGS, "mappedFileSizeConsumeQueue", str(40 * UNIT_SIZE))
    load_at_once(monkeypatch)
    compare(tmp_path, chunks_of([[one], *[[one] * size] * 6], HeaderType.JSON), flush, way)


@pytest.mark.parametrize("header_type", HeaderType)
@pytest.mark.parametrize("compiled", [False, True])
def test_plain_sends_are_gathered_at_all(
    compiled: bool, header_type: HeaderType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this the test above would hold for a fast path that never gathers anything."""
    if compiled:
        load_at_once(monkeypatch)
    fields = {name: "0" for name in "defghj"} | {"a": "g", "b": "T", "c": "TBW102"}
    fields |= {"i": "KEYS\x01k\x02WAIT\x01true\x02", "k": "false", "m": "false", "g": "1"}
    one = {"code": 310, "ext_fields": fields | {"d": "4"}, "body": b"x"}
    batch = one | {
        "code": 320,
        "ext_fields": fields | {"d": "4", "m": "true", "i": ""},
        "body": encode_batch([BatchItem(0, b"y", b"KEYS\x01k\x02")] * 20),
    }
    chunks = chunks_of([[one], [one] * 20, [batch] * 2], header_type)

    async def count_groups(root: Path) -> list[int]:
        counts = []
        async with fed_broker(root, SETTINGS) as fed:
            store = fed.broker.context.store
            append_group = store.append_group

            def counted(sends: Sends, store_host: bytes) -> AppendGroup | NotAppended:
                stored = append_group(sends, store_host)
                assert isinstance(stored, AppendGroup)
                assert stored.is_compiled == compiled
                counts.append(stored.message_count)
                return stored

            store.append_group = counted  # type: ignore[method-assign]
            for chunk in chunks:
                fed.feed(chunk)
        return counts

    with tempfile.TemporaryDirectory() as name:
        assert run_within(count_groups(Path(name, "store")), 60) == [20, 40]


def plain_send(queue_id: int, body: bytes, **fields: str) -> dict[str, Any]:
    plain = {name: "0" for name in "fhj"} | {"a": "g", "b": "T", "c": "TBW102", "d": "4"}
    plain |= {"e": str(queue_id), "g": "1", "i": "KEYS\x01k\x02", "k": "false", "m": "false"}
    return {"code": 310, "ext_fields": plain | fields, "body": body}


@pytest.mark.parametrize("header_type", HeaderType)
def test_known_sends_of_several_connections_are_one_group_from_frame_to_answer(
    header_type: HeaderType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without this the test above would hold for a walk that never recognises anything."""
    load_at_once(monkeypatch)
    peers = ["127.0.0.1", "fe80::7", "192.0.2.9"]
    batch = plain_send(3, encode_batch([BatchItem(0, b"y", b"KEYS\x01k\x02")] * 7), m="true", i="")

    async def check() -> list[int]:
        counts = []
        async with fed_broker(tmp_path, SETTINGS, inbox=True, peers=peers) as fed:
            store = fed.broker.context.store
            append_encoded = store.append_encoded

            def counted(*arguments: Any, **named: Any) -> AppendGroup | NotAppended:
                stored = append_encoded(*arguments, **named)
                assert isinstance(stored, AppendGroup)
                counts.append(stored.message_count)
                return stored

            store.append_encoded = counted  # type: ignore[method-assign]
            for _ in range(2):  # The first makes the queues, the second is learned from.
                for number in range(len(peers)):
                    reads = [[plain_send(number, b"first"), batch | {"code": 320}]]
                    fed.read(chunks_of(reads, header_type)[0], number)
                    await fed.end_turn()
            known = len(fed.answers_to(0))
            for number in range(len(peers)):
                bodies = [b"%d of %d" % (at, number) for at in range(5)]
                turn = [plain_send(number, body, g="17") for body in bodies]
                fed.read(chunks_of([[*turn, batch | {"code": 320}]], header_type)[0], number)
            await fed.end_turn()
            found = FrameDecoder().frames(fed.answers_to(0)[known:])
            assert [decode_command(one).opaque for one in found] == [1, 2, 3, 4, 5, 6]
            for number, peer in enumerate(peers):
                result = store.get_messages("T", number, 2, 32)
                assert result is not None
                with result:
                    records = [decode_record(view) for view in result]
                assert [one.body for one in records] == [
                    b"%d of %d" % (at, number) for at in range(5)
                ]
                assert {one.born_host for one in records} == {packed_host(peer, PEER_PORT)}
                assert {one.born_timestamp for one in records} == {17}
        return counts

    assert run_within(check(), 60)[-1] == 3 * (5 + 7)


@pytest.mark.parametrize(
    ("file", "size"), [("mappedFileSizeConsumeQueue", 100 * UNIT_SIZE), ("maxIndexNum", 100)]
)
def test_where_a_file_ends_one_send_goes_the_ordinary_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, size: int
) -> None:
    """All that a turn had brought went that way, at ten times the cost."""
    load_at_once(monkeypatch)
    peers, each = ("127.0.0.1", "127.0.0.2"), 40

    async def check() -> tuple[int, list[int]]:
        walked = 0
        sizes = SETTINGS | LARGER_FILES | {file: str(size)}
        async with fed_broker(tmp_path, sizes, inbox=True, peers=peers) as fed:
            store = fed.broker.context.store
            append_encoded = store.append_encoded

            def counted(*arguments: Any, **named: Any) -> AppendGroup | NotAppended:
                nonlocal walked
                stored = append_encoded(*arguments, **named)
                walked += stored.message_count if isinstance(stored, AppendGroup) else 0
                return stored

            store.append_encoded = counted  # type: ignore[method-assign]
            for count in (1, 1, each, each, each):
                for number in range(len(peers)):
                    turn = [plain_send(number, b"body")] * count
                    fed.read(chunks_of([turn], HeaderType.JSON)[0], number)
                await fed.end_turn()
            ends = [store.max_offset_in_queue("T", number) for number in range(len(peers))]
        return walked, ends

    walked, ends = run_within(check(), 60)
    assert ends == [2 + 3 * each] * len(peers)
    # Each queue met the end of a file once, the index twice; two sends go that way for each end.
    assert walked >= len(peers) * 3 * each - 2 * 2


def test_where_a_file_ends_other_connections_are_stored_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many producers with a send each had an append group each, in the turn in which it ended."""
    load_at_once(monkeypatch)
    peers = [f"127.0.1.{number}" for number in range(64)]
    sizes = SETTINGS | LARGER_FILES | {"mappedFileSizeConsumeQueue": str(100 * UNIT_SIZE)}

    async def check() -> tuple[list[int], int]:
        group_counts: list[int] = []
        async with fed_broker(tmp_path, sizes, inbox=True, peers=peers) as fed:
            store = fed.broker.context.store
            append_encoded = store.append_encoded

            def counted(*arguments: Any, **named: Any) -> AppendGroup | NotAppended:
                group_counts[-1] += 1
                return append_encoded(*arguments, **named)

            store.append_encoded = counted  # type: ignore[method-assign]
            group_counts.append(0)
            read = chunks_of([[plain_send(0, b"body")]], HeaderType.JSON)[0]
            for number in range(len(peers)):
                # Who has never finished a frame would come after all others.
                fed.read(read, number)
                await fed.end_turn()
            for _ in range(3):
                group_counts.append(0)
                for number in range(len(peers)):
                    fed.read(read, number)
                await fed.end_turn()
            return group_counts, store.max_offset_in_queue("T", 0)

    group_counts, end = run_within(check(), 60)
    assert end == 4 * len(peers)
    # Half of the reads that are left are tried each time, and two sends go the ordinary way.
    assert max(group_counts[1:]) <= 4 * len(peers).bit_length()


def waiting_pull(queue_id: int, offset: int) -> dict[str, Any]:
    numbers = {"queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32, "sysFlag": 6}
    numbers |= {"commitOffset": 0, "suspendTimeoutMillis": 15_000, "subVersion": 0}
    texts = {"consumerGroup": "g", "topic": "T", "subscription": "*", "expressionType": "TAG"}
    return {"code": 11, "ext_fields": texts | {name: str(one) for name, one in numbers.items()}}


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("sender_count", [1, 3])
def test_answers_leave_before_queues_follow_unless_a_pull_waits_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sender_count: int, awaited: bool
) -> None:
    """The senders' next messages are on the way meanwhile, but whoever waits comes first."""
    load_at_once(monkeypatch)
    senders, consumer = range(sender_count), sender_count
    peers = [f"127.0.0.{number + 1}" for number in range(sender_count + 1)]

    async def check() -> None:
        async with fed_broker(tmp_path, SETTINGS | LARGER_FILES, inbox=True, peers=peers) as fed:
            read = chunks_of([[plain_send(0, b"body")]], HeaderType.JSON)[0]

            async def send() -> list[int]:
                before = [len(fed.answers_to(number)) for number in senders]
                for number in senders:
                    fed.read(read, number)
                await fed.end_turn()
                return before

            for _ in range(3):
                await send()
            dispatcher = fed.broker.context.store.dispatcher
            if awaited:
                end = fed.broker.context.store.max_offset_in_queue("T", 0)
                fed.read(chunks_of([[waiting_pull(0, end)]], HeaderType.JSON)[0], consumer)
                await fed.end_turn()
            written: list[list[int]] = []
            dispatch_group = dispatcher.dispatch_group

            def noted(group: AppendGroup) -> None:
                written.append([len(fed.answers_to(number)) for number in senders])
                assert not fed.answers_to(consumer)
                dispatch_group(group)

            monkeypatch.setattr(dispatcher, "dispatch_group", noted)
            before = await send()
            after = [len(fed.answers_to(number)) for number in senders]
            assert written == [before if awaited else after]
            assert all(one < other for one, other in zip(before, after, strict=True))
            assert bool(fed.answers_to(consumer)) == awaited

    run_within(check(), 60)


def test_what_is_in_the_log_comes_into_its_queues_whatever_goes_wrong_with_its_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_at_once(monkeypatch)

    async def check() -> None:
        async with fed_broker(tmp_path, SETTINGS | LARGER_FILES, inbox=True) as fed:
            context = fed.broker.context
            read = chunks_of([[plain_send(0, b"body")]], HeaderType.JSON)[0]
            for _ in range(3):
                fed.read(read)
                await fed.end_turn()

            def failing(*arguments: Any, **named: Any) -> None:
                raise ZeroDivisionError

            with monkeypatch.context() as patch:
                patch.setattr(send_fast_path.SendFastPath, "_answer", failing)
                fed.read(read)
                await fed.end_turn()
            assert context.store.max_offset_in_queue("T", 0) == 4
            assert not context.store.dispatcher.has_waiting

    run_within(check(), 60)
