"""The views derived from the log: consume queues and the key index."""

__all__ = [
    "key_index",
    "key_index_file",
    "queue_table",
    "space_ahead",
]
