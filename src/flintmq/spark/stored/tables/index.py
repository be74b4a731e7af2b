"""The table ``index``: the entries of the key index."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from flintmq.format.stored.index_file import (
    ENTRY_SIZE,
    ENTRY_TABLE,
    HEADER_SIZE,
    IndexHeader,
    entry_position,
)
from flintmq.kernels.field_dtypes import field_dtype
from flintmq.offline.index_geometry import find_geometry
from flintmq.offline.layout import DataFile, find_store
from flintmq.offline.regions import Regions
from flintmq.spark.errors import StateError
from flintmq.spark.options.store_options import ReadOptions
from flintmq.spark.rows.columns import INT, LONG, STRING, TIME, ColumnSet
from flintmq.spark.rows.row_filter import TIME_MAX_MS, TIME_MIN_MS
from flintmq.spark.stored.tables.reader import StoreSplit, root_of

BATCH_ENTRIES: Final = 65_536
ENTRIES_PER_SPLIT: Final = 2_000_000

ENTRY_DTYPE: Final = field_dtype(ENTRY_TABLE)


@dataclass(frozen=True, kw_only=True)
class IndexSplit(StoreSplit):
    """Entries ``first`` to ``end`` (exclusive) of one index file."""

    file: DataFile
    slots: int
    begin_timestamp: int
    first: int
    end: int


class IndexEntryRowSource:
    """One row for each entry of an index file.  Keys are not stored, only their hashes."""

    columns = ColumnSet(
        {
            "indexFile": STRING,
            "entry": INT,
            "slot": INT,
            "keyHash": INT,
            "physicalOffset": LONG,
            "storeTimestamp": TIME,
            "previousEntry": INT,
            "brokerName": STRING,
            "path": STRING,
        }
    )

    def splits(self, store: StoreSplit, options: ReadOptions) -> Sequence[StoreSplit]:
        """Return splits of the files that have entries."""
        layout = find_store(root_of(store))
        found: list[StoreSplit] = []
        with Regions(layout.files) as regions:
            geometry = find_geometry(layout, regions)
            if geometry is None:
                reason = "the number of slots in an index file cannot be told from its entries"
                raise StateError(str(layout.index_directory), reason)
            for file in layout.index_files:
                view = regions.view(file.path)
                if view is None or len(view) < HEADER_SIZE:
                    continue
                header = IndexHeader.unpack_from(view)
                capacity = (len(view) - entry_position(geometry.slots, 0)) // ENTRY_SIZE
                end = min(header.index_count, capacity)
                found += [
                    IndexSplit(
                        store=store.store,
                        broker_name=store.broker_name,
                        file=file,
                        slots=geometry.slots,
                        begin_timestamp=header.begin_timestamp,
                        first=first,
                        end=min(first + ENTRIES_PER_SPLIT, end),
                    )
                    for first in range(1, end, ENTRIES_PER_SPLIT)
                ]
        return found

    def rows(
        self, split: StoreSplit, options: ReadOptions
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield the entries in the order of their numbers."""
        assert isinstance(split, IndexSplit)
        layout = find_store(root_of(split))
        with Regions(layout.files) as regions:
            for first in range(split.first, split.end, BATCH_ENTRIES):
                view = regions.view(split.file.path)
                if view is None:
                    return  # A broker has deleted it meanwhile.
                start = entry_position(split.slots, first)
                end = entry_position(split.slots, min(first + BATCH_ENTRIES, split.end))
                # A copy: an array over the view would keep the file from being unmapped.
                entries = np.frombuffer(bytes(view[start:end]), ENTRY_DTYPE)
                yield len(entries), _columns(split, first, entries)


def _columns(split: IndexSplit, first: int, entries: Any) -> dict[str, Any]:
    hashes = entries["key_hash"].astype(np.int32)
    times = split.begin_timestamp + entries["elapsed_seconds"].astype(np.int64) * 1000
    is_day = (times >= TIME_MIN_MS) & (times <= TIME_MAX_MS)
    return {
        "indexFile": split.file.path.name,
        "entry": np.arange(first, first + len(entries), dtype=np.int32),
        "slot": hashes % split.slots,
        "keyHash": hashes,
        "physicalOffset": entries["physical_offset"].astype(np.int64),
        "storeTimestamp": np.where(is_day, times, np.datetime64("NaT", "ms").astype(np.int64))
        .astype("datetime64[ms]")
        .astype("datetime64[us]"),
        "previousEntry": entries["previous"].astype(np.int32),
    }
