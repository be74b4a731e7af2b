"""Clients that were opened before a process forked.

The programs run in processes of their own: this one has threads that no fork should copy.
"""

import subprocess
import sys
from typing import Final

import pytest

from flintmq import ConsumeFrom, LitePullConsumer
from flintmq.testing import EmbeddedCluster

TIMEOUT_S: Final = 60

PRELOADED: Final = """
import os, sys
from flintmq import Message, Producer

# As gunicorn does with --preload: the program is loaded, then workers are forked.
producer = Producer(namesrv=sys.argv[1]).start()
producer.send(Message(topic="forked", body=b"before"))
workers = []
for number in range(3):
    worker = os.fork()
    if not worker:
        for turn in range(2):
            producer.send(Message(topic="forked", body=f"worker {number} {turn}".encode()))
        producer.close()
        os._exit(0)
    workers.append(worker)
states = [os.waitpid(worker, 0)[1] for worker in workers]
producer.send(Message(topic="forked", body=b"after"))
producer.close()
sys.exit(0 if states == [0, 0, 0] else 1)
"""

MULTIPROCESSING: Final = """
import multiprocessing, sys, threading
from flintmq import Message, Producer

def work(number):
    def send(turn):
        producer.send(Message(topic="forked", body=f"worker {number} {turn}".encode()))

    # The first use in a child may come from several threads at the same time.
    threads = [threading.Thread(target=send, args=(turn,)) for turn in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

if __name__ == "__main__":
    with Producer(namesrv=sys.argv[1]) as producer:
        producer.send(Message(topic="forked", body=b"before"))
        context = multiprocessing.get_context("fork")
        workers = [context.Process(target=work, args=(number,)) for number in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        producer.send(Message(topic="forked", body=b"after"))
    sys.exit(0 if [worker.exitcode for worker in workers] == [0, 0, 0] else 1)
"""

SENDING: Final = """
import os, sys, threading
from flintmq import Message, Producer

# Threads are in the middle of their sends whenever the process is forked.
producer = Producer(namesrv=sys.argv[1]).start()
message = Message(topic="forked", body=b"x")
for turn in range(3):
    producer.send(message)
stop, counts = threading.Event(), []

def send():
    count = 0
    while not stop.is_set():
        assert producer.send(message).ok
        count += 1
    counts.append(count)

threads = [threading.Thread(target=send) for _ in range(3)]
for thread in threads:
    thread.start()
states = []
for number in range(5):
    worker = os.fork()
    if not worker:
        for turn in range(3):
            assert producer.send(message).ok
        producer.close()
        os._exit(0)
    states.append(os.waitpid(worker, 0)[1])
stop.set()
for thread in threads:
    thread.join()
producer.close()
sys.exit(0 if states == [0] * 5 and len(counts) == 3 else 1)
"""

CONSUMER: Final = """
import os, sys
from flintmq import LitePullConsumer, PushConsumer, UsageError

def child(consumer, use):
    process = os.fork()
    if not process:
        try:
            use(consumer)
        except UsageError as error:
            print(error, flush=True)
            consumer.close()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(process, 0)[1] == 0

options = dict(namesrv=sys.argv[1], group="forked")
with LitePullConsumer(subscriptions={"forked": "*"}, **options) as lite:
    child(lite, lambda consumer: consumer.poll())
    lite.poll(timeout_ms=1)
with PushConsumer(subscriptions={"forked": "*"}, handler=print, **options) as push:
    child(push, lambda consumer: consumer.suspend())
    push.suspend()
"""


def run(program: str, namesrv: str) -> str:
    """Run a program whose forks may copy threads, which newer Pythons warn of."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, namesrv]
    done = subprocess.run(command, timeout=TIMEOUT_S, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("program", [PRELOADED, MULTIPROCESSING])
def test_a_producer_opened_before_a_fork_works_in_parent_and_children(program: str) -> None:
    wanted = {f"worker {number} {turn}" for number in range(3) for turn in range(2)}
    wanted |= {"before", "after"}
    with EmbeddedCluster() as cluster:
        cluster.create_topic("forked")
        run(program, cluster.namesrv)
        with LitePullConsumer(
            namesrv=cluster.namesrv,
            group="reader",
            subscriptions={"forked": "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ) as consumer:
            bodies: list[str] = []
            while len(bodies) < len(wanted):
                bodies += [message.body.decode() for message in consumer.poll()]
    assert sorted(bodies) == sorted(wanted)


def test_a_fork_finds_threads_in_the_middle_of_their_sends() -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("forked")
        run(SENDING, cluster.namesrv)


def test_a_consumer_opened_before_a_fork_says_at_once_what_to_do_in_the_child() -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("forked")
        printed = run(CONSUMER, cluster.namesrv)
    assert printed.count("open one in the child") == 2
