"""A model of what follows a store: random steps, against a list in memory.

What has landed in an archive or from a stream is exactly what was in the log, in its order and
once each, or an error was raised that names the loss.  The steps are those of a store: it grows,
rolls, expires, is cut back by a power loss, made anew, moved; and those of its readers: they
restart, repeat a batch, are killed, lose a file.
"""

import contextlib
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest

from flintmq.spark.errors import ArchiveError, DataLossError
from flintmq.spark.jobs.archive.archive_check import check_archive
from flintmq.spark.jobs.archive.archive_manifest import ArchiveDirectory
from flintmq.spark.jobs.archive.store_archive import archive
from flintmq.spark.options.store_options import parse_stream_options
from flintmq.spark.rows.columns import arrow_schema, table_schema
from flintmq.spark.stored.log_stream import LogStreamReader, StreamOffset
from tests.kits.spark.inline_spark import inline_spark
from tests.kits.spark.log_writer import LogWriter

STREAM_SEEDS = 1000
LENIENT_SEEDS = 200
ARCHIVE_SEEDS = 240
PARTS = 4
STEPS_MAX = 14

Steps = dict[str, tuple[float, Callable[[], Any]]]


class KilledHereError(Exception):
    """The process has ended here."""


class Store:
    """A store in the hands of chance."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.log = LogWriter(root)
        self._chance = chance
        self.append()

    def append(self) -> None:
        for _ in range(self._chance.randint(1, 9)):
            self.log.append(self._chance.choice(["orders", "others"]), self._chance.randint(9, 300))

    def cut_back(self) -> None:
        """Lose the last records, and mostly get others in their place before anybody looks."""
        self.log.cut_back(self._chance.randint(1, 12))
        if self._chance.random() < 0.7:
            self.append()
            self.append()

    def make_anew(self) -> None:
        self.log.make_anew()
        for _ in range(self._chance.randint(1, 4)):
            self.append()

    def steps(self) -> Steps:
        return {
            "append": (6, self.append),
            "expire": (1, self.log.expire),
            "cut back": (1, self.cut_back),
            "make anew": (0.5, self.make_anew),
        }


class Follower:
    """What is known of a reader: what has landed, and how much was gone when it began."""

    def __init__(self, store: Store, topic: str | None = None) -> None:
        self.store = store
        self._topic = topic
        self._skipped: int | None = None
        self._came_to: list[str] = []
        """All records of the log up to where the reader is, whatever it chose of them."""

    def begins(self) -> None:
        if self._skipped is None:
            self._skipped = self.store.log.expired_count

    def has_not_begun(self) -> None:
        self._skipped = None

    def has_come_to_the_end(self) -> None:
        self._came_to = self._history

    @property
    def _history(self) -> list[str]:
        """The records of the log from where the reader began."""
        return [record.key for record in self.store.log.records[self._skipped or 0 :]]

    def lands(self, landed: list[str], count: int | None = None) -> None:
        """Check what has landed in all; ``count`` records of the log were looked at, or all."""
        history = self.store.log.records[self._skipped or 0 :][:count]
        chosen = [one.key for one in history if self._topic in (None, one.topic)]
        assert landed == chosen
        self._came_to = [record.key for record in history]

    def is_loss(self) -> bool:
        """Whether the store has really lost something that the reader has seen or needs."""
        seen = self._came_to
        if self._history[: len(seen)] != seen:
            return True
        if not seen:
            return self.store.log.expired_count > (self._skipped or 0)
        # Behind the last record of a file that is gone nobody knows what was.
        last = self.store.log.records[(self._skipped or 0) + len(seen) - 1]
        return self.store.log.start > last.end


@pytest.fixture
def quick_directory() -> Iterator[Path]:
    """Give a directory in memory, where there is one: runs of an archive sync a lot."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


def run_seeds(directory: Path, part: int, count: int, follow: Callable[..., None]) -> None:
    for seed in range(part, count, PARTS):
        root = directory / str(seed)
        root.mkdir()
        try:
            follow(root, random.Random(seed))
        except BaseException as error:
            error.add_note(f"{follow.__name__} with seed {seed}")
            raise
        shutil.rmtree(root)


