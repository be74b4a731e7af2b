"""Messages as lines of a table, one at a time: a store may hold more than fits into memory."""

from collections.abc import Mapping
from typing import Any, Final

from flintmq.cli.text import printable, time_text

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
