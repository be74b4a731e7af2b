"""Whole tables of settings: read from properties, written to properties, misspelt keys found."""

from collections.abc import Iterable, Mapping
from typing import Any

from flintmq.settings.property_files import ConfigError, SettingsRefusedError
from flintmq.settings.setting import PATHS, Owner, Setting, parse_paths, render_paths


def check_ranges(settings: Mapping[str, Setting], values: Any) -> None:
    """Raise ConfigError for the first value of a settings object that is out of range."""
    for name, setting in settings.items():
        if setting.minimum is not None:
            setting.check(getattr(values, name))


def refusals(settings: Mapping[str, Setting], properties: Mapping[str, str]) -> list[ConfigError]:
    """Return what is wrong with single values of ``properties``, all of it."""
    found = []
    for setting in settings.values():
        if setting.codec is PATHS:
            continue
        keys = (setting.key, setting.printed_key) if setting.printed_key else (setting.key,)
        for key in keys:
            if key not in properties:
                continue
            try:
                setting.check(setting.parse(properties[key]))
            except ConfigError as error:
                found.append(error)
    return found


def refuse(errors: Iterable[ConfigError]) -> None:
    """Raise all that is wrong as one error; nothing if nothing is."""
    by_text: dict[str, ConfigError] = {}
    for error in errors:
        parts = error.errors if isinstance(error, SettingsRefusedError) else (error,)
        by_text |= {str(part): part for part in parts}
    if len(by_text) > 1:
        raise SettingsRefusedError(list(by_text.values()))
    for error in by_text.values():
        raise error


def from_properties(
    settings: Mapping[str, Setting], properties: Mapping[str, str], *, splitter: str = ","
) -> dict[str, Any]:
    """Return field name → value for the settings that ``properties`` hold."""
    values: dict[str, Any] = {}
    for name, setting in settings.items():
        text = properties.get(setting.key)
        if text is None:
            text = properties.get(setting.printed_key)
        if text is not None:
            is_paths = setting.codec is PATHS
            values[name] = parse_paths(text, splitter) if is_paths else setting.parse(text)
    return values


def to_properties(
    settings: Mapping[str, Setting],
    values: Any,
    *,
    owners: Iterable[Owner] = Owner,
    splitter: str = ",",
) -> dict[str, str]:
    """Return RocketMQ key → text as Java prints settings; unset values have no line."""
    wanted = frozenset(owners)
    properties = {}
    for name, setting in settings.items():
        if setting.owner not in wanted:
            continue
        value = getattr(values, name)
        is_paths = setting.codec is PATHS
        text = render_paths(value, splitter) if is_paths else setting.codec.render(value)
        if text is not None:
            properties[setting.printed_key or setting.key] = text
    return properties


def unknown_keys(
    properties: Iterable[str], tables: Iterable[Mapping[str, Setting]], *, also: Iterable[str] = ()
) -> dict[str, str | None]:
    """Return the keys nobody knows, each with the known key it resembles most, if any."""
    known = set(also)
    for table in tables:
        known.update(setting.key for setting in table.values())
        known.update(setting.printed_key for setting in table.values() if setting.printed_key)
    unknown = [key for key in properties if key not in known]
    return {key: _nearest(key, known) for key in unknown}


def _nearest(key: str, known: Iterable[str]) -> str | None:
    import difflib  # Only who misspelt a key has to wait for it.

    by_lower_case = {each.lower(): each for each in sorted(known)}
    nearest = difflib.get_close_matches(key.lower(), by_lower_case, n=1, cutoff=0.75)
    return by_lower_case[nearest[0]] if nearest else None
