"""An archive of live topics against a list in memory: it has what was there, or names the loss.

Steps happen to brokers (append, expire, grow, delete, delete and make anew, empty the store, cut it
back, a new broker) and to the archive (a run, a run twice, a run that is killed, a lost list of
runs).  Some happen between the plan of a run and its tasks.
"""

import contextlib
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow.parquet as pq
import pytest

from flintmq.model.message_queue import MessageQueue
from flintmq.spark.errors import ArchiveError
from flintmq.spark.jobs.archive import live_archive, live_archive_task
from flintmq.spark.jobs.archive.archive_check import check_archive
from flintmq.spark.jobs.archive.archive_manifest import ArchiveDirectory
from flintmq.spark.jobs.archive.archive_run import ArchiveReport
from flintmq.spark.jobs.archive.live_archive import archive_topics
from tests.kits.spark.fake_brokers import FakeBrokers, FakeSession
from tests.kits.spark.fake_cluster import FakeCluster, VirtualTime
from tests.kits.spark.inline_spark import inline_spark

SEEDS: Final = 160
LENIENT_SEEDS: Final = 40
EXPIRING_SEEDS: Final = 40
PARTS: Final = 4
STEPS: Final = 10
TOPICS: Final = ("a", "b")
BROKERS: Final = ("broker-a", "broker-b")

KINDS: Final = ("append", "expire", "grow", "anew", "delete", "empty", "cut")
STRICT: Final = (60, 12, 6, 6, 2, 2, 6)
MILD: Final = (60, 12, 6, 0, 0, 0, 0)
"""Weights of what happens.  Nothing is lost here, so that lives come to their end."""
LENIENT: Final = (60, 12, 6, 6, 2, 0, 0)
"""The same where losses are allowed.  A log that was cut back needs another archive."""

EXPIRING: Final = (60, 30, 6, 0, 0, 0, 0)
"""Messages expire, archived or not, and nothing else is lost."""

Rows = dict[int, int]
"""Messages of a queue by their offsets."""
Contents = dict[MessageQueue, tuple[int, Rows]]
"""Where queues begin, and what they have."""


class KilledHereError(Exception):
    """The process has ended here."""


class Reached(NamedTuple):
    """How far a queue is archived, and which message stands before that; None if none ever did."""

    end: int
    before: tuple[int, int] | None
    """Offset and number."""


class World:
    """Brokers in the hands of chance."""

    def __init__(self, chance: random.Random, weights: Sequence[int]) -> None:
        self._random = chance
        self._weights = weights
        self.cluster = FakeBrokers()
        self.reached: dict[MessageQueue, Reached] = {}
        self.is_shaken = False
        """Whether something was deleted, replaced or taken back."""
        self._add_broker(BROKERS[0])
        self.change()
        self.change()

    def _add_broker(self, name: str) -> None:
        broker = self.cluster.add(name)
        # So that no two messages have one number.
        broker.begin_numbers(1_000_000 * BROKERS.index(name))
        for topic in TOPICS:
            broker.make(topic, 2)

    def contents(self) -> Contents:
        """Return where each queue begins, and what it has."""
        return {
            MessageQueue(topic, name, number): (
                queue.begin,
                {at: one for at, (one, _) in enumerate(queue.messages, queue.begin)},
            )
            for name, broker in self.cluster.brokers.items()
            for topic, table in broker.tables.items()
            for number, queue in enumerate(table)
        }

    def change(self) -> None:
        """Let something happen."""
        if self._random.random() < 0.04 and len(self.cluster.brokers) < len(BROKERS):
            self._add_broker(BROKERS[1])
            return
        name = self._random.choice(list(self.cluster.brokers))
        broker = self.cluster.brokers[name]
        topic = self._random.choice(TOPICS)
        if topic not in broker.tables:
            broker.make(topic, self._random.randint(1, 3))
        queue_id = self._random.randrange(len(broker.tables[topic]))
        count = self._random.choice([1, 2, 5, 40])
        kind = self._random.choices(KINDS, self._weights)[0]
        if kind == "append":
            broker.append(topic, queue_id, count)
        elif kind == "grow":
            broker.make(topic, 4)
        elif kind == "expire":
            self._expire(broker, MessageQueue(topic, name, queue_id), count)
        else:
            self.is_shaken = True
            self._shake(broker, kind, topic, queue_id, count)

    def _expire(self, broker: FakeCluster, queue: MessageQueue, count: int) -> None:
        known = self.reached.get(queue)
        if self._weights is MILD:
            # Only what is archived already.
            done = 0 if known is None else known.end - broker.found(queue).begin
            count = min(count, max(0, done))
        else:
            self.is_shaken = True
        broker.expire(queue.topic, queue.queue_id, count)

    def _shake(self, broker: FakeCluster, kind: str, topic: str, queue_id: int, count: int) -> None:
        if kind == "cut":
            broker.cut_back(topic, queue_id, count)
            broker.append(topic, queue_id, self._random.choice([0, count, count + 1]))
        elif kind == "empty":
            broker.empty_store()
        else:
            broker.delete(topic)
            if kind == "anew":
                broker.make(topic, 2)
                broker.append(topic, 0, self._random.choice([0, count, 30]))

    def is_lost(self) -> bool | None:
        """Whether what an archive goes on from is gone; None if nobody can know."""
        verdict: bool | None = False
        contents = self.contents()
        for queue, (end, before) in self.reached.items():
            if queue not in contents:
                return True
            begin, rows = contents[queue]
            if begin > end or begin + len(rows) < end:
                return True
            if before is None:
                if begin < end:
                    return True
            elif before[0] < begin:
                verdict = None
            elif rows[before[0]] != before[1]:
                return True
        return verdict


