"""Loops over the bytes of a log, compiled to machine code by numba.

A kernel takes numpy arrays and numbers and gives such.  It decides nothing that the format does
not say plainly: what is out of the ordinary it leaves to the code in Python.
"""

__all__ = [
    "answers",
    "background_load",
    "compile_ahead",
    "compiled",
    "derived_views",
    "dispatch_fields",
    "field_dtypes",
    "group_buffers",
    "index",
    "numbers",
    "plain_properties",
    "properties",
    "pull_walk",
    "pulled_heads",
    "queue_numbers",
    "queue_reads",
    "queue_units",
    "record_encoding",
    "records",
    "request_walk",
    "sends",
    "texts",
]
