"""A stream against a list in memory: what landed is what was there, or an error names the loss.

Steps happen to a cluster (append, expire, delete and make anew, empty the store, cut it back) and
to the stream (a batch, a restart, a kill within a batch, a batch that is repeated).  What stood in
each queue when a batch was planned is the list; the stream never sees it.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
import pytest

from flintmq.format.wire.codes import RequestCode
from flintmq.model.message_queue import MessageQueue
from flintmq.spark.errors import DataLossError
from flintmq.spark.live.live_columns import LIVE
from flintmq.spark.live.live_options import parse_stream
from flintmq.spark.live.live_reader import LivePartition, QueueRead, partitions_of
from flintmq.spark.live.places import (
    Places,
    ProvenRange,
    QueuePlace,
    places_from_json,
    places_to_json,
)
from flintmq.spark.live.stream_plan import StreamPlan
from tests.kits.spark.fake_cluster import BROKER, FakeCluster, FakeQueue, VirtualTime
from tests.kits.spark.live_kit import Ticks

SEEDS: Final = 1200
LENIENT_SEEDS: Final = 600
PARTS: Final = 4
STEPS: Final = 14
TOPICS: Final = ("a", "b")
SCHEMA: Final = pa.schema([("body", LIVE.kinds["body"][1])])

Numbers = dict[MessageQueue, list[int | None]]
"""Messages by queue, in their order; None where one is gone."""


class Stream:
    """The stream as Spark drives it: it plans a batch, runs it, and keeps places as JSON."""

    def __init__(
        self,
        cluster: FakeCluster,
        runner: VirtualTime,
        *,
        now: Callable[[], float] | None = None,
        **options: str,
    ) -> None:
        self._now = now or Ticks()
        given = {"namesrv": "none:1", "subscribe": ",".join(TOPICS), **options}
        self.options = parse_stream(given)
        self._cluster = cluster
        self._runner = runner
        self.restart()
        self.at = self._plan.first()

    def restart(self) -> None:
        """Forget everything but the checkpoint."""
        self._plan = StreamPlan(self.options, self._cluster, self._runner, now=self._now)

    def plan(self) -> Places:
        """Return where the next batch ends."""
        end = self._plan.next(self.at, is_limited=True)
        return places_from_json(places_to_json(end))

    def ranges(self, start: Places, end: Places) -> list[ProvenRange]:
        """Return what a batch covers."""
        return self._plan.ranges(start, end)

    def rows(self, start: Places, end: Places) -> Numbers:
        """Run a batch; return the messages of each queue."""
        found: Numbers = {}
        for part in partitions_of(self.ranges(start, end), self.options.read):
            assert isinstance(part, LivePartition)
            queue = part.wanted.queue
            read = QueueRead(self._runner, self._cluster, self.options.read, queue)
            for batch in read.batches(ProvenRange(part.wanted, part.proofs), SCHEMA):
                found.setdefault(queue, []).extend(map(int, batch.column("body").to_pylist()))
        return found


class Model:
    """One random life of a stream, checked at every step."""

    def __init__(self, seed: int, runner: VirtualTime, *, strict: bool) -> None:
        self.random = random.Random(seed)
        self.strict = strict
        # In half of the lives nothing is lost, so that the stream reaches the end.
        self.mild = self.random.random() < 0.5
        self.reached: Places = {}
        self.is_calm = False
        self.cluster = FakeCluster()
        for topic in TOPICS:
            self.cluster.make(topic, 2)
        self.change()
        self.stream = Stream(
            self.cluster,
            runner,
            startingOffsets=self.random.choice(["earliest", "latest"]),
            failOnDataLoss=str(strict).lower(),
            maxOffsetsPerTrigger=self.random.choice(["3", "10", "1000"]),
            maxRecordsPerPartition=self.random.choice(["4", "1000"]),
        )
        self.landed: list[int] = []
        self.before = self.numbers_before(self.stream.at)
        self.skipped = {
            number for number in self.alive() if number not in self.ahead(self.stream.at)
        }

    # -- the list ----------------------------------------------------------------------------

    def alive(self) -> list[int]:
        return [
            number
            for table in self.cluster.tables.values()
            for queue in table
            for number, _ in queue.messages
        ]

    def ahead(self, places: Places) -> set[int]:
        """Return the messages behind places, and of queues that have none."""
        found = set()
        for topic, table in self.cluster.tables.items():
            for queue_id, queue in enumerate(table):
                place = places.get(MessageQueue(topic, BROKER, queue_id))
                start = queue.begin if place is None else place.offset
                found |= {
                    one for at, (one, _) in enumerate(queue.messages, queue.begin) if at >= start
                }
        return found

    def numbers_before(self, places: Places) -> dict[MessageQueue, int | None]:
        """Return the message before each place."""
        return {
            queue: self.cluster.found(queue).number_at(place.offset - 1)
            for queue, place in places.items()
            if queue.topic in self.cluster.tables
        }

    def is_lost(self) -> bool | None:
        """Whether what the stream goes on from is gone; None if nobody can know."""
        verdict: bool | None = False
        for queue, place in self.stream.at.items():
            table = self.cluster.tables.get(queue.topic)
            if table is None or queue.queue_id >= len(table):
                return True
            now = table[queue.queue_id]
            if now.begin > place.offset or now.end < place.offset:
                return True
            if place.is_first and now.begin < place.offset:
                return True
            if place.last is None:
                continue
            if now.begin == place.offset:
                verdict = None
            elif now.number_at(place.offset - 1) != self.before[queue]:
                return True
        return verdict

    def planned(self, start: Places, end: Places) -> Numbers:
        """Return what a batch covers, as it stands now."""
        found: Numbers = {}
        for one in self.stream.ranges(start, end):
            queue, first, last = one.wanted
            if first < last:
                now = self.cluster.found(queue) if self.has(queue) else FakeQueue()
                found[queue] = [now.number_at(at) for at in range(first, last)]
        return found

    def has(self, queue: MessageQueue) -> bool:
        return queue.queue_id < len(self.cluster.tables.get(queue.topic, []))

    # -- steps -------------------------------------------------------------------------------

    def change(self) -> None:
        """Let something happen to the cluster, unless it has come to rest."""
        if self.is_calm:
            return
        topic = self.random.choice(TOPICS)
        if topic not in self.cluster.tables:
            self.cluster.make(topic, self.random.randint(1, 3))
        queue_id = self.random.randrange(len(self.cluster.tables[topic]))
        count = self.random.choice([1, 2, 5, 12])
        kind = self.random.choices(
            ["append", "expire", "grow", "anew", "delete", "empty", "cut"],
            [60, 12, 6, *([0] * 4 if self.mild else [6, 2, 2, 6])],
        )[0]
        if kind == "append":
            self.cluster.append(topic, queue_id, count)
        elif kind == "expire":
            place = self.reached.get(MessageQueue(topic, BROKER, queue_id), QueuePlace(0))
            read = place.offset - self.cluster.tables[topic][queue_id].begin
            self.cluster.expire(topic, queue_id, min(count, max(0, read)) if self.mild else count)
        elif kind == "cut":
            self.cluster.cut_back(topic, queue_id, count)
            self.cluster.append(topic, queue_id, self.random.choice([0, count, count + 1]))
        elif kind == "empty":
            self.cluster.empty_store()
        elif kind == "grow":
            self.cluster.make(topic, 4)
        else:
            self.cluster.delete(topic)
            if kind == "anew":
                self.cluster.make(topic, 2)
                self.cluster.append(topic, 0, self.random.choice([0, count, 30]))

    def step(self) -> bool:
        """Do one step; return False where the stream has told a loss and ended."""
        for _ in range(self.random.randint(0, 3)):
            self.change()
        if self.random.random() < 0.2:
            self.stream.restart()
        return self.batch()

    def batch(self) -> bool:
        lost = self.is_lost()
        start = self.stream.at
        try:
            end = self.stream.plan()
        except DataLossError:
            assert self.strict, "a loss was allowed, and is an error"
            assert lost is not False, "a false alarm"
            return False
        assert not (self.strict and lost), "a loss was not noticed"
        before = self.numbers_before(end)
        covered = self.planned(start, end)
        if self.strict and self.random.random() < 0.3:
            self.change()  # Between the plan and its tasks.
        if self.strict and self.random.random() < 0.3:
            # Killed within the batch: it is done again by a new driver.
            if self.rows(start, end, covered) is None:
                return False
            self.change()
            self.stream.restart()
        found = self.rows(start, end, covered)
        if found is None:
            return False
        self.landed += found
        self.stream.at, self.before = end, before
        self.reached = end
        return True

    def rows(self, start: Places, end: Places, covered: Numbers) -> list[int] | None:
        """Run a batch and compare it; None where it has told a loss."""
        is_there = self.planned(start, end) == covered
        try:
            found = self.stream.rows(start, end)
        except DataLossError:
            assert self.strict, "a loss was allowed, and is an error"
            assert not is_there, "a false alarm"
            return None
        assert found == covered
        assert is_there, "a loss was not noticed"
        return [one for some in found.values() for one in some if one is not None]

    def drain(self) -> bool:
        """Read what is left; return False where a loss was told."""
        self.is_calm = True
        while True:
            start = self.stream.at
            if not self.batch():
                return False
            if self.stream.at == start:
                return True

    def check_landed(self) -> None:
        """All that is there has landed, and nothing twice."""
        assert len(self.landed) == len(set(self.landed)), "a message landed twice"
        assert set(self.alive()) - self.skipped <= set(self.landed), "a message did not land"


def seeds(part: int, count: int) -> range:
    return range(part * count // PARTS, (part + 1) * count // PARTS)


@contextmanager
def told(seed: int) -> Iterator[None]:
    """Name the seed of a failure."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise


