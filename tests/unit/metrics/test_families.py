"""Families: labels, limits, histograms, and the text that Prometheus' own parser reads."""

from collections.abc import Iterator

from flintmq.metrics.exposition import LEFT_OUT, SERIES_PER_PIECE, exposition
from flintmq.metrics.families import LABEL_LENGTH_MAX, Family, FamilyKind, FamilyMaker
from flintmq.metrics.histograms import LatencyHistogram
from tests.kits.broker.scrape_kit import Scraped

COMMON = {"cluster": "c"}


def maker(series_max: int = 1000) -> FamilyMaker:
    return FamilyMaker(COMMON, series_max=series_max)


def text_of(*families: Family, series_max: int = 1000) -> Scraped:
    def source(_: FamilyMaker) -> Iterator[Family | None]:
        for family in families:
            yield None
            yield family

    return Scraped(b"".join(exposition([source], maker(series_max))).decode())


def test_a_series_has_the_labels_of_its_server_and_its_own() -> None:
    family = maker().gauge("flintmq_things", "Things.", ["topic"])
    family.add(7, "orders")
    assert text_of(family).value("flintmq_things", cluster="c", topic="orders") == 7


def test_an_alias_has_its_own_labels_only() -> None:
    family = maker().gauge("rocketmq_old", "Old.", ["broker"], is_plain=True)
    family.add(1, "a")
    assert list(text_of(family).series("rocketmq_old")) == [(("broker", "a"),)]


def test_a_counter_is_told_under_the_name_that_ends_in_total() -> None:
    scraped = text_of(maker().one(FamilyKind.COUNTER, "flintmq_done_total", "Done.", 3))
    assert scraped.value("flintmq_done_total") == 3
    assert "# TYPE flintmq_done_total counter" in scraped.text


def test_a_family_beyond_its_limit_says_how_many_it_left_out() -> None:
    family = maker(series_max=2).gauge("flintmq_things", "Things.", ["topic"])
    for number in range(5):
        family.add(number, f"t{number}")
    scraped = text_of(family)
    assert len(scraped.series("flintmq_things")) == 2
    assert scraped.value(LEFT_OUT, metric="flintmq_things") == 3


def test_a_large_family_is_written_in_pieces_and_described_once() -> None:
    family = maker().gauge("flintmq_things", "Things.", ["topic"])
    count = 3 * SERIES_PER_PIECE + 1
    for number in range(count):
        family.add(number, f"t{number}")
    pieces = list(exposition([lambda _: iter([family])], maker()))
    assert max(piece.count(b"\n") for piece in pieces) <= SERIES_PER_PIECE + 2
    scraped = Scraped(b"".join(pieces).decode())
    assert len(scraped.series("flintmq_things")) == count
    assert scraped.text.count("# HELP flintmq_things ") == 1


def test_a_family_without_series_is_described_all_the_same() -> None:
    assert "flintmq_things" in text_of(maker().gauge("flintmq_things", "Things.", ["a"])).names


def test_a_histogram_has_cumulated_buckets_in_seconds() -> None:
    histogram = LatencyHistogram([1000, 2000])
    for elapsed_us in (500, 1500, 1500, 9000):
        histogram.record(elapsed_us)
    family = maker().histogram("flintmq_sync_seconds", "Syncs.")
    family.add_histogram(histogram)
    scraped = text_of(family)
    bounds = ("0.001", "0.002", "+Inf")
    assert [scraped.value("flintmq_sync_seconds_bucket", le=one) for one in bounds] == [1, 3, 4]
    assert scraped.value("flintmq_sync_seconds_count") == 4
    assert scraped.value("flintmq_sync_seconds_sum") == 0.0125


def test_names_that_peers_chose_can_always_be_written() -> None:
    family = maker().gauge("flintmq_things", "Things.", ["topic"])
    names = ['"quoted"\n\\', "\ud800half", "grün", "x" * (LABEL_LENGTH_MAX + 1)]
    for name in names:
        family.add(1, name)
    topics = {dict(labels)["topic"] for labels in text_of(family).series("flintmq_things")}
    assert topics == {names[0], "?half", "grün", "x" * LABEL_LENGTH_MAX}


def test_the_process_itself_is_told_by_the_names_of_prometheus() -> None:
    assert text_of().value("process_resident_memory_bytes") > 0
