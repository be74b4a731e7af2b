"""Who may consume a queue in order: one client of a group at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flintmq.model.message_queue import MessageQueue

EXPIRY_MS: Final = 60_000
LOCK_COUNT_MAX: Final = 1_000_000


class _Lock(NamedTuple):
    client_id: str
    updated_ms: int


class QueueLocks:
    """Locks by group and queue; they live in memory only."""

    def __init__(self) -> None:
        self._locks: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int
    ) -> list[MessageQueue]:
        """Lock what is free, one's own or expired; return the queues that are the client's now."""
        held = self._locks.setdefault(group, {})
        granted = []
        for queue in queues:
            lock = held.get(queue)
            is_free = lock is None or now_ms - lock.updated_ms > EXPIRY_MS
            if lock is None and self._count >= LOCK_COUNT_MAX:
                continue
            if is_free or (lock is not None and lock.client_id == client_id):
                self._count += lock is None
                held[queue] = _Lock(client_id, now_ms)
                granted.append(queue)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give locks back; those of others stay."""
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
                one for one, lock in held.items() if now_ms - lock.updated_ms > EXPIRY_MS
            ]:
                del held[queue]
                self._count -= 1
            if not held:
                del self._locks[group]
