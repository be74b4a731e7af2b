"""Settings of the store that a broker may change while it runs.

They stand in a broker's settings too, under the same names, so that one table has all that can be
changed; at the start they are taken from the store's.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Final

from flintmq.settings.access_settings import AccessSettings
from flintmq.settings.setting import setting_field
from flintmq.store.config import SETTINGS as STORE_SETTINGS
from flintmq.store.config import StoreConfig

_DEFAULTS: Final = {field.name: field.default for field in fields(StoreConfig)}


def _same(name: str) -> Any:
    """Return a field like that of the store."""
    return setting_field(_DEFAULTS[name], STORE_SETTINGS[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStoreSettings(AccessSettings):
    """What of the store's settings may be changed.  Sizes are bytes."""

    file_reserved_hours: int = _same("file_reserved_hours")
    delete_when: tuple[int, ...] = _same("delete_when")
    disk_max_used_ratio: int = _same("disk_max_used_ratio")
    clean_forcibly: bool = _same("clean_forcibly")
    max_message_size: int = _same("max_message_size")
    transfer_bytes_in_memory_max: int = _same("transfer_bytes_in_memory_max")
    transfer_count_in_memory_max: int = _same("transfer_count_in_memory_max")
    transfer_bytes_on_disk_max: int = _same("transfer_bytes_on_disk_max")
    transfer_count_on_disk_max: int = _same("transfer_count_on_disk_max")
    memory_ratio: int = _same("memory_ratio")
    query_count_max: int = _same("query_count_max")


LIVE_STORE_NAMES: Final = tuple(name for name in LiveStoreSettings.__slots__ if name in _DEFAULTS)
LIVE_STORE_KEYS: Final = frozenset(STORE_SETTINGS[name].key for name in LIVE_STORE_NAMES)


def live_values(settings: LiveStoreSettings | StoreConfig) -> dict[str, Any]:
    """Return the values of the settings that both have."""
    return {name: getattr(settings, name) for name in LIVE_STORE_NAMES}


def with_live_values(store: StoreConfig, settings: LiveStoreSettings) -> StoreConfig:
    """Return the settings of a store with what a broker has changed; ConfigError if not allowed."""
    return replace(store, **live_values(settings))
