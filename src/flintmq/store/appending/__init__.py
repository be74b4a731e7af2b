"""Appending: single messages and batches, and append groups."""

__all__ = [
    "appender",
    "batch_preparation",
    "group_appender",
    "replica_appender",
    "store_writer",
]
