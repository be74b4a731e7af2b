"""One file of the key index: a hash table with chains.

The layout is in ``flintmq.format.stored.index_file``.
"""

from __future__ import annotations

import array
import sys
import threading
from typing import TYPE_CHECKING, Final, Protocol, Self

from flintmq.format.stored.index_file import (
    ENTRY,
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT,
    SLOT_SIZE,
    IndexHeader,
)
from flintmq.store.errors import FlushFailedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from flintmq.store.files.interface import MappedRegion
    from flintmq.store.views.space_ahead import SpaceAhead

INT_MAX: Final = 2**31 - 1
STEP_ENTRIES: Final = 512
"""Entries of a chain that are looked at between two interruptions."""
RESERVE_STEP: Final = 256 * 1024
AHEAD_SIZE: Final = 2 * RESERVE_STEP
"""What is made ready behind a step when a step begins."""
GROWING_COUNT: Final = 256
"""Entries from which on all slots of a file are made ready: keys come to slots anywhere."""
ENTRIES_AT_ONCE_MAX: Final = 32_768
"""Entries that are written together: they stay in the cache of a core until they are."""
_CHUNK_SIZE: Final = 1 << 20
_read_slot: Final = SLOT.unpack_from
_write_slot: Final = SLOT.pack_into
_write_entry: Final = ENTRY.pack_into


class ManyKeys(Protocol):
    """Keys of messages that follow each other in the log."""

    @property
    def count(self) -> int:
        """How many keys these are."""
        ...

    @property
    def last_offset(self) -> int:
        """The physical offset of the last message with a key."""
        ...

    def insert(self, view: memoryview, *, slots: int, first: int, seconds: int) -> int:
        """Write their entries from number ``first`` on; return how many slots are new."""
        ...

    def kept(self) -> ManyKeys:
        """Return keys that stay as they are when whoever made them makes others."""
        ...


class LoggedKeys(Protocol):
    """Keys of messages of a log, each with the store time of its message, in log order."""

    @property
    def count(self) -> int:
        """How many keys these are."""
        ...

    def entry(self, number: int) -> tuple[int, int, int]:
        """Return hash, physical offset and store time of a key."""
        ...

    def chain(
        self, view: memoryview, keys: range, *, slots: int, first: int, begin_time: int
    ) -> tuple[memoryview, int]:
        """Have the slots of a file lead to some of the entries, from number ``first`` on.

        Return these entries as they stand in the file, and how many slots are new.
        """
        ...


