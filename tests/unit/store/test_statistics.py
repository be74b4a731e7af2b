import re

import pytest

from flintmq.metrics.histograms import LatencyHistogram
from flintmq.store.store_statistics import SAMPLE_COUNT_MAX, StoreStatistics
from flintmq.testing.clock import ManualClock

BOOT_MS = 1_700_000_000_000


def new_statistics() -> StoreStatistics:
    return StoreStatistics(clock=ManualClock(BOOT_MS))


def sample_seconds(statistics: StoreStatistics, count: int, *, puts_each: int = 0) -> None:
    """Take ``count`` samples, one second apart, the first at boot."""
    for second in range(count):
        statistics.sample(BOOT_MS + 1000 * second)
        for _ in range(puts_each):
            statistics.record_put("topic", 1, 100, 200)


def test_a_new_store_reports_what_a_new_java_broker_reports() -> None:
    assert new_statistics().runtime_info() == {
        "bootTimestamp": str(BOOT_MS),
        "runtime": "[ 0 days, 0 hours, 0 minutes, 0 seconds ]",
        "putMessageEntireTimeMax": "0",
        "putMessageTimesTotal": "1",
        "putMessageFailedTimes": "0",
        "putMessageSizeTotal": "0",
        "putMessageDistributeTime": "null",
        "putMessageAverageSize": "0.0",
        "getMessageEntireTimeMax": "0",
        "putTps": "  ",
        "getFoundTps": "  ",
        "getMissTps": "  ",
        "getTotalTps": "0.0 0.0 0.0",
        "getTransferedTps": "  ",
        "putLatency99": "0.00",
        "putLatency999": "0.00",
    }


def test_puts_are_counted_by_topic_and_in_total() -> None:
    statistics = new_statistics()
    statistics.record_put("a", 1, 100, 900)
    statistics.record_put("a", 20, 4000, 29_400)
    statistics.record_put("b", 1, 50, 10)
    statistics.record_failed_put()
    assert (statistics.topics["a"].put_count, statistics.topics["a"].put_size) == (21, 4100)
    assert (statistics.put_count, statistics.put_size) == (22, 4150)
    info = statistics.runtime_info()
    assert info["putMessageTimesTotal"] == "22"
    assert info["putMessageAverageSize"] == str(4150 / 22)
    assert info["putMessageEntireTimeMax"] == "29"
    assert info["putMessageFailedTimes"] == "1"


def test_totals_keep_what_a_forgotten_topic_had() -> None:
    statistics = new_statistics()
    statistics.record_put("a", 3, 100, 900)
    statistics.forget_topic("a")
    statistics.forget_topic("a")
    assert "a" not in statistics.topics
    assert (statistics.put_count, statistics.put_size) == (3, 100)


def test_a_read_without_messages_is_a_miss() -> None:
    statistics = new_statistics()
    statistics.record_get(8, 1500)
    statistics.record_get(0, 14_999)
    statistics.record_get(1, 20)
    assert (statistics.found_count, statistics.missed_count) == (2, 1)
    assert statistics.transferred_count == 9
    assert statistics.runtime_info()["getMessageEntireTimeMax"] == "14"


def test_a_rate_is_empty_until_its_window_is_full() -> None:
    statistics = new_statistics()
    sample_seconds(statistics, 10, puts_each=4)
    assert statistics.runtime_info()["putTps"] == "  "
    statistics.sample(BOOT_MS + 10_000)
    assert statistics.runtime_info()["putTps"] == "4.0  "
    assert statistics.runtime_info()["getTotalTps"] == "0.0 0.0 0.0"


def test_rates_go_over_ten_sixty_and_six_hundred_seconds() -> None:
    statistics = new_statistics()
    sample_seconds(statistics, SAMPLE_COUNT_MAX + 100, puts_each=2)
    assert statistics.runtime_info()["putTps"] == "2.0 2.0 2.0"


def test_sampling_too_often_does_not_shorten_the_windows() -> None:
    statistics = new_statistics()
    for step in range(41):
        statistics.sample(BOOT_MS + 250 * step)
        statistics.record_get(3, 10)
    info = statistics.runtime_info()
    assert info["getFoundTps"] == "4.0  "
    assert info["getTransferedTps"] == "12.0  "


def test_a_clock_set_back_starts_the_rates_anew() -> None:
    statistics = new_statistics()
    sample_seconds(statistics, 30, puts_each=1)
    statistics.sample(BOOT_MS - 3_600_000)
    assert statistics.runtime_info()["putTps"] == "  "


def test_latency_classes_show_the_last_whole_minute() -> None:
    statistics = new_statistics()
    for elapsed_us in (0, 999, 1000, 9_999, 10_000, 49_999, 250_000, 9_999_999, 10_000_000):
        statistics.record_put("topic", 1, 1, elapsed_us)
    statistics.sample(BOOT_MS + 59_000)
    assert statistics.latency_classes() == "null"
    statistics.sample(BOOT_MS + 60_000)
    assert statistics.latency_classes() == (
        "[<=0ms]:2 [0~10ms]:2 [10~50ms]:2 [50~100ms]:0 [100~200ms]:0 [200~500ms]:1 [500ms~1s]:0 "
        "[1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:1 [10s~]:1 "
    )
    statistics.sample(BOOT_MS + 120_000)
    assert set(re.findall(r":(\d+) ", statistics.latency_classes())) == {"0"}


def test_put_latency_is_interpolated_within_its_bucket() -> None:
    statistics = new_statistics()
    for _ in range(99):
        statistics.record_put("topic", 1, 1, 500)
    statistics.record_put("topic", 1, 1, 23_000)
    statistics.sample(BOOT_MS + 60_000)
    info = statistics.runtime_info()
    # 99 of 100 lie below 1 ms; the slowest is the last of its bucket, 22 to 24 ms.
    assert info["putLatency99"] == "1.00"
    assert info["putLatency999"] == "24.00"
    assert statistics.put_latency_ms(0.5) == pytest.approx(50 / 99)


def test_runtime_is_told_in_days_hours_minutes_and_seconds() -> None:
    clock = ManualClock(BOOT_MS)
    statistics = StoreStatistics(clock=clock)
    clock.advance(((2 * 24 + 3) * 60 + 4) * 60_000 + 5_999)
    assert statistics.runtime_info()["runtime"] == "[ 2 days, 3 hours, 4 minutes, 5 seconds ]"


def test_a_histogram_knows_count_mean_maximum_and_percentiles() -> None:
    histogram = LatencyHistogram([10, 20, 40])
    assert (histogram.mean_us, histogram.percentile_us(0.99)) == (0.0, 0.0)
    for elapsed_us in (9, 10, 19, 20, 39, 40, 100):
        histogram.record(elapsed_us)
    histogram.record(41, count=1)
    assert histogram.counts == [2, 2, 2, 2]
    assert (histogram.count, histogram.max_us) == (8, 100)
    assert histogram.mean_us == pytest.approx(278 / 8)
    assert histogram.percentile_us(0.25) == 10
    assert histogram.percentile_us(0.375) == 15
    # The last bucket has no end: its percentiles go up to the slowest one seen.
    assert histogram.percentile_us(1.0) == 100


def test_a_histogram_stays_as_large_as_it_was() -> None:
    histogram = LatencyHistogram()
    size = len(histogram.counts)
    for power in range(12):
        histogram.record(10**power)
    assert len(histogram.counts) == size
    assert histogram.percentile_us(1.0) == 10**11
