"""Two stores compared message by message."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.spark.jobs.diff.diff_report import Difference, DifferenceKind, DiffReport
    from flintmq.spark.jobs.diff.store_diff import DiffRequest, compare, diff
else:
    from flintmq.spark.lazy_exports import lazy_exports

    __getattr__ = lazy_exports(
        __name__,
        {
            "diff_report": (
                "Difference",
                "DifferenceKind",
                "DiffReport",
            ),
            "store_diff": (
                "DiffRequest",
                "compare",
                "diff",
            ),
        },
    )

__all__ = [
    "DiffReport",
    "DiffRequest",
    "Difference",
    "DifferenceKind",
    "compare",
    "diff",
    "diff_report",
    "store_diff",
]
