"""Settings that may be changed while a process runs.

Only what is on an allow-list may be changed, and never by a text with line breaks: the file of a
user is not written over.  Changes go to a file of their own, which is read after the user's.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from flintmq.model.data_version import DataVersion
from flintmq.settings.durable_file import replace_durably
from flintmq.settings.property_files import ConfigError, read_properties, write_properties
from flintmq.settings.setting import Owner
from flintmq.settings.tables import from_properties, to_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from flintmq.settings.setting import Setting

logger = logging.getLogger(__name__)

ConfigT = TypeVar("ConfigT")


class LiveConfig(Generic[ConfigT]):
    """The settings of a running server, some of which may change.

    ``on_change`` hears of each change with the new settings and the keys that were changed.
    ``black_listed`` tells which keys the settings themselves forbid to change.
    """

    def __init__(
        self,
        config: ConfigT,
        settings: Mapping[str, Setting],
        *,
        editable: frozenset[str],
        overlay: Path | None = None,
        on_change: Callable[[ConfigT, frozenset[str]], None] | None = None,
        black_listed: Callable[[ConfigT], frozenset[str]] = lambda config: frozenset(),
    ) -> None:
        self.current = config
        self._settings = settings
        self._editable = editable
        self._overlay = overlay
        self._black_listed = black_listed
        self._changed: dict[str, str] = {}
        self.version = DataVersion()
        self.on_change = on_change
        self.check: Callable[[ConfigT], object] | None = None
        """Raises ConfigError for settings that others than their owner do not allow."""

    def load(self) -> None:
        """Apply the changes that were made before the last stop; invalid ones are left out."""
        if self._overlay is None:
            return
        try:
            kept = read_properties(self._overlay.read_bytes())
        except FileNotFoundError:
            return
        for key, value in kept.items():
            try:
                self._apply({key: value})
            except ConfigError as error:
                logger.warning("kept setting left out: file=%s %s", self._overlay, error)

    def shown(self) -> dict[str, str]:
        """Return all settings that RocketMQ has, as it prints them."""
        owners = frozenset(Owner) - {Owner.FLINTMQ, Owner.SYSTEM}
        return to_properties(self._settings, self.current, owners=owners)

    def update(self, body: bytes) -> None:
        """Change settings as `change` does, and wait until they are written down."""
        self.change(body)
        self.writing()()

    def change(self, body: bytes) -> None:
        """Change settings by lines of ``key=value``: all of them, or none.

        Whoever asked for it is answered when they are written down, see `writing`.

        Raises:
            ConfigError: a key that may not be changed, or a value that is not allowed.
        """
        try:
            lines = body.decode()
        except UnicodeDecodeError:
            raise ConfigError("settings", "bytes", "UTF-8 text") from None
        changes = read_properties(lines)
        black_listed = self._black_listed(self.current)
        for key, value in changes.items():
            if key in black_listed:
                raise ConfigError(key, value, "only a key that is not on the black list")
            if key not in self._editable:
                allowed = "one of " + ", ".join(sorted(self._editable))
                raise ConfigError(key, value, f"only a key that may be changed: {allowed}")
            if "\n" in value or "\r" in value:
                raise ConfigError(key, "a text with line breaks", "one line")
        if changes:
            self._apply(changes)

    def _apply(self, changes: Mapping[str, str]) -> None:
        values: dict[str, Any] = from_properties(self._settings, changes)
        changed: Any = dataclasses.replace(self.current, **values)  # type: ignore[type-var]
        if self.check is not None:
            self.check(changed)
        self.current = changed
        self._changed.update(changes)
        self.version = self.version.next(time.time_ns() // 1_000_000)
        logger.info("settings changed: keys=%s kept=%s", ",".join(changes), self._overlay)
        if self.on_change is not None:
            self.on_change(changed, frozenset(changes))

    def writing(self) -> Callable[[], None]:
        """Return what writes all changes up to now; it waits for the disk: better in a thread."""
        overlay, content = self._overlay, write_properties(self._changed)

        def write() -> None:
            if overlay is not None and self._changed:
                replace_durably(overlay, content)

        return write
