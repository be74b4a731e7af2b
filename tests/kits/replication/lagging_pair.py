"""A pair whose dispatchers lag, with topics that are deleted meanwhile.

As in `tests.kits.replication.simulation`, and besides: batches with many keys, of which each run of
a dispatcher enters a few; topics that are deleted on the master in slices, and made again; a slave
that knows the topics of some time ago, and cleans up by them; a slave whose disk is full; the pool;
clean stops.  When all is at rest, everything acknowledged and not deleted is delivered by both,
once and at the offset that was named; both stores are sound, and so is the slave when promoted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from flintmq.broker.replication.slave_table import SlaveTable
from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.stored.record import decode_record
from flintmq.model.message import MessageBatch
from flintmq.model.steps import finish
from flintmq.offline.findings import Kind
from flintmq.offline.layout import SizeOptions, find_store
from flintmq.store.config import BrokerRole, FlushMode
from flintmq.store.upkeep.queue_cleaning import TopicsKnown
from flintmq.testing import ROOT
from tests.kits.replication.simulation import HOST, SMALL, Machine, Simulation
from tests.kits.store.admin_workload import read_to_end
from tests.kits.store.verified import problems_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.model.steps import Steps
    from flintmq.store.config import StoreConfig
    from flintmq.store.message_store import MessageStore
    from flintmq.store.upkeep.queue_cleaning import ForgottenQueues

TOPICS: Final = ("T", "U")
QUEUE_COUNT: Final = 2
EVENT_COUNT: Final = 250
LEVELS: Final = DelayLevels.parse(DEFAULT_DELAY_LEVELS)
NO_GENERATION: Final = -1
"""Of messages that came while their topic was being deleted: they may stay or go."""
FREE_SIZES: Final = (0, 4096, 12_288)
"""Bytes that a disk may have left when it is called full."""


class Place(NamedTuple):
    """Where a message was said to be, and how often its topic had been deleted then."""

    topic: str
    queue_id: int
    queue_offset: int
    generation: int


class LaggingPair(Simulation):
    """One life of a pair whose dispatchers lag, decided by a seed."""

    CONFIG: ClassVar[StoreConfig] = replace(SMALL, index_enabled=True, machine_code=False)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        if self.rng.random() < 0.3 and self.master.config.flush_mode is FlushMode.ASYNC:
            self.master.config = replace(
                self.master.config, transient_pool_enabled=True, transient_pool_size=2
            )
            self.master.restart()
        self._limit_runs()
        self.live: set[str] = set()
        self.generations: Counter[str] = Counter()
        self.places: dict[bytes, Place] = {}
        """Of each message that was put, by its body."""
        self.removal: Steps[ForgottenQueues] | None = None
        self.removed = ""
        """The topic that is being deleted."""
        self.slave_live: set[str] = set()
        self.slave_known = TopicsKnown((), 0, 0)
        """The topics that the slave was told, and when that was."""
        self.deletions = self.cleanings = self.full_disks = self.promotions = 0

    def events(self) -> list[tuple[int, Callable[[], None]]]:
        """Return what may happen, and how often each does."""
        return [
            *super().events(),
            (20, self.put_batch),
            (10, self.master_dispatches),
            (3, self.begin_deletion),
            (6, self.go_on_deleting),
            (6, self.sync_topics),
            (2, self.slave_cleans),
            (2, self.slave_cleans_expired),
            (3, self.fill_disk),
            (3, self.stop_cleanly),
        ]

    def _limit_runs(self) -> None:
        """Have the master's dispatcher do a little in each run, as that of a broker does."""
        if self.master.store is not None:
            self.master.store.dispatcher.run_limit.is_stepwise = True

    # -- what senders do ---------------------------------------------------------------------

    def put(self) -> None:
        """Have a message stored, as a batch of one."""
        self._put_items(1)

    def put_batch(self) -> None:
        """Have a batch stored, with many keys."""
        self._put_items(self.rng.choice([2, 5, 12]))

    def _put_items(self, count: int) -> None:
        store = self.master.store
        if store is None:
            return
        topic, queue_id = self.rng.choice(TOPICS), self.rng.randrange(QUEUE_COUNT)
        items = [self._item() for _ in range(count)]
        batch = MessageBatch(
            topic=topic,
            queue_id=queue_id,
            body=encode_batch(items),
            born_timestamp=1,
            born_host=HOST,
            store_host=HOST,
        )
        # Who sends to a topic that is being deleted makes it anew.
        self.live.add(topic)
        result = store.put_batch(batch)
        assert result.ok, (result, result.reason)
        generation = NO_GENERATION if self.removed == topic else self.generations[topic]
        starts = result.record_offsets or (result.physical_offset,)
        ends = [*starts[1:], result.end_offset]
        for number, item in enumerate(items):
            place = Place(topic, queue_id, result.queue_offset + number, generation)
            self.places[item.body] = place

        def promise() -> None:
            for item, start, end in zip(items, starts, ends, strict=True):
                self._promise(item.body, start, end)

        self.wait_for_slave(result.end_offset, promise)

    def _item(self) -> BatchItem:
        self._number += 1
        body = b"%06d-" % self._number + b"x" * self.rng.choice([0, 10, 100])
        keys = " ".join(f"k{self.rng.randrange(30)}" for _ in range(self.rng.choice([0, 1, 7])))
        return BatchItem(0, body, f"KEYS\x01{keys}\x02".encode() if keys else b"")

    # -- what brokers and operators do -------------------------------------------------------

    def master_dispatches(self) -> None:
        """Let the master bring some of its log into its queues."""
        if self.master.store is not None:
            if self.rng.random() < 0.5:
                self.master.store.commit()
            self.master.store.dispatch()

    def begin_deletion(self) -> None:
        """Begin to delete a topic on the master."""
        store = self.master.store
        if store is None or self.removal is not None:
            return
        self.deletions += 1
        self.removed = self.rng.choice(TOPICS)
        self.live.discard(self.removed)
        self.removal = store.forget_unused_topics(self.live.__contains__, first=self.removed)

    def go_on_deleting(self) -> None:
        """Do the next slice of a deletion; the last one makes it durable, as a broker does."""
        if self.removal is None:
            return
        try:
            next(self.removal)
        except StopIteration as finished:
            _make_durable(finished.value)
            self._end_deletion()

    def _end_deletion(self) -> None:
        """Note that what comes to a topic from now on has to stay."""
        if self.removed:
            self.generations[self.removed] += 1
        self.removal, self.removed = None, ""

    def sync_topics(self) -> None:
        """Let the slave take over the topics of its master, if it is known to have its log."""
        connection, slave = self.connection, self.slave.store
        if connection is None or slave is None or self.master.store is None:
            return
        if connection.master.is_joined:
            master = self.master.store
            gone = {
                (queue.topic, queue.queue_id)
                for queue in slave.queues
                if master.queues.get(queue.topic, queue.queue_id) is None
                and master.dispatcher.offset >= slave.log.end_offset
            }
            self.slave_live = set(self.live)
            self.slave_known = TopicsKnown(gone, slave.log.end_offset, master.log.end_offset)

    def slave_cleans(self) -> None:
        """Have the slave clean up after the topics that it does not know."""
        if self.slave.store is not None:
            self.cleanings += 1
            is_live = self.slave_live.__contains__
            _make_durable(
                finish(self.slave.store.forget_unused_topics(is_live, known=self.slave_known))
            )

    def slave_cleans_expired(self) -> None:
        """Have the slave clean up queues that have no message any more."""
        if self.slave.store is not None:
            self.slave.store.clean_expired_queues()

    def retain_less(self) -> None:
        """Let one of the two delete its oldest file, if the views have durably what is in it."""
        store = self.rng.choice([self.master, self.slave]).store
        if store is None:
            return
        store.flush()
        store.checkpoint()
        files = store.log.files.snapshot()
        if len(files) < 2 or store.dispatcher.offset < files[1].first_offset:
            return
        if store.log.files.delete_expired_by_time(0, forced_after_ms=0, immediate=True, limit=1):
            store.delete_expired_views()
            self.expired_end = max(self.expired_end, store.log.min_offset)
            self.acknowledged = [one for one in self.acknowledged if one.end > self.expired_end]

    def fill_disk(self) -> None:
        """Let the slave's disk be full, or have room again."""
        files = self.slave.files
        if files.capacity is not None:
            files.capacity = None
        elif self.slave.store is not None:
            self.full_disks += 1
            usage = files.usage(ROOT)
            assert usage is not None
            files.capacity = usage.total - usage.free + self.rng.choice(FREE_SIZES)

    def stop_cleanly(self) -> None:
        """Stop one of the two as an operator does, and start it again."""
        machine = self.rng.choice([self.master, self.slave])
        if machine.store is None:
            return
        self.cut()
        if machine is self.master:
            self._master_stops()
        machine.files.capacity = None
        machine.restart()
        self._limit_runs()

    def _master_stops(self) -> None:
        store = self.master.store
        assert store is not None
        while self.removal is not None:
            self.go_on_deleting()
        self.histories.append((store.log.min_offset, self.master.content))
        self.slaves = SlaveTable(lag_size_max=1 << 20)

    def crash_master(self) -> None:
        """Let the master die, or start it again; a deletion may or may not have happened."""
        if self.master.store is not None:
            self._end_deletion()
        super().crash_master()

    def _start_master(self) -> None:
        super()._start_master()
        self._limit_runs()

    def crash_slave(self) -> None:
        """Let the slave die, or start it again with a disk that has room."""
        self.slave.files.capacity = None
        super().crash_slave()

    # -- the oracle --------------------------------------------------------------------------

    def check_queues(self, store: MessageStore, content: bytes) -> None:
        """Whatever the slave delivers is what was put there; more is known when all is at rest."""
        for topic in TOPICS:
            for queue_id in range(QUEUE_COUNT):
                for offset, raw in read_to_end(store, topic, queue_id):
                    place = self.places[bytes(decode_record(raw).body)]
                    assert place[:3] == (topic, queue_id, offset)

    def come_to_rest(self) -> None:
        """Start both, give them time, and judge what each of them delivers."""
        self.slave.files.capacity = None
        while self.removal is not None and self.master.store is not None:
            self.go_on_deleting()
        super().come_to_rest()
        for machine in (self.master, self.slave):
            assert machine.store is not None
            self.judge_at_rest(machine, machine.store)
        self.promote()

    def judge_at_rest(self, machine: Machine, store: MessageStore) -> None:
        """Check what a machine delivers, and its files."""
        name = "master" if machine is self.master else "slave"
        store.flush()
        while store.dispatch():
            pass
        assert store.dispatcher.offset == store.log.end_offset, store.dispatcher.blocked
        found: dict[bytes, Place] = {}
        for topic in TOPICS:
            for queue_id in range(QUEUE_COUNT):
                for offset, raw in read_to_end(store, topic, queue_id):
                    body = bytes(decode_record(raw).body)
                    assert body not in found, f"the {name} delivers twice: {body!r}"
                    found[body] = Place(topic, queue_id, offset, 0)
        filled = set()
        for one in self.acknowledged:
            place = self.places[one.body]
            if place.generation != self.generations[place.topic] or self.removed == place.topic:
                continue
            if name in one.lost_by or one.offset < store.log.min_offset:
                continue
            filled.add(place[:2])
            assert found.get(one.body, Place("", 0, 0, 0))[:3] == place[:3], (
                f"the {name} does not deliver {one.body!r} of {place}"
            )
        queues = {(topic, queue_id) for topic in TOPICS for queue_id in range(QUEUE_COUNT)}
        config = machine.config
        sizes = SizeOptions(
            log_file_size=config.commit_log_file_size,
            queue_file_size=config.effective_consume_queue_file_size,
            hash_slots=config.hash_slot_count,
            index_entries=config.index_entry_count,
        )
        layout = find_store(ROOT, sizes=sizes, files=machine.files)
        problems = [
            one
            for one in problems_in(layout, LEVELS, emptied=queues - filled)
            if not (machine.may_have_holes and one.kind is Kind.DAMAGED_RECORD)
        ]
        assert problems == [], f"the {name}'s store is not sound: {problems}"

    def promote(self) -> None:
        """Make the slave a master: it delivers what it had, and goes on where that ends."""
        self.promotions += 1
        slave = self.slave
        assert slave.store is not None
        if self.rng.random() < 0.5:
            slave.crash(self.rng, loses_power=False)
        slave.config = replace(slave.config, broker_role=BrokerRole.ASYNC_MASTER, broker_id=0)
        slave.restart()
        self.judge_at_rest(slave, slave.store)


def _make_durable(forgotten: ForgottenQueues) -> None:
    """Make a removal durable as a broker does."""
    if forgotten.unsynced.has_waiting:
        forgotten.unsynced.flush()
        for _ in forgotten.unsynced.pass_waiting():
            pass
    forgotten.sync()
