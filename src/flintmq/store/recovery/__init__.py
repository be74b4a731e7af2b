"""Recovery: log and views brought in line at a start, and the report of it."""

__all__ = [
    "bulk_records",
    "fast_walk",
    "index_repair",
    "queue_repair",
    "recovery",
    "recovery_progress",
    "recovery_report",
    "set_aside",
]