def chosen_step(chance: random.Random, steps: Steps) -> tuple[str, Callable[[], Any]]:
    (name,) = chance.choices(list(steps), [weight for weight, _ in steps.values()])
    return name, steps[name][1]


# -- the stream ------------------------------------------------------------------------------


class Stream:
    """A query that follows a store, with what its checkpoint would hold."""

    extra: ClassVar[dict[str, str]] = {}

    def __init__(self, store: Store, chance: random.Random) -> None:
        self._chance = chance
        self._store = store
        self._model = Follower(store)
        self.landed: list[str] = []
        self._batches: list[tuple[StreamOffset, StreamOffset, list[str]]] = []
        self.restart()

    def restart(self) -> None:
        options = {"path": str(self._store.log.root), "splitSize": "1000", **self.extra}
        if self._chance.random() < 0.5:
            options["maxOffsetsPerTrigger"] = str(self._chance.randint(1, 9))
        read = parse_stream_options(options)
        self._reader = LogStreamReader(read, arrow_schema(table_schema(with_corrupt=False)))

    def look(self) -> None:
        """Have the reader look where the log ends, as Spark does to tell how far behind it is."""
        self._reader.reportLatestOffset()

    def batch(self) -> bool:
        """Run one micro-batch; return whether it had something to do."""
        self._model.begins()
        if not self._reads():
            if not self._batches:
                self._model.has_not_begun()  # No offset is kept yet.
            return False
        self._model.lands(self.landed, len(self.landed))
        return True

    def _reads(self) -> bool:
        start = self._batches[-1][1] if self._batches else self._reader.initialOffset()
        # Offsets go through JSON, as in a checkpoint.
        start = json.loads(json.dumps(start))
        end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
        if end == start:
            return False
        rows = self._rows(start, end)
        self._batches.append((start, json.loads(json.dumps(end)), rows))
        self.landed += rows
        return True

    def repeat(self) -> None:
        """Run the last batch again, as a restart does that did not see it committed."""
        if not self._batches:
            return
        start, end, rows = self._batches[-1]
        if len(self._batches) == 1:
            start = self._reader.initialOffset()  # Which no checkpoint has.
        assert self._rows(start, end) == rows

    def drain(self) -> None:
        """Read until nothing is new: all of the log has landed then."""
        self.restart()
        while self.batch():
            pass
        self._model.lands(self.landed)

    def fails_rightly(self, name: str) -> bool:
        """Whether an error may have been raised."""
        if self._model.is_loss():
            return True
        rows = self._batches[-1][2] if self._batches else []
        kept = [one.key for one in self._store.log.records[self._store.log.expired_count :]]
        return name == "repeat" and not set(rows) <= set(kept)

    def _rows(self, start: StreamOffset, end: StreamOffset) -> list[str]:
        return [
            key
            for split in self._reader.partitions(start, end)
            for batch in self._reader.read(split)
            for key in batch.column("keys").to_pylist()
        ]


def follow_with_a_stream(root: Path, chance: random.Random) -> None:
    store = Store(root / "store", chance)
    stream = Stream(store, chance)
    steps = store.steps() | {
        "restart": (2, stream.restart),
        "look": (1, stream.look),
        "batch": (6, stream.batch),
        "repeat": (2, stream.repeat),
    }
    name = ""
    try:
        for _ in range(chance.randint(3, STEPS_MAX)):
            name, step = chosen_step(chance, steps)
            step()
        name = "drain"
        stream.drain()
    except DataLossError:
        assert stream.fails_rightly(name), name


@pytest.mark.parametrize("part", range(PARTS))
def test_a_stream_lands_what_was_there_or_names_the_loss(quick_directory: Path, part: int) -> None:
    run_seeds(quick_directory, part, STREAM_SEEDS, follow_with_a_stream)


class LenientStream(Stream):
    """A query that goes on over what is lost."""

    extra: ClassVar[dict[str, str]] = {"failOnDataLoss": "false"}

    def batch(self) -> bool:
        """Run one micro-batch; return whether it had something to do."""
        return self._reads()

    def drain(self) -> None:
        """Read until nothing is new: all that is left of the log has landed then, and once."""
        while self.batch():
            pass
        assert len(self.landed) == len(set(self.landed)), "a record landed twice"
        log = self._store.log
        assert {one.key for one in log.records[log.expired_count :]} <= set(self.landed)


