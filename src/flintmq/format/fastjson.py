"""The JSON dialect of the state files, as the fastjson library of the Java broker writes it.

It is JSON with one addition: the integer keys of a map stand bare, and such a map on one line:

    {
        "offsetTable":{
            "TopicTest@groupA":{0:12,1:9
            }
        }
    }

Members are indented by one tab per level, without a space after the colon; members without a
value are left out.  Here bare keys are ``int`` and quoted ones ``str``.  Some bodies of the wire
have objects as keys; they are read too.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, Final, NoReturn, TypeAlias

from flintmq.format.errors import StateTextError

DEPTH_MAX: Final = 64
TEXT_SIZE_MAX: Final = 256 * 1024 * 1024

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_BARE_KEY: Final = re.compile(r"-?[0-9]{1,19}")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,63})(?:\.[0-9]{1,64})?(?:[eE][+-]?[0-9]{1,4})?")
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_CONSTANT: Final = re.compile("|".join(_CONSTANTS))
_STRINGS: Final = json.JSONDecoder()
_SCALARS: Final = frozenset({str, int, bool})


def loads(text: bytes | str) -> Any:
    """Return the value of a state text; of members with one name the last counts.

    A text that is no such value, or nests deeper than DEPTH_MAX, raises StateTextError with the
    offset of the fault, in bytes for bytes and in characters for a str.
    """
    if len(text) > TEXT_SIZE_MAX:
        raise StateTextError(f"{len(text)} long, the limit is {TEXT_SIZE_MAX}")
    if isinstance(text, str):
        return _Reader(text).read()
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        raise StateTextError("not UTF-8", error.start) from error
    try:
        return _Reader(decoded).read()
    except StateTextError as error:
        offset = len(decoded[: error.offset].encode())
        raise StateTextError(error.reason, offset) from error


Name: TypeAlias = int | str | tuple[Any, ...]
"""What a member is called; an object as name is the tuple of its members."""


class _Reader:
    """Reads one text from its start to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def read(self) -> Any:
        value = self._value()
        self._skip_space()
        if self._at != len(self._text):
            self._fail("something follows the value")
        return value

    def _fail(self, reason: str) -> NoReturn:
        raise StateTextError(reason, self._at)

    def _skip_space(self) -> str:
        """Move to what is not space and return that character, empty at the end."""
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        return self._text[self._at : self._at + 1]

    def _value(self) -> Any:
        first = self._skip_space()
        if first == '"':
            return self._string()
        if first == "{":
            return self._nested(self._object)
        if first == "[":
            return self._nested(self._array)
        if match := _NUMBER.match(self._text, self._at):
            self._at = match.end()
            return self._number(match[0])
        if match := _CONSTANT.match(self._text, self._at):
            self._at = match.end()
            return _CONSTANTS[match[0]]
        self._fail("no value")

    def _nested(self, read: Callable[[], Any]) -> Any:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            self._fail(f"nested deeper than {DEPTH_MAX}")
        self._at += 1
        value = read()
        self._at += 1
        self._depth -= 1
        return value

    def _object(self) -> dict[Name, Any]:
        members: dict[Name, Any] = {}
        if self._skip_space() == "}":
            return members
        while True:
            name = self._name()
            if self._skip_space() != ":":
                self._fail("no colon after a name")
            self._at += 1
            members[name] = self._value()
            if not self._continues(end="}"):
                return members

    def _array(self) -> list[Any]:
        items: list[Any] = []
        if self._skip_space() == "]":
            return items
        while True:
            items.append(self._value())
            if not self._continues(end="]"):
                return items

    def _continues(self, *, end: str) -> bool:
        following = self._skip_space()
        if following == ",":
            self._at += 1
            return True
        if following != end:
            self._fail(f"neither a comma nor {end}")
        return False

    def _name(self) -> Name:
        first = self._skip_space()
        if first == '"':
            return self._string()
        if first == "{":
            return self._object_name()
        match = _BARE_KEY.match(self._text, self._at)
        if match is None:
            self._fail("no name")
        self._at = match.end()
        return int(match[0])

    def _object_name(self) -> Name:
        members = self._nested(self._object)
        if not all(isinstance(value, str | int | None) for value in members.values()):
            self._fail("a name that nests")
        return tuple(members.items())

    def _string(self) -> str:
        try:
            value, self._at = _STRINGS.raw_decode(self._text, self._at)
        except json.JSONDecodeError as error:
            raise StateTextError(error.msg, error.pos) from error
        assert isinstance(value, str)
        return value

    def _number(self, digits: str) -> int | float:
        if digits.lstrip("-").isdigit():
            return int(digits)
        number = float(digits)
        if math.isinf(number):
            self._fail("a number too large")
        return number


