"""Bodies as the producer sent them: those that are compressed in the log are decompressed."""

from typing import NamedTuple

import numpy as np

from flintmq.format.compression import decompress
from flintmq.format.errors import CompressionError
from flintmq.format.sys_flag import COMPRESSED, compression_type
from flintmq.kernels.compiled import Bytes
from flintmq.kernels.records import RecordTable
from flintmq.kernels.texts import Pieces
from flintmq.offline.stored_messages import BODY_SIZE_MAX


class Bodies(NamedTuple):
    """The bodies of the first ``rows`` rows of a table.

    ``faults`` tells by row why a body is null; ``grown`` is how many bytes were decompressed.
    """

    rows: int
    pieces: Pieces
    faults: dict[int, str]
    grown: int


def stored_bodies(table: RecordTable) -> Bodies:
    """Return all bodies as they are in the log."""
    return Bodies(len(table), Pieces(table.body_at, table.body_size), {}, 0)


def sent_bodies(data: Bytes, table: RecordTable, *, bytes_max: int) -> Bodies:
    """Return bodies as they were sent, up to the row that makes it ``bytes_max`` more bytes.

    Nobody knows beforehand how far a body grows.
    """
    is_packed = (table.sys_flag & COMPRESSED != 0) & (table.body_size > 0)
    rows = np.flatnonzero(is_packed)
    values: list[bytes | None] = []
    faults: dict[int, str] = {}
    grown = 0
    for row in rows.tolist():
        start = int(table.body_at[row])
        stored = data[start : start + int(table.body_size[row])].tobytes()
        try:
            kind = compression_type(int(table.sys_flag[row]))
            value = decompress(stored, kind, limit=BODY_SIZE_MAX)
        except CompressionError as error:
            faults[row] = error.reason
            values.append(None)
            continue
        values.append(value)
        grown += len(value)
        if grown >= bytes_max:
            break
    count = len(table) if len(values) == len(rows) else int(rows[len(values) - 1]) + 1
    pieces = Pieces(table.body_at[:count], table.body_size[:count])
    return Bodies(count, pieces.replaced(rows[: len(values)], values), faults, grown)