def follow_over_losses(root: Path, chance: random.Random) -> None:
    store = Store(root / "store", chance)
    stream = LenientStream(store, chance)
    steps = store.steps() | {
        "restart": (1, stream.restart),
        "look": (1, stream.look),
        "batch": (6, stream.batch),
    }
    for _ in range(chance.randint(3, STEPS_MAX)):
        chosen_step(chance, steps)[1]()
    stream.drain()


@pytest.mark.parametrize("part", range(PARTS))
def test_where_loss_is_allowed_all_that_is_left_lands_once(
    quick_directory: Path, part: int
) -> None:
    run_seeds(quick_directory, part, LENIENT_SEEDS, follow_over_losses)


# -- the archive -----------------------------------------------------------------------------


class Archive:
    """An archive of a store, run by run."""

    def __init__(self, root: Path, store: Store, chance: random.Random) -> None:
        self._chance = chance
        self._store = store
        self._root = root
        self.target = ArchiveDirectory(root / "archive")
        topic = chance.choice([None, "orders"])
        self._topics = None if topic is None else [topic]
        self._model = Follower(store, topic)
        self._is_lost = False

    def run(self) -> None:
        if self._is_lost:
            self._recover()
        self._model.begins()
        archive(
            inline_spark(),
            [str(self._store.log.root)],
            self.target.root,
            topics=self._topics,
            broker_names={"": "broker"},
            split_size=self._chance.choice([1000, 1 << 20]),
        )
        self._model.lands(self.landed())

    def killed(self) -> None:
        """Run until a rename, and no further."""
        left = self._chance.randint(0, 9)
        rename = Path.rename

        def dying(path: Path, target: Path) -> Path:
            nonlocal left
            left -= 1
            if left < 0:
                raise KilledHereError
            return rename(path, target)

        before = self._manifest_count()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "rename", dying)
            with contextlib.suppress(KilledHereError):
                self.run()
        # With a manifest it will count, as soon as another run looks at it.
        if self._manifest_count() > before:
            self._model.has_come_to_the_end()
        elif not before:
            self._model.has_not_begun()

    def _manifest_count(self) -> int:
        return len(list(self.target.own.glob("run-*.json")))

    def lose_list(self) -> None:
        path = self.target.own / "current.json"
        if any(self.target.own.glob("run-*.json")):
            path.unlink(missing_ok=True)
            self._is_lost = True

    def _recover(self) -> None:
        with pytest.raises(ArchiveError, match="is lost"):
            archive(inline_spark(), [str(self._store.log.root)], self.target.root)
        assert not check_archive(inline_spark(), self.target.root, recover=True).problems
        self._is_lost = False

    def move(self) -> None:
        self._store.log.move(self._root / f"store-{self._chance.randint(0, 1 << 30)}")

    def landed(self) -> list[str]:
        """Return the keys that the archive has, in the order of the log, run by run."""
        found: list[str] = []
        for manifest in self.target.manifests():
            rows: list[tuple[int, str]] = []
            for file in manifest.files:
                table = pq.ParquetFile(self.target.root / file.path).read(
                    ["physicalOffset", "keys"]
                )
                rows += zip(*(column.to_pylist() for column in table.columns), strict=True)
            found += [key for _, key in sorted(rows)]
        return found

    def fails_rightly(self) -> bool:
        """Whether an error may have been raised."""
        return self._model.is_loss()


def follow_with_an_archive(root: Path, chance: random.Random) -> None:
    store = Store(root / "store", chance)
    kept = Archive(root, store, chance)
    steps = store.steps() | {
        "run": (4, kept.run),
        "killed": (1, kept.killed),
        "lose a file": (0.5, kept.lose_list),
        "move": (0.5, kept.move),
    }
    try:
        for _ in range(chance.randint(3, STEPS_MAX)):
            _, step = chosen_step(chance, steps)
            step()
        kept.run()
    except ArchiveError:
        assert kept.fails_rightly()
        return
    assert not check_archive(inline_spark(), kept.target.root).problems


@pytest.mark.parametrize("part", range(PARTS))
def test_an_archive_has_what_was_there_or_names_the_loss(quick_directory: Path, part: int) -> None:
    run_seeds(quick_directory, part, ARCHIVE_SEEDS, follow_with_an_archive)
