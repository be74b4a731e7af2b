"""Times as operators write them: ISO 8601, milliseconds, ``now``, or as mqadmin takes them."""

from __future__ import annotations

import datetime
import re
import time
from typing import Final

import click

_MQADMIN: Final = re.compile(r"(\d{4}-\d\d-\d\d)#(\d\d:\d\d:\d\d)(?::(\d{3}))?")
_MILLISECONDS: Final = re.compile(r"-?\d{1,19}")
_AGO: Final = re.compile(r"(\d{1,9})(s|m|h|d)")
_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def moment(value: str) -> int:
    """Return a time in milliseconds; one without a zone is of the zone of this machine."""
    text = value.strip()
    if text == "now":
        return time.time_ns() // 1_000_000
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return time.time_ns() // 1_000_000 - int(ago[1]) * _UNITS_MS[ago[2]]
    written = _MQADMIN.fullmatch(text)
    if written is not None:
        text = f"{written[1]}T{written[2]}.{written[3] or '000'}"
    try:
        return round(datetime.datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(
            f"{text!r} is no time; write 2026-11-17T18:00:00+01:00, 2026-11-17T18:00, "
            "2h (ago), now, or milliseconds"
        ) from None
