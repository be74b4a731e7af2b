"""Volumes, sizes, lag and repeated keys of topics, as a report and as a picture."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.spark.jobs.stats.stats_plot import plot_stats
    from flintmq.spark.jobs.stats.stats_report import StatsReport
    from flintmq.spark.jobs.stats.topic_stats import StatsRequest, live_stats, measure, stats
else:
    from flintmq.spark.lazy_exports import lazy_exports

    __getattr__ = lazy_exports(
        __name__,
        {
            "stats_plot": ("plot_stats",),
            "stats_report": ("StatsReport",),
            "topic_stats": (
                "StatsRequest",
                "live_stats",
                "measure",
                "stats",
            ),
        },
    )

__all__ = [
    "StatsReport",
    "StatsRequest",
    "live_stats",
    "measure",
    "plot_stats",
    "stats",
    "stats_plot",
    "stats_report",
    "time_bins",
    "topic_stats",
]
