"""Stores whose topics are deleted, cleaned and expired while messages come; and what must stay.

The oracle is outside of the store.  It knows what was acknowledged, how far callers were told that
the disk has it, and what somebody asked to delete.  Everything else must be served to a consumer
that reads its queue to the end, at the offset that the answer named.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.stored.record import decode_record
from flintmq.model.message import MessageBatch, PutMessage
from flintmq.model.steps import Steps
from flintmq.store.append_group.sends import Sends, SendTarget
from flintmq.store.appending.group_appender import NotAppended
from flintmq.store.message_store import MessageStore
from flintmq.store.results import PutResult, PutStatus
from flintmq.store.upkeep.queue_cleaning import ForgottenQueues
from flintmq.testing import ManualClock, SimulatedFiles
from tests.kits.store.store_workload import BORN_HOST, START_MS, STORE_HOST, Variant
from tests.kits.store.verified import problems_of

TOPICS: Final = ("T0", "T1", "T2")
QUEUE_COUNT: Final = 2
NO_GENERATION: Final = -1
"""Of messages that came while their topic was being deleted: they may stay or go."""
REMOVALS_AT_ONCE: Final = 2
_BODY_SIZES: Final = (20, 100, 500)


class Removal(NamedTuple):
    """A deletion of a topic, or without one a clean-up of queues, that is done in slices."""

    topic: str | None
    steps: Steps[ForgottenQueues]


class Acknowledged(NamedTuple):
    """A message that was answered with PUT_OK."""

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    physical_offset: int
    end: int
    """Where its record ends in the log; of a batch, where the batch does."""
    generation: int
    """How often its topic had been deleted."""


@dataclass(slots=True)
class Promises:
    """What callers of one store were told."""

    acknowledged: list[Acknowledged] = field(default_factory=list)
    tried: set[bytes] = field(default_factory=set)
    """The bodies of all messages that somebody wanted to put, answered or not."""
    generations: Counter[str] = field(default_factory=Counter)
    being_deleted: Counter[str] = field(default_factory=Counter)
    """How many deletions of a topic are under way."""
    gone: dict[str, int] = field(default_factory=dict)
    """Of each topic, before which generation all messages are gone for good."""
    unfinished_removals: int = 0
    """Removals of queues that have begun and are not durable.

    A crash in the middle of one leaves fewer queues than were counted.  Then all of them are filled
    from the log, and what was deleted before comes back with the rest.
    """
    tried_in: dict[bytes, int] = field(default_factory=dict)
    """The generation of each message that was acknowledged, by its body."""
    committed: int = 0
    """Below this log offset the process has given everything to the kernel."""
    flushed: int = 0
    """Below this log offset somebody was told that a power failure takes nothing."""
    expired: int = 0
    """Below this log offset whole files may be deleted."""

    def told_flushed(self, offset: int) -> None:
        """Note how far the disk has everything."""
        self.flushed = max(self.flushed, offset)
        self.committed = max(self.committed, self.flushed)

    def deletion_began(self, topic: str) -> None:
        """Note that what a topic has may go at any time from now on."""
        self.being_deleted[topic] += 1

    def deletion_ended(self, topic: str) -> None:
        """Note that what comes to the topic from now on has to stay."""
        self.being_deleted[topic] -= 1
        self.generations[topic] += 1

    def acknowledge(self, one: Acknowledged) -> None:
        """Note a message that is stored."""
        if self.being_deleted[one.topic]:
            one = one._replace(generation=NO_GENERATION)
        self.acknowledged.append(one)
        self.tried_in[one.body] = one.generation

    def assert_not_gone(self, topic: str, body: bytes) -> None:
        """Assert that a message is none of those that were deleted for good."""
        if self.unfinished_removals:
            self.gone.clear()
        generation = self.tried_in.get(body, NO_GENERATION)
        assert generation == NO_GENERATION or generation >= self.gone.get(topic, 0), (
            f"a deleted message came back: {topic} {body[:5]!r}"
        )

    def kept(self, below: int) -> list[Acknowledged]:
        """Return what must be there, of the log below an offset."""
        return [
            one
            for one in self.acknowledged
            if one.end <= below
            and one.physical_offset >= self.expired
            and not self.being_deleted[one.topic]
            and one.generation == self.generations[one.topic]
        ]


def read_to_end(store: MessageStore, topic: str, queue_id: int) -> Iterator[tuple[int, bytes]]:
    """Yield what a consumer gets that begins with a queue and goes where it is led."""
    offset = max(store.min_offset_in_queue(topic, queue_id), 0)
    while True:
        result = store.get_messages(topic, queue_id, offset, 7)
        assert result is not None
        with result:
            for queue_offset, view in zip(result.queue_offsets, result, strict=True):
                assert decode_record(view).crc_ok
                yield queue_offset, bytes(view)
        if result.next_begin_offset <= offset:
            return
        offset = result.next_begin_offset


def assert_delivered(store: MessageStore, promises: Promises, *, below: int) -> None:
    """Assert that consumers get what was promised, and nothing that nobody put."""
    found = {}
    for topic in TOPICS:
        for queue_id in range(QUEUE_COUNT):
            for offset, raw in read_to_end(store, topic, queue_id):
                body = bytes(decode_record(raw).body)
                assert body in promises.tried, "a message that nobody put"
                promises.assert_not_gone(topic, body)
                found[topic, queue_id, offset] = body
    for one in promises.kept(below):
        got = found.get((one.topic, one.queue_id, one.queue_offset))
        assert got == one.body, f"not delivered: {one._replace(body=one.body[:5])}, but {got!r:.20}"


class AdminDriver:
    """Puts messages and does what operators do, at random; the same for the same seed."""

    def __init__(
        self,
        variant: Variant,
        files: SimulatedFiles,
        *,
        seed: int,
        removes_at_rest: bool = False,
    ) -> None:
        """Make a driver; with ``removes_at_rest`` queues go in one go when no record waits."""
        self.variant = variant
        self.files = files
        self.rng = Random(seed)
        self.promises = Promises()
        self._removes_at_rest = removes_at_rest
        self.store: MessageStore | None = None
        self._live = set(TOPICS)
        self._removals: list[Removal] = []
        self._unsynced: list[ForgottenQueues] = []
        self.steps: list[Callable[[], None]] = (
            [self.put] * 8
            + [self.put_batch] * 2
            + [self.flush, self.dispatch, self.checkpoint]
            + [self.clean_unused, self.clean_expired, self.expire]
        )
        if removes_at_rest:
            self.steps += [self.delete_topic] * 3
        else:
            self.steps += [self.delete_topic, self.begin_removal]
            self.steps += [self.go_on_removing] * 2
        if not variant.is_sync:
            self.steps += [self.append_group] * 2
        if variant.has_pool:
            self.steps += [self.commit] * 2

    # -- running -----------------------------------------------------------------------------

    def run(self, step_count: int, *, after_step: Callable[[int], None]) -> None:
        """Open the store, take so many steps with a clean stop in the middle, and close it."""
        self.open()
        for number in range(step_count):
            self.step()
            after_step(number)
            if number == step_count * 2 // 3:
                self.reopen()
        self.close()

    def step(self) -> None:
        assert isinstance(self.files.clock, ManualClock)
        self.files.clock.advance(self.rng.choice((0, 1, 7, 900)))
        self.rng.choice(self.steps)()
        if self.variant.writes_back and self.rng.random() < 0.3:
            self.files.write_back(self.rng, share=self.rng.choice((0.2, 0.7)))

    @property
    def opened(self) -> MessageStore:
        assert self.store is not None
        return self.store

    def open(self) -> None:
        self.store = self.variant.open(self.files)
        self.promises.told_flushed(self.store.log.end_offset)

    def close(self) -> None:
        self._end_removals()
        end = self.opened.log.end_offset
        self.opened.close()
        self.store = None
        self.promises.told_flushed(end)

    def reopen(self) -> None:
        self.close()
        self.open()
        assert_delivered(self.opened, self.promises, below=self.opened.log.end_offset)

    def restart(self, files: SimulatedFiles, *, below: int, is_torn: bool) -> None:
        """Start again on what a crash has left; messages above an offset may be gone.

        A torn queue is filled from the log, and what was deleted may come back with it.
        """
        if is_torn:
            self.promises.gone.clear()
        self.files = files
        self._removals, self._unsynced, self._live = [], [], set(TOPICS)
        self.store = self.variant.open(files)
        assert_delivered(self.store, self.promises, below=below)
        # What is not there any more was not promised, and its place is given anew.
        end = self.store.log.end_offset
        self.promises.acknowledged = self.promises.kept(min(below, end))
        for topic in TOPICS:
            while self.promises.being_deleted[topic]:
                self.promises.deletion_ended(topic)
        self.promises.unfinished_removals = 0
        self.promises.told_flushed(end)

    def assert_sound(self) -> None:
        """Assert that nobody who looks at the files finds a fault in them."""
        # A queue has no files before its first message is dispatched, nor after it was removed.
        dispatched = self.promises.kept(self.opened.dispatcher.offset)
        filled = {(one.topic, one.queue_id) for one in dispatched}
        queues = {(topic, queue_id) for topic in TOPICS for queue_id in range(QUEUE_COUNT)}
        assert problems_of(self.variant, self.files, emptied=queues - filled) == []

    def assert_goes_on(self) -> None:
        """Assert that every queue takes a message and delivers it, now and after a restart."""
        for topic in TOPICS:
            for queue_id in range(QUEUE_COUNT):
                self._answer_of(self._message(topic, queue_id))
        self.flush()
        self.dispatch()
        assert_delivered(self.opened, self.promises, below=self.opened.log.end_offset)
        self.reopen()

    # -- messages ----------------------------------------------------------------------------

    def put(self) -> None:
        self._answer_of(self._message(self._topic(), self._queue_id()))

    def put_batch(self) -> None:
        items = [BatchItem(0, self._body(60), b"") for _ in range(self.rng.randint(1, 4))]
        batch = MessageBatch(
            topic=self._topic(),
            queue_id=self._queue_id(),
            body=encode_batch(items),
            born_timestamp=START_MS,
            born_host=BORN_HOST,
            store_host=STORE_HOST,
        )
        self._answer_of(batch, *(item.body for item in items))

    def append_group(self) -> None:
        """Put messages together, as the fast path of a broker does."""
        store = self.opened
        store.dispatch()
        count = self.rng.randint(1, 4)
        queues = [(self._topic(), self._queue_id()) for _ in range(count)]
        targets = [SendTarget(*queue) for queue in queues]
        bodies = [self._body(60) for _ in range(count)]
        sends = Sends(targets, [START_MS] * count, bodies, [b""] * count, [BORN_HOST] * count, b"")
        group = store.append_group(sends, STORE_HOST)
        if isinstance(group, NotAppended):
            return
        self._live.update(topic for topic, _ in queues)
        for queue, body, stored in zip(queues, bodies, list(group.stored), strict=True):
            at = int.from_bytes(stored.physical_offsets, "big")
            self._note(*queue, stored.queue_offset, body, at, store.log.end_offset)

    def _answer_of(self, message: PutMessage | MessageBatch, *bodies: bytes) -> None:
        store = self.opened
        # Who sends to a topic that is being deleted makes it anew.
        self._live.add(message.topic)
        result = (
            store.put_batch(message) if isinstance(message, MessageBatch) else store.put(message)
        )
        assert result.status is PutStatus.PUT_OK, result
        offsets = result.record_offsets or (result.physical_offset,)
        for number, (at, body) in enumerate(zip(offsets, bodies or (message.body,), strict=True)):
            self._note(
                message.topic,
                message.queue_id,
                result.queue_offset + number,
                body,
                at,
                result.end_offset,
            )
        self._wait_for_flush(result)

    def _wait_for_flush(self, result: PutResult) -> None:
        if result.wait_for_flush:
            end, store = result.end_offset, self.opened

            def flushed(status: PutStatus, reason: str) -> None:
                assert (status, reason) == (PutStatus.PUT_OK, "")
                self.promises.told_flushed(end)

            store.when_flushed(end, flushed)

    def _note(
        self, topic: str, queue_id: int, queue_offset: int, body: bytes, at: int, end: int
    ) -> None:
        generation = self.promises.generations[topic]
        self.promises.acknowledge(
            Acknowledged(topic, queue_id, queue_offset, body, at, end, generation)
        )

    # -- what the store does by itself -------------------------------------------------------

    def dispatch(self) -> None:
        self.opened.dispatch()

    def commit(self) -> None:
        self.opened.commit()
        self.promises.committed = self.opened.log.end_offset

    def flush(self) -> None:
        end = self.opened.log.end_offset
        self.opened.flush()
        self.promises.told_flushed(end)

    def checkpoint(self) -> None:
        end = self.opened.log.end_offset
        self.opened.checkpoint()
        self.promises.told_flushed(end)

    # -- what operators do -------------------------------------------------------------------

    def delete_topic(self) -> None:
        """Delete a topic in one go, be it beside another deletion."""
        topic = self._topic()
        self._live.discard(topic)
        self._come_to_rest()
        self.promises.deletion_began(topic)
        self._remove(lambda: self.opened.clean_unused_topics(self._live))
        self.promises.deletion_ended(topic)
        self.promises.gone[topic] = self.promises.generations[topic]
        self._live.add(topic)

    def _come_to_rest(self) -> None:
        """Leave no record waiting, if that is asked for."""
        if self._removes_at_rest:
            self.flush()
            self.dispatch()

    def _remove(self, remove: Callable[[], object]) -> None:
        """Remove queues in one go, and wait for the disk."""
        self._come_to_rest()
        self.promises.unfinished_removals += 1
        remove()
        self.promises.unfinished_removals -= 1

    def begin_removal(self) -> None:
        """Begin to delete a topic or to clean queues; messages come before it goes on."""
        if len(self._removals) == REMOVALS_AT_ONCE:
            self.go_on_removing()
            return
        self.promises.unfinished_removals += 1
        if self.rng.random() < 0.3:
            self._removals.append(Removal(None, self.opened.forget_expired_queues()))
        else:
            topic = self._topic()
            self._live.discard(topic)
            self.promises.deletion_began(topic)
            is_live = self._live.__contains__
            steps = self.opened.forget_unused_topics(is_live, first=topic)
            self._removals.append(Removal(topic, steps))

    def go_on_removing(self) -> None:
        """Do the next slice of some removal, or make one durable."""
        if self._unsynced and self.rng.random() < 0.5:
            self._make_durable(self._unsynced.pop())
            self.promises.unfinished_removals -= 1
        elif self._removals:
            removal = self.rng.choice(self._removals)
            try:
                next(removal.steps)
            except StopIteration as finished:
                self._removals.remove(removal)
                self._unsynced.append(finished.value)
                if removal.topic is not None:
                    self.promises.deletion_ended(removal.topic)

    def _make_durable(self, forgotten: ForgottenQueues) -> None:
        """Make a removal durable as a broker does, or forget to pass over what waited."""
        if forgotten.unsynced.has_waiting and self.rng.random() < 0.5:
            forgotten.unsynced.flush()
            for _ in forgotten.unsynced.pass_waiting():
                pass
        forgotten.sync()

    def _end_removals(self) -> None:
        """Let removals come to their end, as a broker does before it closes its store."""
        while self._removals or self._unsynced:
            self.go_on_removing()

    def clean_unused(self) -> None:
        """Clean up after topics that are not there any more, which is none of those that are."""
        if not self._removals:
            self._live |= set(TOPICS)
            self._remove(lambda: self.opened.clean_unused_topics(self._live))

    def clean_expired(self) -> None:
        self._remove(self.opened.clean_expired_queues)

    def expire(self) -> None:
        """Delete the oldest file of the log, when the views have what is in it durably."""
        store = self.opened
        files = store.log.files.snapshot()
        self.flush()
        store.dispatch()
        self.checkpoint()
        if len(files) < 2 or store.dispatcher.offset < files[1].first_offset:
            return
        self.promises.expired = files[1].first_offset
        store.log.files.delete_expired_by_time(0, forced_after_ms=0, immediate=True, limit=1)
        store.delete_expired_views()

    # -- making messages ---------------------------------------------------------------------

    def _topic(self) -> str:
        return self.rng.choice(("T0", "T0", "T1", "T2"))

    def _queue_id(self) -> int:
        return self.rng.choice((0, 0, 1))

    def _body(self, size_max: int) -> bytes:
        number = len(self.promises.tried)
        body = f"{number:05d}".encode() + self.rng.randbytes(self.rng.randint(0, size_max))
        self.promises.tried.add(body)
        return body

    def _message(self, topic: str, queue_id: int) -> PutMessage:
        return PutMessage(
            topic=topic,
            queue_id=queue_id,
            body=self._body(self.rng.choice(_BODY_SIZES)),
            born_timestamp=START_MS,
            born_host=BORN_HOST,
            store_host=STORE_HOST,
        )
