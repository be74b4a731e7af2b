"""The rows of the broker's benchmark: how much, over how many connections, in which notation."""

import statistics
from typing import Final, NamedTuple

from bench.broker_load import Load, Loaded, Sending
from bench.broker_servers import Server
from flintmq.format.wire.frame import HeaderType

TOPIC: Final = "BenchTopic"
WARMING: Final = Sending(128, 4, 64)
BINARY: Final = HeaderType.ROCKETMQ


class Pulled(NamedTuple):
    """Messages that are pulled, in a topic of their own."""

    body_size: int
    message_count: int

    @property
    def topic(self) -> str:
        """Where they are."""
        return f"{TOPIC}{self.body_size}"


class Row(NamedTuple):
    """One thing that is measured; without a sending it is a pull, with a rate a push."""

    sending: Sending | None = None
    push_rate: int = 0
    pulled: Pulled | None = None
    """What is pulled, if it is not what was sent before; only where the generator can count."""

    @property
    def needs_go(self) -> bool:
        """Whether only the generator in Go can do this."""
        return bool(self.push_rate or self.pulled)


class Sample(NamedTuple):
    """One measurement; a latency is 0 where the generator has none."""

    per_second: float
    per_cpu_second: float
    p50_us: float = 0
    p99_us: float = 0
    p999_us: float = 0


class RowFigures(NamedTuple):
    """The samples of one row, one for each round and server."""

    samples: dict[str, list[Sample]]

    def median(self, server: str, field: str) -> float:
        """Return the median of a server's samples."""
        return statistics.median([float(getattr(one, field)) for one in self.samples[server]])

    def ratios(self, field: str) -> list[float]:
        """Return the ratio of the first server to the second in each round, the least first."""
        ours, theirs = self.samples.values()
        pairs = zip(ours, theirs, strict=True)
        return sorted(
            getattr(our, field) / max(getattr(other, field), 1e-9) for our, other in pairs
        )


ASYNC_ROWS: Final = {
    "send 128 B, 4 x 64 in flight": Row(Sending(128, 4, 64)),
    "send 1 KiB, 4 x 64 in flight": Row(Sending(1024, 4, 64)),
    "send 128 B, 4 x 64, binary header": Row(Sending(128, 4, 64, notation=BINARY)),
    "send in batches of 32, 4 x 8": Row(Sending(128, 4, 8, 32)),
    "send 128 B, 1 x 1": Row(Sending(128, 1, 1)),
    "send 128 B, 16 x 1": Row(Sending(128, 16, 1)),
    "pull, 4 queues, 32 a time": Row(),
    "pull 1 KiB, 4 queues, 32 a time": Row(pulled=Pulled(1024, 200_000)),
    "pull 16 KiB, 4 queues, 32 a time": Row(pulled=Pulled(16 << 10, 20_000)),
    "push, 1,000 a second": Row(push_rate=1000),
}
"""Rows of brokers that flush in the background."""

SYNC_ROWS: Final = {
    "SYNC_FLUSH, send 128 B, 1 x 1": Row(Sending(128, 1, 1)),
    "SYNC_FLUSH, send 128 B, 16 x 1": Row(Sending(128, 16, 1)),
    "SYNC_FLUSH, send 128 B, 4 x 64": Row(Sending(128, 4, 64)),
}
"""Rows of brokers that answer when a message is on the disk."""


def prepare_row(server: Server, load: Load, row: Row) -> None:
    """Send the messages that a row pulls."""
    if row.pulled is not None:
        sending = Sending(row.pulled.body_size, 4, 8)
        load.fill(server.address, row.pulled.topic, sending, row.pulled.message_count)


def measure_row(server: Server, load: Load, row: Row, seconds: float) -> Sample:
    """Measure one row of one server once."""
    before = server.cpu_seconds()
    loaded = _load(server, load, row, seconds)
    used = max(server.cpu_seconds() - before, 0.01)
    return Sample(
        loaded.per_second,
        loaded.per_second * seconds / used,
        loaded.p50_us,
        loaded.p99_us,
        loaded.p999_us,
    )


def _load(server: Server, load: Load, row: Row, seconds: float) -> Loaded:
    if row.push_rate:
        return load.push(server.address, TOPIC, row.push_rate, seconds)
    if row.sending is None:
        topic = TOPIC if row.pulled is None else row.pulled.topic
        return load.pull(server.address, topic, seconds)
    return load.send(server.address, TOPIC, row.sending, seconds)
