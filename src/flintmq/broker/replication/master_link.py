"""A slave's view of its master: what it asks for, how it judges what comes, what it reports.

It does no I/O: bytes and times are handed in, and so is the log.  A slave asks for a little of what
it has already (the *joint*) and compares it with its own bytes before it appends anything.  So a
master with another log is found out by the first bytes of its stream, though the protocol has no
word for that.  What is appended are whole records only: the end of a slave's log is always the end
of a record, whenever the stream is cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from flintmq.broker.replication.errors import (
    AheadOfMasterError,
    DivergedError,
    ForeignBytesError,
    GapError,
)
from flintmq.format.stored.record_layout import (
    BLANK,
    BLANK_MAGIC,
    BLANK_SIZE,
    MESSAGE_MAGIC,
    RECORD_SIZE_MIN,
)
from flintmq.format.wire.ha_stream import TransferDecoder

if TYPE_CHECKING:
    from collections.abc import Callable

JOINT_SIZE: Final = 64 << 10
"""Bytes at its end that a slave asks for again, to compare them."""

WHOLE_LOG: Final = 1
"""What an empty slave asks for.  A Java master takes 0 for "your newest file".

The byte before is that of the highest bits in the size of the first record, which are zero.
"""

IDLE_HEARTBEATS_MAX: Final = 2
"""Heartbeats in a row after which a master that has not sent the joint does not have it."""

RECORD_SIZE_MAX: Final = 64 << 20
"""Bytes of one record; an unfinished one is kept in memory until its rest has come."""


class MasterRange(NamedTuple):
    """Where the log of a master begins and ends."""

    start: int
    end: int


def must_start_anew(log: ReplicaLog, master: MasterRange) -> bool:
    """Whether what follows a slave's log is gone from its master, whose retention was faster.

    So is a log that ends where its master begins: there is nothing that could be compared.

    Raises AheadOfMasterError if the slave has more than its master.
    """
    if log.end > master.end:
        raise AheadOfMasterError(log.end, master.end)
    if not 0 < log.end <= master.start:
        return False
    if master.start % log.file_size:
        raise ForeignBytesError(master.start, "its log begins in mid-file")
    return True


class ReplicaLog(Protocol):
    """The log of a slave, as replication needs it."""

    @property
    def file_size(self) -> int:
        """Bytes of each file of the log."""
        ...

    @property
    def start(self) -> int:
        """Where the log begins."""
        ...

    @property
    def end(self) -> int:
        """Where the log ends; 0 if it is empty."""
        ...

    @property
    def promised_end(self) -> int:
        """How far the master may count on this slave."""
        ...

    def is_same(self, offset: int, data: memoryview) -> bool:
        """Whether the log has these bytes at ``offset``."""
        ...

    def append(self, offset: int, data: memoryview | bytearray) -> None:
        """Append whole records; an empty log begins at ``offset``."""
        ...


class MasterLink:
    """One stream from the master, from its first byte to its last."""

    def __init__(
        self,
        log: ReplicaLog,
        *,
        now_ms: Callable[[], int],
        heartbeat_ms: int,
        silence_ms: int,
        joint_size: int = JOINT_SIZE,
    ) -> None:
        self._log = log
        self._joint_size = joint_size
        self._now_ms = now_ms
        self._heartbeat_ms = heartbeat_ms
        self._silence_ms = silence_ms
        self._decoder = TransferDecoder()
        self._kept = bytearray()
        """What has come and is not appended: the beginning of a record whose rest is missing."""
        self._heartbeat_count = 0
        self._reported_ms = self._heard_ms = now_ms()
        self._reported = -1
        self.received_end = 0
        """Where the next piece of the log has to begin."""
        self.master_end = 0
        """How far the master's log goes at least."""
        self._is_begun = False

    # -- reporting ---------------------------------------------------------------------------

    def request(self, master_start: int | None = None) -> int:
        """Return the first report: where the stream shall begin.

        ``master_start`` is where the master's log begins, if that is known.
        """
        log = self._log
        self._reported_ms = self._now_ms()
        if log.end == 0:
            self.received_end = max(master_start or 0, WHOLE_LOG)
        else:
            # What the master has deleted cannot be compared: it would begin behind it.
            begin = min(master_start or 0, log.end)
            self.received_end = max(log.start, log.end - self._joint_size, begin, WHOLE_LOG)
        return self.received_end

    def due_report(self) -> int | None:
        """Return how far the slave has come, if it is time to tell."""
        end, now_ms = self._log.promised_end, self._now_ms()
        is_due = now_ms - self._reported_ms >= self._heartbeat_ms
        if not is_due and (end == self._reported or not self.is_joined):
            return None
        if not self.is_joined:
            # Nothing is promised of a log that may be another one, only what was compared.
            end = min(end, self.received_end) if self._is_begun else 0
        self._reported, self._reported_ms = end, now_ms
        return end

    @property
    def is_joined(self) -> bool:
        """Whether all that the slave has at the joint is the master's."""
        return self._is_begun and self.received_end >= self._log.end

    @property
    def is_silent(self) -> bool:
        """Whether nothing has come for so long that the master is taken for gone."""
        return self._now_ms() - self._heard_ms >= self._silence_ms

    # -- receiving ---------------------------------------------------------------------------

    def received(self, chunk: memoryview) -> None:
        """Take in what has come, and append the records that are whole.

        Raises:
            ReplicationError: the slave must not go on with this master.
            RemoteProtocolError: it is no master.
        """
        self._heard_ms = self._now_ms()
        for offset, piece in self._decoder.feed(chunk):
            self._check_offset(offset, is_heartbeat=not piece)
            if piece or offset != WHOLE_LOG:  # No log ends where an empty slave asks.
                self.master_end = max(self.master_end, offset + len(piece))
            if piece:
                self._heartbeat_count = 0
                self._take(piece)
        self._append()

    def _check_offset(self, offset: int, *, is_heartbeat: bool) -> None:
        log = self._log
        if not self._is_begun and log.end == 0:
            # An empty log may begin with any file: a master deletes its oldest ones.
            if offset % log.file_size != 0 and offset != self.received_end:
                raise ForeignBytesError(offset, "a new log begins with a file")
            self.received_end = offset
        if offset != self.received_end:
            raise GapError(self.received_end, offset)
        if not is_heartbeat:
            self._is_begun = True
            return
        if self.received_end < log.end:
            self._heartbeat_count += 1
            if self._heartbeat_count >= IDLE_HEARTBEATS_MAX:
                raise AheadOfMasterError(log.end, offset)
        elif log.end:
            self._is_begun = True  # The joint was empty: the log ends where it begins.

    def _take(self, piece: memoryview) -> None:
        """Compare what the log has already, and keep the rest until the chunk is at its end.

        Transfers are small, and what they bring is appended together: a file at most.
        """
        log = self._log
        if self._kept and self.received_end % log.file_size == 0:
            self._append()
        known_size = 0 if self._kept else min(len(piece), max(log.end - self.received_end, 0))
        if known_size:
            if not log.is_same(self.received_end, piece[:known_size]):
                raise DivergedError(self.received_end, known_size)
            self.received_end += known_size
            piece = piece[known_size:]
        if piece:
            if log.end == 0 and self.received_end == WHOLE_LOG and not self._kept:
                self._kept += b"\0"
            self.received_end += len(piece)
            self._kept += piece

    def _append(self) -> None:
        """Append the records that are whole; the beginning of another one is kept."""
        kept = self._kept
        if not kept:
            return
        offset = self.received_end - len(kept)
        with memoryview(kept) as data:
            whole = self._whole_records(data, offset)
            if whole:
                with data[:whole] as records:
                    self._log.append(offset, records)
        del kept[:whole]

    def _whole_records(self, piece: memoryview, offset: int) -> int:
        """Return how many bytes of a piece, which lies in one file, are whole records."""
        at, end, unpack = 0, len(piece), BLANK.unpack_from
        least = RECORD_SIZE_MIN
        # A record has to leave room for a blank behind it.
        most = self._log.file_size - offset % self._log.file_size - BLANK_SIZE
        if most > RECORD_SIZE_MAX:
            most = RECORD_SIZE_MAX
        while end - at >= BLANK_SIZE:
            size, magic = unpack(piece, at)
            if magic != MESSAGE_MAGIC or not least <= size <= most - at:
                size = self._record_size(piece, at, offset)
            at += size
            if at > end:
                return at - size  # type: ignore[no-any-return]
        return at

    def _record_size(self, data: memoryview, at: int, offset: int) -> int:
        """Return the size of the record at a position; raise if there can be none."""
        size, magic = BLANK.unpack_from(data, at)
        left_size = self._log.file_size - (offset + at) % self._log.file_size
        if magic == MESSAGE_MAGIC:
            is_possible = RECORD_SIZE_MIN <= size <= min(left_size - BLANK_SIZE, RECORD_SIZE_MAX)
        else:
            is_possible = magic == BLANK_MAGIC and size == left_size <= RECORD_SIZE_MAX
        if not is_possible:
            raise ForeignBytesError(
                offset + at,
                f"size {size} and magic {magic:#x} with {left_size} bytes left in the file; "
                f"mappedFileSizeCommitLog has to be the same on both",
            )
        return int(size)
