"""Bytes in, bytes out: one module per notation of the store's files.

Nothing here opens a file, waits or logs.  Damaged input raises a kind of
`flintmq.format.errors.FormatError`.
"""

__all__: list[str] = []
