"""Jobs over damaged stores: none ends well while whole records were left behind.

Each job that reads stores is run over damage, once to fail and once to skip.  With ``skip`` the
report has every whole record that the store still has, and counts what it passed over.  A session
of Spark takes seconds for each job, so those that need one are run over the kinds of damage that
differ for them, and the reader that they share over all kinds.
"""

import dataclasses
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PROBLEMS
from flintmq.cli.main import run
from flintmq.spark import CorruptLogError
from flintmq.spark.jobs.archive.store_archive import archive as archive_stores
from flintmq.spark.jobs.replay.replay_source import open_source
from flintmq.spark.options.store_options import OnCorrupt, parse_stream_options
from flintmq.spark.rows.columns import arrow_schema, table_schema
from flintmq.spark.stored.log_stream import LogStreamReader
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.spark.inline_spark import inline_spark
from tests.kits.spark.pipeline_kit import light_session, use_session
from tests.kits.spark.reading import read
from tests.kits.store.offline_stores import (
    LOG_FILE_SIZE,
    START_MS,
    make_store,
    message,
    overwrite,
    put,
    small_config,
)

COUNT = 100
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Harm:
    """What was done to a store: which records are gone, and which range tells of it.

    ``start`` is None where the damage is none: the end of a write that was interrupted.
    """

    lost: int
    start: int | None = None
    size: int = 0


def end_of(row: Row) -> int:
    return int(row["physicalOffset"]) + int(row["storeSize"])


def in_file(rows: list[Row], number: int) -> list[Row]:
    names = sorted({row["fileName"] for row in rows})
    return [row for row in rows if row["fileName"] == names[number]]


def write_over(store: Path, row: Row, data: bytes, *, at: int = 0) -> None:
    path = store / "commitlog" / row["fileName"]
    overwrite(path, row["physicalOffset"] - int(row["fileName"]) + at, data)


def destroy(store: Path, victims: list[Row], fill: bytes = b"\xff") -> Harm:
    for row in victims:
        write_over(store, row, fill * row["storeSize"])
    first = victims[0]["physicalOffset"]
    return Harm(len(victims), first, end_of(victims[-1]) - first)


def first_file(store: Path, rows: list[Row]) -> Harm:
    return destroy(store, in_file(rows, 0)[3:6])


def middle_file(store: Path, rows: list[Row]) -> Harm:
    return destroy(store, in_file(rows, 1)[:2])


def last_file(store: Path, rows: list[Row]) -> Harm:
    return destroy(store, in_file(rows, -1)[2:5])


def last_file_after_a_kill(store: Path, rows: list[Row]) -> Harm:
    (store / "abort").touch()
    return last_file(store, rows)


def zeros_in_the_last_file(store: Path, rows: list[Row]) -> Harm:
    (store / "abort").touch()
    return destroy(store, in_file(rows, -1)[2:5], b"\0")


def checksum_in_the_last_file(store: Path, rows: list[Row]) -> Harm:
    victim = in_file(rows, -1)[3]
    write_over(store, victim, b"\xff", at=95)
    return Harm(1, victim["physicalOffset"], victim["storeSize"])


def checksum_of_the_last_record(store: Path, rows: list[Row]) -> Harm:
    write_over(store, rows[-1], b"\xff", at=95)
    return Harm(1, rows[-1]["physicalOffset"], rows[-1]["storeSize"])


def missing_file(store: Path, rows: list[Row]) -> Harm:
    lost = in_file(rows, 1)
    path = store / "commitlog" / lost[0]["fileName"]
    size = path.stat().st_size
    path.unlink()
    return Harm(len(lost), int(lost[0]["fileName"]), size)


def short_file(store: Path, rows: list[Row]) -> Harm:
    lost = in_file(rows, 1)[-4:]
    path = store / "commitlog" / lost[0]["fileName"]
    size = path.stat().st_size
    kept = lost[0]["physicalOffset"] - int(path.name)
    with path.open("r+b") as file:
        file.truncate(kept)
    return Harm(len(lost), lost[0]["physicalOffset"], size - kept)


