"""Bytes in, bytes out: one module per notation of the store's files.

Nothing here opens a file, waits or logs.  Damaged input raises a kind of
`flintmq.format.errors.FormatError`.
"""

__all__ = [
    "buffer",
    "compression",
    "delay_levels",
    "delivery_time",
    "errors",
    "fastjson",
    "hash_batch",
    "host",
    "java",
    "message_id",
    "properties",
    "stored",
    "subscription",
    "sys_flag",
    "topic_names",
    "wire",
]
