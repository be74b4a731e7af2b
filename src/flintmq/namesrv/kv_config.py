"""Pairs of keys and values by namespace, kept in a file."""

import logging
from pathlib import Path
from typing import Final

from flintmq.errors import FlintError
from flintmq.format import fastjson
from flintmq.format.errors import StateTextError
from flintmq.settings.durable_file import replace_durably

logger = logging.getLogger(__name__)

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""The namespace that says on which brokers an ordered topic has how many queues."""

PAIR_COUNT_MAX: Final = 100_000
TEXT_SIZE_MAX: Final = 65_536
TABLE_SIZE_MAX: Final = 8 << 20
"""Characters of all pairs together: each change writes all of them."""


class KvConfigError(FlintError):
    """The file cannot be read, or a pair is over the limits."""


class KvConfig:
    """The pairs of one name server; every change is on the disk before it is acknowledged.

    Changes belong into a thread, one at a time; meanwhile the pairs are what they were.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file; without one there are no pairs."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise KvConfigError(f"{self._path}: {error.strerror}") from error
        try:
            value = fastjson.loads(content) if content.strip() else {}
        except StateTextError as error:
            raise KvConfigError(f"{self._path}: {error}") from error
        table = value.get("configTable") if isinstance(value, dict) else None
        for namespace, pairs in (table or {}).items():
            if isinstance(pairs, dict):
                self._table[str(namespace)] = {str(k): str(v) for k, v in pairs.items()}

    def get(self, namespace: str, key: str) -> str | None:
        """Return the value of a pair."""
        return self._table.get(namespace, {}).get(key)

    def pairs(self, namespace: str) -> dict[str, str] | None:
        """Return the pairs of a namespace."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a pair."""
        if max(len(namespace), len(key), len(value)) > TEXT_SIZE_MAX:
            raise KvConfigError(f"a text of more than {TEXT_SIZE_MAX} characters")
        count = sum(map(len, self._table.values()))
        if count >= PAIR_COUNT_MAX and self.get(namespace, key) is None:
            raise KvConfigError(f"there are {PAIR_COUNT_MAX} pairs already")
        table = {name: dict(pairs) for name, pairs in self._table.items()}
        table.setdefault(namespace, {})[key] = value
        if _size_of(table) > TABLE_SIZE_MAX:
            raise KvConfigError(f"all pairs together would have more than {TABLE_SIZE_MAX} bytes")
        self._save(table)

    def delete(self, namespace: str, key: str) -> None:
        """Remove a pair, if it is there."""
        if self.get(namespace, key) is None:
            return
        table = {name: dict(pairs) for name, pairs in self._table.items()}
        del table[namespace][key]
        self._save(table)

    def _save(self, table: dict[str, dict[str, str]]) -> None:
        try:
            replace_durably(self._path, fastjson.dumps({"configTable": table}).encode())
        except OSError as error:
            raise KvConfigError(f"{self._path}: {error.strerror}") from error
        self._table = table


def _size_of(table: dict[str, dict[str, str]]) -> int:
    return sum(
        len(namespace) + sum(len(key) + len(value) for key, value in pairs.items())
        for namespace, pairs in table.items()
    )
