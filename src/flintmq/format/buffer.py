"""The types that codecs read from."""

from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Anything with bytes in it; a memoryview must be of plain bytes (format ``B``)."""
