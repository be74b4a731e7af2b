"""Metrics: plain counters that every layer may write to, and the endpoint that shows them.

Whoever counts adds to a number of its own.  What a metric is called, and what it looks like on the
wire, is decided when somebody asks: a *source* reads live state then and returns families.
"""

__all__ = [
    "exposition",
    "families",
    "histograms",
    "http_requests",
    "metrics_endpoint",
    "readiness",
]
