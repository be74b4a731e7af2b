"""Finding the message of a queue whose store time is nearest to a given one."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from flintmq.format.stored.consume_queue import UNIT, UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.store.files.mapped_file import MappedFile
    from flintmq.store.views.queue_table import StoredQueue

    StoreTime: TypeAlias = Callable[[int, int], int]
    """Gives the store time of the record at an offset with a size, -1 if there is none."""


def nearest_offset(
    queue: StoredQueue, timestamp_ms: int, *, log_min_offset: int, store_time: StoreTime
) -> int:
    """Return the queue offset whose store time is nearest to a time, 0 for an empty queue.

    See `StoreReader.offset_by_time`.
    """
    file = _file_by_time(queue, timestamp_ms, store_time)
    if file is None or not file.hold():
        return 0
    try:
        return _search(queue, file, timestamp_ms, log_min_offset, store_time)
    finally:
        file.release()


def _file_by_time(
    queue: StoredQueue, timestamp_ms: int, store_time: StoreTime
) -> MappedFile | None:
    """Return the first file of a queue that ends at or after a time, else the last one.

    RocketMQ goes by the times the files were modified.  Those of mapped files come late, and
    a copied store has others; the records themselves know.
    """
    for file in queue.files.snapshot():
        unit = queue.unit_at((file.first_offset + file.readable) // UNIT_SIZE - 1)
        if unit is not None and store_time(unit[0], unit[1]) >= timestamp_ms:
            return file
    return queue.files.last


def _search(
    queue: StoredQueue,
    file: MappedFile,
    timestamp_ms: int,
    log_min_offset: int,
    store_time: StoreTime,
) -> int:
    low = max(0, queue.min_logic_offset - file.first_offset) // UNIT_SIZE
    high = file.readable // UNIT_SIZE - 1
    left = right = -1
    left_time = right_time = -1
    base = file.first_offset // UNIT_SIZE
    while low <= high:
        middle = (low + high) // 2
        physical_offset, size, _ = UNIT.unpack_from(file.view, middle * UNIT_SIZE)
        if physical_offset < log_min_offset:
            low = middle + 1
            left = middle
            continue
        time = store_time(physical_offset, size)
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
