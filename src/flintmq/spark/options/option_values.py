"""Values of options, from text: numbers, sizes, times, lists.  What means nothing is refused."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from enum import Enum
from typing import Final, TypeVar

from flintmq.spark.errors import OptionError

TEXT_SIZE_MAX: Final = 16 << 20
"""The longest value that is taken apart."""

_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE: Final = re.compile(r"([0-9]{1,18})\s*([kmg]?)(?:i?b)?", re.IGNORECASE)
_MILLISECONDS: Final = re.compile(r"-?[0-9]{1,18}")
_QUEUE_ID: Final = re.compile(r"-?[0-9]{1,10}")

Given = Mapping[str, str]
"""Options by their names in lower case."""

Choice = TypeVar("Choice", bound=Enum)


def parse_choice(name: str, given: Given, default: Choice) -> Choice:
    """Return one of the values of an enumeration."""
    kind = type(default)
    text = given.get(name.lower())
    if text is None:
        return default
    try:
        return kind(text.strip().lower())
    except ValueError:
        allowed = ", ".join(str(choice.value) for choice in kind)
        raise OptionError(f"{name} is one of {allowed}, not {text!r}") from None


def parse_truth(name: str, given: Given, *, default: bool) -> bool:
    """Return true or false."""
    text = given.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name} is true or false, not {text!r}")
    return text == "true"


def parse_size(name: str, given: Given) -> int | None:
    """Return a number of bytes above zero."""
    text = given.get(name.lower())
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) * _UNITS[match[2].lower()] if match else 0
    if size <= 0:
        raise OptionError(f"{name} is a number of bytes such as 1048576 or 64m, not {text!r}")
    return size


def parse_count(name: str, given: Given) -> int | None:
    """Return a number of things above zero."""
    text = given.get(name.lower())
    if text is None:
        return None
    if not re.fullmatch(r"0*[1-9][0-9]{0,17}", text.strip()):
        raise OptionError(f"{name} is a number above zero, not {text!r}")
    return int(text)


def parse_time(name: str, given: Given, zone: tzinfo = UTC) -> int | None:
    """Return milliseconds; an ISO time that names no zone is of ``zone``."""
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
        time = time.replace(tzinfo=zone)
    return round(time.timestamp() * 1000)


def parse_names(name: str, given: Given, separator: str) -> frozenset[str] | None:
    """Return the texts between separators, without blanks around them."""
    text = given.get(name.lower())
    if text is None:
        return None
    names = frozenset(filter(None, map(str.strip, text.split(separator))))
    if not names:
        raise OptionError(f"{name} names no {name.removesuffix('s')}")
    return names


def parse_queue_ids(given: Given) -> frozenset[int] | None:
    """Return the queue ids between commas."""
    names = parse_names("queueId", given, ",")
    if names is None:
        return None
    for name in names:
        if not _QUEUE_ID.fullmatch(name):
            raise OptionError(f"queueId is a number or several with commas, not {name!r}")
    return frozenset(map(int, names))


def parse_json(name: str, text: str) -> object:
    """Return the value of a JSON text; None if it is none."""
    if len(text) > TEXT_SIZE_MAX:
        raise OptionError(f"{name} has {len(text)} characters; at most {TEXT_SIZE_MAX} are read")
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def parse_paths(given: Given) -> tuple[str, ...]:
    """Return the directories and patterns to load."""
    # Spark hands over one directory as "path" and a list of them as JSON in "paths".
    found = [given["path"]] if given.get("path") else []
    if "paths" in given:
        values = parse_json("paths", given["paths"])
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise OptionError(f"paths is a JSON list of texts, not {given['paths']!r}")
        found += values
    if not found:
        raise OptionError("no directory was given: load(DIRECTORY)")
    return tuple(found)


def parse_broker_names(given: Given) -> dict[str, str]:
    """Return broker names by directory, by its last component, or for all under ""."""
    text = given.get("brokername")
    if text is None:
        return {}
    if not text.lstrip().startswith("{"):
        return {"": text}
    names = parse_json("brokerName", text)
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise OptionError("brokerName is a name, or a JSON object from directory to name")
    return names
