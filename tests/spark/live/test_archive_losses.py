"""What an archive of live topics lacks is counted, and a broker with another log is refused."""

import json
from pathlib import Path

import pytest

from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PROBLEMS
from flintmq.cli.main import run
from flintmq.model.message_queue import MessageQueue
from flintmq.spark.errors import ArchiveError
from flintmq.spark.jobs.archive.archive_check import check_archive
from flintmq.spark.jobs.archive.archive_manifest import ArchiveDirectory, QueueEnd, QueueRun
from flintmq.spark.jobs.archive.archive_run import ArchiveReport
from flintmq.spark.jobs.archive.live_archive import archive_topics
from flintmq.spark.jobs.archive.live_archive_losses import LossRule, RunLosses
from flintmq.spark.jobs.archive.live_archive_plan import (
    PlannedRange,
    plan_run,
    prove_logs,
    record_at,
)
from flintmq.spark.live.live_options import parse_batch
from flintmq.spark.live.ranges import QueueRange
from flintmq.testing import EmbeddedCluster
from tests.kits.spark.archive_kit import bounds_of
from tests.kits.spark.fake_brokers import FakeBrokers
from tests.kits.spark.fake_cluster import BROKER, FakeCluster, VirtualTime
from tests.kits.spark.inline_spark import inline_spark
from tests.kits.spark.live_kit import SHORT_LIVED, Admin, send, send_until_cut
from tests.kits.spark.pipeline_kit import use_session
from tests.kits.store.offline_stores import flip


