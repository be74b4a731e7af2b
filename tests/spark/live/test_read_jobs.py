"""Jobs on live topics by their commands, in a session that runs."""

import json
import re
import shlex
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PROBLEMS, EXIT_UNREADABLE, EXIT_USAGE
from flintmq.cli.main import run
from flintmq.client.blocking import PullConsumer
from flintmq.format.stored.record_layout import IPV4_BODY_AT
from flintmq.spark.jobs.job_input import LiveInput, StoredInput
from flintmq.spark.jobs.stats.stats_plot import panels
from flintmq.spark.jobs.stats.topic_stats import StatsRequest, measure
from flintmq.testing import EmbeddedCluster
from tests.kits.spark.live_kit import Admin, read, send, texts
from tests.kits.spark.pipeline_kit import light_session, use_session

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"
_TOUR = re.compile(r"<!-- live tour -->\n```console\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture(autouse=True)
def session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    found = light_session(spark)
    use_session(monkeypatch, found)
    return found


@pytest.fixture(scope="module")
def namesrv(cluster: EmbeddedCluster) -> str:
    with Admin(cluster.namesrv) as admin:
        admin.set_topic("sold", 2)
    send(cluster, "sold", range(20), tag="A", keys=["k"])
    send(cluster, "sold", range(20, 25), tag="B")
    return cluster.namesrv


def test_query_and_stats_read_live_topics(namesrv: str, capsys: pytest.CaptureFixture[str]) -> None:
    live = ("--namesrv", namesrv, "--topic", "sold")
    sql = "SELECT tags, count(*) AS n FROM messages WHERE topic = 'sold' GROUP BY 1 ORDER BY 1"
    assert run(["pipeline", "query", *live, sql, "--format", "json"]) == EXIT_FINE
    answer = json.loads(capsys.readouterr().out)
    assert answer["rows"] == [{"tags": "A", "n": 20}, {"tags": "B", "n": 5}]
    assert answer["complete"]
    assert answer["columnsRead"] == {"messages": ["topic", "tags"]}
    assert run(["pipeline", "stats", *live, "--without-keys", "--format", "json"]) == EXIT_FINE
    report = json.loads(capsys.readouterr().out)
    assert report["total"]["messageCount"] == 25
    assert report["queues"]["count"] == 2
    assert [one["volume"]["messageCount"] for one in report["tags"]["items"]] == [20, 5]


def test_live_topics_and_their_store_give_the_same_picture(
    session: SparkSession, tmp_path: Path
) -> None:
    with EmbeddedCluster(root=tmp_path) as cluster:
        cluster.create_topic("seen", queue_count=2)
        send(cluster, "seen", range(20), tag="A", keys=["k"])
        with PullConsumer(namesrv=cluster.namesrv, group="watchers") as consumer:
            consumer.commit(consumer.queues("seen")[0], 1)
        source = {"namesrv": cluster.namesrv, "subscribe": "seen"}
        live = measure(session, StatsRequest(source=LiveInput(source), timeline=True))
    stored = StoredInput(paths=(str(tmp_path / "store"),))
    of_files = measure(session, StatsRequest(source=stored, timeline=True))
    assert [title for title, _ in panels(live)] == [title for title, _ in panels(of_files)]
    for name in ("total", "kinds", "topics", "tags", "hours", "sizes", "timeline", "hot_keys"):
        assert getattr(live, name) == getattr(of_files, name), name
    assert [(one.group, one.lag) for one in live.lags.items] == [
        (one.group, one.lag) for one in of_files.lags.items
    ]


def test_jobs_count_what_is_missing_and_end_with_1_unless_it_is_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedCluster(root=tmp_path / "data") as cluster:
        send(cluster, "worn", range(10))
        log = next((tmp_path / "data").rglob("commitlog/*"))
        with log.open("r+b") as file:
            file.seek(cluster.messages("worn")[4].physical_offset + IPV4_BODY_AT)
            file.write(b"\0")
        lenient = ("--option", "failOnDataLoss=false")
        live = ("--namesrv", cluster.namesrv, "--topic", "worn", *lenient, "--format", "json")
        query = ["pipeline", "query", *live, "SELECT count(*) AS n FROM messages"]
        assert run(query) == EXIT_PROBLEMS
        answer = json.loads(capsys.readouterr().out)
        assert (answer["rows"], answer["complete"]) == ([{"n": 9}], False)
        assert (answer["damages"]["count"], answer["damages"]["missingCount"]) == (1, 1)
        assert run([*query, "--accept-loss"]) == EXIT_FINE
        capsys.readouterr()
        assert run(["pipeline", "stats", *live, "--without-keys"]) == EXIT_PROBLEMS
        assert json.loads(capsys.readouterr().out)["damages"]["missingCount"] == 1
        stream = ["pipeline", "stream", cluster.namesrv, "--topic", "worn", "--available-now"]
        stream += ["--option", "startingOffsets=earliest", *lenient, "--to"]
        assert run([*stream, str(tmp_path / "strict")]) == EXIT_PROBLEMS
        assert "ended: 9 messages in 1 batch, at least 1 missing\n" in capsys.readouterr().err
        assert run([*stream, str(tmp_path / "accepted"), "--accept-loss"]) == EXIT_FINE


def test_an_archive_of_live_topics_grows_is_queried_checked_and_restored(
    cluster: EmbeddedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive, out = str(tmp_path / "archive"), str(tmp_path / "store")
    with Admin(cluster.namesrv) as admin:
        admin.set_topic("kept", 2)
    command = ["pipeline", "archive", "--namesrv", cluster.namesrv, "--topic", "kept"]
    for first, last, words in (
        (0, 10, ["broker-a: 10 records from 2 of 2 queues of DefaultCluster", "run 1: 10 records"]),
        (10, 11, ["broker-a: 1 record from 1 of 2 queues of DefaultCluster", "run 2: 1 record of"]),
    ):
        send(cluster, "kept", range(first, last), tag="A")
        assert run([*command, "--to", archive]) == EXIT_FINE
        lines = capsys.readouterr().out.splitlines()
        assert [line[: len(word)] for line, word in zip(lines, words, strict=True)] == words
    assert run([*command, "--to", archive]) == EXIT_FINE
    assert capsys.readouterr().out.startswith("nothing new for")
    sql = "SELECT topic, count(DISTINCT body) AS n, max(path) FROM messages GROUP BY 1"
    assert run(["pipeline", "query", archive, sql, "--format", "json"]) == EXIT_FINE
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows == [{"topic": "kept", "n": 11, "max(path)": None}]
    assert run(["pipeline", "check-archive", archive]) == EXIT_FINE
    assert capsys.readouterr().out == "2 runs, 2 files, 11 records: sound\n"
    assert run(["pipeline", "restore", archive, "--out", out, "--format", "json"]) == EXIT_FINE
    report = json.loads(capsys.readouterr().out)
    assert (report["store"], report["recordCount"], report["problems"]) == ("broker-a", 11, [])
    assert run(["store", "verify", out]) == EXIT_FINE


def test_every_command_of_the_page_runs(
    session: SparkSession,
    cluster: EmbeddedCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for topic in ("orders", "payments"):
        send(cluster, topic, range(6), tag="paid")
    long = "long" * 500
    cluster.send("orders", long.encode(), keys=["k"])
    monkeypatch.chdir(tmp_path)
    found = _TOUR.search(PAGE.read_text())
    assert found is not None
    lines = found["text"].replace("10.0.0.1:9876", cluster.namesrv).replace("/data", str(tmp_path))
    for line in lines.splitlines():
        _, _, *arguments = shlex.split(line.removeprefix("$ "))
        if arguments[0] == "stream":
            arguments += ["--available-now", "--option", "startingOffsets=earliest"]
        assert run(["pipeline", *arguments]) == EXIT_FINE, capsys.readouterr().err
    shown = capsys.readouterr()
    assert re.search(r"orders +7 +\d+\n", shown.out)  # The windows on the terminal.
    assert shown.err.count("ended: 7 messages in 1 batch\n") == 3
    paid = session.read.parquet(str(tmp_path / "paid")).collect()
    assert sorted(row.text for row in paid) == texts(range(6))
    (onward,) = read(cluster.namesrv, subscribe="large")
    assert (onward["body"].decode(), onward["keys"]) == (long, "k")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["query", "SELECT 1"], EXIT_USAGE, "give a directory"),
        (["stats", "/data", "--namesrv", "a:1"], EXIT_USAGE, "not both"),
        (["stats", "/data", "--option", "a=b"], EXIT_USAGE, "belongs to --namesrv"),
        (["stats", "--namesrv", "a:1"], EXIT_USAGE, "--topic"),
    ],
)
def test_wrong_usage_is_told_in_one_line(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", *arguments]) == code
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--to", "topic:onward"], EXIT_UNREADABLE, "need a checkpoint"),
        (["--to", "console", "--sql", "SELECT 1"], EXIT_USAGE, "the view messages"),
        (["--to", "console", "--sql", "SELECT no FROM messages"], EXIT_USAGE, "`no`"),
        (["--to", "console", "--sql", "DROP VIEW messages"], EXIT_USAGE, "only a query"),
    ],
)
def test_a_stream_that_cannot_be_is_refused(
    namesrv: str,
    arguments: list[str],
    code: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["pipeline", "stream", namesrv, "--topic", "sold", *arguments]) == code
    assert words in capsys.readouterr().err
