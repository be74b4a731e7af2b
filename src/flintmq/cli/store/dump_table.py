"""Messages as lines of a table, one at a time: a store may hold more than fits into memory."""

import json
from collections.abc import Mapping
from typing import Any, Final

from flintmq.cli.output.text import printable, time_text

_COLUMNS: Final = "{:>14}  {:>8}  {:<24}  {:<40}  {:>8}  {:<16}  {}"


def table_head() -> str:
    """Return the line above the columns."""
    return _COLUMNS.format("OFFSET", "SIZE", "STORED", "QUEUE @ OFFSET", "BODY", "TAGS", "KEYS")


def table_line(message: Mapping[str, Any]) -> str:
    """Return the line of one message; its body is told by its length only."""
    properties = message["properties"]
    body = message["bodyLength"]
    keys = [properties.get("UNIQ_KEY", ""), properties.get("KEYS", "")]
    mark = "  BODY DAMAGED" if "crcOk" in message or "bodyError" in message else ""
    queue = f"{message['topic']}/{message['queueId']} @ {message['queueOffset']}"
    return (
        _COLUMNS.format(
            message["physicalOffset"],
            message["size"],
            time_text(message["storeTimestamp"]),
            printable(queue),
            "?" if body is None else body,
            printable(properties.get("TAGS", "")),
            printable(" ".join(key for key in keys if key)),
        ).rstrip()
        + mark
    )


def body_line(message: Mapping[str, Any]) -> str:
    """Return the line of a body, which stands below that of its message."""
    body = message["body"]
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return f"    {printable(text)}{' …' if 'bodyCut' in message else ''}"
