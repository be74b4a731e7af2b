"""Java property files, and what is wrong with a setting."""

import importlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from flintmq.errors import FlintError

PROPERTIES_SIZE_MAX: Final = 1 << 20

_COLON: Final = r"\:"
"""A colon as Java escapes it.  Addresses have one, so most files have this escape and no other."""

_is_plain_key: Final = re.compile(r"[A-Za-z0-9_.-]+").fullmatch
_is_plain_value: Final = re.compile(r"[A-Za-z0-9_./,;:+-][A-Za-z0-9_./,;:+ -]*").fullmatch
"""These match keys and values that need no escape, except for colons."""

_PLAIN_LINE: Final = r"(?sx)(?P<key>(?:[^=:\\ \t\f]|\\:)*) [ \t\f]* [=:]? [ \t\f]* (?P<value>.*)"
"""Not compiled yet, since many a start reads no file."""


class ConfigError(FlintError):
    """A setting has a value that is not allowed."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        self.key = key
        self.value = value
        self.allowed = allowed
        super().__init__(f"{key}={value}: allowed is {allowed}")


class SettingsRefusedError(ConfigError):
    """Several settings have values that are not allowed."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        first = errors[0]
        super().__init__(first.key, first.value, first.allowed)
        self.errors = tuple(errors)
        self.args = (f"{len(errors)} settings are refused: {'; '.join(map(str, errors))}",)


def read_properties(source: str | bytes) -> dict[str, str]:
    """Return key → text of a Java properties file; bytes are Latin-1, as Java reads them."""
    if len(source) > PROPERTIES_SIZE_MAX:
        raise ConfigError("properties file", len(source), f"at most {PROPERTIES_SIZE_MAX} bytes")
    text = source.decode("latin-1") if isinstance(source, bytes) else source
    if "\\" not in text.replace(_COLON, ""):
        return _read_plain(text)
    javaproperties = _library()
    try:
        found: dict[str, str] = javaproperties.loads(text)
    except javaproperties.InvalidUEscapeError as error:
        allowed = "a backslash, u and four hexadecimal digits"
        raise ConfigError("properties file", error.escape, allowed) from error
    return found


def _read_plain(text: str) -> dict[str, str]:
    """Read a file that escapes nothing but colons and has no continued lines."""
    found = {}
    for line in text.replace("\r", "\n").split("\n"):
        content = line.lstrip(" \t\f")
        if content and content[0] not in "#!":
            parts = re.fullmatch(_PLAIN_LINE, content)
            assert parts is not None
            key, value = (text.replace(_COLON, ":") for text in parts.groups())
            found[key] = value
    return found


def write_properties(values: Mapping[str, str]) -> bytes:
    """Return a Java properties file that holds ``values``, in Latin-1 as Java reads it."""
    if all(_is_plain_key(key) and _is_plain_value(value) for key, value in values.items()):
        lines = (f"{key}={value.replace(':', _COLON)}\n" for key, value in values.items())
        return "".join(lines).encode("latin-1")
    written: str = _library().dumps(values, timestamp=False)
    return written.encode("latin-1")


def _library() -> Any:
    """Return the library that reads and writes files with escapes.

    It brings the parsers of XML, HTTP and mail: loading it takes a fifth of a broker's start.
    """
    return importlib.import_module("javaproperties")
