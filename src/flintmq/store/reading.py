"""Reading: messages of a queue, lookups by time, by key and by physical offset."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from flintmq.format.consume_queue import PRE_BLANK_SIZE, UNIT, UNIT_SIZE
from flintmq.format.consume_queue_ext import ExtUnit, is_address
from flintmq.format.errors import CorruptRecordError
from flintmq.format.record import (
    MESSAGE_MAGIC,
    RECORD_SIZE_MIN,
    Record,
    decode_record,
    read_store_timestamp,
)
from flintmq.model.topics import LMQ_PREFIX
from flintmq.store.config import BrokerRole
from flintmq.store.files import is_safe_name
from flintmq.store.results import GetResult, GetStatus
from flintmq.store.stretches import read_place, take_stretch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flintmq.store.commit_log import CommitLog
    from flintmq.store.config import StoreConfig
    from flintmq.store.key_index import KeyIndex
    from flintmq.store.mapped_file import MappedFile, Slice
    from flintmq.store.queue_table import QueueTable, StoredQueue

logger = logging.getLogger(__name__)

SCAN_BYTES_MIN: Final = 16_000
"""At least this many bytes of units (800) are looked at in one call, however few are wanted."""

MEMORY_SIZE_UNKNOWN: Final = 24 << 30


class MessageFilter(Protocol):
    """What a subscription asks of messages; built by the filter layer."""

    def matches_unit(self, tags_code: int | None, ext: ExtUnit | None) -> bool:
        """Judge by what the queue knows; True when that is not enough to say no."""
        ...

    def matches_record(self, record: memoryview) -> bool:
        """Judge by the stored record."""
        ...


class QueryResult(NamedTuple):
    """Records that a key query found, held until released."""

    slices: list[Slice]
    last_update_timestamp: int
    last_update_offset: int

    def release(self) -> None:
        """Give the files back."""
        for piece in self.slices:
            piece.release()


def physical_memory() -> int:
    """Return the bytes of memory of this machine."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return MEMORY_SIZE_UNKNOWN


