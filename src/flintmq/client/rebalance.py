"""Which queues a member gives up and which it takes up.

Nothing here waits: lists come in, a decision goes out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from flintmq.client.process_queue import ProcessQueue
    from flintmq.model.message_queue import MessageQueue


class Change(NamedTuple):
    """What a member has to do after queues were shared out."""

    dropped: tuple[MessageQueue, ...]
    added: tuple[MessageQueue, ...]

    def __bool__(self) -> bool:
        return bool(self.dropped or self.added)


def decide(
    topic: str,
    held: Mapping[MessageQueue, ProcessQueue],
    assigned: Collection[MessageQueue],
    *,
    now_ms: int,
) -> Change:
    """Return which queues of a topic are given up and taken up.

    A queue that was not pulled from for too long is both: it is taken up anew.
    """
    wanted = set(assigned)
    own = {queue: one for queue, one in held.items() if queue.topic == topic}
    dropped = [
        queue for queue, one in own.items() if queue not in wanted or one.is_pull_expired(now_ms)
    ]
    added = sorted(wanted - (own.keys() - set(dropped)))
    return Change(tuple(sorted(dropped)), tuple(added))
