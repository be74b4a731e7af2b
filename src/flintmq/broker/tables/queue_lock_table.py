"""Who may consume a queue in order: one client of a group at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flintmq.model.message_queue import MessageQueue

EXPIRY_MS: Final = 60_000
LOCK_COUNT_MAX: Final = 200_000
"""Queues that are locked at one time; a lock that is not renewed lasts a minute."""


class _QueueLock(NamedTuple):
    client_id: str
    updated_ms: int


class QueueLocks:
    """Locks by group and queue; they live in memory only."""

    def __init__(self, expiry_ms: int = EXPIRY_MS) -> None:
        self._expiry_ms = expiry_ms
        self._locks: dict[str, dict[MessageQueue, _QueueLock]] = {}
        self._count = 0

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int
    ) -> list[MessageQueue]:
        """Lock the queues that nobody else holds; return those that the client holds now."""
        held = self._locks.setdefault(group, {})
        granted = []
        for queue in queues:
            lock = held.get(queue)
            is_free = lock is None or now_ms - lock.updated_ms > self._expiry_ms
            if lock is None and self._count >= LOCK_COUNT_MAX:
                continue
            if is_free or (lock is not None and lock.client_id == client_id):
                self._count += lock is None
                held[queue] = _QueueLock(client_id, now_ms)
                granted.append(queue)
        if not held:
            del self._locks[group]
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give up the locks of a client; those of others stay."""
        held = self._locks.get(group, {})
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id == client_id:
                del held[queue]
                self._count -= 1
        if not held:
            self._locks.pop(group, None)

    def expire(self, now_ms: int) -> None:
        """Forget locks that nobody has renewed."""
        for group, held in list(self._locks.items()):
            for queue in [
                one for one, lock in held.items() if now_ms - lock.updated_ms > self._expiry_ms
            ]:
                del held[queue]
                self._count -= 1
            if not held:
                del self._locks[group]
