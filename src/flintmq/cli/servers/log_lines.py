"""The log of our servers, text or JSON: one record is one line, whatever names peers choose."""

from __future__ import annotations

import functools
import logging
import re
from datetime import datetime
from types import TracebackType
from typing import Any, Final, TypeAlias

MESSAGE_LENGTH_MAX: Final = 16 << 10
"""Characters of a message that are shown."""

INDENT: Final = "    "
"""Stands before the lines of a traceback, so that none of them can be taken for a record."""

_ExceptionInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)

_SLOT: Final = r"%%|(?:(\w+)=)?%[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]"
"""A place for an argument in a message, with the name before it."""

_CONTROL: Final = (
    *range(0x20),
    *range(0x7F, 0xA0),  # DEL and the second set of control characters.
    *range(0x2028, 0x202F),  # Separators of lines, and what turns the direction of writing.
    *range(0x2066, 0x206A),
    *range(0xD800, 0xE000),  # Halves of characters, which no stream can write.
)


@functools.cache
def _escapes() -> dict[int, str]:
    """Return how each of these characters is written; most logs never need it."""
    return {code: ascii(chr(code))[1:-1] for code in _CONTROL}


def one_line(text: str) -> str:
    """Return a text with line breaks and other control characters written as escapes."""
    text = _cut(text)
    return text if text.isascii() and text.isprintable() else text.translate(_escapes())


class OneLineFormatter(logging.Formatter):
    """Writes a record as one line; a traceback follows on lines that are indented."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Return the time of a record, by the clock on the wall with its offset."""
        return _time_text(record)

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


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON.

    Our messages read ``what happened: key=%s``, so each of their arguments has a name: what
    happened is the member ``event``, the arguments are ``fields``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        import json  # Whoever logs text need not load it.

        event, fields = _event_of(record)
        members: dict[str, Any] = {
            "time": _time_text(record),
            "level": record.levelname.lower(),
            "area": area_of(record.name),
            "event": event,
            "message": _cut(record.getMessage()),
        }
        if fields:
            members["fields"] = fields
        if record.exc_info:
            members["error"] = _cut(self.formatException(record.exc_info))
        if record.stack_info:
            members["stack"] = _cut(record.stack_info)
        # What is not ASCII is escaped, so that nothing in it can end the line.
        return json.dumps(members)


def area_of(logger_name: str) -> str:
    """Return the package of ours that a logger belongs to, or the name of a stranger's."""
    first, _, rest = logger_name.partition(".")
    return rest.partition(".")[0] if first == "flintmq" and rest else logger_name


def _time_text(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


def _event_of(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """Return what happened, and the arguments that have names."""
    template = str(record.msg)
    event = template.partition(": ")[0]
    arguments = record.args if isinstance(record.args, tuple) else ()
    slots = [found[1] for found in re.finditer(_SLOT, template) if found[0] != "%%"]
    if len(slots) != len(arguments):
        return _cut(record.getMessage()) if "%" in event else event, {}
    fields = {
        name: one if isinstance(one, int | float | bool) or one is None else _cut(str(one))
        for name, one in zip(slots, arguments, strict=True)
        if name
    }
    return _cut(record.getMessage()) if "%" in event else event, fields


def _cut(text: str) -> str:
    if len(text) <= MESSAGE_LENGTH_MAX:
        return text
    more = len(text) - MESSAGE_LENGTH_MAX
    return f"{text[:MESSAGE_LENGTH_MAX]}... ({more} more characters)"


def _indented(text: str) -> str:
    return "\n".join(INDENT + one_line(line) for line in text.split("\n"))
