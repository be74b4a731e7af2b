"""Settings of servers and stores: Python names inside, RocketMQ's names at the edge.

Each field of a settings dataclass carries a `Setting`: the RocketMQ key, how its text is read and
printed, and what is allowed.  That is the only table; reading, printing, checking and the search
for misspelt keys all follow from it.
"""

from flintmq.settings.property_files import ConfigError, read_properties, write_properties
from flintmq.settings.setting import (
    INT_MAX,
    LONG_MAX,
    Owner,
    Setting,
    choice,
    number,
    optional,
    paths,
    ratio,
    setting_field,
    settings_of,
    switch,
    text,
)
from flintmq.settings.tables import (
    check_ranges,
    from_properties,
    refusals,
    refuse,
    to_properties,
    unknown_keys,
)

__all__ = [
    "INT_MAX",
    "LONG_MAX",
    "ConfigError",
    "Owner",
    "Setting",
    "access_settings",
    "check_ranges",
    "choice",
    "durable_file",
    "from_properties",
    "live_config",
    "log_levels",
    "metrics_settings",
    "number",
    "optional",
    "paths",
    "property_files",
    "ratio",
    "read_properties",
    "refusals",
    "refuse",
    "server_settings",
    "setting",
    "setting_field",
    "settings_of",
    "switch",
    "tables",
    "text",
    "tls_settings",
    "to_properties",
    "unknown_keys",
    "without_meaning",
    "write_properties",
]
