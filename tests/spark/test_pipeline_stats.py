"""What the figures say, checked against what the Java broker says about the same messages."""

import dataclasses
import statistics
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pyspark.sql import SparkSession

from flintmq.spark.jobs.job_input import StoredInput
from flintmq.spark.jobs.stats.stats_plot import PlotError, panels, plot_stats
from flintmq.spark.jobs.stats.stats_report import StatsReport, Top, TopicKind
from flintmq.spark.jobs.stats.time_bins import BINS_MAX, bin_width, width_text
from flintmq.spark.jobs.stats.topic_stats import StatsRequest, measure, stats
from flintmq.spark.options.store_options import OnCorrupt
from tests.kits.golden.golden_sets import golden_set
from tests.kits.spark.pipeline_kit import light_session, numbered, write_store
from tests.kits.store.offline_stores import flip, log_file

KINDS = golden_set("kinds")
BASIC = golden_set("basic")


@pytest.fixture(scope="module")
def report(spark: SparkSession) -> StatsReport:
    return stats(light_session(spark), [str(KINDS.store), str(BASIC.store)], top=100)


MESSAGES = [one | {"set": found.name} for found in (KINDS, BASIC) for one in found.messages()]


def test_volumes_are_those_of_the_messages(report: StatsReport) -> None:
    sizes = [one["size"] for one in MESSAGES]
    times = [one["storeTimestamp"] for one in MESSAGES]
    total = report.total
    assert (total.message_count, total.byte_count) == (len(sizes), sum(sizes))
    assert (total.size_min, total.size_max) == (min(sizes), max(sizes))
    assert total.size_mean == pytest.approx(statistics.mean(sizes))
    assert total.size_median == pytest.approx(statistics.median(sizes), rel=0.01)
    assert (total.first_time, total.last_time) == (min(times), max(times))
    assert total.rate == pytest.approx(len(times) / (max(times) - min(times)) * 1000)
    assert sum(one.message_count for one in report.sizes) == len(sizes)


def test_topics_queues_and_tags_are_counted(report: StatsReport) -> None:
    topics = Counter(one["topic"] for one in MESSAGES)
    assert {one.topic: one.volume.message_count for one in report.topics.items} == topics
    assert report.topics.count == len(topics)
    found = [one.volume.message_count for one in report.topics.items]
    assert found == sorted(found, reverse=True)
    queues = Counter((one["set"], one["topic"], one["queueId"]) for one in MESSAGES)
    assert report.queues.count == len(queues)
    assert {
        (Path(one.path).parent.name, one.topic, one.queue_id): one.volume.message_count
        for one in report.queues.items
    } == queues
    tags = Counter((one["topic"], one["properties"].get("TAGS")) for one in MESSAGES)
    assert {(one.topic, one.tag): one.volume.message_count for one in report.tags.items} == tags


def test_hours_have_their_messages(report: StatsReport) -> None:
    hours = Counter(one["storeTimestamp"] // 3_600_000 * 3_600_000 for one in MESSAGES)
    assert [(one.hour, one.message_count) for one in report.hours.items] == sorted(hours.items())
    peak = {one.topic: one.peak_hour_count for one in report.topics.items}
    assert max(peak.values()) <= max(hours.values())


def test_the_topics_that_the_broker_made_are_told_apart(report: StatsReport) -> None:
    counts = {one.kind: one.message_count for one in report.kinds}
    assert counts[TopicKind.DELAY] == sum(one["topic"] == "SCHEDULE_TOPIC_XXXX" for one in MESSAGES)
    assert counts[TopicKind.RETRY] == sum(one["topic"].startswith("%RETRY%") for one in MESSAGES)
    assert counts[TopicKind.DEAD_LETTER] == sum(
        one["topic"].startswith("%DLQ%") for one in MESSAGES
    )
    assert sum(counts.values()) == len(MESSAGES)


def test_lag_is_what_groups_have_not_confirmed(report: StatsReport) -> None:
    lags = {(one.group, one.topic): one.lag for one in report.lags.items}
    assert lags["CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC"] == 3
    assert lags["golden-group-orderly", "golden-ordered"] == 0


def test_keys_that_several_messages_have_are_hot(report: StatsReport) -> None:
    system = ("%", "SCHEDULE_", "RMQ_SYS_TRANS_")
    keys = Counter(
        (one["topic"], key)
        for one in MESSAGES
        if not one["topic"].startswith(system)
        for key in one["properties"].get("KEYS", "").split(" ")
        if key
    )
    assert report.hot_keys is not None
    assert {(one.topic, one.text): one.message_count for one in report.hot_keys.items} == {
        name: count for name, count in keys.items() if count > 1
    }


def test_duplicate_ids_are_found_lists_are_cut_and_damage_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    twin = {"properties": {"UNIQ_KEY": "AC11000218B40000000000000000CAFE"}}
    again = {"properties": {"KEYS": "stutter stutter"}}
    store = write_store(tmp_path, numbered(9, n1=again, n3=twin, n5=twin, n8=twin))
    last = log_file(store, 0).read_bytes().index(b"body 7")
    flip(log_file(store, 0), last)
    report = stats(light_session(spark), [str(store)], top=1, on_corrupt=OnCorrupt.SKIP)
    assert report.duplicate_ids is not None
    assert report.duplicate_ids.count == 1
    # A key that one message has twice is no key of several messages.
    assert report.hot_keys is not None
    assert report.hot_keys.count == 0
    (duplicate,) = report.duplicate_ids.items
    assert (duplicate.text[-4:], duplicate.message_count) == ("CAFE", 3)
    assert (len(report.queues.items), report.queues.count) == (1, 2)
    assert (report.total.message_count, report.damages.count) == (8, 1)


# -- bins of time ------------------------------------------------------------------------------

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("span", "width", "words"),
    [
        (0, SECOND, "second"),
        (MINUTE, SECOND, "second"),
        (20 * MINUTE, 15 * SECOND, "15 seconds"),
        (3 * HOUR, 2 * MINUTE, "2 minutes"),
        (DAY, 15 * MINUTE, "15 minutes"),
        (4 * DAY, HOUR, "hour"),
        (90 * DAY, DAY, "day"),
        (5 * 365 * DAY, 30 * DAY, "30 days"),
        (10_000 * 365 * DAY, 85 * 365 * DAY, "31025 days"),
    ],
)
def test_bins_follow_the_span(span: int, width: int, words: str) -> None:
    first = 1_700_000_000_123
    assert bin_width(first, first + span) == width
    assert width_text(width) == words
    assert (first + span) // width - first // width < BINS_MAX


