"""What the consume queues and the key index should hold, derived from the records of a log.

Units of a queue are joined and keys are hashed in batches, so that whoever compares or
writes them has few calls to make.  ``Derivation.feed`` sees every record of a store, hence its
long form.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, Protocol

from flintmq.format.delay_levels import DelayLevels
from flintmq.format.hash_batch import BATCH_COUNT_MAX, index_hashes
from flintmq.format.java import key_prefix_hash
from flintmq.format.properties import decode_properties
from flintmq.format.stored.consume_queue import UNIT
from flintmq.format.stored.dispatch_fields import BadDelayLevelError, dispatch_fields
from flintmq.format.stored.queue_claims import MULTI_DISPATCH, NO_UNIT, multi_slots
from flintmq.format.stored.record import CheckedRecord
from flintmq.format.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.store.recovery.bulk_records import SortedKeys, SoundRecords, UnitSlice

JOINED_SIZE: Final = 64 * 1024
"""The units of a queue are handed on when they have so many bytes."""

PENDING_COUNT_MAX: Final = 2_000_000
"""All units are handed on when there are so many together: 40 MB."""

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
"""Stands in the names of topics for bytes that are no text."""

KEY_BATCH_COUNT: Final = 2 * BATCH_COUNT_MAX
CACHE_COUNT_MAX: Final = 4096


def _wrapped(code: int) -> int:
    return (code + (1 << 63)) % (1 << 64) - (1 << 63)


class DerivedQueue:
    """A queue as the log has it so far, with the units that were not handed on yet."""

    __slots__ = ("first", "last_physical", "next", "queue_id", "topic", "units")

    def __init__(self, topic: str, queue_id: int, queue_offset: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.first = queue_offset
        """The queue offset of the first unit in ``units``."""
        self.next = queue_offset
        """The queue offset that the next record of this queue should have."""
        self.last_physical = 0
        """Where the last record whose unit was handed on stands in the log."""
        self.units = bytearray()


class UnitSink(Protocol):
    """Takes the units of queues."""

    def begin(self, queue: DerivedQueue) -> None:
        """Learn of a queue; its first record in the log has the offset ``queue.first``."""
        ...

    def take(self, queue: DerivedQueue) -> None:
        """Take ``queue.units``, which the caller then empties."""
        ...

    def jump(self, queue: DerivedQueue, queue_offset: int, physical_offset: int) -> bool:
        """Learn of a record with another offset than ``queue.next``; return whether to take it."""
        ...

    def bad_delay_level(self, record: CheckedRecord, reason: str) -> None:
        """Learn that the delay level of a record is no number."""
        ...


class KeySink(Protocol):
    """Takes the entries of the key index."""

    def take_many(self, keys: SortedKeys) -> None:
        """Take the next entries as machine code has them."""
        ...

    def take(self, hashes: list[int], offsets: list[int], times: list[int]) -> None:
        """Take the next entries: key hashes, physical offsets and store times, side by side."""
        ...


class Derivation:
    """Turns records, in log order, into joined units and batches of index entries."""

    def __init__(
        self,
        *,
        delay_levels: DelayLevels,
        lmq: bool,
        units: UnitSink | None = None,
        keys: KeySink | None = None,
    ) -> None:
        self._delay_levels = delay_levels
        self._lmq = lmq
        self._unit_sink = units
        self._key_sink = keys
        self.queues: dict[tuple[bytes, int], DerivedQueue] = {}
        self._pending_count = 0
        self._prefix_cache: dict[bytes, int] = {}
        self._prefixes: list[int] = []
        self._keys: list[bytes] = []
        self._offsets: list[int] = []
        self._times: list[int] = []

    def feed(self, records: Sequence[CheckedRecord]) -> None:
        """Take the next records of the log."""
        queues, pack, fields_of = self.queues, UNIT.pack, dispatch_fields
        delay_levels = self._delay_levels
        wants_units, wants_keys = self._unit_sink is not None, self._key_sink is not None
        prefix_of, key_list, prefixes = self._prefix_cache.get, self._keys, self._prefixes
        offsets, times = self._offsets, self._times
        unit_count = 0
        for record in records:
            size, queue_id, queue_offset, physical_offset, sys_flag, time, topic, text, _ = record
            try:
                code, keys = fields_of(topic, text, time, delay_levels)
            except BadDelayLevelError as error:
                code, keys = self._bad_delay_level(record, error)
            if wants_units and not sys_flag & NO_UNIT:
                queue = queues.get((topic, queue_id))
                if queue is None:
                    queue = self._begin(topic, queue_id, queue_offset)
                if queue_offset == queue.next or self._jump(queue, queue_offset, physical_offset):
                    try:
                        queue.units += pack(physical_offset, size, code)
                    except struct.error:
                        # The due time of a damaged store time; Java's numbers wrap around.
                        queue.units += pack(physical_offset, size, _wrapped(code))
                    queue.next = queue_offset + 1
                    unit_count += 1
                    if len(queue.units) >= JOINED_SIZE:
                        self._flush(queue)
                if MULTI_DISPATCH in text:
                    self._add_multi(record, code)
            if wants_keys and keys and sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
                prefix = prefix_of(topic)
                count = len(keys)
                key_list += keys
                prefixes += [self._topic_prefix(topic) if prefix is None else prefix] * count
                offsets += [physical_offset] * count
                times += [time] * count
        self._pending_count += unit_count
        if self._pending_count >= PENDING_COUNT_MAX:
            self._flush_all()
        if len(key_list) >= KEY_BATCH_COUNT:
            self._flush_keys()

    def feed_many(self, records: SoundRecords) -> SortedKeys | None:
        """Take the next records of the log; return their keys, if machine code understood all."""
        views = records.derive()
        if (
            views is None
            or views.has_bad_levels
            or any(REPLACEMENT in topic for topic, _, _, _ in views.slices)
        ):
            self.feed(list(records))
            return None
        if self._unit_sink is not None:
            for unit_slice in views.slices:
                self._add_slice(unit_slice)
            if self._pending_count >= PENDING_COUNT_MAX:
                self._flush_all()
        if self._key_sink is not None:
            self._flush_keys()
            self._key_sink.take_many(views.keys)
        return views.keys

    def finish(self) -> None:
        """Hand on everything that is left."""
        self._flush_all()
        self._flush_keys()

    # -- units -------------------------------------------------------------------------------

    def _bad_delay_level(
        self, record: CheckedRecord, error: BadDelayLevelError
    ) -> tuple[int, list[bytes]]:
        """Report a delayed record without a level; return what the views get of it."""
        if self._unit_sink is not None:
            self._unit_sink.bad_delay_level(record, error.reason)
        return error.fields

    def _begin(self, topic: bytes, queue_id: int, queue_offset: int) -> DerivedQueue:
        queue = DerivedQueue(topic.decode("utf-8", "replace"), queue_id, max(queue_offset, 0))
        self.queues[topic, queue_id] = queue
        assert self._unit_sink is not None
        self._unit_sink.begin(queue)
        return queue

    def _jump(self, queue: DerivedQueue, queue_offset: int, physical_offset: int) -> bool:
        self._flush(queue)
        assert self._unit_sink is not None
        if not self._unit_sink.jump(queue, queue_offset, physical_offset):
            return False
        assert queue_offset >= 0
        queue.first = queue.next = queue_offset
        return True

    def _add_multi(self, record: CheckedRecord, code: int) -> None:
        """Add the units of a message that enters further queues."""
        properties = decode_properties(record.properties)
        offset = record.physical_offset
        for slot in multi_slots(properties, record.queue_id, lmq=self._lmq):
            topic = slot.name.encode()
            queue = self.queues.get((topic, slot.queue_id))
            if queue is None:
                queue = self._begin(topic, slot.queue_id, slot.queue_offset)
            if slot.queue_offset == queue.next or self._jump(queue, slot.queue_offset, offset):
                queue.units += UNIT.pack(offset, record.size, _wrapped(code))
                queue.next = slot.queue_offset + 1
                self._pending_count += 1

    def _add_slice(self, unit_slice: UnitSlice) -> None:
        """Add units of one queue whose offsets follow each other."""
        name, queue_id, first, units = unit_slice
        topic = name.encode()
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            queue = self._begin(topic, queue_id, first)
        while units:
            if first == queue.next or self._jump(queue, first, UNIT.unpack_from(units)[0]):
                queue.units += units
                count = len(units) // UNIT.size
                queue.next = first + count
                self._pending_count += count
                break
            # The record is left out; the one behind it may go on where the queue is.
            first, units = first + 1, units[UNIT.size :]
        if len(queue.units) >= JOINED_SIZE:
            self._flush(queue)

    def _flush(self, queue: DerivedQueue) -> None:
        if queue.units:
            assert self._unit_sink is not None
            self._unit_sink.take(queue)
            queue.last_physical = UNIT.unpack_from(queue.units, len(queue.units) - UNIT.size)[0]
            queue.units.clear()
            queue.first = queue.next

    def _flush_all(self) -> None:
        for queue in self.queues.values():
            self._flush(queue)
        self._pending_count = 0

    # -- keys --------------------------------------------------------------------------------

    def _topic_prefix(self, topic: bytes) -> int:
        if len(self._prefix_cache) >= CACHE_COUNT_MAX:
            self._prefix_cache.clear()
        text = topic.decode("utf-8", "replace")
        prefix = self._prefix_cache[topic] = key_prefix_hash(text)
        return prefix

    def _flush_keys(self) -> None:
        if self._keys:
            hashes = index_hashes(self._prefixes, self._keys)
            assert self._key_sink is not None
            self._key_sink.take(hashes, self._offsets, self._times)
            self._prefixes, self._keys, self._offsets, self._times = [], [], [], []
