"""Programs that consume until they are told to end."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Final

import pytest

from flintmq import Message, Producer, PullConsumer, PushConsumer, UsageError
from flintmq.testing import EmbeddedCluster

TIMEOUT_S: Final = 60

BLOCKING: Final = """
import sys, time
from flintmq import ConsumeFrom, PushConsumer

def handle(message):
    print("handling", flush=True)
    sys.stdin.readline()
    print("handled", flush=True)

PushConsumer(
    namesrv=sys.argv[1],
    group="run",
    subscriptions={"orders": "*"},
    consume_from=ConsumeFrom.FIRST_OFFSET,
    handler=handle,
).run()
print("returned", flush=True)
"""

ASYNCHRONOUS: Final = """
import asyncio, sys
from flintmq import AsyncPushConsumer, ConsumeFrom

async def handle(message):
    print("handling", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print("handled", flush=True)

consumer = AsyncPushConsumer(
    namesrv=sys.argv[1],
    group="run",
    subscriptions={"orders": "*"},
    consume_from=ConsumeFrom.FIRST_OFFSET,
    handler=handle,
)
asyncio.run(consumer.run())
print("returned", flush=True)
"""


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders", queue_count=1)
        yield cluster


@pytest.mark.parametrize("program", [BLOCKING, ASYNCHRONOUS])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_handlers_finish_and_run_return(
    cluster: EmbeddedCluster, program: str, number: signal.Signals
) -> None:
    with Producer(namesrv=cluster.namesrv) as producer:
        sent = producer.send(Message(topic="orders", body=b"one"))
    process = subprocess.Popen(
        [sys.executable, "-c", program, cluster.namesrv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "handling\n"
        process.send_signal(number)
        rest, _ = process.communicate("\n", timeout=TIMEOUT_S)
    assert (process.returncode, rest) == (0, "handled\nreturned\n")
    with PullConsumer(namesrv=cluster.namesrv, group="run") as consumer:
        assert consumer.committed(sent.queue) == sent.queue_offset + 1


def test_a_second_signal_does_not_wait_for_handlers(cluster: EmbeddedCluster) -> None:
    with Producer(namesrv=cluster.namesrv) as producer:
        producer.send(Message(topic="orders", body=b"one"))
    with subprocess.Popen(
        [sys.executable, "-c", BLOCKING, cluster.namesrv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "handling\n"
        # The first may not have been taken when the second one comes: then they count as one.
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM


def test_signals_belong_to_the_main_thread(cluster: EmbeddedCluster) -> None:
    raised: list[Exception] = []

    def run() -> None:
        consumer = PushConsumer(
            namesrv=cluster.namesrv, group="run", subscriptions={"orders": "*"}, handler=print
        )
        try:
            consumer.run()
        except UsageError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(TIMEOUT_S)
    assert "main thread" in str(raised[0])
