"""Fetching a range of a queue: whatever a broker answers, each message comes once, or is told."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.client.blocking import LoopThread
from flintmq.client.errors import TopicNotExistError
from flintmq.client.pulling.puller import PullAnswer, PullStatus
from flintmq.format.compression import CompressionType, compress
from flintmq.format.stored.record_encoding import encode_record
from flintmq.format.sys_flag import COMPRESSED
from flintmq.kernels.compiled import as_bytes
from flintmq.kernels.records import ANY_OFFSET, walk_records
from flintmq.model.message_queue import MessageQueue
from flintmq.model.subscription import Subscription
from flintmq.spark.errors import DataLossError
from flintmq.spark.live.cluster_options import ClusterConnection
from flintmq.spark.live.errors import FalseAnswerError, RefusedReadError
from flintmq.spark.live.fetch import AHEAD_COUNT_MAX, Fetched, RangeFetch
from flintmq.spark.live.live_columns import LIVE
from flintmq.spark.live.live_options import parse_batch
from flintmq.spark.live.live_reader import QueueRead
from flintmq.spark.live.live_rows import JoinedRecords, PulledRows, RangeRows, Records
from flintmq.spark.live.live_session import LiveSession
from flintmq.spark.live.places import ProvenRange
from flintmq.spark.live.ranges import Loss, QueueRange
from flintmq.testing import EmbeddedCluster

QUEUE = MessageQueue("orders", "broker-a", 3)
SCHEMA = pa.schema([(name, LIVE.kinds[name][1]) for name in ("queueOffset", "body", "brokerName")])


def record(offset: int, body: bytes = b"", *, tag: str = "", **changes: int) -> bytes:
    """Return a record of the queue; physical offsets have nothing to do with the bytes here."""
    fields = {"topic": b"orders", "queue_id": QUEUE.queue_id, "flag": 0, "sys_flag": 0} | changes
    return encode_record(
        **fields,  # type: ignore[arg-type]  # one dict for fields of several types
        queue_offset=offset,
        physical_offset=1_000_000 + 700 * offset,
        born_timestamp=1,
        born_host=bytes(8),
        store_timestamp=offset,
        store_host=bytes(8),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body or b"%d" % offset,
        properties=f"TAGS\x01{tag}\x02".encode() if tag else b"",
    )


@dataclass
class FakeQueue:
    """Answers pulls as a broker does that has messages ``least`` to ``end``, without ``holes``.

    Messages whose offset can be divided by ``wanted_every`` pass its filter.  It gives ``most``
    messages at once and looks at ``scan`` of them; ``stalls`` are answers that lead nowhere.
    """

    least: int = 0
    end: int = 1000
    holes: frozenset[int] = frozenset()
    wanted_every: int = 1
    most: int = 32
    scan: int = 800
    stalls: int = 0
    pulls: int = field(default=0, init=False)

    async def pull(
        self, queue: MessageQueue, offset: int, count_max: int, *, everything: bool = False
    ) -> PullAnswer:
        await asyncio.sleep(0)
        self.pulls += 1
        if self.stalls:
            self.stalls -= 1
            return self._answer(PullStatus.NO_NEW_MESSAGE, offset, b"", offset)
        if offset < self.least:
            return self._answer(PullStatus.OFFSET_ILLEGAL, offset, b"", self.least)
        if offset >= self.end:
            return self._answer(PullStatus.OFFSET_ILLEGAL, offset, b"", self.end)
        found: list[bytes] = []
        at = offset
        while at < min(self.end, offset + self.scan) and len(found) < min(self.most, count_max):
            if at not in self.holes and at % self.wanted_every == 0:
                found.append(record(at))
            at += 1
        status = PullStatus.FOUND if found else PullStatus.NO_MATCH
        return self._answer(status, offset, b"".join(found), at)

    def _answer(self, status: PullStatus, offset: int, body: bytes, following: int) -> PullAnswer:
        return PullAnswer(status, offset, body, following, self.least, self.end)


@dataclass
class Losses:
    """Remembers what was told as lost."""

    reasons: list[str] = field(default_factory=list)

    def __call__(self, queue: MessageQueue, loss: Loss) -> None:
        self.reasons.append(loss.reason)


@pytest.fixture(scope="module")
def runner() -> Iterator[LoopThread]:
    thread = LoopThread("fetch-tests")
    yield thread
    thread.close()


def offsets_of(
    runner: LoopThread,
    broker: FakeQueue,
    start: int,
    end: int,
    *,
    losses: Losses | None = None,
    subscription: Subscription | None = None,
) -> list[int]:
    """Return the offsets of all rows of a range, in their order."""
    wanted = QueueRange(QUEUE, start, end)
    on_loss = losses or Losses()
    fetch = RangeFetch(runner, broker, wanted, on_loss)
    rows = RangeRows(wanted, subscription or Subscription(topic="orders"), SCHEMA, on_loss)
    batches = list(rows.batches(fetch.answers()))
    if losses is None:
        assert not on_loss.reasons
    for batch in batches:
        for row in batch.to_pylist():
            assert row["body"] == b"%d" % row["queueOffset"]
            assert row["brokerName"] == "broker-a"
    return [offset for batch in batches for offset in batch.column("queueOffset").to_pylist()]


@settings(deadline=None)
@given(
    start=st.integers(0, 900),
    length=st.integers(0, 600),
    most=st.integers(1, 40),
    scan=st.integers(1, 900),
)
def test_every_message_comes_once_however_few_a_broker_gives(
    runner: LoopThread, start: int, length: int, most: int, scan: int
) -> None:
    broker = FakeQueue(end=1500, most=most, scan=scan)
    end = start + length
    assert offsets_of(runner, broker, start, end) == list(range(start, end))


@settings(deadline=None)
@given(
    start=st.integers(0, 900),
    length=st.integers(0, 600),
    every=st.integers(1, 90),
    most=st.integers(1, 40),
    scan=st.integers(1, 900),
)
def test_answers_of_a_filter_that_reach_further_give_nothing_twice(
    runner: LoopThread, start: int, length: int, every: int, most: int, scan: int
) -> None:
    broker = FakeQueue(end=1500, wanted_every=every, most=most, scan=scan)
    end = start + length
    some = Subscription(topic="orders", expression="x = 1", expression_type="SQL92")
    found = offsets_of(runner, broker, start, end, subscription=some)
    assert found == [offset for offset in range(start, end) if offset % every == 0]


@settings(deadline=None)
@given(
    least=st.integers(0, 300),
    holes=st.frozensets(st.integers(0, 400), max_size=30),
    start=st.integers(0, 300),
)
def test_what_is_missing_is_told_and_the_rest_comes(
    runner: LoopThread, least: int, holes: frozenset[int], start: int
) -> None:
    losses = Losses()
    broker = FakeQueue(least=least, end=400, holes=holes)
    found = offsets_of(runner, broker, start, 400, losses=losses)
    there = [offset for offset in range(max(start, least), 400) if offset not in holes]
    assert found == there
    assert bool(losses.reasons) == (len(there) < 400 - start)


def test_a_queue_that_went_backwards_is_told_and_reading_ends(
    runner: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flintmq.spark.live.fetch.PAUSE_FIRST_S", 0)
    losses = Losses()
    broker = FakeQueue(end=50)
    assert offsets_of(runner, broker, 0, 80, losses=losses) == list(range(50))
    assert all("went backwards" in reason for reason in losses.reasons)
    assert losses.reasons
    assert broker.pulls < 100


def test_a_broker_that_is_behind_for_a_moment_is_waited_for(
    runner: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flintmq.spark.live.fetch.PAUSE_FIRST_S", 0)
    assert offsets_of(runner, FakeQueue(stalls=5), 0, 10) == list(range(10))


def test_several_pulls_are_under_way_at_once(runner: LoopThread) -> None:
    most_at_once = now = 0

    class Watched(FakeQueue):
        async def pull(
            self, queue: MessageQueue, offset: int, count_max: int, *, everything: bool = False
        ) -> PullAnswer:
            nonlocal most_at_once, now
            now += 1
            most_at_once = max(most_at_once, now)
            await asyncio.sleep(0)
            answer = await super().pull(queue, offset, count_max)
            now -= 1
            return answer

    assert offsets_of(runner, Watched(), 0, 1000) == list(range(1000))
    assert 4 < most_at_once <= 8


@dataclass
class Unregistered(FakeQueue):
    """The name server has just started: the first pulls find no such topic."""

    refusals: int = 3

    async def pull(
        self, queue: MessageQueue, offset: int, count_max: int, *, everything: bool = False
    ) -> PullAnswer:
        if self.refusals:
            self.refusals -= 1
            raise RefusedReadError("orders", "no route") from TopicNotExistError("no route")
        return await super().pull(queue, offset, count_max, everything=everything)


def test_a_topic_is_deleted_only_if_it_stays_away(
    runner: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flintmq.spark.live.fetch.PAUSE_FIRST_S", 0)
    assert offsets_of(runner, Unregistered(), 0, 100) == list(range(100))
    losses = Losses()
    assert offsets_of(runner, Unregistered(refusals=1000), 0, 10, losses=losses) == []
    assert "the topic was deleted" in losses.reasons[0]


def test_looking_back_at_what_retention_has_deleted_meanwhile_does_not_fail_a_read(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    options = parse_batch(
        {"namesrv": cluster.namesrv, "subscribe": QUEUE.topic, "dropRepeats": "true"}
    )
    with LiveSession(ClusterConnection(namesrv=cluster.namesrv)) as session:
        queue = QueueRead(session, FakeQueue(least=70, end=100), options, QUEUE)
        assert queue.marks(0, 100) == [None] * 30
        assert "0 is deleted" in caplog.text
        # Rows that somebody wants are another matter.
        with pytest.raises(DataLossError, match="0 is deleted"):
            list(queue.batches(ProvenRange(QueueRange(QUEUE, 0, 100)), SCHEMA))


def rows_of(body: bytes, end: int, losses: Losses, tags: str = "") -> list[int]:
    wanted = QueueRange(QUEUE, 0, end)
    some = Subscription(topic="orders")
    if tags:
        some = Subscription(topic="orders", expression=tags, tags=frozenset({tags}))
    rows = RangeRows(wanted, some, SCHEMA, losses)
    batches = rows.batches([Fetched(0, end, body)])
    return [offset for batch in batches for offset in batch.column("queueOffset").to_pylist()]


def test_a_damaged_record_is_told_once_and_passed_over() -> None:
    losses = Losses()
    damaged = bytearray(record(1, b"body"))
    damaged[damaged.index(b"body")] ^= 1
    assert rows_of(record(0) + damaged + record(2), 3, losses) == [0, 2]
    assert losses.reasons == ["the message at 1 is damaged: its checksum or its lengths are wrong"]


def test_a_body_that_does_not_decompress_is_told() -> None:
    losses = Losses()
    whole = compress(b"x" * 100, CompressionType.ZLIB)
    body = record(0, b"no zlib", sys_flag=COMPRESSED) + record(1, whole, sys_flag=COMPRESSED)
    assert rows_of(body, 2, losses) == [0, 1]
    assert len(losses.reasons) == 1
    assert losses.reasons[0].startswith("the body at 0 cannot be decompressed")


def test_tags_that_share_a_hash_are_told_apart() -> None:
    body = record(0, tag="Aa") + record(1, tag="BB") + record(2, tag="Aa")
    assert rows_of(body, 3, Losses(), tags="BB") == [1]


@pytest.mark.parametrize(
    "body", [record(0)[:-1], b"\0" * 200, record(0, queue_id=9), b"\x7f\xff\xff\xff" + bytes(99)]
)
def test_an_answer_that_is_no_run_of_records_of_the_queue_is_an_error(body: bytes) -> None:
    with pytest.raises(FalseAnswerError):
        rows_of(body, 1, Losses())


@pytest.mark.parametrize("count", [0, 1, AHEAD_COUNT_MAX, AHEAD_COUNT_MAX + 1, 1000])
def test_what_was_fetched_ahead_comes_once_and_first(runner: LoopThread, count: int) -> None:
    broker = FakeQueue()
    wanted = QueueRange(QUEUE, 0, count)
    fetch = RangeFetch(runner, broker, wanted, Losses())
    runner.run(fetch.begin())
    pulls = broker.pulls
    answers = list(fetch.answers())
    assert [one.start for one in answers] == [0, *(one.end for one in answers)][: len(answers)]
    assert sum(one.end - one.start for one in answers) == count
    if count <= AHEAD_COUNT_MAX:
        assert broker.pulls == pulls


def records_of(*records: bytes, taken: slice = slice(None)) -> Records:
    """Return records that were looked at; those that are not ``taken`` were left out."""
    data = as_bytes(b"".join(records))
    walk = walk_records(data, 0, len(data), len(data), ANY_OFFSET, rows_max=99, bytes_max=1 << 20)
    return Records(data, walk.table.take(taken))


def test_records_of_short_ranges_are_joined_and_what_was_left_out_stays_out() -> None:
    joined = JoinedRecords()
    given = [records_of(record(2 * at), record(2 * at + 1)) for at in range(30)]
    given[10] = records_of(record(20), record(21), taken=slice(1))
    found = [one for records in given for one in joined.add(records)]
    found += joined.rest()
    assert [len(one.table) for one in found] == [20, 1, 38]
    offsets = [int(offset) for one in found for offset in one.table.queue_offset]
    assert offsets == [offset for offset in range(60) if offset != 21]
    assert not list(joined.rest())


def test_a_body_among_joined_records_that_does_not_decompress_names_its_queue() -> None:
    told: list[tuple[MessageQueue, str]] = []

    def on_loss(queue: MessageQueue, loss: Loss) -> None:
        told.append((queue, loss.reason))

    joined = JoinedRecords()
    assert not list(joined.add(records_of(record(4))))
    bad = record(5, b"no zip", queue_id=1, sys_flag=COMPRESSED)
    assert not list(joined.add(records_of(bad)))
    rows = PulledRows("broker-a", SCHEMA, on_loss)
    (some,) = (one for records in joined.rest() for one in rows.of(records))
    assert some.rows.column("queueOffset").to_pylist() == [4, 5]
    ((queue, reason),) = told
    assert queue == MessageQueue("orders", "broker-a", 1)
    assert "the body at 5 cannot be decompressed" in reason
