"""A member that consumes in order is killed: its queues go on, in order, when its locks expire."""

import sys
from pathlib import Path
from typing import Final

import pytest

from flintmq.broker.tables.queue_lock_table import EXPIRY_MS
from flintmq.testing import EmbeddedCluster
from tests.kits.leftovers import LEAVES_NOTHING
from tests.kits.processes.java_clients import offsets_by_queue
from tests.kits.processes.line_process import LineProcess

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures(LEAVES_NOTHING)]

CONSUMER: Final = Path(__file__).parents[1] / "kits" / "processes" / "our_consumer.py"
TOPIC: Final = "in-order"
COUNT: Final = 80
HANDLED: Final = 10


def test_another_member_goes_on_in_order_where_a_killed_one_had_to_stop(tmp_path: Path) -> None:
    def consumer(*more: str) -> LineProcess:
        command = [sys.executable, str(CONSUMER), mq.namesrv, "in-order-group", TOPIC, "--orderly"]
        return LineProcess([*command, *more], home=tmp_path / "home")

    with EmbeddedCluster(manual_clock=True) as mq:
        for number in range(COUNT):
            mq.send(TOPIC, b"%d" % number)
        stored = mq.messages(TOPIC)
        queue_ids = {one.queue.queue_id for one in stored}
        with consumer("--handle", str(HANDLED)) as victim:
            # Every queue has one message at work, which keeps it from being handed over.
            held = victim.wait_for("held", len(queue_ids))
            with consumer() as heir:
                heir.wait_for("started")
                victim.kill()
                mq.advance(EXPIRY_MS)
                assert heir.all("got") == [], "the locks hold until they have expired"
                mq.advance(1)
                handled = victim.all("got")
                wanted = {one.body.decode() for one in stored} - {line["body"] for line in handled}
                heir.wait_until(
                    lambda: {line["body"] for line in heir.all("got")} >= wanted, "all the others"
                )
                taken_over = offsets_by_queue(heir.all("got"))
    stops = {line["queueId"]: line["queueOffset"] for line in held}
    ends = {number: sum(one.queue.queue_id == number for one in stored) for number in queue_ids}
    assert len(handled) == HANDLED
    for number, offsets in taken_over.items():
        # What was handled and not committed yet comes again; nothing is left out or overtaken.
        assert offsets[0] <= stops[number]
        assert offsets == list(range(offsets[0], ends[number]))
    assert set(taken_over) == queue_ids
