"""What ``query`` tells about its answer: typed, and without Spark."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from flintmq.spark.jobs.damages import Damages

LIMIT_MAX: Final = 2_000_000_000
"""Spark counts the rows of a limit in 32 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryReport:
    """What an answer rests on.

    ``matched_count`` is None where rows were left out because of ``limit``.  ``columns_read``
    tells, by view, what was read of it, ``topics_read`` to which topics the messages could be
    restricted from the start (none: all topics were read).  ``scanned_count`` is how many rows the
    scans gave; one that feeds a sort of all rows is run twice by Spark, and counts twice.
    """

    columns: tuple[str, ...]
    row_count: int
    matched_count: int | None
    scanned_count: int
    limit: int | None
    damages: Damages
    columns_read: Mapping[str, tuple[str, ...]]
    topics_read: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether the rows are all that the query asks for, and nothing was damaged."""
        return self.matched_count is not None and not self.damages.is_loss
