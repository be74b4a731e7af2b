"""A workload for stores on simulated files, the same for the same seed, cut wherever one likes."""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from flintmq.format.properties import encode_properties
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.model.message import MessageBatch, PutMessage
from flintmq.store.append_group.sends import Sends, SendTarget
from flintmq.store.appending.group_appender import NotAppended
from flintmq.store.config import FlushMode, StoreConfig
from flintmq.store.files.interface import Files
from flintmq.store.message_store import MessageStore
from flintmq.store.recovery.recovery_report import RecoveryReport
from flintmq.store.results import PutResult, PutStatus
from flintmq.testing import ROOT, ManualClock, SimulatedFiles
from tests.kits.store.store_ledger import Ledger, assert_true, fingerprint, raw_records
from tests.kits.store.waiting_puts import put_durably

BORN_HOST: Final = bytes([192, 168, 1, 10]) + (54321).to_bytes(4, "big")
STORE_HOST: Final = bytes([10, 0, 0, 1]) + (10911).to_bytes(4, "big")
STORE_HOST_V6: Final = bytes(range(16)) + (10911).to_bytes(4, "big")
START_MS: Final = 1_700_000_000_456
INDEX_SLOTS: Final = 13
INDEX_ENTRIES: Final = 40

SMALL: Final = StoreConfig(
    root=ROOT,
    commit_log_file_size=4096,
    consume_queue_file_size=400,
    consume_queue_ext_file_size=200,
    hash_slot_count=INDEX_SLOTS,
    index_entry_count=INDEX_ENTRIES,
    max_message_size=2048,
    flush_mode=FlushMode.ASYNC,
)
"""A store whose every kind of file rolls within a few dozen messages."""


def bitmap_of(topic: str, properties: Mapping[str, str]) -> bytes | None:
    """Give some messages a filter bitmap, of a length that differs."""
    tag = properties.get("TAGS", "")
    return tag.encode() * 2 if tag and topic != "T1" else None


@dataclass(frozen=True, slots=True)
class Variant:
    """One kind of store to try."""

    name: str
    config: StoreConfig
    deletes: bool = False
    writes_back: bool = False
    """Whether the kernel writes pages to the disk on its own between the steps."""

    @property
    def is_sync(self) -> bool:
        return self.config.flush_mode is FlushMode.SYNC

    @property
    def has_pool(self) -> bool:
        return self.config.transient_pool_effective

    def new_files(self) -> SimulatedFiles:
        return SimulatedFiles(clock=ManualClock(START_MS))

    def new_ledger(self) -> Ledger:
        return Ledger(
            multi=self.config.enable_multi_dispatch,
            slots=INDEX_SLOTS,
            entries_per_index=INDEX_ENTRIES,
        )

    def open(self, files: Files) -> MessageStore:
        assert isinstance(files, SimulatedFiles)
        return MessageStore.open(
            self.config,
            files=files,
            clock=files.clock,
            background=False,
            filter_bitmap=bitmap_of if self.config.enable_consume_queue_ext else None,
        )


ASYNC: Final = Variant("async", SMALL)
SYNC: Final = Variant("sync", replace(SMALL, flush_mode=FlushMode.SYNC))
VARIANTS: Final = {
    variant.name: variant
    for variant in (
        ASYNC,
        SYNC,
        replace(SYNC, name="sync-written-back", writes_back=True),
        Variant(
            "pages",
            replace(SMALL, commit_log_file_size=12288, consume_queue_file_size=8200),
            writes_back=True,
        ),
        Variant("pool", replace(SMALL, transient_pool_enabled=True, transient_pool_size=2)),
        Variant("ext", replace(SMALL, enable_consume_queue_ext=True, flush_mode=FlushMode.SYNC)),
        Variant(
            "multi",
            replace(
                SMALL,
                enable_multi_dispatch=True,
                enable_lmq=True,
                commit_log_paths=(ROOT / "disk0", ROOT / "disk1"),
            ),
        ),
        Variant("deleting", SMALL, deletes=True),
    )
}


