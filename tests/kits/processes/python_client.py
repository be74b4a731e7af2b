"""A program that uses PyPI's ``rocketmq``: the C++ client behind a Python face.

It runs in a process of its own, since the library has one client per process and threads that
outlive it.  Every fact is told as one JSON object a line; whoever reads them ends the process.
"""

import itertools
import json
import os
import sys
import threading
from typing import Any

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer

TAGS = ("TagA", "TagB", "TagC")
QUEUE_COUNT = 4


def tell(kind: str, **facts: object) -> None:
    # One write: the library calls from several threads.
    os.write(sys.stdout.fileno(), json.dumps({"kind": kind, **facts}).encode() + b"\n")


def message(topic: str, number: int) -> Any:
    made = Message(topic)
    made.set_tags(TAGS[number % len(TAGS)])
    made.set_keys(f"key-{number}")
    made.set_property("number", str(number))
    made.set_body(f"body-{number}")
    return made


def tell_received(by: str, received: Any) -> None:
    tell(
        "received",
        by=by,
        id=received.id,
        body=received.body.decode(),
        tags=received.tags.decode(),
        keys=received.keys.decode(),
        number=received.get_property("number").decode(),
        queueId=received.queue_id,
        queueOffset=received.queue_offset,
    )


def produce(namesrv: str, topic: str, count: int) -> None:
    """Send in turn by each of the three ways there are."""
    producer = Producer("cpp-producers")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    for number in range(count):
        made = message(topic, number)
        if number % 3 == 0:
            tell("sent", way="sync", id=producer.send_sync(made).msg_id)
        elif number % 3 == 1:
            result = producer.send_orderly(made, number % QUEUE_COUNT)
            tell("sent", way="orderly", id=result.msg_id)
        else:
            producer.send_oneway(made)
            tell("sent", way="oneway")
    tell("end")
    producer.shutdown()


def produce_batches(namesrv: str, topic: str, *counts: int) -> None:
    """Send lists of so many messages, which this client compresses from 4 KiB on."""
    producer = Producer("cpp-batches")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    # A list goes to no topic that is not there yet.
    producer.send_sync(message(topic, 0))
    for first, count in zip(itertools.accumulate(counts, initial=1), counts, strict=False):
        producer.send_batch([message(topic, number) for number in range(first, first + count)])
    tell("end")
    producer.shutdown()


def push(namesrv: str, topic: str, expression: str, *, orderly: bool) -> None:
    by = "orderly" if orderly else "concurrent"
    consumer = PushConsumer(f"cpp-{by}", orderly=orderly)
    consumer.set_namesrv_addr(namesrv)
    consumer.subscribe(topic, lambda received: tell_received(by, received), expression)
    consumer.start()
    threading.Event().wait()


def pull(namesrv: str, topic: str) -> None:
    consumer = PullConsumer("cpp-puller")
    consumer.set_namesrv_addr(namesrv)
    consumer.start()
    for received in consumer.pull(topic):
        tell_received("puller", received)
    tell("end")
    consumer.shutdown()


def main(action: str, namesrv: str, topic: str, *more: str) -> None:
    match action:
        case "produce":
            produce(namesrv, topic, int(more[0]))
        case "produce-batches":
            produce_batches(namesrv, topic, *map(int, more))
        case "push":
            push(namesrv, topic, more[0], orderly=False)
        case "push-orderly":
            push(namesrv, topic, "*", orderly=True)
        case "pull":
            pull(namesrv, topic)


if __name__ == "__main__":
    main(*sys.argv[1:])
