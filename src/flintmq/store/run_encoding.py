"""The records of a run, and what the views get of it, worked out before anything is written.

This is the hot path of a broker: it avoids what calls it can.
"""

from __future__ import annotations

import functools
import struct
import zlib
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from flintmq.format.batch import LENGTH
from flintmq.format.consume_queue import UNIT, UNIT_FIELD_COUNT, pack_units
from flintmq.format.java import key_prefix_hash
from flintmq.format.record import (
    CRC_MASK,
    IPV4_HEADER,
    MESSAGE_MAGIC,
    PROPERTIES_LENGTH_MAX,
)
from flintmq.store.batch_columns import NotPlainError, dispatched, take_items
from flintmq.store.run_keys import RunKeys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flintmq.format.buffer import Buffer
    from flintmq.store.key_index_file import ManyKeys

Queue: TypeAlias = tuple[str, int]
"""Topic and queue id."""

STRUCT_COUNT_MAX: Final = 64
"""Numbers of messages whose layout is remembered."""

_OFFSET: Final = struct.Struct(">q")
_HEAD_END: Final = struct.Struct(
    ">"
    "i"  # system flag
    "q8s"  # born
    "q8s"  # stored
    "i"  # reconsume times
    "q"  # prepared transaction
)
_HEAD: Final = struct.Struct(
    ">"
    "i"  # record size
    "i"  # magic
    "i"  # body CRC
    "i"  # queue id
    "i"  # flag
    "q"  # queue offset
    "q"  # physical offset
    f"{_HEAD_END.size}s"
    "i"  # body length
)
"""The header of a record, of which a batch shares a part."""
assert _HEAD.size == IPV4_HEADER.size


class RunTarget:
    """A queue that messages of runs go to, and what all of them have in common."""

    __slots__ = (
        "fixed_size",
        "flag",
        "key_prefix",
        "queue",
        "queue_id",
        "reconsume_times",
        "sys_flag",
        "topic_part",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        *,
        sys_flag: int = 0,
        flag: int = 0,
        reconsume_times: int = 0,
    ) -> None:
        encoded = topic.encode()
        self.queue = (topic, queue_id)
        self.queue_id = queue_id
        self.key_prefix = key_prefix_hash(topic)
        """The hash of what stands before each key of the topic."""
        self.sys_flag = sys_flag
        self.flag = flag
        """The application's; messages of a batch have their own."""
        self.reconsume_times = reconsume_times
        self.topic_part = bytes([len(encoded)]) + encoded
        self.fixed_size = IPV4_HEADER.size + len(self.topic_part) + LENGTH.size


class RunMessage(NamedTuple):
    """A message of a run: no delay, no transaction, hosts of IPv4.

    ``keys`` and ``tags_code`` are what the properties in ``text`` say.
    """

    target: RunTarget
    born_timestamp: int
    born_host: bytes
    body: bytes
    text: bytes
    keys: Sequence[bytes]
    tags_code: int


class RunBatch(NamedTuple):
    """Several messages of a run as a producer sent them together, see `flintmq.format.batch`.

    ``text`` are the properties of all of them, with neither keys nor tags.
    """

    target: RunTarget
    born_timestamp: int
    born_host: bytes
    body: bytes
    text: bytes


class RunSends(NamedTuple):
    """Messages of a run as they came, column by column; nobody has looked at their properties."""

    targets: Sequence[RunTarget]
    born_timestamps: Sequence[int]
    bodies: Sequence[bytes]
    texts: Sequence[bytes]
    born_host: bytes
    last_text: bytes
    """Properties that each message gets behind its own."""


class QueuePart:
    """The messages of a run that go to one queue."""

    __slots__ = ("end", "first", "size", "units")

    def __init__(self, first: int) -> None:
        self.first = self.end = first
        """The queue offset of the first of them, and the one after the last."""
        self.size = 0
        """How many bytes of the log they take."""
        self.units: list[bytes] = []
        """Their units in the queue, some here and some there."""

    @property
    def count(self) -> int:
        """How many messages these are."""
        return self.end - self.first


class Placed(NamedTuple):
    """Where a message of a run went, or those of a batch."""

    queue_offset: int
    """Of the first of them."""
    physical_offsets: bytes
    """Of each of them, as big-endian numbers of eight bytes."""


class Run(NamedTuple):
    """Messages that were encoded together: what log, queues and index get."""

    store_timestamp: int
    records: Buffer
    end_offset: int
    parts: dict[Queue, QueuePart]
    keys: ManyKeys

    @property
    def message_count(self) -> int:
        """How many messages it has."""
        return sum([part.count for part in self.parts.values()])


class QueueParts(dict[Queue, QueuePart]):
    """The parts of a run, made when they are needed."""

    def __init__(self, next_offsets: Mapping[Queue, int]) -> None:
        super().__init__()
        self._next_offsets = next_offsets

    def __missing__(self, queue: Queue) -> QueuePart:
        part = self[queue] = QueuePart(self._next_offsets.get(queue, 0))
        return part


