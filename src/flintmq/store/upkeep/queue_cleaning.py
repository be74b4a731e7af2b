"""Queues that go: those of deleted topics, and those whose records have expired."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from flintmq.model.topics import DUE_TIME_TOPICS, LMQ_PREFIX, TRANS_OP_HALF_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator
    from pathlib import Path

    from flintmq.store.appending.appender import Appender
    from flintmq.store.dispatch import Dispatcher
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.upkeep.durability import Durability
    from flintmq.store.views.key_index import KeyIndex
    from flintmq.store.views.queue_table import QueueTable, StoredQueue

KEPT_TOPICS: Final = DUE_TIME_TOPICS | {TRANS_OP_HALF_TOPIC}
"""The broker's own topics, whose queues are kept whoever lists the live ones."""


STEP_QUEUES: Final = 16
"""Queues that are looked at between two interruptions; one is removed."""


class UnsyncedRemovals:
    """Directories that queues were removed from, and whose removal is not durable yet.

    All requests share them: one that finds nothing left to remove waits for those that have
    removed it, since its answer says that it is gone for good.
    """

    def __init__(self, queues: QueueTable, durability: Durability) -> None:
        self._queues = queues
        self._durability = durability
        self._directories: list[Path] = []
        self._lock = threading.Lock()

    def add(self, directories: list[Path]) -> None:
        """Take in the directories that one queue was removed from."""
        self._directories += directories

    def sync(self) -> None:
        """Make all removals so far durable; any thread may call it, and it waits for the disk."""
        with self._lock:
            directories = list(self._directories)
            if directories:
                self._queues.sync_removals(directories)
                self._durability.checkpoint()
                del self._directories[: len(directories)]


class ForgottenQueues:
    """Queues that are gone from the table and from their directories, if not durably yet."""

    def __init__(self, unsynced: UnsyncedRemovals) -> None:
        self._unsynced = unsynced
        self.topics: set[str] = set()
        self.count = 0

    def add(self, queue: StoredQueue, unsynced: list[Path]) -> None:
        """Take in a queue, with the directories that it was removed from."""
        self.topics.add(queue.topic)
        self.count += 1
        self._unsynced.add(unsynced)

    def sync(self) -> None:
        """Make the removal durable; any thread may call it, and it waits for the disk."""
        self._unsynced.sync()


class QueueCleaner:
    """Destroys queues and lets the views follow a log whose oldest files were deleted."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        index: KeyIndex | None,
        appender: Appender,
        dispatcher: Dispatcher,
        durability: Durability,
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._appender = appender
        self._dispatcher = dispatcher
        self._unsynced = UnsyncedRemovals(queues, durability)

    def clean_unused_topics(self, live: Collection[str]) -> int:
        """Destroy the queues of topics that are not in ``live``; return how many topics."""
        return len(_synced(self.forget_unused_topics(live.__contains__)).topics)

    def forget_unused_topics(
        self, is_live: Callable[[str], bool], *, first: str = ""
    ) -> Generator[None, None, ForgottenQueues]:
        """Remove the queues of topics that are not live, interruptible.

        A topic may be made anew while this is interrupted; what is left of it then stays.
        """

        def is_unused(queue: StoredQueue) -> bool:
            topic = queue.topic
            is_kept = topic in KEPT_TOPICS or topic.startswith(LMQ_PREFIX)
            return not is_kept and not is_live(topic)

        yield from self._dispatch_so_far()
        forgotten = ForgottenQueues(self._unsynced)
        if first:
            yield from self._forget_those(
                forgotten, lambda queue: queue.topic == first and is_unused(queue)
            )
        yield from self._forget_those(forgotten, is_unused)
        return forgotten

    def _dispatch_so_far(self) -> Generator[None, None, None]:
        """Have what is readable by now dispatched, run by run.

        What waited would come into its queue after that was removed, the newer half of it alone.
        """
        dispatcher, end = self._dispatcher, self._log.readable_end
        while dispatcher.waiting and (before := dispatcher.offset) < end:
            dispatcher.run()
            if dispatcher.offset == before:
                return  # The disk is full, or somebody who is told of messages is asking.
            yield

    def _forget_those(
        self, forgotten: ForgottenQueues, is_to_go: Callable[[StoredQueue], bool]
    ) -> Generator[None, None, None]:
        for number, queue in enumerate(self._queues, 1):
            # Another request may have removed it, and a message made another one, meanwhile.
            is_there = self._queues.get(queue.topic, queue.queue_id) is queue
            if is_there and is_to_go(queue):
                forgotten.add(queue, self._forget(queue))
                yield  # To remove a file can take as long as the journal of the disk does.
            elif number % STEP_QUEUES == 0:
                yield

    def clean_expired_queues(self) -> int:
        """Destroy queues whose every record is gone; return how many.

        As in RocketMQ the next message of such a queue starts at offset 0 again.
        """
        return _synced(self.forget_expired_queues()).count

    def forget_expired_queues(self) -> Generator[None, None, ForgottenQueues]:
        """Remove queues whose every record is gone, interruptible."""
        self._dispatcher.run()

        def is_expired(queue: StoredQueue) -> bool:
            if self._dispatcher.waiting:
                self._dispatcher.run()
            end = queue.max_physical_offset
            return queue.topic not in DUE_TIME_TOPICS and 0 <= end <= self._log.min_offset

        forgotten = ForgottenQueues(self._unsynced)
        yield from self._forget_those(forgotten, is_expired)
        return forgotten

    def clean_unused_light_queue(self, topic: str) -> bool:
        """Destroy the light queue of that name; return whether there was one."""
        queue = self._queues.get(topic, 0) if topic.startswith(LMQ_PREFIX) else None
        if queue is None:
            return False
        forgotten = ForgottenQueues(self._unsynced)
        forgotten.add(queue, self._forget(queue))
        forgotten.sync()
        return True

    def _forget(self, queue: StoredQueue) -> list[Path]:
        """Remove a queue; its next message gets offset 0, unless older ones are still to come.

        Records that wait for the disk are dispatched after this and bring their offsets along.
        If new messages began at 0 beside them, the queue would take one or the other.
        """
        unsynced = self._queues.forget(queue)
        if not self._dispatcher.waiting:
            self._appender.next_offsets.pop((queue.topic, queue.queue_id), None)
        return unsynced

    def expired_views(self) -> Iterator[bool]:
        """Let queues and index follow the log after its oldest files were deleted.

        One queue after the other does, and with each it is told whether files were deleted: an
        owner with others to serve goes on when it likes.
        """
        for queue in self._queues:
            yield queue.delete_expired(self._log.min_offset) > 0
        if self._index is not None:
            yield self._index.delete_expired(self._log.min_offset) > 0

    def delete_expired_views(self) -> None:
        """Let all queues and the index follow the log in one go."""
        for _ in self.expired_views():
            pass


def _synced(steps: Generator[None, None, ForgottenQueues]) -> ForgottenQueues:
    """Remove queues in one go and wait for the disk."""
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            forgotten: ForgottenQueues = finished.value
            forgotten.sync()
            return forgotten
