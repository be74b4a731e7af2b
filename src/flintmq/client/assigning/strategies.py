"""How the members of a group share its queues.

All members run the same strategy on the same sorted lists, so none needs to ask the others.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from flintmq.client.errors import UsageError

if TYPE_CHECKING:
    from flintmq.model.message_queue import MessageQueue

VIRTUAL_NODE_COUNT: Final = 10


class QueueStrategy(Protocol):
    """Shares queues among the members of a group."""

    def __call__(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of ``client_id``; both lists are sorted, and it is in the second."""
        ...


def allocate(
    strategy: QueueStrategy,
    client_id: str,
    queues: Collection[MessageQueue],
    client_ids: Collection[str],
) -> list[MessageQueue]:
    """Return the queues of a member; none if it is not among the members.

    A member that has made a new connection is listed twice as long as the broker takes the old
    one for alive.  It counts once, or nobody would consume the queues of its second entry.
    """
    if client_id not in client_ids:
        return []
    return strategy(client_id, sorted(queues), sorted(set(client_ids)))


def averagely(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Give each member neighbouring queues; the first ones get one more."""
    index, count = client_ids.index(client_id), len(client_ids)
    rest = len(queues) % count
    size = 1 if len(queues) <= count else len(queues) // count + (1 if index < rest else 0)
    start = index * size if rest > 0 and index < rest else index * size + rest
    return list(queues[start : start + max(min(size, len(queues) - start), 0)])


def by_circle(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Deal the queues out one by one."""
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


@dataclass(frozen=True, slots=True)
class FixedQueues:
    """Gives a member the queues that its user named."""

    queues: tuple[MessageQueue, ...]

    def __call__(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the named queues, whichever other members there are."""
        return list(self.queues)


@dataclass(frozen=True, slots=True)
class MachineRoom:
    """Shares only the queues of brokers named ``room@name`` in the given rooms."""

    rooms: frozenset[str]

    def __call__(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return neighbouring queues of the rooms, and one of those that do not divide evenly."""
        near = [
            queue
            for queue in queues
            if "@" in queue.broker_name and queue.broker_name.partition("@")[0] in self.rooms
        ]
        index, count = client_ids.index(client_id), len(client_ids)
        size, rest = divmod(len(near), count)
        found = near[index * size : (index + 1) * size]
        if index < rest:
            found.append(near[count * size + index])
        return found


@dataclass(frozen=True, slots=True)
class MachineRoomNearby:
    """Prefers members in the room of a queue; rooms without members are shared by all."""

    inner: QueueStrategy
    room_of_queue: Callable[[MessageQueue], str]
    room_of_client: Callable[[str], str]

    def __call__(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of the member's room, and its share of rooms without members."""
        by_room: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_room.setdefault(self._room(self.room_of_queue(queue)), []).append(queue)
        members: dict[str, list[str]] = {}
        for one in client_ids:
            members.setdefault(self._room(self.room_of_client(one)), []).append(one)
        own = self.room_of_client(client_id)
        found = []
        if own in by_room:
            found = self.inner(client_id, by_room[own], members[own])
        for room in sorted(by_room):
            if room not in members:
                found += self.inner(client_id, by_room[room], client_ids)
        return found

    @staticmethod
    def _room(name: str) -> str:
        if not name:
            raise UsageError("a queue or client without a machine room")
        return name


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """Gives a queue to the next member on a ring: few queues move when a member comes or goes."""

    virtual_node_count: int = VIRTUAL_NODE_COUNT

    def __call__(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues whose next node on the ring belongs to the member."""
        ring = {
            _ring_hash(f"{one}-{number}"): one
            for one in client_ids
            for number in range(self.virtual_node_count)
        }
        positions = sorted(ring)
        if not positions:
            return []
        return [queue for queue in queues if ring[_owner(positions, queue)] == client_id]


def _owner(positions: Sequence[int], queue: MessageQueue) -> int:
    # The key is the text that Java makes of a queue.
    key = (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )
    at = bisect.bisect_left(positions, _ring_hash(key))
    return positions[at % len(positions)]


def _ring_hash(key: str) -> int:
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4], "big")
