"""The table ``queues``: the units of the consume queues."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from flintmq.format.stored.consume_queue import UNIT_SIZE
from flintmq.format.stored.consume_queue_ext import ADDRESS_MAX
from flintmq.offline.layout import DataFile, QueueKey, StoreLayout, find_store
from flintmq.offline.queue_files import QueueFiles
from flintmq.offline.regions import Regions
from flintmq.spark.options.store_options import ReadOptions
from flintmq.spark.rows.columns import BINARY, BOOLEAN, INT, LONG, STRING, ColumnSet
from flintmq.spark.stored.tables.reader import StoreSplit, root_of
from flintmq.spark.stored.unit_arrays import Units, written_units

BATCH_UNITS: Final = 65_536
FILES_PER_SPLIT: Final = 256
"""Most queues are small, and a task for each file would cost more than reading it."""


@dataclass(frozen=True, kw_only=True)
class QueueSplit(StoreSplit):
    """Some files of consume queues."""

    files: tuple[tuple[QueueKey, DataFile], ...]


class QueueUnitRowSource:
    """One row for each unit that leads to a record; blank units have none.

    Where a unit leads to the extension of its queue, the tags code and the filter bits are those
    of the extension.
    """

    columns = ColumnSet(
        {
            "topic": STRING,
            "queueId": INT,
            "queueOffset": LONG,
            "physicalOffset": LONG,
            "recordSize": INT,
            "tagsCode": LONG,
            "hasExtension": BOOLEAN,
            "filterBitMap": BINARY,
            "fileName": STRING,
            "brokerName": STRING,
            "path": STRING,
        }
    )

    def splits(self, store: StoreSplit, options: ReadOptions) -> Sequence[StoreSplit]:
        """Return bundles of files, each bounded in bytes and number."""
        bundles: list[list[tuple[QueueKey, DataFile]]] = []
        size = 0
        for key, file in _wanted_files(store, options):
            if not bundles or size >= options.split_size or len(bundles[-1]) >= FILES_PER_SPLIT:
                bundles.append([])
                size = 0
            bundles[-1].append((key, file))
            size += file.size
        return [
            QueueSplit(store=store.store, broker_name=store.broker_name, files=tuple(bundle))
            for bundle in bundles
        ]

    def rows(
        self, split: StoreSplit, options: ReadOptions
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield the units file by file."""
        assert isinstance(split, QueueSplit)
        layout = find_store(root_of(split))
        with Regions(layout.files) as regions:
            queues = QueueFiles(layout, regions)
            for key, file in split.files:
                start, end = options.offsets.bounds(split.broker_name, key)
                for first in range(0, file.size // UNIT_SIZE, BATCH_UNITS):
                    view = regions.view(file.path)
                    if view is None:
                        break  # A broker has deleted it meanwhile.
                    at, behind = first * UNIT_SIZE, (first + BATCH_UNITS) * UNIT_SIZE
                    # A copy: a view that is still held would keep the file from being unmapped.
                    units, numbers = written_units(bytes(view[at:behind]))
                    offsets = numbers + (file.first_offset // UNIT_SIZE + first)
                    keep = np.ones(len(units), bool)
                    if start is not None:
                        keep &= offsets >= start
                    if end is not None:
                        keep &= offsets < end
                    yield _batch(key, file, units[keep], offsets[keep], queues)


def _wanted_files(store: StoreSplit, options: ReadOptions) -> Iterator[tuple[QueueKey, DataFile]]:
    layout: StoreLayout = find_store(root_of(store))
    for key in sorted(layout.queues):
        if options.topics is not None and key[0] not in options.topics:
            continue
        if options.queue_ids is not None and key[1] not in options.queue_ids:
            continue
        start, end = options.offsets.bounds(store.broker_name, key)
        for file in layout.queues[key]:
            behind = (file.first_offset + file.size) // UNIT_SIZE
            if start is not None and behind <= start:
                continue
            if end is not None and file.first_offset // UNIT_SIZE >= end:
                continue
            yield key, file


def _batch(
    key: QueueKey,
    file: DataFile,
    units: Units,
    queue_offsets: npt.NDArray[np.int64],
    queues: QueueFiles,
) -> tuple[int, dict[str, Any]]:
    codes = units["tags_code"].astype(np.int64)
    has_extension = codes <= ADDRESS_MAX
    bitmaps: list[bytes | None] = [None] * len(units) if has_extension.any() else []
    for number in np.flatnonzero(has_extension).tolist():
        _, extension = queues.extension_unit(key, int(codes[number]))
        if extension is not None:
            codes[number] = extension.tags_code
            bitmaps[number] = extension.bitmap
    return len(units), {
        "topic": key[0],
        "queueId": key[1],
        "queueOffset": queue_offsets,
        "physicalOffset": units["physical_offset"].astype(np.int64),
        "recordSize": units["record_size"].astype(np.int32),
        "tagsCode": codes,
        "hasExtension": has_extension,
        "filterBitMap": bitmaps or None,
        "fileName": file.path.name,
    }
