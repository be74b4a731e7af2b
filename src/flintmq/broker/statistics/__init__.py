"""Counters of a broker: rates by topic and group, totals of a day."""

__all__ = [
    "broker_statistics",
    "daily_totals",
]