def assert_nothing_done(report: RecoveryReport) -> None:
    """Assert that a start after a clean stop found everything in place."""
    assert report.clean_exit, report
    assert (report.problems, report.lost_ranges, report.log_files_removed) == ([], [], []), report
    assert (report.records_scanned, report.bytes_truncated) == (0, 0), report
    assert (report.units_cut, report.units_rebuilt, report.queues_filled) == (0, 0, []), report
    assert (report.index_entries_rebuilt, report.index_files_dropped) == (0, 0), report
    assert report.fill_start == -1


class Driver:
    """Drives a store and keeps the ledger.  After a crash the ledger says what must be there."""

    def __init__(
        self,
        variant: Variant,
        files: SimulatedFiles,
        *,
        seed: int,
        ledger: Ledger | None = None,
        first_body: int = 0,
    ) -> None:
        self.variant = variant
        self.files = files
        self.rng = Random(seed)
        self.ledger = ledger if ledger is not None else variant.new_ledger()
        self.store: MessageStore | None = None
        self._body_number = first_body
        self._bodies: list[bytes] = []
        self._steps: list[Callable[[], None]] = (
            [self.put] * 12
            + [self.put_batch] * 2
            + [self.put_delayed, self.put_transactional, self.put_durably]
            + [self.read] * 2
            + [self.flush, self.dispatch, self.checkpoint]
            + [self.append_group] * 3
        )
        if variant.config.enable_multi_dispatch:
            self._steps += [self.put_multi] * 4
        if variant.has_pool:
            self._steps += [self.commit] * 2
        if variant.deletes:
            self._steps += [self.delete_oldest]

    # -- running -----------------------------------------------------------------------------

    def run(
        self,
        step_count: int,
        *,
        stop_after: int | None = None,
        after_step: Callable[[int], None] | None = None,
    ) -> None:
        """Open the store, take so many steps with a clean stop in the middle, and close it.

        With ``stop_after`` the run just ends there, and the store stays open.  ``after_step`` is
        told the number of each step that was taken.
        """
        self.open()
        for number in range(step_count):
            self.step()
            if after_step is not None:
                after_step(number)
            if number == stop_after:
                return
            if number == step_count * 2 // 3:
                self.reopen()
        self.close()

    def step(self) -> None:
        assert isinstance(self.files.clock, ManualClock)
        self.files.clock.advance(self.rng.choice((0, 0, 1, 7, 900, 1500)))
        self.rng.choice(self._steps)()
        if self.variant.writes_back and self.rng.random() < 0.3:
            self.files.write_back(self.rng, share=self.rng.choice((0.2, 0.7)))

    def collect_in_flight(self) -> None:
        """After a crash, take into the ledger what was appended but not answered any more."""
        self._collect_in_flight(self.ledger)

    def ledger_now(self) -> Ledger:
        """Return what the ledger would be after a crash at this moment; the run goes on."""
        ledger = replace(self.ledger, entries=self.ledger.entries.copy(), _index_images={})
        self._collect_in_flight(ledger)
        return ledger

    def _collect_in_flight(self, ledger: Ledger) -> None:
        if self.store is None:
            return
        for raw in raw_records(self.store, ledger.end):
            entry = ledger.add(raw)
            assert bytes(entry.record.body) in self._bodies

    def open(self) -> None:
        self.store = self.variant.open(self.files)
        self.ledger.told_flushed(self.store.log.end_offset)

    def close(self) -> None:
        assert self.store is not None
        end = self.store.log.end_offset
        self.store.close()
        self.store = None
        assert not self.files.exists(ROOT / "abort")
        self.ledger.told_flushed(end)

    def reopen(self) -> None:
        self.close()
        self.open()
        assert self.store is not None
        assert_nothing_done(self.store.recovery_report)
        assert_true(self.store, self.ledger, least=len(self.ledger.entries))

    # -- steps -------------------------------------------------------------------------------

    def put(self) -> None:
        self._put(self._message())

    def put_delayed(self) -> None:
        message = self._message()
        message.properties["DELAY"] = str(self.rng.randint(0, 19))
        self._put(message)

    def put_transactional(self) -> None:
        """Put a prepared, committed or rolled-back record."""
        message = self._message()
        message.sys_flag |= self.rng.choice((0x4, 0x8, 0xC))
        self._put(message)

    def put_multi(self) -> None:
        """Put a message that enters further queues."""
        message = self._message()
        names = ["%LMQ%a", "%LMQ%b", "plain", "T1"]
        message.properties["INNER_MULTI_DISPATCH"] = ",".join(
            name for name in self.rng.sample(names, self.rng.randint(1, 3)) if name != message.topic
        )
        self._put(message)

    def put_durably(self) -> None:
        message = self._message()
        self._bodies = [message.body]
        result = put_durably(self._store(), message)
        self._answered(result)
        if self.variant.is_sync and result.ok:
            self.ledger.told_flushed(result.end_offset)

    def put_batch(self) -> None:
        store = self._store()
        items = [
            BatchItem(self.rng.randint(0, 9), self._body(60), self._item_properties())
            for _ in range(self.rng.randint(1, 4))
        ]
        batch = MessageBatch(
            topic=self.rng.choice(("T0", "T1")),
            queue_id=self.rng.randint(0, 1),
            body=encode_batch(items),
            properties={"CLUSTER": "c"},
            born_timestamp=START_MS - 333,
            born_host=BORN_HOST,
            store_host=STORE_HOST,
        )
        self._bodies = [item.body for item in items]
        self._answered(store.put_batch(batch))

    def append_group(self) -> None:
        """Put messages and a batch together; a store that cannot take them changes nothing."""
        store = self._store()
        store.dispatch()
        end = store.log.end_offset
        targets = [
            SendTarget(topic, queue_id, flag=3) for topic in ("T0", "T1") for queue_id in (0, 1)
        ]
        count = self.rng.randint(1, 3)
        chosen = [self.rng.choice(targets) for _ in range(count)]
        bodies = [self._body(60) for _ in range(count)]
        texts = [self._item_properties() for _ in range(count)]
        self._bodies = list(bodies)
        if self.rng.random() < 0.5:
            items = [BatchItem(0, self._body(30), self._item_properties()) for _ in range(2)]
            chosen.append(SendTarget("T0", 0, is_batch=True))
            bodies.append(encode_batch(items))
            texts.append(b"")
            self._bodies += [item.body for item in items]
        borns = [START_MS - 333] * len(chosen)
        sends = Sends(chosen, borns, bodies, texts, [BORN_HOST] * len(texts), b"CLUSTER\x01c")
        group = store.append_group(sends, STORE_HOST)
        if isinstance(group, NotAppended):
            assert store.log.end_offset == end
            self._bodies = []
            return
        entries = [self.ledger.add(raw) for raw in raw_records(store, end)]
        all_stored = list(group.stored)
        offsets = b"".join([stored.physical_offsets for stored in all_stored])
        assert [entry.offset for entry in entries] == [
            at for (at,) in struct.iter_unpack(">q", offsets)
        ]
        assert [bytes(entry.record.body) for entry in entries] == self._bodies
        firsts = [stored.queue_offset for stored in all_stored]
        assert [entry.units[0][1] for entry in entries[: len(firsts)]] == firsts
        self._bodies = []
        self.ledger.acknowledge()
        if self.variant.is_sync:
            end = group.end_offset
            store.when_flushed(end, lambda status, reason: self._flushed(end, status, reason))

    def read(self) -> None:
        """Read from some queue; what is served in synchronous mode is on the disk."""
        store = self._store()
        result = store.get_messages("T0", self.rng.randint(0, 1), self.rng.randint(0, 30), 3)
        assert result is not None
        with result:
            if self.variant.is_sync:
                for view in result:
                    start = int.from_bytes(view[28:36], "big")
                    self.ledger.told_flushed(start + len(view))

    def dispatch(self) -> None:
        self._store().dispatch()

    def commit(self) -> None:
        store = self._store()
        store.commit()
        self.ledger.committed = store.log.end_offset

    def flush(self) -> None:
        store = self._store()
        end = store.log.end_offset
        store.flush()
        self.ledger.told_flushed(end)

    def checkpoint(self) -> None:
        store = self._store()
        end = store.log.end_offset
        store.checkpoint()
        self.ledger.told_flushed(end)

    def delete_oldest(self) -> None:
        """Delete the oldest file of the log, and what the views hold for it.

        As retention does, only when the views hold durably what is in the file.
        """
        store = self._store()
        files = store.log.files.snapshot()
        store.flush()
        store.dispatch()
        self.checkpoint()
        if len(files) < 2 or store.dispatcher.offset < files[1].first_offset:
            return
        self.ledger.deleted = files[1].first_offset
        store.log.files.delete_expired_by_time(0, forced_after_ms=0, immediate=True, limit=1)
        store.delete_expired_views()

    # -- making messages ---------------------------------------------------------------------

    def _store(self) -> MessageStore:
        assert self.store is not None
        return self.store

    def _body(self, size_max: int) -> bytes:
        self._body_number += 1
        size = self.rng.randint(0, size_max)
        return f"{self._body_number:05d}".encode() + self.rng.randbytes(size)

    def _keys(self) -> dict[str, str]:
        properties = {}
        if self.rng.random() < 0.7:
            properties["UNIQ_KEY"] = f"U{self._body_number}"
        if self.rng.random() < 0.5:
            count = self.rng.randint(1, 3)
            properties["KEYS"] = " ".join(f"k{self.rng.randint(0, 9)}" for _ in range(count))
        if self.rng.random() < 0.7:
            properties["TAGS"] = self.rng.choice(("TagA", "TagB"))
        return properties

    def _item_properties(self) -> bytes:
        return encode_properties(self._keys())

    def _message(self) -> PutMessage:
        return PutMessage(
            topic=self.rng.choice(("T0", "T0", "T0", "T1", "T2")),
            queue_id=self.rng.choice((0, 0, 0, 1)),
            body=self._body(self.rng.choice((20, 100, 500))),
            properties=self._keys(),
            flag=self.rng.randint(0, 5),
            born_timestamp=START_MS - 333,
            born_host=BORN_HOST,
            store_host=self.rng.choice((STORE_HOST, STORE_HOST, STORE_HOST_V6)),
        )

    def _put(self, message: PutMessage) -> None:
        self._bodies = [message.body]
        self._answered(self._store().put(message))

    def _answered(self, result: PutResult) -> None:
        store = self._store()
        assert result.status is PutStatus.PUT_OK, result
        offsets = result.record_offsets or (result.physical_offset,)
        raws = list(raw_records(store, offsets[0]))
        entries = [self.ledger.add(raw) for raw in raws]
        assert [entry.offset for entry in entries] == list(offsets)
        assert [bytes(entry.record.body) for entry in entries] == self._bodies
        if entries[0].units:
            assert result.queue_offset == entries[0].units[0][1]
        self._bodies = []
        self.ledger.acknowledge()
        if result.wait_for_flush:
            end = result.end_offset

            store.when_flushed(end, lambda status, reason: self._flushed(end, status, reason))

    def _flushed(self, end: int, status: PutStatus, reason: str) -> None:
        assert (status, reason) == (PutStatus.PUT_OK, "")
        self.ledger.told_flushed(end)


def assert_recovers(
    files: SimulatedFiles,
    ledger: Ledger,
    variant: Variant,
    *,
    least: int,
    known: set[tuple[int, int, int, int]],
) -> MessageStore:
    """Assert that what is on ``files`` becomes a true store, which then works and stops cleanly.

    ``known`` are disks of the same workload that were found to be true stores: many states are
    recovered to the same one.
    """
    store = variant.open(files)
    _, count = assert_true(store, ledger, least=least)
    # What is served from here on must be on the disk: a power failure now takes nothing.
    dark = next(files.crash_images(Random(0), 0))
    disk = (fingerprint(dark), dark.boot_number, count, ledger.deleted)
    if disk not in known:
        survivor = variant.open(dark)
        assert assert_true(survivor, ledger, least=count)[1] == count
        known.add(disk)
    recovered = replace(ledger, entries=ledger.entries[:count], _index_images={})
    recovered.deleted = max(recovered.deleted, store.log.min_offset)
    recovered.acknowledge()
    driver = Driver(variant, files, seed=count, ledger=recovered, first_body=90_000)
    driver.store = store
    for put in (driver.put, driver.put, driver.put_batch, driver.put_delayed):
        put()
    store.dispatch()
    driver.reopen()
    return driver._store()
