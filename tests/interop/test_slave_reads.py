"""Consumers of Java and ours go on at the slave when a master dies, and return when it is back."""

import functools
import signal
import sys
from pathlib import Path
from typing import Final

import pytest

from flintmq import Message, Producer
from tests.kits.leftovers import LEAVES_NOTHING
from tests.kits.processes.broker_process import SLAVE, OurBroker, OurNamesrv, wait_for_same_logs
from tests.kits.processes.java_clients import HEAP_FLAGS, HURRY_FLAGS, find_clients
from tests.kits.processes.line_process import LineProcess

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures(LEAVES_NOTHING)]

CONSUMER: Final = Path(__file__).parents[1] / "kits" / "processes" / "our_consumer.py"
TOPIC: Final = "followed"
COUNT: Final = 12
QUICK: Final = {"haSendHeartbeatInterval": 200}


def send(namesrv: str, part: str) -> set[str]:
    """Send some messages; return their bodies."""
    bodies = {f"{part} {number}" for number in range(COUNT)}
    with Producer(namesrv=namesrv) as producer:
        for body in sorted(bodies):
            producer.send(Message(topic=TOPIC, body=body.encode()), timeout_ms=30_000)
    return bodies


def has_got(consumer: LineProcess, bodies: set[str]) -> bool:
    return bodies <= {line["body"] for line in consumer.all("got")}


def wait_for(consumers: list[LineProcess], bodies: set[str]) -> None:
    """Wait until each consumer has got the messages."""
    for consumer in consumers:
        consumer.wait_until(functools.partial(has_got, consumer, bodies), min(bodies))


def test_consumers_go_on_at_the_slave_and_return_to_the_master(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with OurNamesrv(tmp_path / "namesrv") as names:
        flags = (f"-Duser.home={home}", "-Dmember.interval=500", *HEAP_FLAGS, *HURRY_FLAGS)
        java = find_clients("4.9.8").command(
            "Member", names.address, "java-readers", TOPIC, flags=flags
        )
        ours = [sys.executable, str(CONSUMER), names.address, "our-readers", TOPIC]
        with (
            OurBroker(tmp_path / "master", names.address, QUICK) as master,
            OurBroker(tmp_path / "slave", names.address, {**QUICK, **SLAVE}) as slave,
            LineProcess(java, home=home) as java_consumer,
            LineProcess(ours, home=home) as our_consumer,
        ):
            consumers = [java_consumer, our_consumer]
            wait_for(consumers, send(names.address, "from the master"))
            # They must not have these before the master is gone.
            for consumer in consumers:
                consumer.signal(signal.SIGSTOP)
            sent = send(names.address, "from the slave")
            wait_for_same_logs(master.store, slave.store)
            master.kill()
            for consumer in consumers:
                consumer.signal(signal.SIGCONT)
            wait_for(consumers, sent)
            master.start()
            wait_for(consumers, send(names.address, "from whoever is asked"))
            slave.stop()
            wait_for(consumers, send(names.address, "from the master again"))
