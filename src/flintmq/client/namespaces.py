"""Names within a namespace: several tenants share a cluster without seeing each other."""

from __future__ import annotations

from typing import Final

from flintmq.model.topics import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
)

SEPARATOR: Final = "%"


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name


def wrap(namespace: str | None, name: str) -> str:
    """Return a name as the cluster knows it; system names and wrapped ones stay as they are."""
    if not namespace or not name or name in SYSTEM_TOPICS:
        return name
    if name.startswith((SYSTEM_PREFIX, SYSTEM_GROUP_PREFIX)):
        return name
    prefix, bare = _split(name)
    if bare.startswith(f"{namespace}{SEPARATOR}"):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{bare}"


def unwrap(namespace: str | None, name: str) -> str:
    """Return a name as the user of a namespace knows it."""
    if not namespace:
        return name
    prefix, bare = _split(name)
    return prefix + bare.removeprefix(f"{namespace}{SEPARATOR}")