class KeyIndexFile:
    """One hash file.  Counters live here and reach the header by ``write_header``."""

    def __init__(
        self,
        region: MappedRegion,
        *,
        slots: int,
        entries: int,
        fresh: bool,
        ahead: SpaceAhead | None = None,
    ) -> None:
        self.region = region
        self.view = region.view
        self.name = int(region.path.name)
        self.slots = slots
        self.entries = entries
        self.entry_base = HEADER_SIZE + slots * SLOT_SIZE
        self.begin_time = self.end_time = 0
        self.begin_offset = self.end_offset = 0
        self.slot_count = 0
        self.count = 1
        self.dirty = False
        self.is_closed = False
        self._hold_lock = threading.Lock()
        self._ahead = ahead
        self._are_slots_asked_for = ahead is None
        self._reserved = 0
        self._room_end = 0
        """Where the entries end for which space is reserved."""
        if not fresh:
            header = IndexHeader.unpack_from(region.view)
            self.begin_time, self.end_time = header.begin_timestamp, header.end_timestamp
            self.begin_offset, self.end_offset = header.begin_offset, header.end_offset
            self.slot_count = header.slot_count
            self.count = min(max(header.index_count, 1), entries)

    @property
    def is_full(self) -> bool:
        """Whether the next key must go to another file."""
        return self.count >= self.entries

    def reserve_next(self, count: int = 1) -> Self:
        """Make sure the header, all slots and the next entries have their space on the disk."""
        reserved = self._reserved
        self._reserve(count)
        if self._reserved > reserved and self._ahead is not None and self.count >= GROWING_COUNT:
            self._ahead.ask(self, self._reserved, self._reserved + AHEAD_SIZE)
        return self

    def _reserve(self, count: int) -> None:
        end = min(self.entry_base + (self.count + count) * ENTRY_SIZE, self.region.size)
        if end > self._reserved:
            reserved = min(end + RESERVE_STEP, self.region.size)
            self.region.reserve(self._reserved, reserved)
            self._reserved = reserved
        whole = (self._reserved - self.entry_base) // ENTRY_SIZE
        self._room_end = self.entry_base + min(whole, self.entries) * ENTRY_SIZE

    def insert(
        self, hashes: Sequence[int], start: int, physical_offset: int, store_timestamp: int
    ) -> int:
        """Add entries for ``hashes[start:]``, the keys of one message, while there is room.

        Return the number of the first hash that found none; the file is full then, or has no
        more space reserved.
        """
        view, slots = self.view, self.slots
        count, begin = self.count, self.begin_time
        at = self.entry_base + count * ENTRY_SIZE
        seconds = (store_timestamp - begin) // 1000 if 0 < begin < store_timestamp else 0
        if seconds > INT_MAX:
            seconds = INT_MAX
        done = start
        for key_hash in hashes[start:] if start else hashes:
            if at >= self._room_end:
                break
            slot_at = HEADER_SIZE + key_hash % slots * SLOT_SIZE
            previous = _read_slot(view, slot_at)[0]
            if previous <= 0 or previous > count:
                previous = 0
                self.slot_count += 1
            _write_entry(view, at, key_hash, physical_offset, seconds, previous)
            _write_slot(view, slot_at, count)
            if count <= 1:
                self.begin_offset = physical_offset
                self.begin_time = store_timestamp
                # The first entry of a file was measured from the end of the file before; the
                # others are from here on.
                seconds = 0
            count += 1
            at += ENTRY_SIZE
            done += 1
        if done > start:
            self.count = count
            self.end_offset = physical_offset
            self.end_time = store_timestamp
            self.dirty = True
            if not self._are_slots_asked_for:
                self._ask_for_slots()
        return done

    def _ask_for_slots(self) -> None:
        """Have all slots made ready if the file is going to have many entries."""
        if self.count >= GROWING_COUNT and self._ahead is not None:
            self._are_slots_asked_for = True
            self._ahead.ask(self, 0, self.entry_base)
            # A file that was loaded has millions of entries, which nobody writes to again.
            entries_end = self.entry_base + self.count * ENTRY_SIZE
            self._ahead.ask(self, entries_end, self._reserved + AHEAD_SIZE)

    def has_room(self, count: int) -> bool:
        """Whether ``count`` more entries only have to be written down."""
        return self.count > 1 and self.entry_base + (self.count + count) * ENTRY_SIZE <= (
            self._room_end
        )

    def insert_group(self, keys: ManyKeys, store_timestamp: int) -> None:
        """Add the entries of keys of one store time, for which `has_room` has said yes.

        It leaves what `insert` would for one after the other.
        """
        begin = self.begin_time
        seconds = (store_timestamp - begin) // 1000 if 0 < begin < store_timestamp else 0
        self.slot_count += keys.insert(
            self.view, slots=self.slots, first=self.count, seconds=min(seconds, INT_MAX)
        )
        self.count += keys.count
        self.end_offset = keys.last_offset
        self.end_time = store_timestamp
        self.dirty = True
        if not self._are_slots_asked_for:
            self._ask_for_slots()

    def insert_logged(self, keys: LoggedKeys, start: int) -> int:
        """Add the entries of ``keys`` from ``start`` on while there is room; return how many.

        It leaves what `insert` would for one after the other.  Room is made for them; there is
        none in a file that is full.
        """
        count = min(keys.count - start, self.entries - self.count, ENTRIES_AT_ONCE_MAX)
        if not count:
            return 0
        if self.count <= 1:
            self.reserve_next()
            return self.insert([keys.entry(start)[0]], 0, *keys.entry(start)[1:])
        self._reserve(count)  # They are written by a system call, which needs no pages.
        assert self.has_room(count)
        entries, new_slot_count = keys.chain(
            self.view,
            range(start, start + count),
            slots=self.slots,
            first=self.count,
            begin_time=self.begin_time,
        )
        self._write_chained(entries)
        self.slot_count += new_slot_count
        self.count += count
        _, self.end_offset, self.end_time = keys.entry(start + count - 1)
        self.dirty = True
        return count

    def _write_chained(self, entries: memoryview) -> None:
        """Write the next entries, to which their slots lead already.

        A system call costs less than the first write to each of many mapped pages.
        """
        at = self.entry_base + self.count * ENTRY_SIZE
        try:
            self.region.write(at, entries)
        except StoreError:
            # As if nothing had been added: the slots lead to what stood there before.
            for key_hash, _, _, previous in reversed(list(ENTRY.iter_unpack(entries))):
                _write_slot(self.view, HEADER_SIZE + key_hash % self.slots * SLOT_SIZE, previous)
            self.view[at : at + len(entries)] = bytes(len(entries))
            raise

    def write_header(self) -> None:
        """Put the counters into the mapping."""
        if self.dirty:
            IndexHeader(
                self.begin_time,
                self.end_time,
                self.begin_offset,
                self.end_offset,
                self.slot_count,
                self.count,
            ).pack_into(self.view)
            self.dirty = False

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Return (hash, physical offset, seconds, previous) of entry ``number``."""
        fields: tuple[int, int, int, int] = ENTRY.unpack_from(
            self.view, self.entry_base + number * ENTRY_SIZE
        )
        return fields

    def collect(
        self, key_hash: int, found: list[int], *, most: int, begin: int, end: int
    ) -> Generator[None, None, None]:
        """Add the offsets of a key within a time range to ``found``, newest first.

        A chain can have millions of entries, so the walk is interruptible.  It ends early if the
        file is closed meanwhile: then its records have expired.
        """
        (number,) = SLOT.unpack_from(self.view, HEADER_SIZE + key_hash % self.slots * SLOT_SIZE)
        seen_count = 0
        while 0 < number < self.count and len(found) < most:
            seen_count += 1
            if seen_count % STEP_ENTRIES == 0:
                yield
                if self.is_closed:
                    return
            entry_hash, offset, seconds, previous = self.entry(number)
            if seconds < 0:
                return
            time = self.begin_time + seconds * 1000
            if entry_hash == key_hash and begin <= time <= end:
                found.append(offset)
            # A chain only leads to older entries; anything else is damage and would loop.
            if previous >= number or time < begin:
                return
            number = previous

    def count_below(self, physical_offset: int) -> int:
        """Return the entry count with only the entries of records below ``physical_offset``."""
        low, high = 1, self.count
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[1] < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def cut(
        self, count: int, store_time_of: Callable[[int], int], *, slot_count: int | None = None
    ) -> None:
        """Keep only the entries below number ``count``, as if no other had ever been added.

        Entries from ``count`` on may be torn, so nothing is read from them.  Nor is from slots and
        header: a process may have been killed while it wrote one.  Slots get the newest kept entry
        of their chain by one walk over the kept entries.
        """
        view, slots = self.view, self.slots
        newest = array.array("i", bytes(slots * SLOT_SIZE))
        first, end = self.entry_base + ENTRY_SIZE, self.entry_base + count * ENTRY_SIZE
        empty_slots = 0
        with view[first:end] as kept:
            for number, (key_hash, _, _, previous) in enumerate(ENTRY.iter_unpack(kept), 1):
                newest[key_hash % slots] = number
                empty_slots += previous == 0
        if sys.byteorder == "little":
            newest.byteswap()
        _write_changed(view, HEADER_SIZE, memoryview(newest).cast("B"))
        _zero(view, end)
        self.count = count
        self.slot_count = empty_slots if slot_count is None else slot_count
        if count > 1:
            self.begin_offset, self.end_offset = self.entry(1)[1], self.entry(count - 1)[1]
            # The first record may have expired.
            self.begin_time = store_time_of(self.begin_offset) or self.begin_time
            self.end_time = store_time_of(self.end_offset)
        self.dirty = True
        self.write_header()
        self.region.sync()

    def sync(self) -> None:
        """Bring the file to stable storage.

        Raises:
            FlushFailedError: for want of space or otherwise; what was not written may be lost.
        """
        try:
            self.region.sync()
        except StoreError as error:
            raise FlushFailedError(self.region.path, error) from error

    def hold(self) -> bool:
        """Keep the file mapped until `release`, for one thread; return False if it is closed."""
        self._hold_lock.acquire()
        if self.is_closed:
            self._hold_lock.release()
        return not self.is_closed

    def release(self) -> None:
        """Let the file be unmapped."""
        self._hold_lock.release()

    def close(self) -> None:
        """Unmap the file."""
        self.is_closed = True
        self.view = memoryview(b"")
        with self._hold_lock:
            self.region.close()


def _write_changed(view: memoryview, start: int, data: memoryview) -> None:
    """Write ``data`` at ``start``, touching only what is not so already."""
    for at in range(0, len(data), _CHUNK_SIZE):
        wanted = data[at : at + _CHUNK_SIZE]
        with view[start + at : start + at + len(wanted)] as piece:
            if piece != wanted:
                piece[:] = wanted


def _zero(view: memoryview, start: int) -> None:
    """Zero ``view`` from ``start`` on, touching only what is not zero already."""
    zeros = memoryview(bytes(_CHUNK_SIZE))
    for at in range(start, len(view), _CHUNK_SIZE):
        _write_changed(view, at, zeros[: len(view) - at])
