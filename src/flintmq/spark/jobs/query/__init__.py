"""SQL over stores, archives and live topics."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.spark.jobs.query.query_report import QueryReport
    from flintmq.spark.jobs.query.sql_query import QueryRequest, QueryRun, live_query, query
else:
    from flintmq.spark.lazy_exports import lazy_exports

    __getattr__ = lazy_exports(
        __name__,
        {
            "query_report": ("QueryReport",),
            "sql_query": (
                "QueryRequest",
                "QueryRun",
                "live_query",
                "query",
            ),
        },
    )

__all__ = [
    "QueryReport",
    "QueryRequest",
    "QueryRun",
    "live_query",
    "query",
    "query_plan",
    "query_report",
    "query_views",
    "sql_query",
    "sql_shape",
]
