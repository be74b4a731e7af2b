"""From where a stream of live topics reads, in words for its user."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from flintmq.spark.live.live_options import parse_stream
from flintmq.spark.options.offset_bounds import EARLIEST, LATEST

_OFFSETS: Final = "offsets"
"""Where a checkpoint of Spark keeps how far a query has planned."""


def start_text(checkpoint: str, source: Mapping[str, str]) -> str:
    """Return from where a query reads that starts with this checkpoint and these options."""
    if any(Path(checkpoint, _OFFSETS).glob("[0-9]*")):
        return f"where it was, by the checkpoint {checkpoint}"
    start = parse_stream(source).read.start
    if start.by_queue:
        return f"the places that {start.option} names"
    if start.default.time_ms is not None:
        moment = datetime.fromtimestamp(start.default.time_ms / 1000, UTC)
        return f"the messages of {moment.isoformat(timespec='milliseconds')} on"
    words = {EARLIEST: "the oldest message", LATEST: "the latest message, so new ones only"}
    return words[start.default.offset]