def torn_end(store: Path, rows: list[Row]) -> Harm:
    (store / "abort").touch()
    size = rows[-1]["storeSize"]
    write_over(store, rows[-1], b"\0" * (size - size // 2), at=size // 2)
    return Harm(1)


def torn_bodies_at_the_end(store: Path, rows: list[Row]) -> Harm:
    (store / "abort").touch()
    for row in rows[-2:]:
        write_over(store, row, b"\0" * 16, at=96)
    return Harm(2)


HARMS: list[Callable[[Path, list[Row]], Harm]] = [
    first_file,
    middle_file,
    last_file,
    last_file_after_a_kill,
    zeros_in_the_last_file,
    checksum_in_the_last_file,
    checksum_of_the_last_record,
    missing_file,
    short_file,
    torn_end,
    torn_bodies_at_the_end,
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("damaged") / "store", COUNT)


class Pipeline:
    """Runs commands and takes their reports apart."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, *arguments: str | Path) -> tuple[int, Any, str]:
        """Return the exit code, the report, and what was said on stderr."""
        self._capsys.readouterr()
        code = run(["pipeline", *map(str, arguments), "--format", "json"])
        told = self._capsys.readouterr()
        return code, json.loads(told.out) if told.out else None, told.err


def archive(store: Path, tmp_path: Path) -> list[str | Path]:
    return ["archive", store, "--to", tmp_path / "archive"]


def replay(store: Path, tmp_path: Path) -> list[str | Path]:
    return ["replay", store, "--to", "127.0.0.1:9", "--dry-run"]


def stats(store: Path, tmp_path: Path) -> list[str | Path]:
    return ["stats", store, "--without-keys"]


def query(store: Path, tmp_path: Path) -> list[str | Path]:
    return ["query", store, "SELECT count(*) AS n FROM messages"]


def diff(store: Path, tmp_path: Path) -> list[str | Path]:
    return ["diff", store, store]


JOBS: dict[Callable[[Path, Path], list[str | Path]], Callable[[Any], tuple[int, Any]]] = {
    archive: lambda report: (report["recordCount"], report["damages"]),
    replay: lambda report: (report["messageCount"], report["damages"]),
    stats: lambda report: (report["total"]["messageCount"], report["damages"]),
    query: lambda report: (report["rows"][0]["n"], report["damages"]),
    diff: lambda report: (report["left"]["messageCount"], report["left"]["damages"]),
}
"""How each job is called, and where its report has messages and damage."""


ON_SPARK = [last_file_after_a_kill, missing_file, torn_end]


def harmed_copy(
    whole: Path, tmp_path: Path, harm: Callable[[Path, list[Row]], Harm]
) -> tuple[Path, Harm]:
    store = tmp_path / "store"
    shutil.copytree(whole, store)
    return store, harm(store, read(store))


def check_job(
    pipeline: Pipeline, job: Callable[[Path, Path], list[str | Path]], store: Path, harmed: Harm
) -> None:
    """Run a job to fail and to skip, and compare its ends and its reports with the harm."""
    for on_corrupt in ("fail", "skip"):
        arguments = job(store, store.parent / on_corrupt)
        code, report, told = pipeline.run(*arguments, "--on-corrupt", on_corrupt)
        if harmed.start is not None and on_corrupt == "fail":
            assert code > EXIT_PROBLEMS, (report, told)
            assert f"damaged from {harmed.start} to " in told
            assert str(store / "commitlog") in told
            continue
        count, damages = JOBS[job](report)
        assert count == COUNT - harmed.lost
        assert damages["size"] == harmed.size
        assert (damages["count"] > 0) is (harmed.start is not None)
        assert code == (EXIT_FINE if harmed.start is None else EXIT_PROBLEMS)
        if harmed.start is not None:
            assert damages["ranges"][0]["start"] == harmed.start


@pytest.mark.parametrize("job", [replay, stats, query, diff], ids=lambda job: job.__name__)
@pytest.mark.parametrize("harm", ON_SPARK, ids=lambda harm: harm.__name__)
def test_no_job_ends_well_while_something_was_left_behind(
    whole: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    harm: Callable[[Path, list[Row]], Harm],
    job: Callable[[Path, Path], list[str | Path]],
) -> None:
    use_session(monkeypatch, light_session(spark))
    check_job(Pipeline(capsys), job, *harmed_copy(whole, tmp_path, harm))


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_an_archive_has_every_whole_record_or_fails(
    whole: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    harm: Callable[[Path, list[Row]], Harm],
) -> None:
    use_session(monkeypatch, inline_spark())
    pipeline = Pipeline(capsys)
    store, harmed = harmed_copy(whole, tmp_path, harm)
    check_job(pipeline, archive, store, harmed)
    kept = tmp_path / "skip" / "archive"
    lost, lacks = harmed.lost, harmed.size
    if harm is checksum_of_the_last_record:
        lacks = 0  # It is behind the end of what was archived.
    code, report, _ = pipeline.run("check-archive", kept)
    assert (code, report["recordCount"]) == (EXIT_FINE, COUNT - lost)
    assert report["damages"]["size"] == lacks
    code, report, _ = pipeline.run("restore", kept, "--out", tmp_path / "restored")
    assert (code, report["recordCount"]) == (EXIT_PROBLEMS if lacks else EXIT_FINE, COUNT - lost)
    assert report["damages"]["size"] == lacks
    assert bodies(read(tmp_path / "restored")) == bodies(read(store, onCorruptRecord="skip"))


def bodies(rows: list[Row]) -> list[bytes]:
    return [row["body"] for row in rows]


@pytest.mark.parametrize("splits", [1, 5])
@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_readers_and_streams_meet_all_damage(
    whole: Path, tmp_path: Path, harm: Callable[[Path, list[Row]], Harm], splits: int
) -> None:
    store, harmed = harmed_copy(whole, tmp_path, harm)
    skipped = read(store, splits=splits, onCorruptRecord="skip")
    assert len(skipped) == COUNT - harmed.lost
    damage = [
        row["_corruptSize"] or row["storeSize"]
        for row in read(store, splits=splits, onCorruptRecord="row")
        if not row["crcOk"] and not str(row["_corruptReason"]).startswith("behind the end")
    ]
    assert sum(damage) == harmed.size
    streamed = [row for batch in batches_of(make_stream(store, "skip")) for row in batch]
    assert streamed == skipped
    if harmed.start is None:
        assert read(store, splits=splits) == skipped
        return
    with pytest.raises(CorruptLogError):
        read(store, splits=splits)
    if harm is not checksum_of_the_last_record:  # A stream waits for what a broker makes of it.
        with pytest.raises(CorruptLogError):
            batches_of(make_stream(store, "fail"))


def make_stream(store: Path, on_corrupt: str) -> LogStreamReader:
    options = {"path": str(store), "onCorruptRecord": on_corrupt, "maxOffsetsPerTrigger": "7"}
    return LogStreamReader(
        parse_stream_options(options), arrow_schema(table_schema(with_corrupt=False))
    )


def batches_of(stream: LogStreamReader) -> list[list[Row]]:
    """Run a stream until nothing is new; return the rows of each micro-batch."""
    place = stream.initialOffset()
    found = []
    while (following := stream.latestOffset(place, stream.getDefaultReadLimit())) != place:
        splits = stream.partitions(place, following)
        found.append(
            [row for one in splits for batch in stream.read(one) for row in batch.to_pylist()]
        )
        place = following
    return found


def test_whoever_reads_an_archive_learns_what_it_lacks(
    whole: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    use_session(monkeypatch, light_session(spark))
    pipeline = Pipeline(capsys)
    store, harmed = harmed_copy(whole, tmp_path, last_file)
    kept = tmp_path / "archive"
    pipeline.run("archive", store, "--to", kept, "--on-corrupt", "skip")
    for job in (replay, query):
        code, report, _ = pipeline.run(*job(kept, tmp_path))
        count, damages = JOBS[job](report)
        assert (count, damages["size"]) == (COUNT - harmed.lost, harmed.size)
        assert code == EXIT_PROBLEMS


SEEDS = range(60)


def harm_at_random(store: Path, rows: list[Row], choice: random.Random) -> set[int]:
    """Write over random ranges, delete a file in the middle maybe; return what is still whole."""
    files = sorted((store / "commitlog").iterdir())
    whole = {row["physicalOffset"] for row in rows}
    for _ in range(choice.randint(1, 4)):
        start = choice.randrange(rows[-1]["physicalOffset"])
        size = choice.choice([1, 7, 300, 3000, 9000])
        path = next(file for file in reversed(files) if int(file.name) <= start)
        size = min(size, int(path.name) + LOG_FILE_SIZE - start)
        fill = choice.choice([b"\0" * size, b"\xff" * size, choice.randbytes(size)])
        overwrite(path, start - int(path.name), fill)
        whole -= {
            row["physicalOffset"]
            for row in rows
            if row["physicalOffset"] < start + size and start < end_of(row)
        }
    if choice.random() < 0.2:
        gone = choice.choice(files[1:-1])
        gone.unlink()
        whole -= {row["physicalOffset"] for row in rows if row["fileName"] == gone.name}
    if choice.random() < 0.5:
        (store / "abort").touch()
    if choice.random() < 0.2:
        shutil.rmtree(store / "consumequeue")
    return whole


@pytest.mark.parametrize("seed", SEEDS)
def test_records_and_counted_damage_make_up_the_log(whole: Path, tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    store = tmp_path / "store"
    shutil.copytree(whole, store)
    rows = read(store)
    ends = {row["fileName"]: end_of(row) for row in rows}
    blanks = {(end, int(name) + LOG_FILE_SIZE) for name, end in ends.items()}
    wanted = harm_at_random(store, rows, choice)
    split_size = choice.choice([1000, 3000, LOG_FILE_SIZE])
    report = archive_stores(
        inline_spark(),
        [str(store)],
        tmp_path / "to",
        on_corrupt=OnCorrupt.SKIP,
        split_size=split_size,
    )
    (run_of,) = report.stores
    found = pq.read_table(tmp_path / "to" / "messages", columns=["physicalOffset", "storeSize"])
    records = [
        (at, at + size)
        for at, size in zip(*map(pa.ChunkedArray.to_pylist, found.columns), strict=True)
    ]
    assert wanted <= {start for start, _ in records}
    damages = [(one.start, one.start + one.size) for one in run_of.damages.ranges]
    assert run_of.damages.count == len(damages)
    at = run_of.start
    for start, end in sorted([*records, *damages]):
        assert start == at or (at, start) in blanks, (at, start)
        at = end
    assert at == run_of.end or (at, run_of.end) in blanks
    assert all(offset < run_of.end for offset in wanted)
    # Where nothing is counted, all is there, but for what no whole record follows.
    at_the_end = [row for row in rows if row["physicalOffset"] >= run_of.end]
    assert report.damages.count or len(records) + len(at_the_end) == len(rows)


@pytest.fixture
def cut_store(tmp_path: Path) -> Path:
    """Return a store whose recovery has set 19 records aside, and that has ten new ones since."""
    root = make_store(tmp_path / "cut", 40)
    victim = read(root)[20]
    (root / "checkpoint").unlink()
    (root / "abort").touch()  # Without a boot id it may have been a power failure.
    write_over(root, victim, bytes(16), at=96)
    clock = ManualClock(START_MS + 100_000)
    with MessageStore.open(small_config(root), clock=clock, background=False) as store:
        assert store.recovery_report.records_set_aside == 19
        put(store, clock, 10, first=100)
    return root


def test_what_was_set_aside_can_be_read(cut_store: Path) -> None:
    log = read(cut_store)
    assert [row["body"] for row in log] == [
        message(number).body for number in (*range(20), *range(100, 110))
    ]
    aside = read(cut_store, setAside="true", onCorruptRecord="skip")
    assert [row["body"] for row in aside] == [message(number).body for number in range(21, 40)]
    assert {row["fileName"].rpartition(".")[2] for row in aside} == {"cut"}
    assert aside == read(cut_store, setAside="true", onCorruptRecord="skip", topic="orders")
    assert read(cut_store, setAside="true", onCorruptRecord="skip", topic="other") == []
    with pytest.raises(CorruptLogError):  # It begins with the damage at which the log was cut.
        read(cut_store, setAside="true")


def test_jobs_tell_what_was_set_aside(
    cut_store: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    use_session(monkeypatch, light_session(spark))
    pipeline = Pipeline(capsys)
    size = sum(path.stat().st_size for path in (cut_store / "recovered").glob("*.cut"))
    for job in (archive, replay, query):
        code, report, _ = pipeline.run(*job(cut_store, tmp_path))
        count, damages = JOBS[job](report)
        assert (code, count) == (EXIT_FINE, 30)
        assert (damages["setAsideCount"], damages["setAsideSize"]) == (2, size)
    run(["pipeline", *map(str, archive(cut_store, tmp_path / "again"))])
    assert "note: 2 files of " in capsys.readouterr().out
    arguments = [*query(cut_store, tmp_path), "--set-aside", "--on-corrupt", "skip"]
    code, report, _ = pipeline.run(*arguments)
    assert (code, report["rows"][0]["n"]) == (EXIT_PROBLEMS, 19)
    assert report["damages"]["setAsideCount"] == 0


def test_a_replay_fails_over_what_is_deleted_while_it_sends(
    whole: Path, spark: SparkSession, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(whole, store)
    session = light_session(spark)
    source = open_source(session, [str(store)], on_corrupt=OnCorrupt.SKIP)
    (log,) = source.logs()
    messages = source.messages(log)
    (store / "commitlog" / f"{LOG_FILE_SIZE:020d}").unlink()
    with pytest.raises(PySparkException, match="the file was deleted meanwhile"):
        messages.collect()