class Archive:
    """An archive and what it is to have."""

    def __init__(
        self,
        root: Path,
        seed: int,
        runner: VirtualTime,
        *,
        allow_gap: bool,
        weights: Sequence[int] | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self._runner = runner
        self._allow_gap = allow_gap
        usual = LENIENT if allow_gap else self.random.choice([STRICT, MILD])
        self.world = World(self.random, weights or usual)
        self.target = ArchiveDirectory(root / "archive")
        self.expected: dict[MessageQueue, Rows] = {}
        self._is_lost = False
        self._changes_between = 0

    @contextlib.contextmanager
    def _patched(self) -> Iterator[pytest.MonkeyPatch]:
        """Have sessions lead to the brokers of the model."""
        cluster = self.world.cluster
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(live_archive, "LiveSession", lambda _: FakeSession(self._runner))
            patch.setattr(live_archive, "Cluster", lambda *_: cluster)
            patch.setattr(
                live_archive_task, "LiveSession", lambda _: FakeSession(self._runner, self._between)
            )
            patch.setattr(live_archive_task, "LivePuller", lambda *_: cluster)
            yield patch

    def _between(self) -> None:
        """Let something happen before a task begins."""
        while self._changes_between:
            self._changes_between -= 1
            self.world.change()

    def _archive(self) -> ArchiveReport:
        """Run; return the report."""
        source = {
            "namesrv": "none:1",
            "subscribe": ",".join(TOPICS),
            "minPartitions": self.random.choice(["1", "5"]),
        }
        return archive_topics(inline_spark(), source, self.target.root, allow_gap=self._allow_gap)

    # -- steps -------------------------------------------------------------------------------

    def step(self) -> bool:
        """Do one step; return False where a loss was told and this life ends."""
        for _ in range(self.random.randint(0, 3)):
            self.world.change()
        kind = self.random.choices(["run", "twice", "killed", "lose"], [6, 1, 1, 0.5])[0]
        if kind == "lose":
            self._lose_list()
            return True
        if kind == "killed":
            return self._killed()
        is_done = self.run(changes_between=self.random.choice([0, 0, 0, 1]))
        if kind == "twice" and is_done and self.world.is_lost() is False:
            before = self._manifest_count()
            is_done = self.run()
            assert not is_done or self._manifest_count() - before in (0, 1)
        return is_done

    def run(self, changes_between: int = 0) -> bool:
        """Run and compare; return False where a loss was told."""
        if self._is_lost:
            self._recover()
        lost, planned = self.world.is_lost(), self.world.contents()
        self.world.is_shaken = False
        self._changes_between = changes_between
        try:
            with self._patched():
                self._archive()
        except ArchiveError:
            assert lost is not False or self.world.is_shaken, "a false alarm"
            return False
        finally:
            self._changes_between = 0
        assert lost is not True, "a loss was not noticed"
        self._landed(planned)
        return True

    def run_with_gaps(self) -> None:
        """Run where losses are allowed: all that is there has landed then, and nothing twice."""
        with self._patched():
            self._archive()
        numbers = [number for rows in self._files() for *_, number in rows]
        assert len(numbers) == len(set(numbers)), "a message landed twice"
        alive = {one for _, rows in self.world.contents().values() for one in rows.values()}
        assert alive <= set(numbers), "a message did not land"

    def run_over_gaps(self) -> None:
        """Run where messages expire: all that are missing between two runs are counted."""
        ends: dict[MessageQueue, int] = {}
        for manifest in self.target.manifests() if self.target.exists() else ():
            for store in manifest.stores:
                for one in store.queues or ():
                    ends[MessageQueue(one.topic, store.name, one.queue_id)] = one.end
        begins = {queue: begin for queue, (begin, _) in self.world.contents().items()}
        gone = sum(max(0, begins[queue] - end) for queue, end in ends.items())
        before = self.target.damages().missing_count if ends else 0
        with self._patched():
            report = self._archive()
        assert report.damages.missing_count == gone
        kept = self.target.damages().missing_count - before
        assert kept == (0 if report.run is None else gone)

    def _killed(self) -> bool:
        """Run until a rename, and no further."""
        if self._is_lost:
            return True
        left = self.random.randint(0, 9)
        rename = Path.rename

        def dying(path: Path, target: Path) -> Path:
            nonlocal left
            left -= 1
            if left < 0:
                raise KilledHereError
            return rename(path, target)

        before, lost, planned = self._manifest_count(), self.world.is_lost(), self.world.contents()
        try:
            with self._patched() as patch, contextlib.suppress(KilledHereError):
                patch.setattr(Path, "rename", dying)
                self._archive()
        except ArchiveError:
            assert lost is not False, "a false alarm"
            return False
        if self._manifest_count() > before:
            # It counts as soon as another run looks at it.
            assert lost is not True, "a loss was not noticed"
            self._note(planned)
        return True

    def _manifest_count(self) -> int:
        return len(list(self.target.own.glob("run-*.json")))

    def _lose_list(self) -> None:
        if self._manifest_count():
            (self.target.own / "current.json").unlink(missing_ok=True)
            self._is_lost = True

    def _recover(self) -> None:
        with self._patched(), pytest.raises(ArchiveError, match="is lost"):
            self._archive()
        assert not check_archive(inline_spark(), self.target.root, recover=True).problems
        self._is_lost = False

    # -- the list ----------------------------------------------------------------------------

    def _note(self, planned: Contents) -> None:
        """Note what a run that was planned so is to have archived."""
        for queue, (begin, rows) in planned.items():
            known = self.world.reached.get(queue)
            start = begin if known is None else known.end
            new = {at: number for at, number in rows.items() if at >= start}
            self.expected.setdefault(queue, {}).update(new)
            self._reach(queue, begin + len(rows), new)

    def _reach(self, queue: MessageQueue, end: int, new: Rows) -> None:
        known = self.world.reached.get(queue)
        before = known.before if known else None
        if new:
            last = max(new)
            before = last, new[last]
        self.world.reached[queue] = Reached(end, before)

    def _landed(self, planned: Contents) -> None:
        """Compare the archive with the list, to which the run is added."""
        found, now = self.rows(), self.world.contents()
        for queue, (begin, rows) in planned.items():
            # A queue that was made anew before it was first read is simply the new one.
            got = found.get(queue, {})
            if queue not in self.world.reached and got != rows and queue in now:
                planned = {**planned, queue: (begin, {at: now[queue][1][at] for at in rows})}
        if not any(
            rows and max(rows) >= self.world.reached.get(queue, Reached(0, None)).end
            for queue, (_, rows) in planned.items()
        ):
            planned = {}  # Nothing was new, so nothing is noted of empty queues either.
        self._note(planned)
        for queue in found.keys() | self.expected.keys():
            assert found.get(queue, {}) == self.expected.get(queue, {}), queue

    def rows(self) -> dict[MessageQueue, Rows]:
        """Return what the archive has; nothing stands in it twice."""
        found: dict[MessageQueue, Rows] = {}
        for some in self._files():
            for queue, offset, number in some:
                assert offset not in found.setdefault(queue, {}), "a message landed twice"
                found[queue][offset] = number
        return found

    def _files(self) -> Iterator[list[tuple[MessageQueue, int, int]]]:
        """Yield queue, offset and number of the messages of each file."""
        names = ["store", "queueId", "queueOffset", "body"]
        for file in (file for manifest in self.target.manifests() for file in manifest.files):
            # A file of one topic says so by its name only.
            columns = names if file.topic is not None else [*names, "topic"]
            table = pq.ParquetFile(self.target.root / file.path).read(columns).to_pylist()
            yield [
                (
                    MessageQueue(row.get("topic", file.topic), row["store"], row["queueId"]),
                    row["queueOffset"],
                    int(row["body"]),
                )
                for row in table
            ]


@pytest.fixture
def quick_directory() -> Iterator[Path]:
    """Give a directory in memory, where there is one: runs of an archive sync a lot."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


@contextlib.contextmanager
def life(directory: Path, seed: int) -> Iterator[Path]:
    """Give a directory for one seed, and name the seed of a failure."""
    root = directory / str(seed)
    root.mkdir()
    try:
        yield root
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    shutil.rmtree(root)


@pytest.mark.parametrize("part", range(PARTS))
def test_an_archive_of_live_topics_has_what_was_there_or_names_the_loss(
    part: int, runner: VirtualTime, quick_directory: Path
) -> None:
    ended = 0
    for seed in range(part, SEEDS, PARTS):
        with life(quick_directory, seed) as root:
            kept = Archive(root, seed, runner, allow_gap=False)
            if all(kept.step() for _ in range(STEPS)) and kept.run():
                assert not check_archive(inline_spark(), kept.target.root).problems
            else:
                ended += 1
    assert 0 < ended < SEEDS // PARTS


@pytest.mark.parametrize("part", range(PARTS))
def test_where_gaps_are_allowed_all_that_is_there_is_archived_once(
    part: int, runner: VirtualTime, quick_directory: Path
) -> None:
    for seed in range(part, LENIENT_SEEDS, PARTS):
        with life(quick_directory, seed) as root:
            kept = Archive(root, seed, runner, allow_gap=True)
            for _ in range(STEPS):
                for _ in range(kept.random.randint(0, 3)):
                    kept.world.change()
                kept.run_with_gaps()
            assert not check_archive(inline_spark(), kept.target.root).problems


@pytest.mark.parametrize("part", range(PARTS))
def test_what_expires_before_it_is_archived_is_counted(
    part: int, runner: VirtualTime, quick_directory: Path
) -> None:
    for seed in range(part, EXPIRING_SEEDS, PARTS):
        with life(quick_directory, seed) as root:
            kept = Archive(root, seed, runner, allow_gap=True, weights=EXPIRING)
            for _ in range(STEPS):
                for _ in range(kept.random.randint(0, 3)):
                    kept.world.change()
                kept.run_over_gaps()
            assert not check_archive(inline_spark(), kept.target.root).problems


def test_a_queue_without_records_is_known_by_where_it_began_behind_a_gap(
    runner: VirtualTime, quick_directory: Path
) -> None:
    with life(quick_directory, 0) as root:
        kept = Archive(root, 0, runner, allow_gap=True)
        broker = kept.world.cluster.brokers[BROKERS[0]]
        broker.make("late", 1)
        for is_expired in (False, True):
            if is_expired:
                broker.append("late", 0, 1)
                broker.expire("late", 0, 1)
            broker.append("a", 0, 1)  # Without anything new there is no manifest.
            kept.run_with_gaps()
        broker.delete("late")
        broker.make("late", 1)
        broker.append("late", 0, 3)
        kept.run_with_gaps()
