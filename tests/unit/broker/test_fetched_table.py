"""What is remembered of pulls."""

import pytest

from flintmq.broker.tables import fetched_table
from flintmq.broker.tables.fetched_table import FetchedOffsets


def test_the_last_pull_of_a_queue_counts() -> None:
    fetched = FetchedOffsets()
    for offset in (5, 9, 2):
        fetched.note("g", "t", 1, offset)
    assert fetched.queues("g", "t") == {1: 2}
    assert fetched.queues("g", "other") == {}


def test_deleted_topics_and_groups_are_forgotten() -> None:
    fetched = FetchedOffsets()
    for group, topic in (("g", "t"), ("g", "u"), ("h", "t")):
        fetched.note(group, topic, 0, 1)
    fetched.forget_topic("u")
    fetched.forget_group("h")
    assert [bool(fetched.queues(*pair)) for pair in (("g", "t"), ("g", "u"), ("h", "t"))] == [
        True,
        False,
        False,
    ]


def test_no_more_groups_are_remembered_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched_table, "PAIR_COUNT_MAX", 1)
    fetched = FetchedOffsets()
    fetched.note("g", "t", 0, 1)
    fetched.note("g", "u", 0, 1)
    fetched.note("g", "t", 1, 1)
    assert fetched.queues("g", "u") == {}
    assert fetched.queues("g", "t") == {0: 1, 1: 1}
