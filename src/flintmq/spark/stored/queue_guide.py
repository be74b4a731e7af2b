"""Finding the records of some queues by their consume queues, without losing any.

A queue may lack units: dispatch is behind the log, files were lost, a topic was deleted and made
anew.  So the units of all queues are laid over the split: where they leave a range of the log
uncovered, that range is read too.  The rows are then those of a scan, while what is read are
units of 20 bytes instead of records.  Units that contradict each other or the log make the whole
split be read, since the log is the truth.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from flintmq.offline.layout import QueueKey, find_store
from flintmq.offline.regions import Regions
from flintmq.spark.rows.row_filter import RowFilter
from flintmq.spark.stored.log_ranges import Ranges, are_few, are_records, is_guidable, merge
from flintmq.spark.stored.log_split import LogSplit
from flintmq.spark.stored.unit_arrays import Units, units_leading_into

_Longs: TypeAlias = npt.NDArray[np.int64]
_Spans: TypeAlias = tuple[_Longs, _Longs]
"""Starts and ends of records."""


@dataclass(frozen=True, slots=True)
class QueueGuide:
    """Leads to the records of the queues that a filter wants."""

    row_filter: RowFilter

    def ranges(self, split: LogSplit) -> Ranges | None:
        """Return the ranges of a split that may hold wanted records, None for all of it."""
        if not is_guidable(split):
            return None
        layout = find_store(Path(split.store))
        with Regions(layout.files) as regions:
            wanted: list[_Spans] = []
            others: list[_Spans] = []
            for key in sorted(layout.queues, key=self._wants, reverse=True):
                units = units_leading_into(layout.queues[key], regions, split.start, split.end)
                (wanted if self._wants(key) else others).append(_spans(units))
                if not are_few(split, sum(len(starts) for starts, _ in wanted)):
                    return None
        cover = _cover([*wanted, *others], split)
        if cover is None:
            return None
        starts, ends = cover
        gaps = np.flatnonzero(np.append(starts, split.end) > np.append(split.start, ends))
        ranges = [span for one in wanted for span in zip(*map(np.ndarray.tolist, one), strict=True)]
        edges = np.unique(np.concatenate([gaps[gaps < len(starts)], gaps[gaps > 0] - 1]))
        offsets = np.concatenate([starts[edges], *(one[0] for one in wanted)])
        stops = np.concatenate([ends[edges], *(one[1] for one in wanted)])
        if not are_records(split, offsets, stops - offsets):
            return None
        for number in gaps.tolist():
            start = split.start if number == 0 else int(ends[number - 1])
            ranges.append((start, int(starts[number]) if number < len(starts) else split.end))
        return merge(ranges)

    def _wants(self, key: QueueKey) -> bool:
        topics = self.row_filter.topics
        return (topics is None or key[0].encode() in topics) and key[1] in self.row_filter.queue_id


def _spans(units: Units) -> _Spans:
    starts = units["physical_offset"].astype(np.int64)
    return starts, starts + units["record_size"].astype(np.int64)


def _cover(spans: list[_Spans], split: LogSplit) -> _Spans | None:
    """Return starts and ends of all records that have a unit, None if they cannot all be true."""
    nothing = np.empty(0, np.int64)
    starts = np.concatenate([nothing, *(one[0] for one in spans)])
    ends = np.concatenate([nothing, *(one[1] for one in spans)])
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    # Several queues may have a unit for one record.
    is_new = np.ones(len(starts), bool)
    is_new[1:] = (starts[1:] != starts[:-1]) | (ends[1:] != ends[:-1])
    starts, ends = starts[is_new], ends[is_new]
    if len(starts) and (
        (ends <= starts).any() or (starts[1:] < ends[:-1]).any() or ends[-1] > split.end
    ):
        return None
    return starts, ends
