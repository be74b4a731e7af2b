"""The one codec of all header classes: ext fields to typed values and back.

A header is a dataclass under `Header`, declared with `header`, whose annotations say everything:

    annotation            on the wire
    str                   the text itself
    Int32, Int64          decimal, within that many bits
    bool                  true or false; 1 and 0 are read too, as C++ clients send them
    an IntEnum            the name; the number is read too
    any of these | None   left out when None

A field without a default must be there.  Its name is the Java name in snake case unless the class
says otherwise by its argument ``wire_names``.  Ext fields that no field declares are ignored.  An
empty text counts as absent, except for a ``str``: the binary notation cannot tell the two apart.
Names of topics, groups and the like have a length (`name_limits`).
"""

import dataclasses
import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    dataclass_transform,
)

from flintmq.format.wire.headers.field_codecs import (
    SMALL,
    FieldPlan,
    Reader,
    Writer,
    read_header,
    reader_of,
    write_fields,
    write_json,
    writer_of,
)
from flintmq.format.wire.name_limits import NAME_LENGTHS


class _Bits(NamedTuple):
    """How many bits an integer of the wire has."""

    size: int


Int32: TypeAlias = Annotated[int, _Bits(32)]
"""A Java int."""

Int64: TypeAlias = Annotated[int, _Bits(64)]
"""A Java long."""

_DECIMAL: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DIGITS_MAX: Final = 32
_TRUTHS: Final = {"true": True, "false": False, "1": True, "0": False}
_AFTER_UNDERSCORE: Final = re.compile(r"_([a-z0-9])")


_NO_DEFAULT: Final = dataclasses.MISSING


class _DataclassFields:
    """The fields of a header class as `dataclasses` knows them, made when it first asks for them.

    To make them takes milliseconds, since a class is compiled: that is done once for each class,
    not for each header that `dataclasses.replace` copies.
    """

    def __init__(self) -> None:
        self._made: dict[type[Header], dict[str, Any]] = {}

    def __get__(self, instance: object, cls: type["Header"]) -> dict[str, Any]:
        found = self._made.get(cls)
        if found is None:
            fields = [(name, Any, _field(default)) for name, default in cls._defaults.items()]
            twin: Any = dataclasses.make_dataclass(cls.__name__, fields, kw_only=True)
            found = self._made[cls] = twin.__dataclass_fields__
        return found


def _field(default: Any) -> Any:
    return dataclasses.field(default=default)


class HeaderFields(Protocol):
    """Whatever becomes the ext fields of a request: a `Header`, or fields encoded before."""

    def encode(self) -> dict[str, str]:
        """Return the ext fields."""
        ...


class Header:
    """The typed ext fields of one kind of request or answer."""

    __slots__ = ()

    _wire_names: ClassVar[Mapping[str, str]] = {}
    _defaults: ClassVar[Mapping[str, Any]] = {}
    """The default of each field in their order, _NO_DEFAULT where it must be given."""
    __dataclass_fields__: ClassVar[Any] = _DataclassFields()

    def __init__(self, **values: Any) -> None:
        """Take the fields by name."""
        cls = type(self)
        if not values.keys() <= cls._defaults.keys():
            unknown = ", ".join(map(repr, values.keys() - cls._defaults.keys()))
            raise TypeError(f"{cls.__name__}.__init__() got an unknown argument: {unknown}")
        for name, default, set_value in _SETTERS.get(cls) or _setters(cls):
            value = values.get(name, default)
            if value is _NO_DEFAULT:
                raise TypeError(f"{cls.__name__}.__init__() missing the argument {name!r}")
            set_value(self, value)

    def __init_subclass__(cls, *, wire_names: Mapping[str, str] | None = None) -> None:
        """Keep the names on the wire of fields that are not simply in camel case there."""
        # A dataclass with slots is made a second time, then without the arguments of its class.
        if wire_names is not None:
            cls._wire_names = wire_names

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        values = dict(zip(self._defaults, self._values(), strict=True))
        return functools.partial(type(self), **values), ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self._defaults)
        return f"{type(self).__name__}({', '.join(shown)})"

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._defaults)

    @classmethod
    def decode(cls, ext_fields: Mapping[str, str]) -> Self:
        """Return the header in ``ext_fields``.

        A field that is not there raises MissingFieldError, one that is no value of its type
        FieldValueError, a name that is too long FieldLengthError; all name it as the wire does.
        """
        reader = _READERS.get(cls)
        if reader is None:
            reader = _READERS[cls] = reader_of(cls, _plans(cls))
        header = object.__new__(cls)
        read_header(header, reader, ext_fields)
        return header

    def encode(self) -> dict[str, str]:
        """Return the ext fields of this header."""
        return write_fields(self, _writer(type(self)))

    def encode_json(self) -> str:
        """Return the ext fields of this header as a JSON object."""
        return write_json(self, _writer(type(self)))

    @classmethod
    def wire_fields(cls) -> tuple[str, ...]:
        """Return the names that the fields of this header have on the wire."""
        return tuple(plan.wire_name for plan in _plans(cls))

    @classmethod
    def wire_name(cls, field: str) -> str:
        """Return the name that a field has on the wire."""
        assert field in cls._defaults, f"{cls.__name__} has no field {field}"
        return cls._wire_names.get(field) or _camel_case(field)


