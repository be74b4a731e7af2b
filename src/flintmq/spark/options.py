"""The options of the data source, from text to values.

Names are compared without regard to case, as Spark does; docs/spark.md lists them.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from flintmq.spark.errors import OptionError

SPLIT_SIZE: Final = 64 << 20
NAMES: Final = (
    "path",
    "paths",
    "source",
    "topic",
    "startingTimestamp",
    "endingTimestamp",
    "onCorruptRecord",
    "splitSize",
    "brokerName",
    "filterPushdown",
)
_KNOWN: Final = {name.lower(): name for name in NAMES}
_SOURCES: Final = ("commitlog",)
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE: Final = re.compile(r"([0-9]{1,18})\s*([kmg]?)(?:i?b)?", re.IGNORECASE)
_MILLISECONDS: Final = re.compile(r"-?[0-9]{1,18}")


class OnCorrupt(Enum):
    """What becomes of a range of the log that holds no whole record."""

    FAIL = "fail"
    SKIP = "skip"
    ROW = "row"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read.  Times are milliseconds, the end is exclusive; what is None does not restrict.

    ``broker_names`` gives the name by directory, by its last component, or for all under "".
    """

    paths: tuple[str, ...]
    topics: frozenset[str] | None = None
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    on_corrupt: OnCorrupt = OnCorrupt.FAIL
    split_size: int = SPLIT_SIZE
    broker_names: Mapping[str, str]
    filter_pushdown: bool = False


def parse_on_corrupt(options: Mapping[str, str]) -> OnCorrupt:
    """Return what to do with damage; the schema depends on it."""
    text = _lowered(options).get("oncorruptrecord", OnCorrupt.FAIL.value)
    try:
        return OnCorrupt(text.strip().lower())
    except ValueError:
        allowed = ", ".join(mode.value for mode in OnCorrupt)
        raise OptionError(f"onCorruptRecord is one of {allowed}, not {text!r}") from None


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Return the values of ``options``; OptionError for one that is unknown or means nothing."""
    given = _lowered(options)
    refuse_unknown(given)
    source = given.get("source", _SOURCES[0]).strip().lower()
    if source not in _SOURCES:
        raise OptionError(f"source is {' or '.join(_SOURCES)}, not {source!r}")
    return ReadOptions(
        paths=_paths(given),
        topics=_topics(given.get("topic")),
        starting_timestamp=_time("startingTimestamp", given),
        ending_timestamp=_time("endingTimestamp", given),
        on_corrupt=parse_on_corrupt(options),
        split_size=_size(given.get("splitsize")),
        broker_names=_broker_names(given.get("brokername")),
        filter_pushdown=_truth("filterPushdown", given),
    )


def refuse_unknown(names: Iterable[str]) -> None:
    """Raise OptionError for a name that no option has; it tells the nearest one."""
    for name in names:
        if name.lower() in _KNOWN:
            continue
        near = difflib.get_close_matches(name.lower(), _KNOWN, n=1, cutoff=0.5)
        hint = f"did you mean {_KNOWN[near[0]]}?" if near else f"known are {', '.join(NAMES)}"
        raise OptionError(f"unknown option {name!r}; {hint}")


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    # Spark hands over one directory as "path" and a list of them as JSON in "paths".
    found = [given["path"]] if given.get("path") else []
    if "paths" in given:
        found += _json_strings("paths", given["paths"])
    if not found:
        raise OptionError("no directory was given: load(DIRECTORY)")
    return tuple(found)


def _json_strings(name: str, text: str) -> list[str]:
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise OptionError(f"{name} is a JSON list of texts, not {text!r}")
    return values


def _topics(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    topics = frozenset(filter(None, map(str.strip, text.split(","))))
    if not topics:
        raise OptionError("topic names no topic")
    return topics


def _time(name: str, given: Mapping[str, str]) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    text = text.strip()
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        reason = f"{name} is a number of milliseconds or an ISO time, not {text!r}"
        raise OptionError(reason) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return round(time.timestamp() * 1000)


def _size(text: str | None) -> int:
    if text is None:
        return SPLIT_SIZE
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) * _UNITS[match[2].lower()] if match else 0
    if size <= 0:
        raise OptionError(f"splitSize is a number of bytes such as 1048576 or 64m, not {text!r}")
    return size


def _truth(name: str, given: Mapping[str, str]) -> bool:
    text = given.get(name.lower(), "false").strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name} is true or false, not {text!r}")
    return text == "true"


def _broker_names(text: str | None) -> dict[str, str]:
    if text is None:
        return {}
    if not text.lstrip().startswith("{"):
        return {"": text}
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise OptionError("brokerName is a name, or a JSON object from directory to name")
    return names
