"""Which queues a member gives up and which it takes up.

Nothing here waits: lists come in, a decision goes out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from flintmq.client.assigning.process_queue import ProcessQueue
    from flintmq.model.message_queue import MessageQueue


class Change(NamedTuple):
    """Which queues of a topic a member gives up and takes up."""

    dropped: tuple[MessageQueue, ...]
    added: tuple[MessageQueue, ...]


def decide(
    topic: str,
    held: Mapping[MessageQueue, ProcessQueue],
    assigned: Collection[MessageQueue],
    *,
    now_ms: int,
    needs_lock: bool = False,
) -> Change:
    """Return which queues of a topic are given up and taken up.

    A queue that was not pulled from for too long is given up and taken up again.  So is one whose
    lock has expired: another member may have consumed from it in the meantime.
    """

    def is_stale(one: ProcessQueue) -> bool:
        return one.is_pull_expired(now_ms) or (needs_lock and not one.is_lock_valid(now_ms))

    wanted = set(assigned)
    own = {queue: one for queue, one in held.items() if queue.topic == topic}
    dropped = {queue for queue, one in own.items() if queue not in wanted or is_stale(one)}
    added = wanted - (own.keys() - dropped)
    return Change(tuple(sorted(dropped)), tuple(sorted(added)))
