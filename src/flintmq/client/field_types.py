"""Types of settings, checked when a settings object is made.

mypy and pyright refuse a wrong type too, but not everybody uses them, and ``consume_from="first"``
would otherwise be noticed by whoever compares it first, or by nobody.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from enum import Enum
from typing import TYPE_CHECKING, Final

from flintmq.client.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_PLAIN: Final[dict[str, type]] = {"bool": bool, "int": int, "str": str}
_OPTIONAL: Final = " | None"


def check_field_types(settings: DataclassInstance) -> None:
    """Raise UsageError for a field whose value is of another type than the field.

    Numbers, texts, truths and enumerations are checked; other types are left to their users.
    """
    for field in fields(settings):
        value = getattr(settings, field.name)
        kind = str(field.type)
        if value is None and kind.endswith(_OPTIONAL):
            continue
        if field.default is not MISSING and isinstance(field.default, Enum):
            _check_enum(field.name, value, type(field.default))
            continue
        expected = _PLAIN.get(kind.removesuffix(_OPTIONAL))
        if expected is None or type(value) is expected:
            continue
        # A truth is a number for Python; for a user who wrote it by mistake it is none.
        if not isinstance(value, expected) or isinstance(value, bool):
            raise UsageError(
                f"{field.name} must be {expected.__name__}, not {type(value).__name__}"
            )


def _check_enum(name: str, value: object, kind: type[Enum]) -> None:
    if not isinstance(value, kind):
        choices = ", ".join(str(member) for member in kind)
        raise UsageError(f"{name} must be one of {choices}, not {value!r}")
