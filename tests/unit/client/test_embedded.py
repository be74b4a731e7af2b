import threading
from pathlib import Path

import pytest

from flintmq.client.errors import ClientError, UsageError
from flintmq.testing import EmbeddedCluster

pytest_plugins = ["pytester"]


def test_a_manual_clock_skips_delays() -> None:
    with EmbeddedCluster(manual_clock=True) as mq:
        mq.send("orders", b"now")
        mq.send("orders", b"in two hours", delay_level=18)
        assert [one.body for one in mq.messages("orders")] == [b"now"]
        mq.advance(2 * 3600 * 1000)
        found = mq.wait_for("orders", 2)
    assert sorted(one.body for one in found) == [b"in two hours", b"now"]


def test_waiting_for_what_does_not_come_is_a_clear_error() -> None:
    with EmbeddedCluster() as mq:
        mq.send("orders", b"x")
        with pytest.raises(TimeoutError, match="1 of 2 messages in orders"):
            mq.wait_for("orders", 2, timeout_s=0.05)
        with pytest.raises(UsageError, match="manual_clock"):
            mq.advance(1)


def test_nothing_is_left_behind() -> None:
    before = set(threading.enumerate())
    with EmbeddedCluster() as mq:
        mq.send("orders", b"x")
    assert set(threading.enumerate()) == before
    with pytest.raises(UsageError):
        mq.send("orders", b"x")


def test_a_store_can_be_kept_and_taken_up_again(tmp_path: Path) -> None:
    with EmbeddedCluster(root=tmp_path) as mq:
        mq.send("orders", b"kept")
    with EmbeddedCluster(root=tmp_path) as mq:
        assert [one.body for one in mq.messages("orders")] == [b"kept"]


def test_a_disk_that_fails_fails_the_send_and_stops_the_broker_from_taking_more() -> None:
    with EmbeddedCluster(flushDiskType="SYNC_FLUSH") as mq:
        mq.send("orders", b"durable")
        mq.fail_next_fsync()
        with pytest.raises(ClientError):
            mq.send("orders", b"not acknowledged")
        with pytest.raises(ClientError, match="sync failed"):
            mq.send("orders", b"refused")
        assert [one.body for one in mq.messages("orders")] == [b"durable"]


def test_the_fixtures_of_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        def test_one(flintmq_cluster, flintmq_topic):
            flintmq_cluster.send(flintmq_topic, b"one")
            assert len(flintmq_cluster.wait_for(flintmq_topic, 1)) == 1

        @pytest.mark.parametrize("odd", ["a b", "c/d"])
        def test_two(flintmq_cluster, flintmq_topic, odd):
            flintmq_cluster.send(flintmq_topic, b"two")
            assert [one.body for one in flintmq_cluster.messages(flintmq_topic)] == [b"two"]
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=3)
