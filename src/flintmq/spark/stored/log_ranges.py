"""Ranges of the log that are worth reading, as a guide has found them."""

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from flintmq.format.stored.record_layout import IPV4, MESSAGE_MAGIC
from flintmq.kernels.field_dtypes import field_dtype
from flintmq.offline.regions import open_for_reading
from flintmq.spark.stored.log_split import LogSplit

MERGE_GAP: Final = 64 << 10
"""To read over so many bytes costs about as much as to begin anew behind them."""

Ranges: TypeAlias = list[tuple[int, int]]
"""Physical offsets: starts and ends of records."""

_HEADER: Final = field_dtype(IPV4, ["size", "magic", "physical_offset"])
_HEADER_SIZE: Final = _HEADER.itemsize


class Guide(Protocol):
    """Knows where in a split the wanted records are."""

    def ranges(self, split: LogSplit) -> Ranges | None:
        """Return the ranges to read, None when only reading all of it is certain."""
        ...


def is_guidable(split: LogSplit) -> bool:
    """Whether queues and index can be believed about a split.

    In the last file they may lead to records from before the log was cut back: a Java broker
    leaves those bytes in place.
    """
    return not split.gap and not split.is_last_file


def are_few(split: LogSplit, count: int) -> bool:
    """Whether so many records leave anything of a split to be passed over."""
    return count * MERGE_GAP < split.end - split.start


def merge(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the ranges in order, joined where they touch or nearly do."""
    merged: Ranges = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1] + MERGE_GAP:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def are_records(
    split: LogSplit, offsets: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> bool:
    """Whether at all these offsets of a split records of these sizes begin."""
    if not len(offsets):
        return True
    positions = offsets - split.file_start
    region = open_for_reading(split.files, Path(split.path))
    if region is None:
        return False
    with closing(region):
        limit = min(split.file_size, region.size)
        if positions.min() < 0 or int((positions + _HEADER_SIZE).max()) > limit:
            return False
        data = np.frombuffer(region.view, np.uint8)
        try:
            headers = data[positions[:, None] + np.arange(_HEADER_SIZE)].view(_HEADER).ravel()
        finally:
            # An array that is still held would keep the file from being unmapped.
            del data
    return bool(
        (headers["magic"] == MESSAGE_MAGIC).all()
        and (headers["size"] == sizes).all()
        and (headers["physical_offset"] == offsets).all()
    )
