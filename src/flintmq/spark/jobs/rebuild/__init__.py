"""Queues and index of a store made anew from its log."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.spark.jobs.rebuild.parallel_rebuild import (
        ParallelRebuildReport,
        RebuildRequest,
        rebuild,
        rebuild_store,
    )
else:
    from flintmq.spark.lazy_exports import lazy_exports

    __getattr__ = lazy_exports(
        __name__,
        {
            "parallel_rebuild": (
                "ParallelRebuildReport",
                "RebuildRequest",
                "rebuild",
                "rebuild_store",
            ),
        },
    )

__all__ = [
    "ParallelRebuildReport",
    "RebuildRequest",
    "build_directory",
    "parallel_rebuild",
    "rebuild",
    "rebuild_store",
    "switch",
]
