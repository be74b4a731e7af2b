"""Whether options speak of a cluster: the source asks before it loads what reads one."""

from collections.abc import Mapping
from typing import Final

from flintmq.spark.live.kafka_names import KAFKA_SERVERS
from flintmq.spark.live.selection import SELECTIONS

NAMESRV: Final = "namesrv"
ALIASES: Final = {
    "nameserver": NAMESRV,
    "namesrvaddr": NAMESRV,
    "rocketmq.namesrv.addr": NAMESRV,
}
"""Other names that users know, in lower case, and what they stand for."""


def is_live(options: Mapping[str, str]) -> bool:
    """Whether options speak of a cluster rather than of store directories."""
    names = {ALIASES.get(name.lower(), name.lower()) for name in options}
    return not names.isdisjoint({NAMESRV, *map(str.lower, SELECTIONS), KAFKA_SERVERS})
