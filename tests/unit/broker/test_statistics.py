import itertools

import pytest

from flintmq.broker.statistics import broker_statistics as module
from flintmq.broker.statistics.broker_statistics import (
    BROKER_GET_COUNT,
    ENTER_STEP,
    GROUP_GET_COUNT,
    GROUP_GET_LATENCY,
    GROUP_GET_SIZE,
    QUEUE_GET_COUNT,
    QUEUE_GET_SIZE,
    QUEUE_PUT_COUNT,
    QUEUE_PUT_SIZE,
    SAMPLE_STEP,
    TOPIC_PUT_COUNT,
    BrokerStatistics,
    GotQueue,
)
from flintmq.model.steps import finish


@pytest.fixture
def statistics() -> BrokerStatistics:
    return BrokerStatistics(cluster="C", now_ms=lambda: 0)


def get(statistics: BrokerStatistics, group: str, count: int, size: int) -> None:
    queue = GotQueue("T", group, 2)
    statistics.add_get(queue, count, size, next_offset=count, micros=2500)


def numbers(statistics: BrokerStatistics, name: str, key: str) -> tuple[int, int] | None:
    counter = statistics.get(name, key)
    return None if counter is None else (counter.value, counter.times)


def test_each_pull_counts_once_with_all_of_its_messages(statistics: BrokerStatistics) -> None:
    get(statistics, "g", 3, 300)
    get(statistics, "g", 2, 100)
    get(statistics, "h", 1, 50)
    assert numbers(statistics, GROUP_GET_COUNT, "T@g") == (5, 2)
    assert numbers(statistics, GROUP_GET_SIZE, "T@g") == (400, 2)
    assert numbers(statistics, BROKER_GET_COUNT, "C") == (6, 3)
    get(statistics, "g", 1, 10)
    assert numbers(statistics, GROUP_GET_COUNT, "T@g") == (6, 3)


def test_what_was_just_counted_does_not_bring_a_forgotten_topic_back(
    statistics: BrokerStatistics,
) -> None:
    statistics.add_put("T", 0, 1, 10)
    get(statistics, "g", 1, 10)
    finish(statistics.forget_topic("T"))
    assert statistics.get(TOPIC_PUT_COUNT, "T") is None
    assert statistics.get(GROUP_GET_COUNT, "T@g") is None


def test_what_was_just_counted_does_not_bring_a_forgotten_group_back(
    statistics: BrokerStatistics,
) -> None:
    get(statistics, "g", 1, 10)
    finish(statistics.forget_group("g"))
    assert statistics.get(GROUP_GET_COUNT, "T@g") is None


def test_groups_that_pull_are_counted_up_to_a_limit(
    statistics: BrokerStatistics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COUNTER_COUNT_MAX", 3)
    for number in range(10):
        get(statistics, f"g{number}", 1, 10)
    finish(statistics.enter())
    counted = [one for (name, _), one in statistics.counters() if name == GROUP_GET_COUNT]
    assert sum(one.value for one in counted) == 1
    assert statistics.get_total == 10


def test_queues_have_counters_of_their_own_unless_they_are_turned_off() -> None:
    for has_queues in (True, False):
        statistics = BrokerStatistics(cluster="C", now_ms=lambda: 0, has_queues=has_queues)
        statistics.add_put("T", 3, 2, 80)
        get(statistics, "g", 5, 500)
        get(statistics, "g", 5, 500)
        assert numbers(statistics, TOPIC_PUT_COUNT, "T") == (2, 2)
        assert numbers(statistics, GROUP_GET_LATENCY, "2@T@g") == (5, 2)
        expected = {
            (QUEUE_PUT_COUNT, "T@3"): (2, 2),
            (QUEUE_PUT_SIZE, "T@3"): (80, 2),
            (QUEUE_GET_COUNT, "T@2@g"): (10, 2),
            (QUEUE_GET_SIZE, "T@2@g"): (1000, 2),
        }
        for (name, key), value in expected.items():
            assert numbers(statistics, name, key) == (value if has_queues else None)


def test_a_sample_of_many_counters_can_be_interrupted() -> None:
    statistics = BrokerStatistics(cluster="c", now_ms=lambda: 0)
    for number in range(2 * SAMPLE_STEP + 1):
        statistics.add("SOME_NUMS", f"key-{number}", 1)
    steps = list(statistics.sample())
    assert len(steps) == 2


def test_pulls_of_many_groups_are_entered_some_at_a_time(statistics: BrokerStatistics) -> None:
    for number in range(10 * ENTER_STEP):
        get(statistics, f"g{number}", 1, 10)
    # What one counter needs is entered at once, and nothing else.
    assert numbers(statistics, GROUP_GET_COUNT, "T@g7") == (1, 1)
    assert statistics.get_total == 10 * ENTER_STEP
    entered = [len(statistics.counters())]
    for _ in statistics.sample():
        entered.append(len(statistics.counters()))
    per_queue = 5
    most = max(after - before for before, after in itertools.pairwise(entered))
    assert most <= per_queue * ENTER_STEP
    assert entered[-1] == 1 + per_queue * 10 * ENTER_STEP


def test_counters_are_forgotten_some_at_a_time(statistics: BrokerStatistics) -> None:
    for number in range(10 * SAMPLE_STEP):
        statistics.add("SOME_NUMS", f"T@key-{number}", 1)
    left = [len(statistics.counters())]
    for _ in statistics.forget_topic("T"):
        left.append(len(statistics.counters()))
    assert max(before - after for before, after in itertools.pairwise(left)) <= SAMPLE_STEP
    assert left[-1] == 0
