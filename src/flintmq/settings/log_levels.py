"""Levels of the log by area, which a running server may be told to change.

``logLevels`` is a text such as ``info,store=debug,remoting=warning``: a level without an area is
that of all, and an area is a package or module of ours, without ``flintmq.`` before it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self

from flintmq.model.value_class import Value, value_class
from flintmq.settings.setting import Codec, Owner, Setting, setting_field

KEY: Final = "logLevels"
ROOT: Final = "flintmq"
LEVELS: Final = ("debug", "info", "warning", "error")
AREA_COUNT_MAX: Final = 32
AREAS: Final = (
    *("access", "broker", "cli", "filter", "kernels", "metrics", "namesrv"),
    *("remoting", "settings", "store"),
)
"""What a server's log has lines of."""

_AREA: Final = r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*){0,3}"


def parse_log_levels(text: str) -> dict[str, str]:
    """Return the level of each area that a text names; an empty area stands for all.

    Raises ValueError for anything else.
    """
    levels: dict[str, str] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        area, separator, level = item.rpartition("=")
        level, area = level.strip().lower(), area.strip()
        is_area = re.fullmatch(_AREA, area) is not None and area.split(".")[0] in AREAS
        if level not in LEVELS or is_area != bool(separator) or area in levels:
            raise ValueError(text)
        levels[area] = level
    if len(levels) > AREA_COUNT_MAX:
        raise ValueError(text)
    return levels


def _checked(text: str) -> str:
    parse_log_levels(text)
    return text


_CODEC: Final = Codec(
    _checked,
    str,
    f"{', '.join(LEVELS)}, and AREA=LEVEL with commas between; areas are {', '.join(AREAS)} "
    "and their modules",
)


@value_class
class LogSettings(Value):
    """How much a server logs."""

    log_levels: str = setting_field("", Setting(KEY, _CODEC, Owner.FLINTMQ))


class LogLevels:
    """Sets the levels of loggers, and takes back what it set when they change again."""

    def __init__(self) -> None:
        self._set: dict[str, int] = {}
        """The level that each logger of ours had before."""

    @classmethod
    @contextmanager
    def kept(cls) -> Iterator[Self]:
        """Yield what sets levels while the context lasts."""
        levels = cls()
        try:
            yield levels
        finally:
            levels._restore()

    def apply(self, text: str) -> None:
        """Let loggers have the levels of a text, and all others what they had before."""
        levels = parse_log_levels(text)
        self._restore()
        for area, level in levels.items():
            logger = logging.getLogger(f"{ROOT}.{area}" if area else ROOT)
            self._set[logger.name] = logger.level
            logger.setLevel(level.upper())

    def _restore(self) -> None:
        for name, level in self._set.items():
            logging.getLogger(name).setLevel(level)
        self._set.clear()
