"""Names within a namespace: several tenants share a cluster without seeing each other."""

from __future__ import annotations

from typing import Final

from flintmq.model.topics import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    DLQ_PREFIX,
    OFFSET_MOVED_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_PREFIX,
    TRACE_TOPIC,
    TRANS_CHECK_MAX_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)

SEPARATOR: Final = "%"
_SYSTEM: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        BENCHMARK_TOPIC,
        OFFSET_MOVED_TOPIC,
        SCHEDULE_TOPIC,
        SELF_TEST_TOPIC,
        TRACE_TOPIC,
        TRANS_CHECK_MAX_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
    }
)


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name


def wrap(namespace: str | None, name: str) -> str:
    """Return a name as the cluster knows it; system names and wrapped ones stay as they are."""
    if not namespace or not name or name in _SYSTEM:
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
