"""The same work as in ``bench.client_ours``, by the C++ client of PyPI's ``rocketmq`` package."""

import itertools
import os
import threading

from rocketmq.client import Message, Producer, PushConsumer, RecvMessage

from bench.client_case import BATCH_COUNT, BODY, IN_FLIGHT, Stopwatch


def _producer(namesrv: str) -> Producer:
    producer = Producer("their-bench")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    return producer


def _message(topic: str) -> Message:
    message = Message(topic)
    message.set_body(BODY)
    return message


def one_by_one(namesrv: str, topic: str, count: int) -> Stopwatch:
    """Send and wait."""
    producer, message = _producer(namesrv), _message(topic)
    producer.send_sync(message)
    with Stopwatch() as watch:
        for _ in range(count):
            producer.send_sync(message)
    producer.shutdown()
    return watch


def in_flight(namesrv: str, topic: str, count: int) -> Stopwatch:
    """Keep at most IN_FLIGHT sends waiting for their answers."""
    producer, message = _producer(namesrv), _message(topic)
    producer.send_sync(message)
    free = threading.Semaphore(IN_FLIGHT)
    failures: list[Exception] = []

    def failed(error: Exception) -> None:
        failures.append(error)
        free.release()

    with Stopwatch() as watch:
        for _ in range(count):
            free.acquire()
            producer.send_async(message, lambda _: free.release(), failed)
        for _ in range(IN_FLIGHT):
            free.acquire()
    producer.shutdown()
    assert not failures, failures[0]
    return watch


def batches(namesrv: str, topic: str, count: int) -> Stopwatch:
    """Send batches, one after the other."""
    producer = _producer(namesrv)
    batch = [_message(topic) for _ in range(BATCH_COUNT)]
    producer.send_sync(batch[0])
    with Stopwatch() as watch:
        for _ in range(count // BATCH_COUNT):
            producer.send_batch(batch)
    producer.shutdown()
    return watch


def consumption(namesrv: str, topic: str, count: int) -> Stopwatch:
    """Consume a topic; the client calls a function in one of its threads for each message."""
    done, seen = threading.Event(), itertools.count(1)

    def handle(message: RecvMessage) -> None:
        assert message.body
        if next(seen) >= count:
            done.set()

    consumer = PushConsumer(f"theirs-{os.getpid()}")
    consumer.set_namesrv_addr(namesrv)
    consumer.subscribe(topic, handle)
    with Stopwatch() as watch:
        consumer.start()
        done.wait()
    # It is not shut down: that aborts the process when messages are on their way.
    return watch
