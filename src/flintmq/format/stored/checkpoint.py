"""The checkpoint page: up to which time and offset the files of a store are safely on the disk.

The page has 4096 bytes.  Java knows the first three fields and keeps the rest as it finds it:

    at  size  field        meaning
     0     8  physic       store time up to which the commit log is flushed
     8     8  logics       store time up to which the consume queues are flushed
    16     8  index        store time up to which full index files are flushed
    64     8  marker       ``FLINTMQ1``
    72    24  times        copies of the three times above
    96     8  log_flushed  physical offset below which the log is flushed
   104     8  dispatched   physical offset below which queues and index are complete and flushed
   112     8  index_file   name of the active index file as a number, zero for none, -1 when
                           the store kept no index and knows nothing of one
   120     4  index_count  its next free entry
   124     4  index_slot_count  its used slots
   128     8  queue_count  how many consume queues there were
   136     8  unit_total   how many units they had together
   144     4  checksum     CRC-32 of the bytes from the marker to here

The marks from the marker on are FlintMQ's own.  They are exact where the times are only a hint,
but they hold only while nobody else has written to the store: a Java broker moves the times and
leaves the marks, so marks whose copies of the times differ are void.  The checksum makes them
void after a torn write.
"""

import struct
import zlib
from typing import Final, NamedTuple

from flintmq.format.buffer import Buffer
from flintmq.format.errors import CorruptCheckpointError
from flintmq.model.value_class import Value, value_class

FILE_SIZE: Final = 4096
MARKS_AT: Final = 64
MARKER: Final = b"FLINTMQ1"
NO_INDEX: Final = -1
_TIMES: Final = struct.Struct(">qqq")
_MARKS: Final = struct.Struct(
    ">"
    "8s"  # marker
    "qqq"  # times
    "q"  # log_flushed
    "q"  # dispatched
    "q"  # index_file
    "i"  # index_count
    "i"  # index_slot_count
    "q"  # queue_count
    "q"  # unit_total
)
_CHECKSUM: Final = struct.Struct(">I")
_CHECKSUM_AT: Final = MARKS_AT + _MARKS.size
assert _MARKS.size == 80


class CheckpointMarks(NamedTuple):
    """FlintMQ's exact marks; what lies below them need not be looked at again."""

    log_flushed: int
    dispatched: int
    index_file: int
    index_count: int
    index_slot_count: int
    queue_count: int
    unit_total: int


@value_class
class Checkpoint(Value):
    """The content of a checkpoint page."""

    physic: int = 0
    logics: int = 0
    index: int = 0
    marks: CheckpointMarks | None = None

    def __init__(
        self,
        physic: int = 0,
        logics: int = 0,
        index: int = 0,
        marks: CheckpointMarks | None = None,
    ) -> None:
        """Take the fields, also without their names."""
        super().__init__(physic=physic, logics=logics, index=index, marks=marks)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the FILE_SIZE bytes of ``checkpoint``."""
    page = bytearray(FILE_SIZE)
    times = (checkpoint.physic, checkpoint.logics, checkpoint.index)
    _TIMES.pack_into(page, 0, *times)
    if checkpoint.marks is not None:
        _MARKS.pack_into(page, MARKS_AT, MARKER, *times, *checkpoint.marks)
        checksum = zlib.crc32(page[MARKS_AT:_CHECKSUM_AT])
        _CHECKSUM.pack_into(page, _CHECKSUM_AT, checksum)
    return bytes(page)


def decode_checkpoint(page: Buffer) -> Checkpoint:
    """Return what a checkpoint page says; marks that do not hold are None."""
    if len(page) != FILE_SIZE:
        raise CorruptCheckpointError(f"a checkpoint has {FILE_SIZE} bytes, not {len(page)}")
    physic, logics, index = times = _TIMES.unpack_from(page)
    marker, *fields = _MARKS.unpack_from(page, MARKS_AT)
    (checksum,) = _CHECKSUM.unpack_from(page, _CHECKSUM_AT)
    marks = None
    if (
        marker == MARKER
        and checksum == zlib.crc32(page[MARKS_AT:_CHECKSUM_AT])
        and tuple(fields[:3]) == times
    ):
        marks = CheckpointMarks._make(fields[3:])
    return Checkpoint(physic, logics, index, marks)
