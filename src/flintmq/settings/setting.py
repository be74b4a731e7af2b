"""One setting: its key, the kinds of values, and the dataclass fields that carry it."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

from flintmq.settings.property_files import ConfigError

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_WHOLE_NUMBER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)


class Owner(Enum):
    """Which of its configurations a Java broker or name server keeps a setting in."""

    STORE = "MessageStoreConfig"
    BROKER = "BrokerConfig"
    SERVER = "NettyServerConfig"
    CLIENT = "NettyClientConfig"
    NAMESRV = "NamesrvConfig"
    SYSTEM = "system property"
    FLINTMQ = "FlintMQ"


class Codec(NamedTuple):
    """One kind of value as text; ``parse`` raises ValueError, ``render`` gives None for unset."""

    parse: Callable[[str], Any]
    render: Callable[[Any], str | None]
    allowed: str


class Setting(NamedTuple):
    """How one field stands in a RocketMQ property file."""

    key: str
    codec: Codec
    owner: Owner = Owner.STORE
    minimum: float | None = None
    maximum: float | None = None
    printed_key: str = ""
    """The name Java prints, where its setter and its member are called differently."""

    @property
    def allowed(self) -> str:
        """What may stand in the file, in words."""
        if self.minimum is None:
            return self.codec.allowed
        return f"{self.codec.allowed} from {self.minimum} to {self.maximum}"

    def parse(self, text: str) -> Any:
        """Return the value written as ``text``; its range is checked by `check`."""
        try:
            return self.codec.parse(text.strip())
        except ValueError as error:
            raise ConfigError(self.key, text, self.allowed) from error

    def check(self, value: Any) -> None:
        """Raise ConfigError if ``value`` is out of range."""
        if self.minimum is None or self.maximum is None:
            return
        if not self.minimum <= value <= self.maximum:
            raise ConfigError(self.key, value, self.allowed)


def parse_number(text: str) -> int:
    """Return a whole number as Java reads it."""
    if not _WHOLE_NUMBER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _parse_switch(text: str) -> bool:
    # Java reads every other word as false; a misspelt "ture" should not switch a safeguard off.
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def parse_paths(text: str, splitter: str = ",") -> tuple[Path, ...]:
    """Return the directories listed in a text."""
    return tuple(Path(item.strip()) for item in text.split(splitter) if item.strip())


def render_paths(paths: tuple[Path, ...], splitter: str = ",") -> str | None:
    """Return directories as one text, or None if there are none."""
    return splitter.join(map(str, paths)) or None


NUMBER: Final = Codec(parse_number, str, "a whole number")
RATIO: Final = Codec(float, str, "a number")
SWITCH: Final = Codec(_parse_switch, lambda value: str(value).lower(), "true or false")
TEXT: Final = Codec(str, str, "text")
OPTIONAL: Final = Codec(lambda text: text or None, lambda value: value, "text")
PATHS: Final = Codec(parse_paths, render_paths, "directories, at least one of them writable")

_Value = TypeVar("_Value")


def setting_field(default: _Value, setting: Setting) -> _Value:
    """Return a dataclass field, typed as the value it will hold."""
    return field(default=default, metadata={"setting": setting})


def number(
    key: str,
    default: int,
    *,
    minimum: int = 0,
    maximum: int = INT_MAX,
    owner: Owner = Owner.STORE,
) -> int:
    """Return a field for a whole number."""
    return setting_field(default, Setting(key, NUMBER, owner, minimum, maximum))


def switch(
    key: str, default: bool = False, *, owner: Owner = Owner.STORE, printed_key: str = ""
) -> bool:
    """Return a field for true or false."""
    return setting_field(default, Setting(key, SWITCH, owner, printed_key=printed_key))


def ratio(key: str, default: float) -> float:
    """Return a field for a system property between 0 and 1."""
    return setting_field(default, Setting(key, RATIO, Owner.SYSTEM, 0.0, 1.0))


def text(key: str, default: str, *, owner: Owner = Owner.STORE) -> str:
    """Return a field for a text."""
    return setting_field(default, Setting(key, TEXT, owner))


def optional(key: str, *, owner: Owner = Owner.STORE) -> str | None:
    """Return a field for a text that may be unset."""
    return setting_field(cast("str | None", None), Setting(key, OPTIONAL, owner))


def paths(key: str) -> tuple[Path, ...]:
    """Return a field for a list of directories."""
    return setting_field(cast("tuple[Path, ...]", ()), Setting(key, PATHS))


def choice(key: str, kind: type[Enum], *, owner: Owner = Owner.STORE) -> dict[str, Setting]:
    """Return the metadata of a field for one member of an enum, written by its value."""
    codec = Codec(kind, lambda member: str(member.value), " or ".join(m.value for m in kind))
    return {"setting": Setting(key, codec, owner)}


def settings_of(kind: Any) -> Mapping[str, Setting]:
    """Return field name → setting of a settings dataclass, in the order of the fields."""
    return {
        item.name: item.metadata["setting"]
        for item in dataclasses.fields(kind)
        if "setting" in item.metadata
    }
