"""Values as objects, lists, texts and numbers: what every notation can write."""

import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Final, TypeAlias

from flintmq.cli.output.text import local_time

_MOMENT: Final = "_at_ms"
"""Ends the names of fields that are moments; they are shown as times with the zone of here."""

Special: TypeAlias = Callable[[object], object | None]


def plain(value: object, special: Special | None = None) -> object:
    """Return a value as objects, lists, texts and numbers; names become camel case.

    What ``special`` returns for a value stands for it, unless that is None.
    """
    found = None if special is None else special(value)
    if found is not None:
        return found
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path | Exception):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return dict(_member(name, getattr(value, name), special) for name in names)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(_member(name, item, special) for name, item in value._asdict().items())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, special) for item in value]
    if isinstance(value, Mapping):
        return {str(name): plain(item, special) for name, item in value.items()}
    return value


def _member(name: str, value: object, special: Special | None) -> tuple[str, object]:
    if not name.endswith(_MOMENT):
        return camel(name), plain(value, special)
    assert value is None or isinstance(value, int), name
    return camel(name.removesuffix("_ms")), None if value is None else local_time(value)


def camel(name: str) -> str:
    """Return a name of Python as the member of a JSON object."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
