"""How the fields of a header are read and written, one loop for all classes.

A codec is a tuple of steps, one for each field, worked out when a class is first used.  The steps
hold bound functions instead of names to look up: a broker reads and writes a header for every
message that takes the ordinary way.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring as quoted
from typing import Any, Final, NamedTuple, TypeAlias

from flintmq.format.wire.remoting_errors import (
    FieldLengthError,
    FieldValueError,
    LocalProtocolError,
    MissingFieldError,
)

SMALL: Final = {str(number): number for number in range(-16, 1024)}
"""Most integers on the wire are small; looking one up takes a tenth of parsing it."""


class FieldPlan(NamedTuple):
    """How one field is read and written."""

    name: str
    wire_name: str
    is_required: bool
    default: Any
    is_text: bool
    length_max: int
    """Characters that a text may have."""
    limit: int
    """Where the integers of the field end; 0 for a field of another type."""
    expected: str
    parse: Callable[[str], Any]
    """Gives the value, or None for a text that is none."""
    write: Callable[[Any], str]
    known: Mapping[str, Any]
    """The values of texts that are seen often."""


class ReadStep(NamedTuple):
    """How one field of a header gets its value from the ext fields."""

    wire_name: str
    set_value: Callable[[Any, Any], None]
    is_text: bool
    length_max: int
    known: Callable[[str], Any]
    """Gives the value of a text that is seen often, None for others."""
    plan: FieldPlan


class FieldWriter(NamedTuple):
    """How one field of a header becomes an ext field."""

    wire_name: str
    write: Callable[[Any], str]
    json_member: str
    """A template of the member in a JSON object."""
    limit: int | None
    """Where the integers of the field end; 0 for other types, None for a text."""


class Writer(NamedTuple):
    """How the fields of a header become ext fields."""

    values: Callable[[Any], tuple[Any, ...]]
    """Gives the values of all fields."""
    fields: tuple[FieldWriter, ...]


Reader: TypeAlias = tuple[ReadStep, ...]


def reader_of(kind: type, plans: Sequence[FieldPlan]) -> Reader:
    """Return the steps that read a header of class ``kind``."""
    return tuple(
        ReadStep(
            plan.wire_name,
            getattr(kind, plan.name).__set__,
            plan.is_text,
            plan.length_max,
            plan.known.get,
            plan,
        )
        for plan in plans
    )


def read_header(header: Any, reader: Reader, ext_fields: Mapping[str, str]) -> None:
    """Set the fields of a new header.

    A field that is not there raises MissingFieldError, one that is no value of its type
    FieldValueError, a name that is too long FieldLengthError; all name it as the wire does.
    """
    get = ext_fields.get
    for wire_name, set_value, is_text, length_max, known, plan in reader:
        text = get(wire_name)
        if is_text and text is not None:
            if len(text) > length_max:
                raise FieldLengthError(type(header).__name__, wire_name, length_max)
            set_value(header, text)
        elif text:
            value = known(text)
            if value is None:
                value = plan.parse(text)
                if value is None:
                    kind = type(header).__name__
                    raise FieldValueError(kind, wire_name, plan.expected, text)
            set_value(header, value)
        elif plan.is_required:
            raise MissingFieldError(type(header).__name__, wire_name)
        else:
            set_value(header, plan.default)


def writer_of(plans: Sequence[FieldPlan]) -> Writer:
    """Return how headers with these fields are written."""
    return Writer(_values_of([plan.name for plan in plans]), tuple(map(_field_writer, plans)))


def _values_of(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that gives the attributes of these names."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda header: tuple([getattr(header, name) for name in names])


def _field_writer(plan: FieldPlan) -> FieldWriter:
    value = "%s" if plan.is_text else '"%s"'
    member = f"{quoted(plan.wire_name).replace('%', '%%')}:{value}"
    write = plan.write if plan.is_text else _checked(plan)
    return FieldWriter(plan.wire_name, write, member, None if plan.is_text else plan.limit)


def _checked(plan: FieldPlan) -> Callable[[Any], str]:
    """Return how a value becomes text; what the other side could not read is found here."""
    write, parse = plan.write, plan.parse

    def checked(value: Any) -> str:
        text = write(value)
        if parse(text) is None:
            raise LocalProtocolError(f"{plan.name} is not {plan.expected}: {value!r}")
        return text

    return checked


def write_fields(header: Any, writer: Writer) -> dict[str, str]:
    """Return the ext fields of a header."""
    values, fields = writer
    return {
        wire_name: value
        if limit is None
        else str(value)
        if value.__class__ is int and -limit <= value < limit
        else write(value)
        for value, (wire_name, write, _, limit) in zip(values(header), fields, strict=True)
        if value is not None
    }


def write_json(header: Any, writer: Writer) -> str:
    """Return the ext fields of a header as a JSON object."""
    values, fields = writer
    members = [
        member % quoted(value)
        if limit is None
        else member % value
        if value.__class__ is int and -limit <= value < limit
        else member % write(value)
        for value, (_, write, member, limit) in zip(values(header), fields, strict=True)
        if value is not None
    ]
    return "{" + ",".join(members) + "}"
