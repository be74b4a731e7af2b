"""What a store was told, kept outside of it: the oracle that every recovered store must agree with.

A recovered log is a prefix of what was put, byte for byte, and the views follow from it.  So the
ledger keeps the records in log order, how many of them were acknowledged and how far callers were
told that the disk has them; ``assert_true`` compares a store with that.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.format.stored.dispatch_fields import dispatch_tags_code, index_keys
from flintmq.format.stored.queue_claims import multi_slots
from flintmq.format.stored.record import Record, decode_record
from flintmq.store.message_store import MessageStore
from flintmq.store.views.key_index import IndexedMessage, KeyIndex
from flintmq.testing import ROOT, ManualClock, SimulatedFiles

QueueKey = tuple[str, int]

_DELAYS = DelayLevels.parse(DEFAULT_DELAY_LEVELS)
_INDEX = ROOT / "index"
_ROLLBACK = 0xC
_IN_QUEUE = (0x0, 0x8)


class Entry(NamedTuple):
    """A record that was put, and what the views must hold for it."""

    raw: bytes
    record: Record
    units: tuple[tuple[QueueKey, int], ...]
    """The queues it is in, with its offset in each."""
    tags_code: int
    keys: tuple[bytes, ...]

    @property
    def offset(self) -> int:
        return self.record.physical_offset

    @property
    def end(self) -> int:
        return self.record.physical_offset + self.record.size


def entry_of(raw: bytes, *, multi: bool) -> Entry:
    """Return what the views must hold for the record ``raw``."""
    record = decode_record(raw)
    units: list[tuple[QueueKey, int]] = []
    if record.sys_flag & 0xC in _IN_QUEUE:
        units.append(((record.topic, record.queue_id), record.queue_offset))
        if multi:
            for slot in multi_slots(record.properties, record.queue_id, lmq=True):
                if slot.name:
                    units.append(((slot.name, slot.queue_id), slot.queue_offset))
    text = record.properties_text
    return Entry(
        raw,
        record,
        tuple(units),
        dispatch_tags_code(record.topic.encode(), text, record.store_timestamp, _DELAYS),
        () if record.sys_flag & 0xC == _ROLLBACK else tuple(index_keys(text)),
    )


@dataclass(slots=True)
class Ledger:
    """Everything put into one store so far, in the order of the log."""

    multi: bool = False
    slots: int = 13
    entries_per_index: int = 40
    entries: list[Entry] = field(default_factory=list)
    acknowledged: int = 0
    """How many of the entries were answered with PUT_OK."""
    committed: int = 0
    """Below this log offset the process has given everything to the kernel."""
    flushed: int = 0
    """Below this log offset somebody was told that a power failure takes nothing."""
    deleted: int = 0
    """Below this log offset whole files may be deleted."""
    _index_images: dict[tuple[int, int], list[bytes]] = field(default_factory=dict, compare=False)

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else 0

    def add(self, raw: bytes) -> Entry:
        entry = entry_of(raw, multi=self.multi)
        self.entries.append(entry)
        return entry

    def acknowledge(self) -> None:
        self.acknowledged = len(self.entries)

    def told_flushed(self, offset: int) -> None:
        self.flushed = max(self.flushed, offset)
        self.committed = max(self.committed, self.flushed)

    def count_below(self, offset: int) -> int:
        """Return how many entries end at or below a log offset."""
        return sum(entry.end <= offset for entry in self.entries)

    def truncated(self, count: int) -> None:
        """Forget what a crash has taken: only the first ``count`` entries are left."""
        del self.entries[count:]
        self.acknowledged = min(self.acknowledged, count)
        self._index_images.clear()

    # -- what must be there ------------------------------------------------------------------

    def index_image(self, first: int, count: int) -> list[bytes]:
        """Return the index files that a fresh build of the entries makes."""
        image = self._index_images.get((first, count))
        if image is None:
            image = self._index_images[(first, count)] = self._build_index(first, count)
        return image

    def _build_index(self, first: int, count: int) -> list[bytes]:
        index = KeyIndex(
            _INDEX,
            slots=self.slots,
            entries=self.entries_per_index,
            files=SimulatedFiles(),
            clock=ManualClock(),
        )
        messages = [
            IndexedMessage(
                entry.record.topic, entry.keys, entry.offset, entry.record.store_timestamp
            )
            for entry in self.entries[first:count]
            if entry.keys
        ]
        for message in messages:
            assert index.insert([message]) == 1
        index.write_headers()
        return [bytes(file.view) for file in index.files]

    def queues(self, first: int, count: int) -> dict[QueueKey, list[tuple[int, Entry]]]:
        """Return for each queue (offset, entry) of the entries in a range, in order."""
        queues: dict[QueueKey, list[tuple[int, Entry]]] = {}
        for number, entry in enumerate(self.entries[:count]):
            for key, offset in entry.units:
                units = queues.setdefault(key, [])
                if number >= first:
                    units.append((offset, entry))
        return queues

    def next_offsets(self, count: int) -> dict[QueueKey, int]:
        """Return for each queue the offset its next message gets."""
        following: dict[QueueKey, int] = {}
        for entry in self.entries[:count]:
            for key, offset in entry.units:
                assert offset == following.get(key, 0), "the ledger itself has a hole"
                following[key] = offset + 1
        return following


def raw_records(store: MessageStore, start: int) -> Iterator[bytes]:
    """Yield every record of the log from ``start``, readable or not."""
    for file in store.log.files.snapshot():
        buffer = file.write_buffer if file.write_buffer is not None else file.view
        position = 0
        while position + 8 <= file.wrote:
            size = int.from_bytes(buffer[position : position + 4], "big")
            if bytes(buffer[position + 4 : position + 8]) != b"\xda\xa3\x20\xa7":
                break
            if file.first_offset + position >= start:
                yield bytes(buffer[position : position + size])
            position += size


def assert_log(store: MessageStore, ledger: Ledger, *, least: int) -> tuple[int, int]:
    """Assert that the log is a run of the ledger's entries; return (first, count) of the run."""
    log_min = store.log.min_offset
    assert log_min <= ledger.deleted
    raws = list(raw_records(store, 0))
    first = sum(entry.offset < log_min for entry in ledger.entries)
    count = first + len(raws)
    if not raws and not least:
        return first, first
    assert count >= least, f"{count} records are there, {least} were promised"
    assert raws == [entry.raw for entry in ledger.entries[first:count]], "false records"
    if raws:
        assert store.log.readable_end == store.log.end_offset
        assert store.dispatcher.behind == 0
        # After the last record there may be a blank, and then an empty file.
        end = ledger.entries[count - 1].end
        assert end == store.log.end_offset or store.log.end_offset % store.log.file_size == 0
    return first, count