def dumps(value: Any, *, sort_members: bool = True) -> str:
    """Return the state text of ``value``: maps, lists, strings, numbers, booleans and None.

    Members are sorted by name unless ``sort_members`` is false; those that are None are left
    out.  A value that has no such text raises StateTextError.
    """
    parts: list[str] = []
    _Writer(parts, sort_members=sort_members).write(value, 0)
    return "".join(parts)


def dumps_member(name: str, value: Any, *, depth: int) -> str:
    """Return a member as `dumps` writes it into a map that stands in ``depth`` others."""
    parts = [f"{_new_line(depth + 1)}{_quoted(name)}:"]
    _Writer(parts, sort_members=True).write(value, depth + 1)
    return "".join(parts)


class _Writer:
    """Appends the text of values to a list of parts."""

    def __init__(self, parts: list[str], *, sort_members: bool) -> None:
        self._parts = parts
        self._sort_members = sort_members

    def write(self, value: Any, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise StateTextError(f"nested deeper than {DEPTH_MAX}")
        if isinstance(value, Mapping):
            self._write_map(value, depth)
        elif isinstance(value, list | tuple):
            self._write_list(value, depth)
        else:
            self._parts.append(_scalar(value))

    def _write_map(self, members: Mapping[Any, Any], depth: int) -> None:
        names = [name for name, value in members.items() if value is not None]
        is_plain = True
        for name in names:
            if name.__class__ is not str:
                is_plain = False
                if not isinstance(name, str | int) or isinstance(name, bool):
                    raise StateTextError(f"not the name of a member: {name!r}")
        if self._sort_members:
            names.sort(key=None if is_plain else _sort_key)
        parts, new_line = self._parts, _new_line(depth + 1)
        before = "{"
        for name in names:
            text = new_line + _quoted(name) if isinstance(name, str) else str(name)
            value = members[name]
            # A broker with thousands of topics writes all of them for each that is new.
            if value.__class__ in _SCALARS:
                parts.append(f"{before}{text}:{_scalar(value)}")
            else:
                parts.append(f"{before}{text}:")
                self.write(value, depth + 1)
            before = ","
        parts.append(f"{_new_line(depth)}}}" if names else "{}")

    def _write_list(self, items: Sequence[Any], depth: int) -> None:
        spread = any(isinstance(item, Mapping | list | tuple) for item in items)
        self._parts.append("[")
        for number, item in enumerate(items):
            if number:
                self._parts.append(",")
            if spread:
                self._parts.append(_new_line(depth + 1))
            self.write(item, depth + 1)
        self._parts.append(f"{_new_line(depth)}]" if spread else "]")


def _new_line(depth: int) -> str:
    return "\n" + "\t" * depth


def _sort_key(name: int | str) -> tuple[bool, int | str]:
    return isinstance(name, str), name


def _quoted(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            # A lone surrogate cannot be written as UTF-8, only escaped.
            return encode_basestring_ascii(text)
    return encode_basestring(text)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if value.__class__ is int:
        return repr(value)
    if value.__class__ is bool:
        return "true" if value else "false"
    if value is None or isinstance(value, int):
        return json.dumps(value)
    if isinstance(value, float) and math.isfinite(value):
        return json.dumps(value)
    raise StateTextError(f"cannot be written: {value!r}")