class StoreReader:
    """The read path of a store.  Results hold their files; whoever gets one releases it."""

    def __init__(
        self, config: StoreConfig, log: CommitLog, queues: QueueTable, index: KeyIndex | None
    ) -> None:
        self._config = config
        self._log = log
        self._queues = queues
        self._index = index
        self._hot_size = physical_memory() * config.memory_ratio // 100
        self._keeps_offset = (
            config.broker_role is BrokerRole.SLAVE and not config.offset_check_in_slave
        )

    # -- messages of a queue -----------------------------------------------------------------

    def get_messages(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        message_filter: MessageFilter | None = None,
    ) -> GetResult | None:
        """Return up to ``count_max`` messages of a queue from ``offset`` on.

        None when a light queue is asked for while there are more of them than allowed.
        """
        if (
            topic.startswith(LMQ_PREFIX)
            and self._config.enable_lmq
            and self._queues.lmq_count > self._config.lmq_queue_count_max
        ):
            return None
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            # RocketMQ makes a queue for whoever asks, so it answers as if there were one.
            could_be = queue_id >= 0 and is_safe_name(topic)
            status = GetStatus.NO_MESSAGE_IN_QUEUE if could_be else GetStatus.NO_MATCHED_LOGIC_QUEUE
            return self._outside(status, offset, 0, 0, 0)
        least, end = queue.min_offset, queue.max_offset
        if end == 0:
            return self._outside(GetStatus.NO_MESSAGE_IN_QUEUE, offset, 0, least, end)
        if offset < least:
            return self._outside(GetStatus.OFFSET_TOO_SMALL, offset, least, least, end)
        if offset == end:
            return self._outside(GetStatus.OFFSET_OVERFLOW_ONE, offset, offset, least, end)
        if offset > end:
            return self._outside(GetStatus.OFFSET_OVERFLOW_BADLY, offset, end, least, end)
        return self._inside(queue, offset, count_max, message_filter, least, end)

    def get_inside(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        message_filter: MessageFilter | None = None,
    ) -> GetResult | None:
        """Return what `get_messages` does if a queue has a message at ``offset``, else None."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or topic.startswith(LMQ_PREFIX):
            return None
        least, end = queue.min_offset, queue.max_offset
        if not least <= offset < end:
            return None
        return self._inside(queue, offset, count_max, message_filter, least, end)

    def _inside(
        self,
        queue: StoredQueue,
        offset: int,
        count_max: int,
        message_filter: MessageFilter | None,
        least: int,
        end: int,
    ) -> GetResult:
        found = queue.units_from(offset)
        if found is None:
            beyond = queue.roll_next_file(offset)
            return self._outside(GetStatus.OFFSET_FOUND_NULL, offset, beyond, least, end)
        file, position, units_end = found
        units_end = min(units_end, position + max(SCAN_BYTES_MIN, count_max * UNIT_SIZE))
        result = GetResult(
            GetStatus.NO_MATCHED_MESSAGE, next_begin_offset=offset, min_offset=least, max_offset=end
        )
        try:
            with file.view[position:units_end] as units:
                is_taken = message_filter is None and take_stretch(
                    result,
                    units,
                    count_max,
                    config=self._config,
                    log=self._log,
                    hot_size=self._hot_size,
                )
                if not is_taken:
                    self._collect(result, queue, units, count_max, message_filter)
        finally:
            file.release()
        return result

    def _outside(
        self, status: GetStatus, asked: int, corrected: int, least: int, end: int
    ) -> GetResult:
        following = asked if self._keeps_offset else corrected
        return GetResult(status, next_begin_offset=following, min_offset=least, max_offset=end)

    def _collect(
        self,
        result: GetResult,
        queue: StoredQueue,
        units: memoryview,
        count_max: int,
        message_filter: MessageFilter | None,
    ) -> None:
        config = self._config
        log_files = self._log.files
        readable_end = self._log.readable_end
        cold_below = readable_end - self._hot_size
        messages = result.parts
        queue_offsets = result.queue_offsets
        offset = result.next_begin_offset
        total = 0
        skip_below = 0
        newest = -1
        held: MappedFile | None = None
        held_start = held_end = 0
        held_view = units
        count_in_memory = min(count_max, config.transfer_count_in_memory_max)
        count_on_disk = min(count_max, config.transfer_count_on_disk_max)
        for physical_offset, size, tags_code in UNIT.iter_unpack(units):
            newest = physical_offset
            if physical_offset < skip_below:
                offset += 1
                continue
            if messages:
                if physical_offset < cold_below:
                    count, room = count_on_disk, config.transfer_bytes_on_disk_max
                else:
                    count, room = count_in_memory, config.transfer_bytes_in_memory_max
                if len(messages) >= count or total + size > room:
                    break
            if message_filter is not None and not self._matches(message_filter, queue, tags_code):
                offset += 1
                continue
            end = physical_offset + size
            if held is None or physical_offset < held_start or end > held_end:
                held = log_files.find(physical_offset)
                if (
                    held is None
                    or end > readable_end
                    or end > held.first_offset + held.readable
                    or not held.hold()
                ):
                    held = None
                    if not messages:
                        result.status = GetStatus.MESSAGE_WAS_REMOVING
                    # A blank unit leads nowhere and says nothing of the files around it.
                    if size != PRE_BLANK_SIZE:
                        skip_below = self._next_file(physical_offset)
                    offset += 1
                    continue
                result.hold(held)
                held_start = held.first_offset
                held_end = min(held_start + held.readable, readable_end)
                held_view = held.view
            at = physical_offset - held_start
            if size < RECORD_SIZE_MIN or read_place(held_view, at) != (size, physical_offset):
                self._report_false_unit(queue, offset, physical_offset)
                offset += 1
                continue
            record = held_view[at : at + size]
            if message_filter is not None and not message_filter.matches_record(record):
                record.release()
                offset += 1
                continue
            messages.append(record)
            queue_offsets.append(offset)
            total += size
            skip_below = 0
            offset += 1
        if messages:
            result.status = GetStatus.FOUND
        result.total_size = total
        result.next_begin_offset = offset
        result.suggest_slave = readable_end - newest > self._hot_size

    @staticmethod
    def _report_false_unit(queue: StoredQueue, offset: int, physical_offset: int) -> None:
        """Say that a unit was passed over: serving what it leads to would be false."""
        logger.warning(
            "unit leads to no record: topic=%s queue=%d offset=%d physical_offset=%d",
            queue.topic,
            queue.queue_id,
            offset,
            physical_offset,
        )

    @staticmethod
    def _matches(message_filter: MessageFilter, queue: StoredQueue, tags_code: int) -> bool:
        if not is_address(tags_code):
            return message_filter.matches_unit(tags_code, None)
        ext = queue.resolve(tags_code)
        if ext is None:
            return message_filter.matches_unit(None, None)
        return message_filter.matches_unit(ext.tags_code, ext)

    def _next_file(self, physical_offset: int) -> int:
        size = self._log.file_size
        return physical_offset + size - physical_offset % size

    # -- single records ----------------------------------------------------------------------

    def select(self, physical_offset: int, size: int | None = None) -> Slice | None:
        """Return the raw record at a physical offset, None where no whole record is.

        Without a ``size`` the offset may come from anywhere: a client's message id, a damaged
        index.  So the record must claim to be there.
        """
        if size is None:
            head = self._log.select(physical_offset, RECORD_SIZE_MIN)
            if head is None:
                return None
            with head:
                size, offset = read_place(head.view)
                magic = int.from_bytes(head.view[4:8], "big", signed=True)
            if magic != MESSAGE_MAGIC or offset != physical_offset or size < RECORD_SIZE_MIN:
                return None
        return self._log.select(physical_offset, size)

    def look(self, physical_offset: int, size: int | None = None) -> Record | None:
        """Return the decoded record at a physical offset, None where there is none."""
        piece = self.select(physical_offset, size)
        if piece is None:
            return None
        with piece:
            try:
                return decode_record(piece.view)
            except CorruptRecordError:
                return None

    def store_time(self, physical_offset: int, size: int) -> int:
        """Return the store time of a record, -1 when it is gone or its size is a lie."""
        if physical_offset < self._log.min_offset or size < RECORD_SIZE_MIN:
            return -1
        piece = self._log.select(physical_offset, size)
        if piece is None:
            return -1
        with piece:
            return read_store_timestamp(piece.view)

    def unit_store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store time of a queue's message, -1 when it is absent."""
        queue = self._queues.get(topic, queue_id)
        unit = queue.unit_at(offset) if queue is not None else None
        if unit is None or unit[1] == PRE_BLANK_SIZE:
            return -1
        return self.store_time(unit[0], unit[1])

    def earliest_time(self, topic: str, queue_id: int) -> int:
        """Return the store time of the oldest message of a queue, -1 without one."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or queue.is_empty:
            return -1
        return self.unit_store_time(topic, queue_id, queue.min_offset)

    def earliest_log_time(self) -> int:
        """Return the store time of the oldest record of the log, -1 for an empty log."""
        start = self._log.min_offset
        record = self.look(start)
        return record.store_timestamp if record is not None else -1

    def physical_offset_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Return where a queue's message lies in the log, 0 when it is absent."""
        queue = self._queues.get(topic, queue_id)
        unit = queue.unit_at(offset) if queue is not None else None
        return unit[0] if unit is not None else 0

    def is_on_disk(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a message is likely out of memory: further back than the hot part."""
        queue = self._queues.get(topic, queue_id)
        unit = queue.unit_at(offset) if queue is not None else None
        return unit is not None and self._log.readable_end - unit[0] > self._hot_size

    # -- by time -----------------------------------------------------------------------------

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the queue offset whose store time is nearest to a time.

        Earlier than everything gives the first message, later than everything the last one, as
        RocketMQ answers; equal distances go to the earlier message.
        """
        queue = self._queues.get(topic, queue_id)
        file = self._file_by_time(queue, timestamp_ms) if queue is not None else None
        if queue is None or file is None or not file.hold():
            return 0
        try:
            return self._search_time(queue, file, timestamp_ms)
        finally:
            file.release()

    def _file_by_time(self, queue: StoredQueue, timestamp_ms: int) -> MappedFile | None:
        """Return the first file of a queue that ends at or after a time, else the last one.

        RocketMQ goes by the times the files were modified.  Those of mapped files come late, and
        a copied store has others; the records themselves know.
        """
        for file in queue.files.snapshot():
            unit = queue.unit_at((file.first_offset + file.readable) // UNIT_SIZE - 1)
            if unit is not None and self.store_time(unit[0], unit[1]) >= timestamp_ms:
                return file
        return queue.files.last

    def _search_time(self, queue: StoredQueue, file: MappedFile, timestamp_ms: int) -> int:
        low = max(0, queue.min_logic_offset - file.first_offset) // UNIT_SIZE
        high = file.readable // UNIT_SIZE - 1
        left = right = -1
        left_time = right_time = -1
        base = file.first_offset // UNIT_SIZE
        while low <= high:
            middle = (low + high) // 2
            physical_offset, size, _ = UNIT.unpack_from(file.view, middle * UNIT_SIZE)
            if physical_offset < self._log.min_offset:
                low = middle + 1
                left = middle
                continue
            time = self.store_time(physical_offset, size)
            if time < 0:
                return 0
            if time == timestamp_ms:
                return base + middle
            if time > timestamp_ms:
                high = middle - 1
                right, right_time = middle, time
            else:
                low = middle + 1
                left, left_time = middle, time
        if left_time == -1:
            nearest = right
        elif right_time == -1:
            nearest = left
        else:
            nearest = left if timestamp_ms - left_time <= right_time - timestamp_ms else right
        return base + max(nearest, 0)

    # -- by key ------------------------------------------------------------------------------

    def query(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> QueryResult:
        """Return records whose key has the hash of ``key``, oldest first; collisions included.

        The cap is the smaller of ``count_max`` and the store's own limit.
        """
        if self._index is None:
            return QueryResult([], 0, 0)
        most = min(count_max, self._config.query_count_max)
        offsets = sorted(self._index.query(topic, key, most, begin_ms, end_ms))
        # RocketMQ asks again for older ones when none of these exists any more; but those are
        # gone too, since the log loses its oldest records first.
        pieces = [self.select(offset) for offset in offsets]
        found = [piece for piece in pieces if piece is not None]
        return QueryResult(found, *self._index.last_update())

    def message_ids(
        self, topic: str, queue_id: int, first: int, end: int
    ) -> Iterator[tuple[str, int]]:
        """Yield (message id, queue offset) of a queue's messages in a range."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return
        for offset in range(max(first, queue.min_offset), min(end, queue.max_offset)):
            unit = queue.unit_at(offset)
            record = self.look(unit[0], unit[1]) if unit is not None else None
            if record is not None:
                yield record.message_id, offset
