"""A master, its slave and the network between them, in one process and in the order of a seed.

Both have real stores on simulated disks and the real state machines of replication.  What happens
next is drawn: a put, some bytes that arrive, a cut, a flush, a crash of a process, a machine that
loses its power and what it had not synced, a restart.  The oracle knows every record that was
ever written and every message that was acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, ClassVar, Final

from flintmq.broker.replication.errors import ReplicationError
from flintmq.broker.replication.master_link import MasterLink, MasterRange, must_start_anew
from flintmq.broker.replication.replica_log import StoreReplica
from flintmq.broker.replication.slave_link import SlaveLink
from flintmq.broker.replication.slave_table import SlaveTable
from flintmq.format.stored.record import Blank, check_record
from flintmq.format.wire.ha_stream import encode_report, encode_transfer_header
from flintmq.model.message import PutMessage
from flintmq.store.config import BrokerRole, FlushMode, StoreConfig
from flintmq.store.errors import StoreError
from flintmq.store.message_store import MessageStore
from flintmq.testing import ROOT, ManualClock, SimulatedFiles

if TYPE_CHECKING:
    from collections.abc import Callable

HOST: Final = bytes([127, 0, 0, 1, 0, 0, 0, 9])
HEARTBEAT_MS: Final = 50
SILENCE_MS: Final = 200
SLAVE_TIMEOUT_MS: Final = 120
IN_FLIGHT_MAX: Final = 6000
EVENT_COUNT: Final = 120
"""Events of one life."""
SMALL: Final = StoreConfig(
    root=ROOT,
    commit_log_file_size=4096,
    consume_queue_file_size=400,
    hash_slot_count=13,
    index_entry_count=40,
    max_message_size=2048,
    index_enabled=False,
)


class Machine:
    """One broker: its disk, and its store while it runs."""

    def __init__(self, config: StoreConfig, clock: ManualClock) -> None:
        self.config = config
        self.clock = clock
        self.files = SimulatedFiles(clock=clock)
        self.store: MessageStore | None = None
        self.may_have_holes = False
        """Whether it ended when the log was not on the disk, be it in its middle.

        With the pool that may happen to a killed process: files for which there was no buffer left
        are written at once, those before them are not.
        """
        self.start()

    def start(self) -> None:
        """Open the store: recovery makes of it what a restart would."""
        self.store = MessageStore.open(
            self.config, files=self.files, clock=self.clock, background=False
        )

    def restart(self) -> None:
        """Stop cleanly, and start again."""
        if self.store is not None:
            self.store.close()
        self.start()

    def crash(self, rng: Random, *, loses_power: bool) -> None:
        """End at once; with the power goes some of what was not synced."""
        self.store = None
        if loses_power or self.config.transient_pool_effective:
            self.may_have_holes |= self.config.flush_mode is FlushMode.ASYNC
        if loses_power:
            images = list(self.files.crash_images(rng, 1))
            self.files = rng.choice(images)
        else:
            self.files = self.files.process_crash_image()

    @property
    def content(self) -> bytes:
        """The log up to its end, from offset 0 on."""
        assert self.store is not None
        log = self.store.log
        parts = [b"\0" * max(log.min_offset, 0)]
        parts += [bytes(file.view[: file.wrote]) for file in log.files.snapshot()]
        return b"".join(parts)


@dataclass(slots=True)
class Acknowledged:
    """A message that a sender was promised."""

    body: bytes
    offset: int
    end: int
    lost_by: set[str]


class Connection:
    """The two directions of a connection, and the state machine at each end."""

    def __init__(self, slave: SlaveLink, master: MasterLink) -> None:
        self.slave = slave
        self.master = master
        self.to_slave = bytearray()
        self.to_master = bytearray()


class Simulation:
    """One life of a pair, decided by a seed."""

    CONFIG: ClassVar[StoreConfig] = SMALL

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.clock = ManualClock()
        flush_modes = rng.choice(
            [
                (FlushMode.ASYNC, FlushMode.ASYNC),
                (FlushMode.SYNC, FlushMode.ASYNC),
                (FlushMode.ASYNC, FlushMode.SYNC),
                (FlushMode.SYNC, FlushMode.SYNC),
            ]
        )
        self.are_both_sync = flush_modes == (FlushMode.SYNC, FlushMode.SYNC)
        master, slave = (replace(self.CONFIG, flush_mode=mode) for mode in flush_modes)
        self.master = Machine(replace(master, broker_role=BrokerRole.SYNC_MASTER), self.clock)
        self.slave = Machine(replace(slave, broker_role=BrokerRole.SLAVE, broker_id=1), self.clock)
        self.transfer_size = rng.choice([64, 500, 4096])
        self.joint_size = rng.choice([100, 700, 64 << 10])
        self.expired_end = 0
        """Up to here the master's retention has deleted the log."""
        self.slaves = SlaveTable(lag_size_max=1 << 20)
        self.connection: Connection | None = None
        self.acknowledged: list[Acknowledged] = []
        self.histories: list[tuple[int, bytes]] = []
        """Where the master's log began and what it was, each time that it stopped."""
        self.refusals: list[str] = []
        self.restarts_anew = 0
        self._number = 0

    # -- events ------------------------------------------------------------------------------

    def events(self) -> list[tuple[int, Callable[[], None]]]:
        """Return what may happen, and how often each does."""
        return [
            (40, self.put),
            (30, self.master_sends),
            (40, self.deliver_to_slave),
            (30, self.deliver_to_master),
            (10, self.slave_reports),
            (5, self.slave_dispatches),
            (20, self.connect),
            (3, self.cut),
            (10, self.flush),
            (6, self.pass_time),
            (2, self.expire),
            (2, self.retain_less),
            (2, self.crash_master),
            (3, self.crash_slave),
        ]

    def run(self, count: int) -> None:
        """Let ``count`` events happen, then let the pair come to rest and judge it."""
        events = self.events()
        weights = [weight for weight, _ in events]
        for _, event in self.rng.choices(events, weights, k=count):
            event()
        self.judge()
        self.come_to_rest()
        self.judge()

    def put(self) -> None:
        """Have a message stored; it is acknowledged when flush and slave say so."""
        store = self.master.store
        if store is None:
            return
        self._number += 1
        body = b"%06d-" % self._number + b"x" * self.rng.choice([0, 10, 200, 900])
        message = PutMessage(
            topic="T",
            queue_id=self.rng.randrange(3),
            body=body,
            properties={"n": str(self._number)},
            born_host=HOST,
            store_host=HOST,
        )
        result = store.put(message)
        assert result.ok, result
        self.wait_for_slave(
            result.end_offset,
            lambda: self._promise(body, result.physical_offset, result.end_offset),
        )

    def wait_for_slave(self, end: int, promise: Callable[[], None]) -> None:
        """Promise what was put as soon as the slave has it, unless that takes too long."""
        if not self.slaves.can_promise(end):
            return
        life = self.master.store

        def replicated(is_reached: bool) -> None:
            if is_reached:
                assert self.master.store is life, "a master that is dead promises nothing"
                promise()

        self.slaves.acknowledged.when_reached(
            end, self.clock.monotonic() + SLAVE_TIMEOUT_MS / 1000, replicated
        )

    def _promise(self, body: bytes, offset: int, end: int) -> None:
        if offset < self.expired_end:
            return  # It was deleted before anybody could have it.
        assert self.slave.store is None or body in self.slave.content[offset:end], (
            "acknowledged, but the slave does not have it"
        )
        assert body in self.master.content[offset:end]
        self.acknowledged.append(Acknowledged(body, offset, end, set()))

    def connect(self) -> None:
        """Let the slave connect, as its broker does: after a look at the master's range."""
        master, slave = self.master.store, self.slave.store
        if self.connection is not None or master is None or slave is None:
            return
        log = StoreReplica(slave)
        link = MasterLink(
            log,
            now_ms=self._now_ms,
            heartbeat_ms=HEARTBEAT_MS,
            silence_ms=SILENCE_MS,
            joint_size=self.joint_size,
        )
        if slave.config.flush_mode is FlushMode.SYNC:
            slave.flush()
        start = None
        if self.rng.random() < 0.8:  # The master may not answer when it is asked.
            told = MasterRange(master.log.min_offset, master.log.readable_end)
            try:
                if must_start_anew(log, told):
                    self.restarts_anew += 1
                    slave.replica.start_anew()
            except ReplicationError as error:
                self.refusals.append(str(error))
                return
            start = told.start
        at_master = SlaveLink(
            "slave", now_ms=self._now_ms, heartbeat_ms=HEARTBEAT_MS, silence_ms=SILENCE_MS
        )
        self.slaves.add(at_master)
        self.connection = Connection(at_master, link)
        self.connection.to_master += encode_report(link.request(start))

    def _now_ms(self) -> int:
        return round(self.clock.monotonic() * 1000)

    def cut(self) -> None:
        """Drop the connection and all that was on its way."""
        if self.connection is not None:
            self.slaves.remove(self.connection.slave)
            self.connection = None

    def master_sends(self) -> None:
        """Let the master send what it has, as much as the network takes."""
        connection, store = self.connection, self.master.store
        if connection is None or store is None or not connection.slave.is_streaming:
            return
        link = connection.slave
        while len(connection.to_slave) < IN_FLIGHT_MAX:
            part = store.log.read_range(link.next_offset, self.transfer_size)
            if part is None:
                if link.is_overtaken(store.log.min_offset):
                    self.cut()
                    return
                break
            with part:
                connection.to_slave += encode_transfer_header(part.start, part.size)
                connection.to_slave += part.view
            link.transferred(part.size)
        if link.is_heartbeat_due:
            connection.to_slave += encode_transfer_header(link.next_offset, 0)
            link.transferred(0)

    def deliver_to_slave(self) -> None:
        """Let some of the bytes arrive that are on their way to the slave."""
        connection = self.connection
        if connection is None or not connection.to_slave or self.slave.store is None:
            return
        size = self.rng.randint(1, len(connection.to_slave))
        chunk = bytes(connection.to_slave[:size])
        del connection.to_slave[:size]
        try:
            connection.master.received(memoryview(chunk))
        except ReplicationError as error:
            self.refusals.append(str(error))
            self.cut()
            return
        except StoreError:
            self.cut()  # The disk is full; it is tried again.
            return
        if self.rng.random() < 0.7:
            self.slave_reports()

    def slave_reports(self) -> None:
        """Let the slave tell how far it is, if that is due."""
        connection = self.connection
        if connection is None or self.slave.store is None:
            return
        if connection.master.is_silent:
            self.cut()
            return
        due = connection.master.due_report()
        if due is not None:
            connection.to_master += encode_report(due)

    def deliver_to_master(self) -> None:
        """Let some of the bytes arrive that are on their way to the master."""
        connection, store = self.connection, self.master.store
        if connection is None or not connection.to_master or store is None:
            return
        size = self.rng.randint(1, len(connection.to_master))
        chunk = bytes(connection.to_master[:size])
        del connection.to_master[:size]
        link = connection.slave
        try:
            is_further = link.received(
                chunk, log_start=store.log.min_offset, log_end=store.log.end_offset
            )
        except ReplicationError as error:
            self.refusals.append(str(error))
            self.cut()
            return
        if is_further:
            self.slaves.advanced(link)

    def slave_dispatches(self) -> None:
        """Let the slave bring some of its log into its queues."""
        if self.slave.store is not None:
            self.slave.store.dispatch()

    def flush(self) -> None:
        """Let one of the two flush, checkpoint, or have the kernel write some pages."""
        machine = self.rng.choice([self.master, self.slave])
        if machine.store is None:
            return
        match self.rng.randrange(3):
            case 0:
                machine.store.flush()
                machine.store.dispatch()
            case 1:
                machine.store.checkpoint()
            case _:
                machine.files.write_back(self.rng)

    def pass_time(self) -> None:
        """Let some time pass."""
        self.clock.advance(self.rng.choice([1, 10, HEARTBEAT_MS]))

    def expire(self) -> None:
        """Give up answers whose time is over."""
        self.slaves.acknowledged.expire(self.clock.monotonic())

    def retain_less(self) -> None:
        """Let the master delete its oldest file."""
        store = self.master.store
        if store is not None and store.log.files.delete_expired_by_time(
            0, forced_after_ms=0, immediate=True, limit=1
        ):
            self.expired_end = store.log.min_offset
            self.acknowledged = [one for one in self.acknowledged if one.end > self.expired_end]

    def crash_master(self) -> None:
        """Let the master die, or start it again."""
        if self.master.store is None:
            self._start_master()
            return
        self._check_survivor("slave")
        self.histories.append((self.master.store.log.min_offset, self.master.content))
        self.cut()
        self.slaves = SlaveTable(lag_size_max=1 << 20)
        self.master.crash(self.rng, loses_power=self.rng.random() < 0.5)

    def _start_master(self) -> None:
        self.master.start()
        assert self.master.store is not None
        # A log that has lost all it had begins at 0 again.
        self.expired_end = min(self.expired_end, self.master.store.log.min_offset)
        self._note_losses("master", self.master)
        # What it has lost is overwritten at times before the slave is back.
        for _ in range(self.rng.choice([0, 2, 12])):
            self.put()

    def crash_slave(self) -> None:
        """Let the slave die, or start it again."""
        if self.slave.store is None:
            self.slave.start()
            self._note_losses("slave", self.slave)
            return
        self._check_survivor("master")
        self.cut()
        self.slave.crash(self.rng, loses_power=self.rng.random() < 0.5)

    # -- the oracle --------------------------------------------------------------------------

    def _check_survivor(self, name: str) -> None:
        """Check that the other machine has all that it was counted on for."""
        machine: Machine = getattr(self, name)
        if machine.store is None:
            return
        content = machine.content
        for one in self.acknowledged:
            if name not in one.lost_by and one.offset >= self.expired_end:
                assert one.body in content[one.offset : one.end], (
                    f"the {name} has lost what was acknowledged: {one}"
                )

    def _note_losses(self, name: str, machine: Machine) -> None:
        content = machine.content
        for one in self.acknowledged:
            if one.body not in content[one.offset : one.end] and one.offset >= self.expired_end:
                one.lost_by.add(name)
                if self.are_both_sync:
                    raise AssertionError(f"{name} had it on the disk: {one}")

    def judge(self) -> None:
        """Check what has to be true at any time."""
        for name in ("master", "slave"):
            self._check_survivor(name)
        slave = self.slave.store
        if slave is None:
            return
        content = self.slave.content
        histories = [*self.histories]
        if self.master.store is not None:
            histories.append((self.master.store.log.min_offset, self.master.content))
        assert any(
            one[max(start, slave.log.min_offset) : len(content)]
            == content[max(start, slave.log.min_offset) :]
            and len(content) <= max(len(one), start)
            for start, one in histories
        ), "the slave's log was never that of its master"
        self.check_queues(slave, content)

    def check_queues(self, store: MessageStore, content: bytes) -> None:
        """Check that the slave's queues are those of its log, without a gap."""
        while store.dispatch():
            pass
        units: dict[int, list[int]] = {}
        offset = store.log.min_offset
        while offset < store.dispatcher.offset:
            first = offset - offset % SMALL.commit_log_file_size
            record = check_record(
                content[first : first + SMALL.commit_log_file_size],
                offset - first,
                SMALL.commit_log_file_size,
                check_crc=True,
                expected_offset=offset,
            )
            if isinstance(record, Blank):
                offset = first + SMALL.commit_log_file_size
                continue
            units.setdefault(record.queue_id, []).append(offset)
            offset += record.size
        for queue_id, offsets in units.items():
            queue = store.queues.get("T", queue_id)
            assert queue is not None
            end = queue.max_offset
            result = store.get_messages("T", queue_id, end - len(offsets), len(offsets))
            assert result is not None
            with result:
                found = [int.from_bytes(view[28:36], "big") for view in result.messages]
            assert found == offsets[: len(found)], (queue_id, found, offsets)
            assert found, "a queue whose messages cannot be read"

    def come_to_rest(self) -> None:
        """Start both, and let them talk until nothing more happens."""
        if self.master.store is None:
            self._start_master()
        if self.slave.store is None:
            self.slave.start()
            self._note_losses("slave", self.slave)
        for _ in range(60):
            self.clock.advance(10)
            self.connect()
            assert self.master.store is not None
            assert self.slave.store is not None
            self.master.store.flush()
            self.slave.store.flush()
            self.master_sends()
            while self.connection is not None and self.connection.to_slave:
                self.deliver_to_slave()
            self.slave_reports()
            while self.connection is not None and self.connection.to_master:
                self.deliver_to_master()
        assert self.master.store is not None
        assert self.slave.store is not None
        kept = max(self.master.store.log.min_offset, self.slave.store.log.min_offset)
        has_all = self.slave.content[kept:] == self.master.content[kept:]
        assert has_all or self.refusals, "the slave has come to rest without all, and says nothing"
        if has_all:
            self.put_at_rest()

    def put_at_rest(self) -> None:
        """One more message has to be acknowledged, and be on both."""
        count = len(self.acknowledged)
        self.put()
        assert self.master.store is not None
        assert self.slave.store is not None
        for _ in range(30):
            self.clock.advance(1)
            self.master.store.flush()
            self.master_sends()
            while self.connection is not None and self.connection.to_slave:
                self.deliver_to_slave()
            self.slave.store.flush()
            self.slave_reports()
            while self.connection is not None and self.connection.to_master:
                self.deliver_to_master()
        assert len(self.acknowledged) == count + 1, "a pair at rest acknowledges nothing"
