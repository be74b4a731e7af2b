"""Units of consume queues as arrays, and which of them lead into a range of the log."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from flintmq.format.stored.consume_queue import PRE_BLANK_SIZE, UNIT, UNIT_SIZE, UNIT_TABLE
from flintmq.kernels.field_dtypes import field_dtype
from flintmq.offline.layout import DataFile
from flintmq.offline.regions import Regions

UNIT_DTYPE: Final = field_dtype(UNIT_TABLE)

Units: TypeAlias = npt.NDArray[Any]
"""A structured array of units."""


def written_units(content: bytes) -> tuple[Units, npt.NDArray[np.int64]]:
    """Return the units that lead to a record, and their numbers in ``content``.

    A size of zero was never written, and blank units only fill the file before a first one.
    """
    units = np.frombuffer(content, UNIT_DTYPE, len(content) // UNIT_SIZE)
    sizes = units["record_size"]
    blank = (sizes == PRE_BLANK_SIZE) & (units["physical_offset"] == 0)
    numbers = np.flatnonzero((sizes != 0) & ~blank)
    return units[numbers], numbers


def units_leading_into(files: Sequence[DataFile], regions: Regions, start: int, end: int) -> Units:
    """Return the units of one queue whose records start in a range of the log.

    Units ascend by physical offset, so they are found by bisection.  Where they do not, some
    that lead into the range may be missing.
    """
    found = [np.empty(0, UNIT_DTYPE)]
    for file in files:
        view = regions.view(file.path)
        if view is None:
            continue
        count = _bisect(view, len(view) // UNIT_SIZE, lambda unit: unit[1] == 0)
        low = _bisect(view, count, lambda unit: unit[0] >= start)
        high = _bisect(view, count, lambda unit: unit[0] >= end)
        if low < high:
            # A copy: an array over the view would keep the file from being unmapped.
            found.append(written_units(bytes(view[low * UNIT_SIZE : high * UNIT_SIZE]))[0])
    return np.concatenate(found)


def _bisect(view: memoryview, count: int, is_behind: Callable[[tuple[int, ...]], bool]) -> int:
    """Return the number of the first of ``count`` units for which a condition holds."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if is_behind(UNIT.unpack_from(view, middle * UNIT_SIZE)):
            high = middle
        else:
            low = middle + 1
    return low