@pytest.mark.parametrize("part", range(PARTS))
def test_what_landed_is_what_was_there_or_an_error_names_the_loss(
    part: int, runner: VirtualTime
) -> None:
    ended = 0
    for seed in seeds(part, SEEDS):
        with told(seed):
            model = Model(seed, runner, strict=True)
            if all(model.step() for _ in range(STEPS)) and model.drain():
                model.check_landed()
            else:
                ended += 1
    assert 0 < ended < len(seeds(part, SEEDS))


@pytest.mark.parametrize("part", range(PARTS))
def test_where_loss_is_allowed_all_that_is_there_lands_once(part: int, runner: VirtualTime) -> None:
    for seed in seeds(part, LENIENT_SEEDS):
        with told(seed):
            model = Model(seed, runner, strict=False)
            assert all(model.step() for _ in range(STEPS))
            assert model.drain()
            model.check_landed()


def test_an_idle_stream_asks_one_question(runner: VirtualTime) -> None:
    cluster = FakeCluster()
    for topic in TOPICS:
        cluster.make(topic, 256)
        cluster.append(topic, 7, 5)
    stream = Stream(cluster, runner, now=lambda: 0.0)
    assert stream.plan() == stream.at
    cluster.asked.clear()
    for _ in range(10):
        assert stream.plan() == stream.at
    assert cluster.asked == [RequestCode.GET_BROKER_RUNTIME_INFO] * 10
