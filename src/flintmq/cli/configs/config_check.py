"""What a file of settings means to a server: all that is wrong with it at once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from flintmq.broker import misspelt_keys, read_settings
from flintmq.namesrv import NamesrvConfig
from flintmq.namesrv.config import SETTINGS as NAMESRV_SETTINGS
from flintmq.settings import refusals, refuse, unknown_keys
from flintmq.settings.property_files import ConfigError, SettingsRefusedError
from flintmq.settings.tls_settings import PASSWORD_SUFFIX
from flintmq.settings.without_meaning import WITHOUT_MEANING

if TYPE_CHECKING:
    from collections.abc import Mapping


class ServerKind(Enum):
    """Whose settings a file has."""

    BROKER = "broker"
    NAMESRV = "namesrv"


class Verdict(Enum):
    """What becomes of a setting."""

    REFUSED = "refused"
    """A server does not start with it."""
    UNKNOWN = "unknown"
    """Nobody knows the key: it is left out with a warning."""
    WITHOUT_MEANING = "without meaning"
    """It is taken and changes nothing here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedSetting:
    """One setting of a file about which there is something to say."""

    key: str
    value: str
    verdict: Verdict
    reason: str
    nearest: str | None = None
    """The key that was probably meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigCheck:
    """What was found in a file."""

    kind: ServerKind
    key_count: int
    settings: list[CheckedSetting]

    @property
    def is_sound(self) -> bool:
        """Whether a server starts with the file and knows every key."""
        return all(one.verdict is Verdict.WITHOUT_MEANING for one in self.settings)


def check_config(properties: Mapping[str, str], kind: ServerKind | None = None) -> ConfigCheck:
    """Look at the settings of a file; whose they are is seen by their keys unless told."""
    kind = kind or _kind_of(properties)
    found = [
        CheckedSetting(
            key=error.key,
            value=_shown(error.key, properties.get(error.key, str(error.value))),
            verdict=Verdict.REFUSED,
            reason=f"allowed is {error.allowed}",
        )
        for error in _refusals(properties, kind)
    ]
    for key, nearest in _unknown(properties, kind).items():
        hint = f"did you mean {nearest}?" if nearest else "no server has such a setting"
        found.append(
            CheckedSetting(
                key=key,
                value=_shown(key, properties[key]),
                verdict=Verdict.UNKNOWN,
                reason=hint,
                nearest=nearest,
            )
        )
    refused = {one.key for one in found}
    for key in properties:
        if key in WITHOUT_MEANING and key not in refused:
            found.append(
                CheckedSetting(
                    key=key,
                    value=_shown(key, properties[key]),
                    verdict=Verdict.WITHOUT_MEANING,
                    reason="it steers what only Java's server has",
                )
            )
    return ConfigCheck(kind=kind, key_count=len(properties), settings=found)


def _kind_of(properties: Mapping[str, str]) -> ServerKind:
    """Return the server that knows more of the keys; a broker if both know the same."""
    return min(ServerKind, key=lambda kind: len(_unknown(properties, kind)))


def _unknown(properties: Mapping[str, str], kind: ServerKind) -> dict[str, str | None]:
    if kind is ServerKind.NAMESRV:
        return unknown_keys(properties, [NAMESRV_SETTINGS])
    return misspelt_keys(properties)


def _refusals(properties: Mapping[str, str], kind: ServerKind) -> list[ConfigError]:
    try:
        if kind is ServerKind.NAMESRV:
            refuse(refusals(NAMESRV_SETTINGS, properties))
            NamesrvConfig.from_properties(properties)
        else:
            read_settings(properties)
    except SettingsRefusedError as error:
        return list(error.errors)
    except ConfigError as error:
        return [error]
    return []


def _shown(key: str, value: str) -> str:
    return "***" if key.endswith(PASSWORD_SUFFIX) else value
