"""Settings of the store that a broker may change while it runs.

They stand in a broker's settings too, under the same names, so that one table has all that can be
changed; at the start they are taken from the store's.
"""

from dataclasses import field, fields, replace
from typing import Any, Final

from flintmq.model.value_class import value_class
from flintmq.settings.access_settings import AccessSettings
from flintmq.settings.property_files import ConfigError
from flintmq.settings.setting import choice, setting_field
from flintmq.store.config import SETTINGS as STORE_SETTINGS
from flintmq.store.config import BrokerRole, FlushMode, StoreConfig

_DEFAULTS: Final = {field.name: field.default for field in fields(StoreConfig)}


def _same(name: str) -> Any:
    """Return a field like that of the store."""
    return setting_field(_DEFAULTS[name], STORE_SETTINGS[name])


@value_class
class LiveStoreSettings(AccessSettings):
    """What of the store's settings may be changed.  Sizes are bytes."""

    flush_mode: FlushMode = field(
        default=FlushMode.ASYNC, metadata=choice("flushDiskType", FlushMode)
    )
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


LIVE_STORE_NAMES: Final = tuple(
    name for name in LiveStoreSettings.__annotations__ if name in _DEFAULTS
)
LIVE_STORE_KEYS: Final = frozenset(STORE_SETTINGS[name].key for name in LIVE_STORE_NAMES)


def live_values(settings: LiveStoreSettings | StoreConfig) -> dict[str, Any]:
    """Return the values of the settings that both have."""
    return {name: getattr(settings, name) for name in LIVE_STORE_NAMES}


def with_live_values(store: StoreConfig, settings: LiveStoreSettings) -> StoreConfig:
    """Return the settings of a store with what a broker has changed; ConfigError if not allowed."""
    return replace(store, **live_values(settings))


def changed_while_open(store: StoreConfig, settings: LiveStoreSettings) -> StoreConfig:
    """Return what `with_live_values` does, for a store that is open; ConfigError if not allowed.

    A slave has told its master what it promises, and buffers are made when a store is opened: then
    the way of flushing can only be changed by a start.
    """
    changed = with_live_values(store, settings)
    is_fixed = store.broker_role is BrokerRole.SLAVE or store.transient_pool_enabled
    if is_fixed and changed.flush_mode is not store.flush_mode:
        allowed = "another value at a start only, on a slave or with transientStorePoolEnable"
        raise ConfigError("flushDiskType", changed.flush_mode.value, allowed)
    return changed