class RunPlace(NamedTuple):
    """Where a run begins, and what is so for all of its messages."""

    physical_offset: int
    next_offsets: Mapping[Queue, int]
    """Of the queues before it."""
    store_timestamp: int
    store_host: bytes
    record_size_max: int
    body_size_max: int


def encode_run(
    messages: Sequence[RunMessage | RunBatch], place: RunPlace
) -> tuple[Run, list[Placed]]:
    """Return the run of these messages, and where each element of it goes.

    Raises NotPlainError where a message is too large or a batch is none: storing them one by one
    tells which.
    """
    encoder = _RunEncoder(place)
    placed = [
        encoder.add(message) if isinstance(message, RunMessage) else encoder.add_batch(message)
        for message in messages
    ]
    records = b"".join(encoder.out)
    return Run(place.store_timestamp, records, encoder.end, encoder.parts, encoder.keys), placed


class _RunEncoder:
    """A run that is being encoded."""

    def __init__(self, place: RunPlace) -> None:
        self._place = place
        self._now = place.store_timestamp
        self._store_host = place.store_host
        self._record_size_max = place.record_size_max
        self._body_size_max = place.body_size_max
        self.end = place.physical_offset
        self.out: list[bytes] = []
        self.parts = QueueParts(place.next_offsets)
        self.keys = RunKeys()

    def add(self, message: RunMessage) -> Placed:
        """Encode a message."""
        target, born, born_host, body, text, keys, tags = message
        body_size, text_size = len(body), len(text)
        size = target.fixed_size + body_size + text_size
        if (
            size > self._record_size_max
            or body_size > self._body_size_max
            or text_size > PROPERTIES_LENGTH_MAX
        ):
            raise NotPlainError
        part = self.parts[target.queue]
        queue_offset, physical_offset = part.end, self.end
        self.out += (
            IPV4_HEADER.pack(
                size,
                MESSAGE_MAGIC,
                zlib.crc32(body) & CRC_MASK,
                target.queue_id,
                target.flag,
                queue_offset,
                physical_offset,
                target.sys_flag,
                born,
                born_host,
                self._now,
                self._store_host,
                target.reconsume_times,
                0,
                body_size,
            ),
            body,
            target.topic_part,
            LENGTH.pack(text_size),
            text,
        )
        part.units.append(UNIT.pack(physical_offset, size, tags))
        part.size += size
        part.end = queue_offset + 1
        self.end = physical_offset + size
        if keys:
            self.keys.keys += keys
            self.keys.physical_offsets += (physical_offset,) * len(keys)
            self.keys.prefixes.append((target.key_prefix, len(keys)))
        return tuple.__new__(Placed, (queue_offset, _OFFSET.pack(physical_offset)))

    def add_batch(self, batch: RunBatch) -> Placed:
        """Encode the messages of a batch."""
        target, _, _, body, shared = batch
        flags, bodies, texts = take_items(body)
        tags, keys, key_counts = dispatched(texts)
        part = self.parts[target.queue]
        count, first = len(flags), part.end
        body_sizes = list(map(len, bodies))
        text_sizes = [len(text) + len(shared) for text in texts]
        sizes = [target.fixed_size + a + b for a, b in zip(body_sizes, text_sizes, strict=True)]
        if max(sizes) > self._record_size_max or max(text_sizes) > PROPERTIES_LENGTH_MAX:
            raise NotPlainError
        places = list(accumulate(sizes, initial=self.end))
        self.end = places.pop()
        part.end = first + count
        heads = map(
            _HEAD.pack,
            sizes,
            repeat(MESSAGE_MAGIC),
            [zlib.crc32(one) & CRC_MASK for one in bodies],
            repeat(target.queue_id),
            flags,
            range(first, part.end),
            places,
            repeat(shared_head(batch, self._place)),
            body_sizes,
        )
        starts = [target.topic_part + LENGTH.pack(size) for size in text_sizes]
        pieces = zip(heads, bodies, starts, texts, repeat(shared))
        self.out += chain.from_iterable(pieces)
        units = [0] * (count * UNIT_FIELD_COUNT)
        units[0::UNIT_FIELD_COUNT] = places
        units[1::UNIT_FIELD_COUNT] = sizes
        units[2::UNIT_FIELD_COUNT] = tags
        part.units.append(pack_units(units))
        part.size += sum(sizes)
        self.keys.keys += keys
        self.keys.physical_offsets += chain.from_iterable(map(repeat, places, key_counts))
        self.keys.prefixes.append((target.key_prefix, len(keys)))
        return Placed(first, _offsets_struct(count).pack(*places))


def shared_head(batch: RunBatch, place: RunPlace) -> bytes:
    """Return what the records of a batch have in common near the end of their headers."""
    target = batch.target
    return _HEAD_END.pack(
        target.sys_flag,
        batch.born_timestamp,
        batch.born_host,
        place.store_timestamp,
        place.store_host,
        target.reconsume_times,
        0,
    )


@functools.lru_cache(maxsize=STRUCT_COUNT_MAX)
def _offsets_struct(count: int) -> struct.Struct:
    return struct.Struct(f">{count}q")
