"""Sends that are stored together leave what sends one by one leave: the same files and answers."""

import functools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from flintmq.broker import read_settings, run_broker, send_runs
from flintmq.format.batch import BatchItem, encode_batch
from flintmq.format.command import Command, encode_command
from flintmq.format.frame import HeaderType
from flintmq.remoting import Connection
from flintmq.store.run_encoding import Run
from flintmq.store.runs import Encode
from flintmq.testing import ManualClock
from tests.property.hostile_peer import MemoryTransport
from tests.unit.remoting.remoting_kit import run_within

START_MS: Final = 1_800_000_000_000
PEER_PORT: Final = 5000
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


def chunks_of(reads: list[list[dict[str, Any]]], header_type: HeaderType) -> list[bytes]:
    """Return what each read of the socket brings."""
    opaque = 0
    chunks = []
    for read in reads:
        frames = []
        for one in read:
            opaque += 1
            frames.append(encode_command(Command(opaque=opaque, serialize_type=header_type, **one)))
        chunks.append(b"".join(frames))
    return chunks


class AtOnce:
    """Loads when it is asked for first, and waits for that."""

    def __init__(self, load: Callable[[], object]) -> None:
        self.get = functools.cache(load)


async def serve(root: Path, chunks: list[bytes], *, gather: bool) -> tuple[bytes, bytes]:
    """Feed a broker with reads; return its answers and its address as records have it."""
    random.seed(5)
    clock = ManualClock(START_MS)
    config, store = read_settings(SETTINGS | {"storePathRootDir": str(root)})
    async with run_broker(config, store, clock=clock) as broker:
        if not gather:
            broker.server.gatherer = None
        connection = Connection(broker.server)
        transport = MemoryTransport(connection, PEER_PORT)
        connection.connection_made(transport)
        for chunk in chunks:
            connection.data_received(chunk)
            clock.advance(700)
        return b"".join(transport.written), broker.parts.store_host


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
)
@settings(
    max_examples=40,
    deadline=None,
    # Two brokers for each example: making a failing one small would take minutes.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_gathered_sends_leave_the_same_bytes(
    reads: list[list[dict[str, Any]]], header_type: HeaderType, compiled: bool
) -> None:
    chunks = chunks_of(reads, header_type)
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        if compiled:
            patch.setattr(send_runs, "Later", AtOnce)
        one, other = Path(name, "gathered"), Path(name, "single")
        gathered, host = run_within(serve(one, chunks, gather=True), 60)
        single, other_host = run_within(serve(other, chunks, gather=False), 60)
        assert gathered.replace(host.hex().upper().encode(), b"HOST") == single.replace(
            other_host.hex().upper().encode(), b"HOST"
        )
        left = {path: data.replace(host, b"HOST") for path, data in files_of(one).items()}
        assert left == {
            path: data.replace(other_host, b"HOST") for path, data in files_of(other).items()
        }


@pytest.mark.parametrize("compiled", [False, True])
def test_plain_sends_are_gathered_at_all(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this the test above would hold for a gatherer that never takes anything."""
    if compiled:
        monkeypatch.setattr(send_runs, "Later", AtOnce)
    fields = {name: "0" for name in "defghj"} | {"a": "g", "b": "T", "c": "TBW102"}
    fields |= {"i": "KEYS\x01k\x02WAIT\x01true\x02", "k": "false", "m": "false", "g": "1"}
    one = {"code": 310, "ext_fields": fields | {"d": "4"}, "body": b"x"}
    batch = one | {
        "code": 320,
        "ext_fields": fields | {"d": "4", "m": "true", "i": ""},
        "body": encode_batch([BatchItem(0, b"y", b"KEYS\x01k\x02")] * 20),
    }
    chunks = chunks_of([[one], [one] * 20, [batch] * 2], HeaderType.JSON)

    async def count_runs(root: Path) -> list[int]:
        clock = ManualClock(START_MS)
        config, store = read_settings(SETTINGS | {"storePathRootDir": str(root)})
        counts = []
        async with run_broker(config, store, clock=clock) as broker:
            put_run = broker.parts.store.put_run

            def counted(encode: Encode[Any], store_host: bytes) -> tuple[Run, Any] | None:
                stored = put_run(encode, store_host)
                counts.append(0 if stored is None else stored[0].message_count)
                return stored

            broker.parts.store.put_run = counted  # type: ignore[method-assign]
            connection = Connection(broker.server)
            connection.connection_made(MemoryTransport(connection, PEER_PORT))
            for chunk in chunks:
                connection.data_received(chunk)
        return counts

    with tempfile.TemporaryDirectory() as name:
        assert run_within(count_runs(Path(name, "store")), 60) == [20, 40]
