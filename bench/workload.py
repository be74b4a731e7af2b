"""What the benchmarks put and how they time it."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from flintmq.format.batch import BatchItem, encode_batch
from flintmq.format.host import pack_host
from flintmq.format.properties import encode_properties
from flintmq.format.record import dispatch_fields
from flintmq.model.message import Message, MessageBatch
from flintmq.store.run_encoding import RunBatch, RunMessage, RunTarget

HOST = pack_host("127.0.0.1", 10911)
TOPIC = "BenchTopic"
QUEUE_COUNT = 8
BORN_TIMESTAMP = 1_700_000_000_000
_TARGETS = [RunTarget(TOPIC, queue_id) for queue_id in range(QUEUE_COUNT)]


class Rate(NamedTuple):
    """One measured rate."""

    name: str
    done: int
    wall_seconds: float
    cpu_seconds: float
    aim: int

    @property
    def per_second(self) -> float:
        return self.done / self.wall_seconds

    @property
    def per_cpu_second(self) -> float:
        """Counts per second of one core, whatever else the machine was doing."""
        return self.done / self.cpu_seconds


def properties_of(number: int) -> dict[str, str]:
    return {
        "UNIQ_KEY": f"AC11000218B400000000{number:012X}",
        "KEYS": f"order-{number}",
        "TAGS": "TagA",
        "CLUSTER": "DefaultCluster",
    }


def message(number: int, body: bytes) -> Message:
    """Return a message as a broker has it after decoding a send: map and text are both there."""
    properties = properties_of(number)
    return Message(
        topic=TOPIC,
        queue_id=number % QUEUE_COUNT,
        body=body,
        properties=properties,
        properties_text=encode_properties(properties),
        born_timestamp=BORN_TIMESTAMP,
        born_host=HOST,
        store_host=HOST,
    )


def batch(number: int, body: bytes, size: int) -> MessageBatch:
    items = [
        BatchItem(0, body, encode_properties(properties_of(number * size + item)))
        for item in range(size)
    ]
    return MessageBatch(
        topic=TOPIC,
        queue_id=number % QUEUE_COUNT,
        body=encode_batch(items),
        properties={"CLUSTER": "DefaultCluster"},
        born_timestamp=BORN_TIMESTAMP,
        born_host=HOST,
        store_host=HOST,
    )


def run_message(one: Message) -> RunMessage:
    """Return a message as a broker has it that has recognised a plain send."""
    assert one.properties_text is not None
    tags, keys = dispatch_fields(b"", one.properties_text, 0, None)
    return RunMessage(
        _TARGETS[one.queue_id],
        one.born_timestamp,
        HOST,
        one.body,
        one.properties_text,
        keys,
        tags,
    )


def run_batch(one: MessageBatch) -> RunBatch:
    """Return a batch as a broker has it that has recognised a plain send."""
    text = encode_properties(one.properties)
    return RunBatch(_TARGETS[one.queue_id], one.born_timestamp, HOST, one.body, text)


@contextmanager
def _quiet_collector() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def measure(name: str, work: Callable[[], int], *, aim: int) -> Rate:
    """Time one run of ``work``, which returns how many things it did."""
    with _quiet_collector():
        wall, cpu = time.perf_counter(), time.process_time()
        count = work()
        return Rate(name, count, time.perf_counter() - wall, time.process_time() - cpu, aim)