def test_a_short_time_has_bins_finer_than_an_hour(spark: SparkSession) -> None:
    request = StatsRequest(source=StoredInput(paths=(str(BASIC.store),)), timeline=True, keys=False)
    report = measure(light_session(spark), request)
    times = [one["storeTimestamp"] for one in BASIC.messages()]
    assert report.timeline is not None
    assert report.timeline.width_ms == bin_width(min(times), max(times)) < HOUR
    starts = Counter(time // SECOND * SECOND for time in times)
    assert report.timeline.bins == tuple(sorted(starts.items()))
    assert panels(report)[0][0] == "Messages stored per second"


# -- pictures ---------------------------------------------------------------------------------


def many_topics(report: StatsReport, count: int) -> StatsReport:
    one = report.topics.items[0]
    topics = tuple(
        dataclasses.replace(one, topic=f"a-topic-with-a-long-name-$x^{number}$-{'y' * 40}")
        for number in range(count)
    )
    total = dataclasses.replace(
        report.total,
        message_count=count * one.volume.message_count,
        byte_count=count * one.volume.byte_count,
    )
    return dataclasses.replace(report, topics=Top(count, topics), total=total)


def test_a_picture_is_a_png(report: StatsReport, tmp_path: Path) -> None:
    for number, one in enumerate((report, many_topics(report, 1), many_topics(report, 200))):
        path = tmp_path / f"{number}.png"
        plot_stats(one, path)
        assert path.read_bytes().startswith(b"\x89PNG\r\n")
        assert path.stat().st_size > 20_000


def test_a_page_needs_no_other_file(report: StatsReport, tmp_path: Path) -> None:
    path = tmp_path / "stats.html"
    plot_stats(many_topics(report, 200), path)
    text = path.read_text()
    assert text.count("<svg") == len(panels(report)) >= 6
    assert "180 other topics" in text
    hour = report.hours.items[0]
    start = datetime.fromtimestamp(hour.hour / 1000, UTC).isoformat(timespec="seconds")
    assert f"<title>{start}: {hour.message_count:,} messages</title>" in text
    assert "prefers-color-scheme:dark" in text
    assert "svg{display:block;width:100%" in text
    for word in ("src=", "<script", "@import", 'href="http'):
        assert word not in text
    for svg in text.split("<figure>")[1:]:
        ElementTree.fromstring(svg[: svg.index("</svg>") + len("</svg>")])
    again = tmp_path / "again.html"
    plot_stats(many_topics(report, 200), again)
    assert again.read_text() == text


def test_an_empty_report_can_be_drawn(report: StatsReport, tmp_path: Path) -> None:
    nothing: Top[object] = Top(0, ())
    total = dataclasses.replace(
        report.total, message_count=0, byte_count=0, first_time=None, last_time=None
    )
    lists = dict.fromkeys(("topics", "queues", "tags", "hours", "lags", "hot_keys"), nothing)
    empty = dataclasses.replace(report, total=total, kinds=(), sizes=(), **lists)  # type: ignore[arg-type]
    plot_stats(empty, tmp_path / "empty.png")
    assert len(panels(empty)) == 4


def test_other_kinds_of_pictures_are_refused(report: StatsReport, tmp_path: Path) -> None:
    with pytest.raises(PlotError, match=r"one of \.png, \.html"):
        plot_stats(report, tmp_path / "stats.gif")
