"""The commit log: rolled, read, flushed, walked from record to record."""

__all__ = [
    "checkpoint_file",
    "commit_log",
    "dispatch_request",
    "log_flusher",
    "record_walk",
    "torn_write",
]
