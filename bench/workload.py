"""What the benchmarks put and how they time it."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from flintmq.format.host import pack_host
from flintmq.format.properties import encode_properties
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.model.message import MessageBatch, PutMessage
from flintmq.store.append_group.sends import Sends, SendTarget

HOST = pack_host("127.0.0.1", 10911)
TOPIC = "BenchTopic"
QUEUE_COUNT = 8
BORN_TIMESTAMP = 1_700_000_000_000
_TARGETS = [SendTarget(TOPIC, queue_id) for queue_id in range(QUEUE_COUNT)]
_BATCH_TARGETS = [SendTarget(TOPIC, queue_id, is_batch=True) for queue_id in range(QUEUE_COUNT)]


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


def message(number: int, body: bytes) -> PutMessage:
    """Return a message as a broker has it after decoding a send: map and text are both there."""
    properties = properties_of(number)
    return PutMessage(
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


def sends_of(messages: Sequence[PutMessage]) -> Sends:
    """Return messages as a broker has them that has recognised plain sends."""
    return Sends(
        [_TARGETS[one.queue_id] for one in messages],
        [one.born_timestamp for one in messages],
        [one.body for one in messages],
        [one.properties_text or b"" for one in messages],
        [HOST] * len(messages),
        b"",
    )


def sends_of_batches(batches: Sequence[MessageBatch]) -> Sends:
    """Return batches as a broker has them that has recognised plain sends."""
    return Sends(
        [_BATCH_TARGETS[one.queue_id] for one in batches],
        [one.born_timestamp for one in batches],
        [one.body for one in batches],
        [b""] * len(batches),
        [HOST] * len(batches),
        encode_properties(batches[0].properties),
    )


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
