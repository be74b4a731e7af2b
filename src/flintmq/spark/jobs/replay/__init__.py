"""Stored messages sent again, and topics copied between clusters."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.spark.jobs.replay.message_replay import ReplayReport, ReplayRequest, replay
    from flintmq.spark.jobs.replay.topic_copy import CopyJob, CopyRequest
else:
    from flintmq.spark.lazy_exports import lazy_exports

    __getattr__ = lazy_exports(
        __name__,
        {
            "message_replay": (
                "ReplayReport",
                "ReplayRequest",
                "replay",
            ),
            "topic_copy": (
                "CopyJob",
                "CopyRequest",
            ),
        },
    )

__all__ = [
    "CopyJob",
    "CopyRequest",
    "ReplayReport",
    "ReplayRequest",
    "message_replay",
    "replay",
    "topic_copy",
]