class Commands:
    """Runs commands of the pipeline on one archive."""

    def __init__(self, to: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._to = to
        self._capsys = capsys

    def archive(self, namesrv: str, topic: str, *options: str) -> tuple[int, int, int]:
        """Return the exit code of a run, how many records it has, and how many it lacks."""
        live = ("--namesrv", namesrv, "--topic", topic, "--to", str(self._to))
        return self._run("archive", *live, *options)

    def restore(self, out: Path, *options: str) -> tuple[int, int, int]:
        """Return the same of a restore."""
        return self._run("restore", str(self._to), "--out", str(out), *options)

    def check(self) -> tuple[int, int, int]:
        """Return the same of a check."""
        return self._run("check-archive", str(self._to))

    def _run(self, *arguments: str) -> tuple[int, int, int]:
        code = run(["pipeline", *arguments, "--format", "json"])
        report = json.loads(self._capsys.readouterr().out)
        return code, report["recordCount"], report["damages"]["missingCount"]


@pytest.fixture
def commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Commands:
    use_session(monkeypatch, inline_spark())
    return Commands(tmp_path / "archive", capsys)


def add(namesrv: str, topics: str, to: Path, *, allow_gap: bool = False) -> ArchiveReport:
    source = {"namesrv": namesrv, "subscribe": topics}
    return archive_topics(inline_spark(), source, to, allow_gap=allow_gap)


# -- what is missing -------------------------------------------------------------------------


def test_a_damaged_message_that_is_left_out_is_missing(commands: Commands, tmp_path: Path) -> None:
    with EmbeddedCluster(root=tmp_path / "root") as cluster, Admin(cluster.namesrv) as admin:
        admin.set_topic("harmed", 1)
        send(cluster, "harmed", range(5))
        log = tmp_path / "root" / "store" / "commitlog" / f"{0:020}"
        flip(log, log.read_bytes().index(b"m2"))
        skip = ("--on-corrupt", "skip")
        assert commands.archive(cluster.namesrv, "harmed", *skip) == (EXIT_PROBLEMS, 4, 1)
        # What the first run lacks is not lost once more.
        assert commands.archive(cluster.namesrv, "harmed", *skip) == (EXIT_FINE, 0, 0)
    (loss,) = ArchiveDirectory(tmp_path / "archive").damages().ranges
    assert loss.path == "harmed queue 0 of broker-a"
    # The archive is as its manifest says; who reads it is told what it lacks.
    assert commands.check() == (EXIT_FINE, 4, 1)
    assert commands.restore(tmp_path / "out") == (EXIT_PROBLEMS, 4, 1)
    assert commands.restore(tmp_path / "again", "--accept-loss") == (EXIT_FINE, 4, 1)


def test_messages_that_retention_was_faster_with_are_missing(
    commands: Commands, tmp_path: Path
) -> None:
    with (
        EmbeddedCluster(manual_clock=True, **SHORT_LIVED) as cluster,
        Admin(cluster.namesrv) as admin,
    ):
        admin.set_topic("short", 1)
        cluster.send("short", b"first")
        assert commands.archive(cluster.namesrv, "short") == (EXIT_FINE, 1, 0)
        send_until_cut(cluster, "short", 2)
        given = commands.archive(cluster.namesrv, "short", "--allow-gap")
        (end,) = (high for _, high in bounds_of(cluster.namesrv, "short").values())
    # Retention does not pause, neither before the plan nor behind it: each message is one or other.
    code, count, missing = given
    assert (code, count + missing) == (EXIT_PROBLEMS, end - 1)
    assert missing > 0
    assert commands.check() == (EXIT_FINE, 1 + count, missing)


def test_a_topic_that_is_gone_or_another_one_is_told_by_each_run_that_goes_on_without_it(
    commands: Commands, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    gap = "--allow-gap"
    with Admin(cluster.namesrv) as admin:
        admin.set_topic("leaving", 1)
        send(cluster, "leaving", range(3))
        assert commands.archive(cluster.namesrv, "leaving") == (EXIT_FINE, 3, 0)
        admin.delete_topic("leaving")
        for _ in range(2):
            assert commands.archive(cluster.namesrv, "leaving", gap) == (EXIT_PROBLEMS, 0, 1)
        # As long as it may come back, nothing is known to be missing.
        assert not ArchiveDirectory(tmp_path / "archive").damages().is_loss
        admin.set_topic("leaving", 1)
        send(cluster, "leaving", range(3, 9))
        assert commands.archive(cluster.namesrv, "leaving", gap) == (EXIT_PROBLEMS, 6, 1)
        assert commands.archive(cluster.namesrv, "leaving", gap, "--accept-loss")[0] == EXIT_FINE
    assert commands.check() == (EXIT_FINE, 9, 1)


# -- another log -----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 20, 60])
def test_a_broker_with_another_log_is_refused_though_its_topics_are_new(
    tmp_path: Path, count: int
) -> None:
    to = tmp_path / "archive"
    with EmbeddedCluster() as cluster:
        send(cluster, "one", range(40))
        add(cluster.namesrv, "one", to)
    with EmbeddedCluster() as cluster:
        send(cluster, "two", range(count))
        for allow_gap in (False, True):
            with pytest.raises(ArchiveError, match=r"broker broker-a: .* needs another archive"):
                add(cluster.namesrv, "two", to, allow_gap=allow_gap)
    assert check_archive(inline_spark(), to).record_count == 40


def test_a_broker_that_was_emptied_is_refused_while_its_topics_are_empty(tmp_path: Path) -> None:
    to = tmp_path / "archive"
    for numbers, is_first in ((range(40), True), (range(1), False)):
        with EmbeddedCluster() as cluster, Admin(cluster.namesrv) as admin:
            for topic in ("kept", "beside"):
                admin.set_topic(topic, 1)
            send(cluster, "kept" if is_first else "beside", numbers)
            if is_first:
                add(cluster.namesrv, "kept,beside", to)
                continue
            # Were this accepted, the next run would take the new log for the old one.
            with pytest.raises(ArchiveError, match="emptied, or it is another broker"):
                add(cluster.namesrv, "kept,beside", to, allow_gap=True)


def test_one_broker_goes_on_with_other_topics(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    to = tmp_path / "archive"
    for number, topic in enumerate(("first", "second", "third")):
        send(cluster, topic, range(number, 3))
        assert add(cluster.namesrv, topic, to).record_count == 3 - number


class Told(FakeCluster):
    """Says of its log what a test wants."""

    bounds: tuple[int, int] | None = (0, 1 << 40)
    is_silent = False

    async def log_bounds(self, queue: MessageQueue) -> tuple[int, int] | None:
        return self.bounds

    async def record_in_log(self, queue: MessageQueue, physical_offset: int) -> bytes | None:
        return None if self.is_silent else await super().record_in_log(queue, physical_offset)


QUEUE = MessageQueue("t", BROKER, 0)


@pytest.fixture
def told(runner: VirtualTime) -> tuple[Told, QueueEnd]:
    """Return a broker with ten messages, and its last one."""
    broker = Told()
    broker.make("t", 1)
    broker.append("t", 0, 10)
    last = runner.run(record_at(broker, QUEUE, 9))
    assert last is not None
    return broker, last


def prove(runner: VirtualTime, broker: Told, last: QueueEnd) -> None:
    planned = PlannedRange(QueueRange(QUEUE, 10, 10), last, 0)
    runner.run(prove_logs(broker, [planned], {BROKER: last}))


def test_what_cannot_be_compared_is_no_other_log(
    runner: VirtualTime, told: tuple[Told, QueueEnd]
) -> None:
    broker, last = told
    prove(runner, broker, last)
    broker.empty_store()
    with pytest.raises(ArchiveError):
        prove(runner, broker, last)
    # It has expired, or the broker does not tell.
    broker.bounds = (last.physical_offset + 1, 1 << 40)
    prove(runner, broker, last)
    broker.bounds = None
    prove(runner, broker, last)
    broker.bounds, broker.is_silent = (0, 1 << 40), True
    prove(runner, broker, last)
    # A log that ends before needs no record to be another one.
    broker.bounds = (0, last.physical_offset)
    with pytest.raises(ArchiveError):
        prove(runner, broker, last)


@pytest.mark.parametrize(("place", "is_other"), [(0, False), (1 << 20, True)])
def test_what_follows_an_expired_message_in_its_queue_follows_it_in_the_log(
    runner: VirtualTime, place: int, is_other: bool
) -> None:
    brokers = FakeBrokers()
    broker = brokers.add(BROKER)
    broker.make("t", 1)
    broker.append("t", 0, 12)
    broker.expire("t", 0, 10)
    last = QueueEnd(queue_offset=9, physical_offset=place, size=100, sha256="")
    known = QueueRun(topic="t", queue_id=0, start=0, end=10, record_count=10, last=last)
    options = parse_batch({"namesrv": "none:1", "subscribe": "t"})
    losses = RunLosses(LossRule(allow_gap=False, skips_damage=False))
    planned = plan_run(brokers, options, {QUEUE: known}, losses)
    if is_other:
        with pytest.raises(ArchiveError, match="its message at 10 lies before the one that was"):
            runner.run(planned)
    else:
        assert runner.run(planned).ranges[0].wanted == QueueRange(QUEUE, 10, 12)
