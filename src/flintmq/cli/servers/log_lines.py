"""The log of our servers: one record is one line, whatever names peers choose."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Final, TypeAlias

MESSAGE_LENGTH_MAX: Final = 16 << 10
"""Characters of a message that are shown."""

INDENT: Final = "    "
"""Stands before the lines of a traceback, so that none of them can be taken for a record."""

_ExceptionInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)

_CONTROL: Final = (
    *range(0x20),
    *range(0x7F, 0xA0),  # DEL and the second set of control characters.
    *range(0x2028, 0x202F),  # Separators of lines, and what turns the direction of writing.
    *range(0x2066, 0x206A),
    *range(0xD800, 0xE000),  # Halves of characters, which no stream can write.
)
_ESCAPES: Final = {code: ascii(chr(code))[1:-1] for code in _CONTROL}


def one_line(text: str) -> str:
    """Return a text with line breaks and other control characters written as escapes."""
    if len(text) > MESSAGE_LENGTH_MAX:
        more = len(text) - MESSAGE_LENGTH_MAX
        text = f"{text[:MESSAGE_LENGTH_MAX]}... ({more} more characters)"
    return text if text.isascii() and text.isprintable() else text.translate(_ESCAPES)


class OneLineFormatter(logging.Formatter):
    """Writes a record as one line; a traceback follows on lines that are indented."""

    def __init__(self) -> None:
        super().__init__(
            "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s",
            datefmt="%Y-%m-%dT%H:%M:%S",
        )

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        record.message = one_line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: _ExceptionInfo) -> str:
        """Return the traceback of an error, indented."""
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        """Return a stack, indented."""
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join(INDENT + one_line(line) for line in text.split("\n"))
