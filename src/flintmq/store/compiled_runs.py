"""Runs encoded by machine code, where numba is installed.

They are the same as `flintmq.store.run_encoding` makes of batches, and of messages that somebody
has judged to be plain; here the kernel judges.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from flintmq.format.batch import BatchItem
from flintmq.format.batch import encode_batch as encode_batch_body
from flintmq.format.index_file import file_size
from flintmq.kernels.batch import NOT_PLAIN, Room, encode_batch
from flintmq.kernels.compiled import as_bytes
from flintmq.kernels.index import insert_entries
from flintmq.kernels.sends import encode_sends
from flintmq.store.batch_columns import ITEM_COUNT_MAX, NotPlainError
from flintmq.store.run_encoding import (
    Placed,
    QueueParts,
    Run,
    RunBatch,
    RunPlace,
    RunSends,
    RunTarget,
    shared_head,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from flintmq.store.run_encoding import Queue

RECORD_BYTES_MAX: Final = 8 << 20
"""Bytes of the records of a run that is encoded here."""

KEY_COUNT_MAX: Final = 4 * ITEM_COUNT_MAX


class HashedKeys:
    """The keys of a run as their hashes, in log order; good until the next run is encoded."""

    __slots__ = ("_hashes", "_offsets", "count")

    def __init__(self, hashes: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]) -> None:
        self.count = len(hashes)
        self._hashes = hashes
        self._offsets = offsets

    @property
    def last_offset(self) -> int:
        """The physical offset of the last message with a key."""
        return int(self._offsets[-1])

    def insert(self, view: memoryview, *, slots: int, first: int, seconds: int) -> int:
        """Write the entries from number ``first`` on; return how many slots are new."""
        file = np.frombuffer(view, np.uint8)
        return int(insert_entries(file, self._hashes, self._offsets, slots, first, seconds))


class PlacedSends(NamedTuple):
    """Where the messages of a run went."""

    queue_ids: npt.NDArray[np.int64]
    queue_offsets: npt.NDArray[np.int64]
    physical_offsets: npt.NDArray[np.uint8]
    """As big-endian numbers of eight bytes."""


class CompiledEncoder:
    """Encodes runs, one after the other and one thread at a time.

    What it gives is good until the next run.  It raises NotPlainError where something is odd, be
    it only for machine code.
    """

    def __init__(self) -> None:
        self._room = Room.of(
            record_bytes=RECORD_BYTES_MAX, records=ITEM_COUNT_MAX, keys=KEY_COUNT_MAX
        )

    def encode_batches(
        self, batches: Sequence[RunBatch], place: RunPlace
    ) -> tuple[Run, list[Placed]]:
        """Return the run of some batches, and where each goes."""
        room, parts = self._room, QueueParts(place.next_offsets)
        record_at = count = key_count = 0
        placed = []
        for batch in batches:
            target = batch.target
            part = parts[target.queue]
            shared = shared_head(batch, place) + target.topic_part + batch.text
            record_end, end, key_count = encode_batch(
                as_bytes(batch.body),
                as_bytes(shared),
                len(target.topic_part),
                target.queue_id,
                part.end,
                place.physical_offset + record_at,
                target.key_prefix,
                place.record_size_max,
                room,
                record_at,
                count,
                key_count,
            )
            if record_end == NOT_PLAIN or end == count:
                raise NotPlainError
            part.units.append(room.units_of(count, end))
            part.size += record_end - record_at
            placed.append(Placed(part.end, room.offsets_of(count, end)))
            part.end += end - count
            record_at, count = record_end, end
        return self._run(place, record_at, key_count, parts), placed

    def encode_sends(self, sends: RunSends, place: RunPlace) -> tuple[Run, PlacedSends]:
        """Return the run of messages as they came, and where they go."""
        room, count = self._room, len(sends.targets)
        kinds = {id(target): target for target in sends.targets}
        rows = {key: row for row, key in enumerate(kinds)}
        parts = QueueParts(place.next_offsets)
        topics = [target.topic_part for target in kinds.values()]
        targets = _target_table(kinds.values(), topics)
        queues = np.array(
            [
                (parts[queue].first, 0, 0)
                for queue in {target.queue: 0 for target in kinds.values()}
            ],
            np.int64,
        )
        record_end, key_count = encode_sends(
            as_bytes(b"".join([*sends.bodies, *sends.texts])),
            np.fromiter(map(len, sends.bodies), np.int64, count),
            np.fromiter(map(len, sends.texts), np.int64, count),
            np.fromiter(sends.born_timestamps, np.int64, count),
            np.fromiter(map(rows.__getitem__, map(id, sends.targets)), np.int64, count),
            targets,
            queues,
            as_bytes(b"".join([*topics, sends.last_text])),
            sum(map(len, topics)),
            _number(sends.born_host),
            place.store_timestamp,
            _number(place.store_host),
            place.physical_offset,
            place.record_size_max,
            place.body_size_max,
            room,
        )
        if record_end == NOT_PLAIN:
            raise NotPlainError
        at = 0
        for part, row in zip(parts.values(), queues.tolist(), strict=True):
            part.end, unit_end, part.size = row
            part.units.append(room.units_of(at, unit_end))
            at = unit_end
        placed = PlacedSends(
            room.queue_ids[:count], room.queue_offsets[:count], room.offsets[: count * 8]
        )
        return self._run(place, record_end, key_count, parts), placed

    def _run(self, place: RunPlace, record_end: int, key_count: int, parts: QueueParts) -> Run:
        room = self._room
        return Run(
            place.store_timestamp,
            room.records.data[:record_end],
            place.physical_offset + record_end,
            parts,
            HashedKeys(room.hashes[:key_count], room.key_offsets[:key_count]),
        )


def _target_table(targets: Iterable[RunTarget], topics: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """Return the table of targets as the kernel has it; ``topics`` stand behind each other."""
    queue_numbers: dict[Queue, int] = {}
    ends = accumulate(map(len, topics), initial=0)
    rows = [
        (
            queue_numbers.setdefault(target.queue, len(queue_numbers)),
            target.queue_id,
            target.sys_flag,
            target.flag,
            target.reconsume_times,
            target.key_prefix,
            topic_at,
            len(topic),
        )
        for target, topic, topic_at in zip(targets, topics, ends, strict=False)
    ]
    return np.array(rows, np.int64)


def _number(host: bytes) -> int:
    """Return a packed host as the number whose bytes it has."""
    return int.from_bytes(host, signed=True)


def ready_encoder() -> CompiledEncoder:
    """Return an encoder whose machine code is loaded, or compiled where it never was."""
    encoder = CompiledEncoder()
    target, text, host = RunTarget("warm", 0), b"UNIQ_KEY\x01id\x02", bytes(8)
    place = RunPlace(0, {}, 0, host, 1 << 20, 1 << 20)
    body = encode_batch_body([BatchItem(0, b"body", text)])
    encoder.encode_sends(RunSends([target], [0], [b"body"], [text], host, b""), place)
    run, _ = encoder.encode_batches([RunBatch(target, 0, host, body, b"")], place)
    index = memoryview(bytearray(file_size(1, 2)))
    run.keys.insert(index, slots=1, first=1, seconds=0)
    return encoder
