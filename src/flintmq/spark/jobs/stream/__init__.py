"""Streaming jobs on live topics."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.spark.jobs.stream.stream_job import (
        StreamJob,
        StreamProgress,
        StreamSettings,
        StreamTarget,
    )
else:
    from flintmq.spark.lazy_exports import lazy_exports

    __getattr__ = lazy_exports(
        __name__,
        {
            "stream_job": (
                "StreamJob",
                "StreamProgress",
                "StreamSettings",
                "StreamTarget",
            ),
        },
    )

__all__ = [
    "StreamJob",
    "StreamProgress",
    "StreamSettings",
    "StreamTarget",
    "stream_job",
]