_Header = TypeVar("_Header", bound=Header)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def header(cls: type[_Header]) -> type[_Header]:
    """Make a class a frozen dataclass with slots, whose fields are given by name.

    A process loads the headers of all requests and uses a few.  `dataclasses` itself would write
    several functions for each of them, which takes a tenth of a broker's start; `Header` has one
    of each for all, and what looks at it as a dataclass finds one.
    """
    own = {name: cls.__dict__.get(name, _NO_DEFAULT) for name in inspect.get_annotations(cls)}
    kept = {
        name: value
        for name, value in cls.__dict__.items()
        if name not in own and name not in ("__dict__", "__weakref__")
    }
    kept |= {"__slots__": tuple(own), "_defaults": {**cls._defaults, **own}}
    return cast("type[_Header]", type(cls.__name__, cls.__bases__, kept))


_SETTERS: Final[dict[type[Header], tuple[tuple[str, Any, Callable[[Any, Any], None]], ...]]] = {}
_READERS: Final[dict[type[Header], Reader]] = {}
_WRITERS: Final[dict[type[Header], Writer]] = {}
_PLANS: Final[dict[type[Header], tuple[FieldPlan, ...]]] = {}


def _setters(cls: type[Header]) -> tuple[tuple[str, Any, Callable[[Any, Any], None]], ...]:
    """Return name, default and slot of each field; `Header` itself refuses assignments."""
    setters = _SETTERS[cls] = tuple(
        (name, default, getattr(cls, name).__set__) for name, default in cls._defaults.items()
    )
    return setters


def _writer(cls: type[Header]) -> Writer:
    writer = _WRITERS.get(cls)
    if writer is None:
        writer = _WRITERS[cls] = writer_of(_plans(cls))
    return writer


def _plans(cls: type[Header]) -> tuple[FieldPlan, ...]:
    plans = _PLANS.get(cls)
    if plans is None:
        plans = _PLANS[cls] = _make_plans(cls)
    return plans


def _make_plans(cls: type[Header]) -> tuple[FieldPlan, ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    unknown = cls._wire_names.keys() - cls._defaults.keys()
    assert not unknown, f"{cls.__name__} has wire names for {unknown}"
    return tuple(_plan(cls, name, default, hints[name]) for name, default in cls._defaults.items())


def _plan(cls: type[Header], name: str, default: Any, hint: Any) -> FieldPlan:
    hint, is_optional = _without_none(hint)
    is_required = default is _NO_DEFAULT
    assert not (is_optional and is_required), f"{cls.__name__}.{name} needs a default"
    parse, write, expected = _conversions(hint)
    return FieldPlan(
        name=name,
        wire_name=cls.wire_name(name),
        is_required=is_required,
        default=None if is_required else default,
        is_text=hint is str,
        length_max=NAME_LENGTHS.get(_camel_case(name), sys.maxsize),
        limit=_limit(hint),
        expected=expected,
        parse=parse,
        write=write,
        known=SMALL if _limit(hint) else _TRUTHS if hint is bool else {},
    )


def _limit(hint: Any) -> int:
    if typing.get_origin(hint) is not Annotated:
        return 0
    bits = typing.get_args(hint)[1]
    assert isinstance(bits, _Bits)
    return 1 << (bits.size - 1)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    (inner,) = (member for member in typing.get_args(hint) if member is not type(None))
    return inner, True


def _conversions(hint: Any) -> tuple[Callable[[str], Any], Callable[[Any], str], str]:
    if hint is str:
        return str, str, "text"
    if hint is bool:
        return _parse_bool, _write_bool, "a boolean"
    if typing.get_origin(hint) is Annotated:
        limit = _limit(hint)
        expected = f"an integer of {limit.bit_length()} bits"
        return functools.partial(_parse_int, limit=limit), str, expected
    assert issubclass(hint, IntEnum), f"no wire form for {hint}"
    names = ", ".join(hint.__members__)
    return functools.partial(_parse_enum, hint), _write_enum, f"one of {names}"


def _parse_int(text: str, *, limit: int) -> int | None:
    if len(text) > _DIGITS_MAX:
        return None
    try:
        value = int(text)
    except ValueError:
        return None
    # Python reads more than Java does: spaces, underscores, digits of other scripts.
    if str(value) != text and _DECIMAL.fullmatch(text) is None:
        return None
    return value if -limit <= value < limit else None


def _parse_bool(text: str) -> bool | None:
    return _TRUTHS.get(text.lower())


def _write_bool(value: bool) -> str:
    return "true" if value else "false"


def _parse_enum(kind: type[IntEnum], text: str) -> IntEnum | None:
    member = kind.__members__.get(text)
    if member is None and text.isdecimal():
        member = next((each for each in kind if str(each.value) == text), None)
    return member


def _write_enum(value: IntEnum) -> str:
    return value.name


def _camel_case(name: str) -> str:
    return _AFTER_UNDERSCORE.sub(lambda match: match[1].upper(), name)
