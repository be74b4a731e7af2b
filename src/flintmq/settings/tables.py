"""All settings of a part at once: out of properties, into properties, and keys nobody knows."""

from collections.abc import Iterable, Mapping
from typing import Any

from flintmq.settings.setting import PATHS, Owner, Setting, parse_paths, render_paths


def check_ranges(settings: Mapping[str, Setting], values: Any) -> None:
    """Raise ConfigError for the first value of a settings object that is out of range."""
    for name, setting in settings.items():
        setting.check(getattr(values, name))


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
