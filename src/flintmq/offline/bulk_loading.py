"""Machine code for the tools that read a whole store."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from flintmq.store.recovery.fast_walk import load_bulk_records

if TYPE_CHECKING:
    from flintmq.format.delay_levels import DelayLevels
    from flintmq.offline.log_files import LogFiles
    from flintmq.offline.scan import LoadBulk


def bulk_loader(
    log: LogFiles, delay_levels: DelayLevels, *, lmq: bool, multi: bool = True
) -> LoadBulk:
    """Return what loads the machine code that reads a log.

    Without ``multi`` each record has a unit in its own queue only.
    """
    return functools.partial(
        load_bulk_records, delay_levels=delay_levels, multi=multi, lmq=lmq, remaining_size=log.size
    )
