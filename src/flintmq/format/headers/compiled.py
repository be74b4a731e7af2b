"""Header codecs as straight code: one function per class, written when it is first needed.

A broker reads and writes a header for every message, and a loop over the fields would take a
quarter of its time.  As ``dataclasses`` does for constructors, the text of a function is put
together from the fields of a class; nothing in it comes from a peer or a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring as quoted
from typing import Any, Final, NamedTuple, NoReturn

from flintmq.format.remoting_errors import FieldValueError, LocalProtocolError, MissingFieldError

SMALL: Final = {str(number): number for number in range(-16, 4096)}
"""Most integers on the wire are small; looking one up takes a tenth of parsing it."""


class FieldPlan(NamedTuple):
    """How one field is read and written."""

    name: str
    wire_name: str
    is_required: bool
    default: Any
    is_text: bool
    limit: int
    """Where the integers of the field end; 0 for a field of another type."""
    expected: str
    parse: Callable[[str], Any]
    """Gives the value, or None for a text that is none."""
    write: Callable[[Any], str]

    @property
    def is_integer(self) -> bool:
        """Whether the field is a number."""
        return self.limit > 0


def compile_init(kind: type, plans: Sequence[FieldPlan]) -> Callable[..., None]:
    """Return the constructor of a header of class ``kind``, which takes its fields by name."""
    scope: dict[str, Any] = {}
    parameters, lines = ["self"], [" pass"]
    if plans:
        parameters.append("*")
    for number, plan in enumerate(plans):
        scope[f"set{number}"] = getattr(kind, plan.name).__set__
        scope[f"default{number}"] = plan.default
        parameters.append(plan.name if plan.is_required else f"{plan.name}=default{number}")
        lines.append(f" set{number}(self, {plan.name})")
    made = _made([f"def __init__({', '.join(parameters)}):", *lines], scope, "__init__")
    made.__qualname__ = f"{kind.__qualname__}.__init__"
    return made


def compile_decode(kind: type, plans: Sequence[FieldPlan]) -> Callable[[Mapping[str, str]], Any]:
    """Return a function from ext fields to a header of class ``kind``."""
    scope: dict[str, Any] = {"kind": kind, "new": object.__new__, "small": SMALL.get}
    lines = ["def decode(fields):", " get = fields.get", " self = new(kind)"]
    for number, plan in enumerate(plans):
        scope[f"set{number}"] = getattr(kind, plan.name).__set__
        scope[f"parse{number}"] = plan.parse
        scope[f"default{number}"] = plan.default
        scope[f"missing{number}"] = _missing(kind.__name__, plan)
        scope[f"wrong{number}"] = _wrong(kind.__name__, plan)
        absent = f"missing{number}()" if plan.is_required else f"set{number}(self, default{number})"
        lines.append(f" text = get({plan.wire_name!r})")
        if plan.is_text:
            lines.append(f" if text is not None: set{number}(self, text)")
        else:
            first = "small(text)" if plan.is_integer else "None"
            lines += [
                " if text:",
                f"  value = {first}",
                "  if value is None:",
                f"   value = parse{number}(text)",
                f"   if value is None: wrong{number}(text)",
                f"  set{number}(self, value)",
            ]
        lines.append(f" else: {absent}")
    lines.append(" return self")
    return _made(lines, scope, "decode")


def _missing(header: str, plan: FieldPlan) -> Callable[[], NoReturn]:
    def fail() -> NoReturn:
        raise MissingFieldError(header, plan.wire_name)

    return fail


def _wrong(header: str, plan: FieldPlan) -> Callable[[str], NoReturn]:
    def fail(text: str) -> NoReturn:
        raise FieldValueError(header, plan.wire_name, plan.expected, text)

    return fail


def compile_encode(plans: Sequence[FieldPlan]) -> Callable[[Any], dict[str, str]]:
    """Return a function from a header to its ext fields."""
    scope = _writers(plans)
    lines = ["def encode(self):", " fields = {}"]
    for number, plan in enumerate(plans):
        lines += [
            f" value = self.{plan.name}",
            f" if value is not None: fields[{plan.wire_name!r}] = text{number}(value)",
        ]
    lines.append(" return fields")
    return _made(lines, scope, "encode")


def compile_encode_json(plans: Sequence[FieldPlan]) -> Callable[[Any], str]:
    """Return a function from a header to its ext fields as a JSON object."""
    scope = _writers(plans)
    scope["quoted"] = quoted
    lines = ["def encode(self):", " out = []"]
    for number, plan in enumerate(plans):
        name = quoted(plan.wire_name)
        text = f"text{number}(value)"
        # Only texts can hold what has to be escaped.
        member = (
            f"{name + ':'!r} + quoted({text})"
            if plan.is_text
            else f"{name + ':' + chr(34)!r} + {text} + {chr(34)!r}"
        )
        lines += [
            f" value = self.{plan.name}",
            f" if value is not None: out.append({member})",
        ]
    lines.append(" return '{' + ','.join(out) + '}'")
    return _made(lines, scope, "encode")


def _writers(plans: Sequence[FieldPlan]) -> dict[str, Any]:
    return {f"text{number}": _writer(plan) for number, plan in enumerate(plans)}


def _writer(plan: FieldPlan) -> Callable[[Any], str]:
    """Return how a value becomes text; what the other side could not read is found here."""
    if plan.is_text:
        return plan.write
    write, parse = plan.write, plan.parse
    limit = plan.limit

    def checked(value: Any) -> str:
        if limit and value.__class__ is int and -limit <= value < limit:
            return str(value)
        text = write(value)
        if parse(text) is None:
            raise LocalProtocolError(f"{plan.name} is not {plan.expected}: {value!r}")
        return text

    return checked


def _made(lines: list[str], scope: dict[str, Any], name: str) -> Callable[..., Any]:
    exec(compile("\n".join(lines), "<header codec>", "exec"), scope)
    made: Callable[..., Any] = scope[name]
    return made
