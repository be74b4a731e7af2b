"""Reading: messages of a queue, lookups by time, by key and by physical offset."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.format.errors import CorruptRecordError
from flintmq.format.stored.consume_queue import PRE_BLANK_SIZE, UNIT, UNIT_SIZE
from flintmq.format.stored.consume_queue_ext import is_address
from flintmq.format.stored.record import Record, decode_record, read_store_timestamp
from flintmq.format.stored.record_layout import IPV4, MESSAGE_MAGIC, RECORD_SIZE_MIN
from flintmq.model.steps import finish
from flintmq.model.topics import LMQ_PREFIX
from flintmq.store.config import BrokerRole
from flintmq.store.files.interface import is_safe_name
from flintmq.store.reading.cold_reads import ColdReads
from flintmq.store.reading.contiguous_read import read_claim, read_contiguous
from flintmq.store.reading.copy_sources import CopySources
from flintmq.store.reading.held_log import HeldLog, TransferLimits
from flintmq.store.reading.message_filter import SCAN_COUNT_MAX
from flintmq.store.reading.read_engines import read_loader
from flintmq.store.reading.time_search import nearest_offset
from flintmq.store.results import GetResult, GetStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flintmq.kernels.compiled import Target
    from flintmq.model.steps import Steps
    from flintmq.store.config import StoreConfig
    from flintmq.store.files.mapped_file import Slice
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.read_cursor import ReadCursor
    from flintmq.store.reading.cold_reads import ColdRange
    from flintmq.store.reading.message_filter import MessageFilter
    from flintmq.store.results import CopiedMessages
    from flintmq.store.views.key_index import KeyIndex
    from flintmq.store.views.queue_table import QueueTable, StoredQueue

_MAGIC: Final = IPV4.pick("magic")

logger = logging.getLogger(__name__)

SCAN_BYTES_MIN: Final = 16_000
"""At least this many bytes of units (800) are looked at in one call, however few are wanted."""

MEMORY_SIZE_UNKNOWN: Final = 24 << 30

READ_AHEAD_SIZE: Final = 1 << 20
"""Bytes of the log behind a read from disk that the kernel is asked to fetch."""


class QueryResult(NamedTuple):
    """Records that a key query found, held until released."""

    slices: list[Slice]
    last_update_timestamp: int
    last_update_offset: int

    def release(self) -> None:
        """Give the files back."""
        for piece in self.slices:
            piece.release()


def _scan_count(count_max: int, message_filter: MessageFilter | None) -> int:
    """Return how many units one call may look at."""
    most = SCAN_COUNT_MAX if message_filter is None else message_filter.scan_count_max
    return min(max(SCAN_BYTES_MIN // UNIT_SIZE, count_max), most)


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
        self.cold_reads = ColdReads(config, log)
        self._engine = read_loader(machine_code=config.machine_code)
        self._use_limits(config)
        self._keeps_offset = (
            config.broker_role is BrokerRole.SLAVE and not config.offset_check_in_slave
        )

    def reconfigure(self, config: StoreConfig) -> None:
        """Use other limits from now on."""
        self._config = config
        self._use_limits(config)
        self.cold_reads.reconfigure(config)

    def _use_limits(self, config: StoreConfig) -> None:
        self._hot_size = physical_memory() * config.memory_ratio // 100
        self._copy_sources = CopySources(
            self._queues,
            self._log,
            self.cold_reads,
            self._hot_size,
            config.transfer_count_in_memory_max,
            config.transfer_bytes_in_memory_max,
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
        found = self.get_existing(topic, queue_id, offset, count_max, message_filter)
        if found is not None:
            return found
        if self._has_too_many_light_queues(topic):
            return None
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            # RocketMQ makes a queue for whoever asks, so it answers as if there were one.
            could_be = queue_id >= 0 and is_safe_name(topic)
            status = GetStatus.NO_MESSAGE_IN_QUEUE if could_be else GetStatus.NO_MATCHED_LOGIC_QUEUE
            return self._without_messages(status, offset, 0, 0, 0)
        least, end = queue.min_offset, queue.max_offset
        if end == 0:
            return self._without_messages(GetStatus.NO_MESSAGE_IN_QUEUE, offset, 0, least, end)
        if offset < least:
            return self._without_messages(GetStatus.OFFSET_TOO_SMALL, offset, least, least, end)
        if offset == end:
            return self._without_messages(GetStatus.OFFSET_OVERFLOW_ONE, offset, offset, least, end)
        return self._without_messages(GetStatus.OFFSET_OVERFLOW_BADLY, offset, end, least, end)

    def _has_too_many_light_queues(self, topic: str) -> bool:
        return (
            topic.startswith(LMQ_PREFIX)
            and self._config.enable_lmq
            and self._queues.lmq_count > self._config.lmq_queue_count_max
        )

    def get_existing(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        message_filter: MessageFilter | None = None,
        *,
        only_resident: bool = False,
    ) -> GetResult | None:
        """Return what `get_messages` does if a queue has a message at ``offset``, else None.

        With ``only_resident`` it is None too if the disk would have to be waited for.
        """
        queue = self._queues.get(topic, queue_id)
        if queue is None or (self._config.enable_lmq and self._has_too_many_light_queues(topic)):
            return None
        least, end = queue.min_offset, queue.max_offset
        if not least <= offset < end:
            return None
        if message_filter is None and (engine := self._engine.get()) is not None:
            found = engine.read(
                queue,
                offset,
                count_max,
                config=self._config,
                log=self._log,
                hot_size=self._hot_size,
                cold_reads=self.cold_reads if only_resident else None,
            )
            if found is not None:
                return found
        return self._read_from(queue, offset, count_max, message_filter, least, end, only_resident)

    def copy_existing(
        self, cursor: ReadCursor, offset: int, count_max: int, target: Target
    ) -> CopiedMessages | None:
        """Copy plain messages of a queue to the beginning of ``target``, by machine code.

        None where `get_existing` has to say what is there, if anything.
        """
        engine = self._engine.loaded
        if engine is None or self._config.enable_lmq:
            return None
        return engine.copies.copy(cursor, offset, count_max, target, self._copy_sources)

    def cold_ranges(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        message_filter: MessageFilter | None = None,
    ) -> list[ColdRange]:
        """Return what `get_messages` would wait for; load it and ask again, for there may be more.

        See `flintmq.store.reading.cold_reads`.
        """
        queue = self._queues.get(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < (end := queue.max_offset):
            return []
        found = queue.units_from(offset)
        if found is None:
            return []
        file, position, units_end = found
        try:
            return self.cold_reads.of_pull(
                file,
                position,
                min(units_end, position + _scan_count(count_max, message_filter) * UNIT_SIZE),
                behind_count=end - offset,
                count_max=count_max,
                message_filter=message_filter,
            )
        finally:
            file.release()

    def _read_from(
        self,
        queue: StoredQueue,
        offset: int,
        count_max: int,
        message_filter: MessageFilter | None,
        least: int,
        end: int,
        only_resident: bool = False,
    ) -> GetResult | None:
        found = queue.units_from(offset)
        if found is None:
            beyond = queue.roll_next_file(offset)
            return self._without_messages(GetStatus.OFFSET_FOUND_NULL, offset, beyond, least, end)
        file, position, units_end = found
        units_end = min(units_end, position + _scan_count(count_max, message_filter) * UNIT_SIZE)
        result = GetResult(
            GetStatus.NO_MATCHED_MESSAGE, next_begin_offset=offset, min_offset=least, max_offset=end
        )
        try:
            if only_resident and self.cold_reads.of_pull(
                file,
                position,
                units_end,
                behind_count=end - offset,
                count_max=count_max,
                message_filter=message_filter,
            ):
                return None
            with file.view[position:units_end] as units:
                is_read = message_filter is None and read_contiguous(
                    result,
                    units,
                    count_max,
                    config=self._config,
                    log=self._log,
                    hot_size=self._hot_size,
                )
                if not is_read:
                    self._read_one_by_one(result, queue, units, count_max, message_filter)
        finally:
            file.release()
        return result

    def _without_messages(
        self, status: GetStatus, asked: int, corrected: int, least: int, end: int
    ) -> GetResult:
        following = asked if self._keeps_offset else corrected
        return GetResult(status, next_begin_offset=following, min_offset=least, max_offset=end)

    def _read_one_by_one(
        self,
        result: GetResult,
        queue: StoredQueue,
        units: memoryview,
        count_max: int,
        message_filter: MessageFilter | None,
    ) -> None:
        """Put the messages that ``units`` lead to and that are wanted into ``result``."""
        limits = TransferLimits.of(self._config, count_max, self._cold_below)
        held = HeldLog(self._log, result)
        messages, queue_offsets = result.pieces, result.queue_offsets
        offset = result.next_begin_offset
        total_size, skip_below, newest = 0, 0, -1
        for physical_offset, size, tags_code in UNIT.iter_unpack(units):
            newest = physical_offset
            if physical_offset < skip_below:
                offset += 1
                continue
            if messages and limits.are_reached(physical_offset, len(messages), total_size + size):
                break
            if message_filter is not None and not self._matches(message_filter, queue, tags_code):
                offset += 1
                continue
            if not held.covers(physical_offset, size):
                if not messages:
                    result.status = GetStatus.MESSAGE_WAS_REMOVING
                # A blank unit leads nowhere and says nothing of the files around it.
                if size != PRE_BLANK_SIZE:
                    skip_below = self._next_file(physical_offset)
                offset += 1
                continue
            record = held.record(physical_offset, size)
            if record is None:
                self._report_false_unit(queue, offset, physical_offset)
            elif message_filter is not None and not message_filter.matches_record(record):
                record.release()
            else:
                messages.append(record)
                queue_offsets.append(offset)
                total_size += size
                skip_below = 0
            offset += 1
        if messages:
            result.status = GetStatus.FOUND
        result.total_size = total_size
        result.next_begin_offset = offset
        if newest < limits.cold_below:
            result.suggest_slave = True
            held.read_ahead(READ_AHEAD_SIZE)

    @property
    def _cold_below(self) -> int:
        """Where the log begins that memory is taken to hold; the rest has to be read from disk."""
        return self._log.readable_end - self._hot_size

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
                size, offset = read_claim(head.view)
                (magic,) = _MAGIC.unpack_from(head.view)
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
        if queue is None:
            return 0
        return nearest_offset(
            queue, timestamp_ms, log_min_offset=self._log.min_offset, store_time=self.store_time
        )

    # -- by key ------------------------------------------------------------------------------

    def query(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> QueryResult:
        """Return records whose key has the hash of ``key``, oldest first; collisions included.

        The cap is the smaller of ``count_max`` and the store's own limit.
        """
        steps = self.key_offsets(topic, key, count_max, begin_ms, end_ms)
        return self.records_at(finish(steps))

    def key_offsets(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> Steps[list[int]]:
        """Return where the records of `query` are, interruptible: a key can have very many."""
        offsets: list[int] = []
        if self._index is not None:
            most = min(count_max, self._config.query_count_max)
            yield from self._index.query_steps(
                topic, key, offsets, most=most, begin=begin_ms, end=end_ms
            )
        return offsets

    def records_at(self, offsets: Iterable[int]) -> QueryResult:
        """Return the records of a key query, those that still exist, oldest first."""
        if self._index is None:
            return QueryResult([], 0, 0)
        # RocketMQ asks again for older ones when none of these exists any more; but those are
        # gone too, since the log loses its oldest records first.
        pieces = [self.select(offset) for offset in sorted(offsets)]
        found = [piece for piece in pieces if piece is not None]
        return QueryResult(found, *self._index.last_update())