def assert_queues(store: MessageStore, ledger: Ledger, first: int, count: int) -> None:
    """Assert that each queue has a unit for each of its records, and serves just those."""
    expected = ledger.queues(first, count)
    following = ledger.next_offsets(count)
    on_disk = {(queue.topic, queue.queue_id) for queue in store.queues if not queue.is_empty}
    assert on_disk <= set(expected)
    for key, units in expected.items():
        if not units:
            continue  # Every record of it is deleted.
        queue = store.queues.get(*key)
        assert queue is not None, key
        assert (queue.min_offset, queue.max_offset) == (units[0][0], following[key]), key
        for offset, entry in units:
            unit = queue.unit_at(offset)
            assert unit is not None
            physical_offset, size, tags_code = unit
            ext = queue.resolve(tags_code)
            if queue.ext is not None:
                assert ext is not None, (key, offset)
                assert ext.store_time == entry.record.store_timestamp
                tags_code = ext.tags_code
            assert (physical_offset, size) == (entry.offset, entry.record.size)
            assert tags_code == entry.tags_code, (key, offset)
        assert served(store, *key, units[0][0]) == [
            (offset, entry.raw) for offset, entry in units
        ], key


def served(store: MessageStore, topic: str, queue_id: int, offset: int) -> list[tuple[int, bytes]]:
    """Return (queue offset, record) of everything a consumer gets from ``offset`` on."""
    found: list[tuple[int, bytes]] = []
    while True:
        result = store.get_messages(topic, queue_id, offset, 7)
        assert result is not None
        with result:
            if not result.messages:
                assert result.status.name in ("OFFSET_OVERFLOW_ONE", "NO_MESSAGE_IN_QUEUE")
                return found
            for queue_offset, view in zip(result.queue_offsets, result, strict=True):
                assert decode_record(view).crc_ok
                found.append((queue_offset, bytes(view)))
            assert result.next_begin_offset == result.queue_offsets[-1] + 1
            offset = result.next_begin_offset


def assert_index(store: MessageStore, ledger: Ledger, first: int, count: int) -> None:
    """Assert that the index is, byte for byte, what a fresh build of the log would be."""
    index = store.index
    if index is None:
        return
    index.write_headers()
    if first == 0:
        images = [bytes(file.view) for file in index.files if file.count > 1]
        assert images == ledger.index_image(0, count)
        return
    log_min = store.log.min_offset
    entries = [
        (file.entry(number)[0], file.entry(number)[1])
        for file in index.files
        for number in range(1, file.count)
        if file.entry(number)[1] >= log_min
    ]
    expected = [entry.offset for entry in ledger.entries[first:count] for _ in entry.keys]
    assert [offset for _, offset in entries] == expected
    for entry in ledger.entries[first:count]:
        for key in set(entry.keys):
            assert entry.offset in index.query(
                entry.record.topic, key.decode(), 1 << 20, 0, 1 << 62
            )


def assert_true(store: MessageStore, ledger: Ledger, *, least: int) -> tuple[int, int]:
    """Assert that a store holds a run of the ledger with at least its first ``least`` entries."""
    first, count = assert_log(store, ledger, least=least)
    assert_queues(store, ledger, first, count)
    assert_index(store, ledger, first, count)
    return first, count


def fingerprint(files: SimulatedFiles, root: Path = ROOT) -> int:
    """Return a number for all names and contents below ``root``: other states have others."""
    return hash(frozenset(files.contents(root).items()))
