"""Dataclasses that cost a start little.

For each frozen dataclass `dataclasses` writes and compiles six functions with all of its fields,
those of the classes before it too: a fifth of what a broker's start took.  `Value` has one of each
for all.  Making a value takes a little longer, so this is for what is made now and then: settings,
limits, what clients say of themselves.  Whatever looks at such a class as a dataclass, such as
`dataclasses.replace`, finds one.

`NamedFields` does the same for objects with many fields that may be assigned, and of which a server
has one: what its store or its processors share.  `FieldEquality` has what compares and shows the
objects of a dataclass that are made so often that it needs an ``__init__`` of its own.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, field
from typing import Any, ClassVar, Final, TypeVar, dataclass_transform


class Value:
    """Fields that are given by name and cannot be assigned."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init__(self, **values: Any) -> None:
        """Take the fields by name; those that are not given have their defaults."""
        kind = type(self)
        defaults, factories = _DEFAULTS.get(kind) or _defaults(kind)
        own = self.__dict__
        own.update(defaults)
        for name, factory in factories.items():
            if name not in values:
                own[name] = factory()
        own.update(values)
        if len(own) != len(kind.__dataclass_fields__) or MISSING in own.values():
            known = kind.__dataclass_fields__
            wrong = [name for name in own if name not in known or own[name] is MISSING]
            raise TypeError(f"{kind.__name__}(): unknown or missing: {', '.join(wrong)}")
        self.__post_init__()

    def __post_init__(self) -> None:
        """Raise an error for values that are not allowed; a class may have its own."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__[name] for name in self.__dataclass_fields__))

    def __repr__(self) -> str:
        return _shown(self, self.__dataclass_fields__)


_DEFAULTS: Final[dict[type[Value], tuple[dict[str, Any], dict[str, Any]]]] = {}
"""The defaults of a class, MISSING where a value must be given, and what makes defaults."""

_Value = TypeVar("_Value", bound=Value)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def value_class(cls: type[_Value]) -> type[_Value]:
    """Make a class under `Value` a dataclass, whose annotations are its fields."""
    made = dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False, kw_only=True)(
        cls
    )
    return made


def _shown(value: Any, fields: Mapping[str, Field[Any]]) -> str:
    """Return a value as it would be made, but for the fields that nobody may see."""
    shown = (f"{name}={getattr(value, name)!r}" for name, each in fields.items() if each.repr)
    return f"{type(value).__name__}({', '.join(shown)})"


def _defaults(kind: type[Value]) -> tuple[dict[str, Any], dict[str, Any]]:
    fields = kind.__dataclass_fields__.values()
    found = _DEFAULTS[kind] = (
        {each.name: each.default for each in fields},
        {each.name: each.default_factory for each in fields if each.default_factory is not MISSING},
    )
    return found


class FieldEquality:
    """Compares and shows dataclasses by their fields, as those would that `dataclasses` writes."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        fields = self.__dataclass_fields__.items()
        compared = [name for name, each in fields if each.compare]
        return all(getattr(self, name) == getattr(other, name) for name in compared)

    def __repr__(self) -> str:
        return _shown(self, self.__dataclass_fields__)


class NamedFields:
    """Fields that are given by name and may be assigned.  Each object equals itself only."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init__(self, **values: Any) -> None:
        """Take the fields by name; those that are not given have their defaults."""
        for name, each in self.__dataclass_fields__.items():
            if name in values:
                value = values.pop(name)
            elif each.default_factory is not MISSING:
                value = each.default_factory()
            else:
                value = each.default
            if value is MISSING:
                raise TypeError(f"{type(self).__name__}(): missing: {name}")
            setattr(self, name, value)
        if values:
            raise TypeError(f"{type(self).__name__}(): unknown: {', '.join(values)}")


_NamedFields = TypeVar("_NamedFields", bound=NamedFields)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def named_fields(cls: type[_NamedFields]) -> type[_NamedFields]:
    """Make a class under `NamedFields` a dataclass with slots, whose annotations are its fields."""
    made = dataclasses.dataclass(
        init=False, repr=False, eq=False, match_args=False, kw_only=True, slots=True
    )(cls)
    return made
