"""Settings of parts that run: Python names inside, RocketMQ's names at the edge.

Each field of a settings dataclass carries a `Setting`: the RocketMQ key, how its text is read and
printed, and what is allowed.  That is the only table; reading, printing, checking and the search
for misspelt keys all follow from it.
"""

from flintmq.settings.properties import ConfigError, read_properties, write_properties
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
    to_properties,
    unknown_keys,
)

__all__ = [
    "INT_MAX",
    "LONG_MAX",
    "ConfigError",
    "Owner",
    "Setting",
    "check_ranges",
    "choice",
    "from_properties",
    "number",
    "optional",
    "paths",
    "ratio",
    "read_properties",
    "setting_field",
    "settings_of",
    "switch",
    "text",
    "to_properties",
    "unknown_keys",
    "write_properties",
]
