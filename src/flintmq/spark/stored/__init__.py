"""Store directories as tables and streams: planning, reading, following."""

__all__ = [
    "log_follower",
    "log_identity",
    "log_read",
    "log_reader",
    "log_split",
    "log_stream",
    "split_plan",
    "split_scan",
    "tables",
]
