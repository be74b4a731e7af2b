"""Queues that go: those of deleted topics, and those whose records have expired."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.model.steps import finish
from flintmq.model.topics import DUE_TIME_TOPICS, LMQ_PREFIX, TRANS_OP_HALF_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator
    from pathlib import Path

    from flintmq.model.steps import Steps
    from flintmq.store.append_group.sends import Queue
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

STEP_UNMADE: Final = 1024
"""Queues that have given an offset and are looked at between two interruptions."""


class TopicsKnown(NamedTuple):
    """What a slave knows of queues when it has asked its master for them.

    A topic that the master does not name may have been deleted, or have been made since.  By its
    queue alone a slave cannot tell, and messages of a deleted topic may still be on their way.
    """

    gone: Collection[Queue]
    """The queues that the master does not have: their next message gets offset 0."""
    before: int
    """Below this offset all messages were stored before the master was asked."""
    after: int
    """From this offset on all messages were stored after that."""


class UnsyncedRemovals:
    """What was removed and is not durable yet: directories, and records that waited for a queue.

    All requests share it: one that finds nothing left to remove waits for those that have removed
    it, since its answer says that it is gone for good.
    """

    def __init__(self, queues: QueueTable, dispatcher: Dispatcher, durability: Durability) -> None:
        self._queues = queues
        self._dispatcher = dispatcher
        self._durability = durability
        self._directories: list[Path] = []
        self._waiting_end = self._noted_end = 0
        """Where the log ended when records went with a queue, and what a checkpoint knows of."""
        self._lock = threading.Lock()

    def add(self, directories: list[Path]) -> None:
        """Take in the directories that one queue was removed from."""
        self._directories += directories

    def add_waiting(self, end_offset: int) -> None:
        """Learn that records below a log offset went with a queue while they waited."""
        self._waiting_end = end_offset

    @property
    def has_waiting(self) -> bool:
        """Whether such records still wait: until they are passed over, a crash brings them back."""
        return self._dispatcher.offset < self._waiting_end

    def flush(self) -> None:
        """Bring those records to the disk, so that they can be passed over; in any thread."""
        self._durability.flush()

    def pass_waiting(self) -> Generator[None, None, None]:
        """Pass over those records, as far as the disk has them, interruptible."""
        yield from dispatch_so_far(self._dispatcher, self._waiting_end)

    def sync(self) -> None:
        """Make all removals so far durable; any thread may call it, and it waits for the disk."""
        with self._lock:
            directories, end_offset = list(self._directories), self._waiting_end
            if directories or end_offset > self._noted_end:
                self._queues.sync_removals(directories)
                self._durability.checkpoint()
                self._noted_end = end_offset
                del self._directories[: len(directories)]


class ForgottenQueues:
    """Queues that are gone from the table and from their directories, if not durably yet."""

    def __init__(self, unsynced: UnsyncedRemovals) -> None:
        self.unsynced = unsynced
        self.topics: set[str] = set()
        self.count = 0

    def add(self, queue: StoredQueue, unsynced: list[Path]) -> None:
        """Take in a queue, with the directories that it was removed from."""
        self.topics.add(queue.topic)
        self.count += 1
        self.unsynced.add(unsynced)

    def sync(self) -> None:
        """Make the removal durable; any thread may call it, and it waits for the disk."""
        self.unsynced.sync()


def dispatch_so_far(dispatcher: Dispatcher, end_offset: int) -> Generator[None, None, None]:
    """Have what is readable below an offset dispatched, run by run."""
    while dispatcher.has_waiting and (before := dispatcher.offset) < end_offset:
        dispatcher.run()
        if dispatcher.offset == before:
            return  # The disk is full, or somebody who is told of messages is asking.
        yield


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
        self._unsynced = UnsyncedRemovals(queues, dispatcher, durability)

    def clean_unused_topics(self, live: Collection[str]) -> int:
        """Destroy the queues of topics that are not in ``live``; return how many topics."""
        return len(_synced(self.forget_unused_topics(live.__contains__)).topics)

    def forget_unused_topics(
        self,
        is_live: Callable[[str], bool],
        *,
        first: str = "",
        known: TopicsKnown | None = None,
    ) -> Steps[ForgottenQueues]:
        """Remove the queues of topics that are not live, interruptible.

        A topic may be made anew while this is interrupted; what is left of it then stays.  A slave
        says when it was told the topics: it removes a queue that has all messages of the deleted
        topic, and none that came later.
        """

        def is_unused(topic: str) -> bool:
            is_kept = topic in KEPT_TOPICS or topic.startswith(LMQ_PREFIX)
            return not is_kept and not is_live(topic)

        def is_to_go(queue: StoredQueue) -> bool:
            if not is_unused(queue.topic):
                return False
            return known is None or (
                (queue.topic, queue.queue_id) in known.gone
                and queue.max_physical_offset <= known.before
                and self._dispatcher.offset >= known.after
            )

        # What is readable comes into the queues before they go, and its consumers are told of it.
        yield from dispatch_so_far(self._dispatcher, self._log.readable_end)
        forgotten = ForgottenQueues(self._unsynced)
        if first:
            yield from self._forget_those(
                forgotten, lambda queue: queue.topic == first and is_to_go(queue)
            )
        yield from self._forget_those(forgotten, is_to_go)
        yield from self._forget_unmade(is_unused)
        return forgotten

    def _forget_those(
        self,
        forgotten: ForgottenQueues,
        is_to_go: Callable[[StoredQueue], bool],
        *,
        with_waiting: bool = True,
    ) -> Generator[None, None, None]:
        for number, queue in enumerate(self._queues, 1):
            # Another request may have removed it, and a message made another one, meanwhile.
            is_there = self._queues.get(queue.topic, queue.queue_id) is queue
            if (
                is_there
                and is_to_go(queue)
                and self._forget(queue, forgotten, with_waiting=with_waiting)
            ):
                yield  # To remove a file can take as long as the journal of the disk does.
            elif number % STEP_QUEUES == 0:
                yield

    def _forget_unmade(self, is_unused: Callable[[str], bool]) -> Generator[None, None, None]:
        """Forget the records of unused topics whose queue is made when the disk has them."""
        if self._appender.is_slave or not self._dispatcher.has_waiting:
            return
        for number, (topic, queue_id) in enumerate(list(self._appender.next_offsets), 1):
            if is_unused(topic) and self._queues.get(topic, queue_id) is None:
                with self._dispatcher.lock, self._appender.lock:
                    self._begin_anew((topic, queue_id))
            if number % STEP_UNMADE == 0:
                yield

    def clean_expired_queues(self) -> int:
        """Destroy queues whose every record is gone; return how many.

        As in RocketMQ the next message of such a queue starts at offset 0 again.
        """
        return _synced(self.forget_expired_queues()).count

    def forget_expired_queues(self) -> Steps[ForgottenQueues]:
        """Remove queues whose every record is gone, interruptible."""
        self._dispatcher.run()

        def is_expired(queue: StoredQueue) -> bool:
            if self._dispatcher.has_waiting:
                self._dispatcher.run()
            end = queue.max_physical_offset
            return queue.topic not in DUE_TIME_TOPICS and 0 <= end <= self._log.min_offset

        forgotten = ForgottenQueues(self._unsynced)
        yield from self._forget_those(forgotten, is_expired, with_waiting=False)
        return forgotten

    def _has_waiting(self, queue: StoredQueue) -> bool:
        """Whether records of a queue wait to come into it; a slave knows of none."""
        if self._appender.is_slave:
            return False
        end = queue.max_offset
        return self._appender.next_offsets.get((queue.topic, queue.queue_id), end) != end

    def clean_unused_light_queue(self, topic: str) -> bool:
        """Destroy the light queue of that name; return whether there was one."""
        queue = self._queues.get(topic, 0) if topic.startswith(LMQ_PREFIX) else None
        if queue is None:
            return False
        forgotten = ForgottenQueues(self._unsynced)
        self._forget(queue, forgotten)
        _finish(forgotten)
        return True

    def _forget(
        self, queue: StoredQueue, forgotten: ForgottenQueues, *, with_waiting: bool = True
    ) -> bool:
        """Remove a queue, unless records of it wait that are to be kept; return whether."""
        # In this order, as for append groups: no message may come in between.
        with self._dispatcher.lock, self._appender.lock:
            if not with_waiting and self._has_waiting(queue):
                return False
            if not self._appender.is_slave:
                self._begin_anew((queue.topic, queue.queue_id))
            forgotten.add(queue, self._queues.forget(queue))
            return True

    def _begin_anew(self, queue: Queue) -> None:
        """Let the next message of a queue get offset 0, and those that wait go with the queue.

        They are dispatched after this.  If they made the queue anew at their old offsets, records
        before them would seem to have lost their units.  A slave gives no offsets: what its master
        has begun anew comes with offset 0.
        """
        self._appender.next_offsets.pop(queue, None)
        end_offset = self._log.end_offset
        if self._dispatcher.offset < end_offset:
            self._dispatcher.forgotten.add(queue, end_offset)
            self._unsynced.add_waiting(end_offset)

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


def _synced(steps: Steps[ForgottenQueues]) -> ForgottenQueues:
    """Remove queues in one go and wait for the disk."""
    forgotten = finish(steps)
    _finish(forgotten)
    return forgotten


def _finish(forgotten: ForgottenQueues) -> None:
    """Make a removal durable in one go."""
    unsynced = forgotten.unsynced
    if unsynced.has_waiting:
        unsynced.flush()
        for _ in unsynced.pass_waiting():
            pass
    forgotten.sync()
