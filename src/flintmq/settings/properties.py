"""Java property files, and what is wrong with a setting."""

from typing import Final

import javaproperties

from flintmq.errors import FlintError

PROPERTIES_SIZE_MAX: Final = 1 << 20


class ConfigError(FlintError):
    """A setting has a value that is not allowed."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        self.key = key
        self.value = value
        self.allowed = allowed
        super().__init__(f"{key}={value}: allowed is {allowed}")


def read_properties(source: str | bytes) -> dict[str, str]:
    """Return key → text of a Java properties file; bytes are Latin-1, as Java reads them."""
    if len(source) > PROPERTIES_SIZE_MAX:
        raise ConfigError("properties file", len(source), f"at most {PROPERTIES_SIZE_MAX} bytes")
    text = source.decode("latin-1") if isinstance(source, bytes) else source
    try:
        return javaproperties.loads(text)
    except javaproperties.InvalidUEscapeError as error:
        allowed = "a backslash, u and four hexadecimal digits"
        raise ConfigError("properties file", error.escape, allowed) from error
