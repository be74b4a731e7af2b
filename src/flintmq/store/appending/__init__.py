"""Appending: single messages and batches, and append groups."""

__all__ = [
    "appender",
    "group_appender",
    "replica_appender",
    "store_writer",
]
