"""Sends from frame to answer in machine code, where numba is installed.

What sockets brought is walked over by kernels (`flintmq.kernels.request_walk`): they cut frames,
recognise headers that were seen before, encode records, units and keys, and write the answers.
Whatever they do not recognise goes the ordinary way, and is learned there.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple, Self, cast

import numpy as np

from flintmq.broker.sending.compiled_answers import CompiledAnswers
from flintmq.broker.sending.known_headers import SEND_SLOTS, HeaderPiece, header_pieces
from flintmq.format.wire.frame import FRAME_SIZE_MAX
from flintmq.kernels.compiled import Longs, as_bytes
from flintmq.kernels.group_buffers import (
    LOG_SIZE,
    NEXT_OFFSET,
    QUEUE,
    QUEUE_COLUMN_COUNT,
    SEND_COLUMN_COUNT,
    TARGET_COLUMN_COUNT,
    Table,
)
from flintmq.kernels.plain_properties import NOT_PLAIN
from flintmq.kernels.request_walk import (
    NO_TARGET,
    WALKED_QUEUES_MAX,
    KnownHeaders,
    WalkResult,
    walk_sends,
)
from flintmq.kernels.sends import encode_judged
from flintmq.store.append_group.compiled_encoder import (
    EncodedSends,
    StoredColumns,
    TargetTable,
    ready_encoder,
)
from flintmq.store.append_group.sends import NotPlainError, SendTarget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.format.wire.frame import HeaderType
    from flintmq.format.wire.headers.send import SendAnswer
    from flintmq.store.append_group.sends import AppendGroup, AppendPosition, Queue

WALKED_SENDS_MAX: Final = 4096
"""Sends of one walk."""
KNOWN_HEADERS_MAX: Final = 64
"""Kinds of headers that are compared with each that comes; clients can make up many."""
KNOWN_TARGETS_MAX: Final = 1024


class WalkedSends(NamedTuple):
    """What a walk has found; good until the next walk."""

    data: bytearray
    send_count: int
    handled: list[int]
    """How many bytes of each read were walked over."""
    send_ends: list[int]
    """How many sends there are up to the end of each read."""
    used: list[int]
    """The targets that were met."""


class _ChosenTargets(NamedTuple):
    """The targets that the sends of a group have: mostly those of the group before."""

    numbers: Sequence[int]
    queues: dict[Queue, int]
    """The queues, and the row of each in the table of queues."""
    rows: Table
    queue_table: Table
    """A row for each queue; kernels count in it."""

    @classmethod
    def of(cls, table: TargetTable, numbers: Sequence[int]) -> Self:
        """Choose some targets."""
        queues: dict[Queue, int] = {}
        rows = table.rows.reshape((-1, TARGET_COLUMN_COUNT))[list(numbers)]
        rows[:, QUEUE] = [
            queues.setdefault(table.kinds[number][0].queue, len(queues)) for number in numbers
        ]
        return cls(numbers, queues, rows, np.zeros((len(queues), QUEUE_COLUMN_COUNT), np.int64))

    def queues_at(self, position: AppendPosition) -> Table:
        """Return the table of queues as it is before a group; good until the next one."""
        table, next_offset = self.queue_table, position.next_offsets.get
        for row, queue in enumerate(self.queues):
            table[row, NEXT_OFFSET] = next_offset(queue, 0)
            table[row, LOG_SIZE] = 0
        return table


class CompiledSends:
    """Known headers of sends, and the kernels that handle such sends; loaded and ready."""

    def __init__(self) -> None:
        self._encoder = ready_encoder()
        self._answers = CompiledAnswers()
        self._numbers: dict[tuple[HeaderPiece, ...], int] = {}
        self._targets: dict[tuple[SendTarget, bytes], int] = {}
        self._target_of: dict[tuple[int, int], int] = {}
        """The number of the target of a known header and queue."""
        self._has_changed = True
        self._target_table = TargetTable([])
        self._sends = np.empty((WALKED_SENDS_MAX, SEND_COLUMN_COUNT), np.int64)
        self._known = self._tables()
        self._warm()

    def _warm(self) -> None:
        """Have all kernels loaded, or compiled where they never were."""
        self.walk([b"\0" * 16], waits=False)
        encode_judged(
            as_bytes(b""),
            np.zeros(4, np.int64),
            self._sends,
            0,
            np.zeros((1, TARGET_COLUMN_COUNT), np.int64),
            np.zeros((1, 3), np.int64),
            as_bytes(b""),
            self._encoder.hosts_of(bytes(8), (bytes(8),)),
            self._encoder.buffers,
        )

    # -- learning ----------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether more can be learned."""
        return len(self._numbers) < KNOWN_HEADERS_MAX and len(self._targets) < KNOWN_TARGETS_MAX

    def forget(self) -> None:
        """Forget all headers: what their admission depends on has changed."""
        self._numbers.clear()
        self._targets.clear()
        self._target_of.clear()
        self._has_changed = True

    def learn(
        self, header_type: HeaderType, header: bytes, target: SendTarget, tail: bytes
    ) -> None:
        """Learn from a send that was admitted what others of its kind look like.

        ``tail`` are the properties that each message gets behind its own.
        """
        if target.queue_id >= WALKED_QUEUES_MAX or not self.has_room:
            return
        pieces = header_pieces(header_type, header, SEND_SLOTS)
        if pieces is None:
            return
        # The pieces of the two notations are never the same: one begins with a brace.
        number = self._numbers.setdefault(pieces, len(self._numbers))
        target_number = self._targets.setdefault((target, tail), len(self._targets))
        if self._target_of.get((number, target.queue_id)) != target_number:
            self._target_of[number, target.queue_id] = target_number
            self._has_changed = True

    def _tables(self) -> KnownHeaders:
        """Return what was learned as kernels have it."""
        self._has_changed = False
        data = bytearray()
        headers: list[tuple[int, int, int]] = []
        pieces: list[tuple[int, int, int]] = []
        for number_of in self._numbers:
            is_binary = not number_of[0].data.startswith(b"{")
            headers.append((is_binary, len(pieces), len(pieces) + len(number_of)))
            for piece in number_of:
                pieces.append((len(data), len(piece.data), piece.slot))
                data += piece.data
        targets = np.full((len(headers), WALKED_QUEUES_MAX), NO_TARGET, np.int64)
        for (number, queue_id), target_number in self._target_of.items():
            targets[number, queue_id] = target_number
        self._target_table = TargetTable(list(self._targets))
        self._chosen = _ChosenTargets.of(self._target_table, ())
        self._chosen_alone: dict[int, _ChosenTargets] = {}
        """Targets that were the only ones of a group: producers go from queue to queue."""
        self._result_numbers = np.full(len(self._targets), NO_TARGET, np.int64)
        self._used = np.empty(len(self._targets), np.int64)
        self._columns = self._new_columns(1)
        known = KnownHeaders(
            np.array(headers, np.int64).reshape((-1, 3)),
            np.array(pieces, np.int64).reshape((-1, 3)),
            as_bytes(bytes(data)),
            targets,
            np.array([target.is_batch for target, _ in self._targets], np.int64),
        )
        # Machine code looks at a plain tuple in half the time.
        return cast(KnownHeaders, tuple(known))

    # -- handling ----------------------------------------------------------------------------

    def walk(self, reads: Sequence[bytes], *, waits: bool) -> WalkedSends:
        """Cut known sends from the beginnings of reads; see `walk_sends`."""
        if self._has_changed:
            self._known = self._tables()
        data = bytearray().join(reads)
        ends, result = self._columns
        if len(ends) != len(reads):
            ends, result = self._columns = self._new_columns(len(reads))
        if len(reads) == 1:
            ends[0] = len(data)
        else:
            ends[:] = list(accumulate(map(len, reads)))
        count, used_count = walk_sends(
            np.frombuffer(data, np.uint8), ends, self._known, FRAME_SIZE_MAX, waits, result
        )
        _, handled, send_ends, used, _ = result
        # NamedTuple's own constructor takes twice the time of the tuple's.
        return tuple.__new__(
            WalkedSends,
            (data, count, handled.tolist(), send_ends.tolist(), used[:used_count].tolist()),
        )

    def _new_columns(self, read_count: int) -> tuple[Longs, WalkResult]:
        """Return where walks over so many reads find their ends, and where they write to."""
        ends, handled, send_ends = np.empty((3, read_count), np.int64)
        written = (self._sends, handled, send_ends, self._used, self._result_numbers)
        return ends, cast(WalkResult, written)

    def encode(
        self, walked: WalkedSends, position: AppendPosition, born_hosts: tuple[bytes, ...]
    ) -> AppendGroup:
        """Return the append group of walked sends; there is a born host for each read."""
        encoder, chosen = self._encoder, self._choose(walked.used)
        rows, queue_table = chosen.rows, chosen.queues_at(position)
        size, key_count = encode_judged(
            as_bytes(walked.data),
            encoder.start_of(position),
            self._sends,
            walked.send_count,
            rows,
            queue_table,
            self._target_table.shared,
            encoder.hosts_of(position.store_host, born_hosts),
            encoder.buffers,
        )
        if size == NOT_PLAIN:
            raise NotPlainError
        encoded = EncodedSends(self._sends, walked.send_count, rows, size, key_count)
        return encoder.group(position, encoded, chosen.queues, queue_table)

    def _choose(self, numbers: Sequence[int]) -> _ChosenTargets:
        """Return the targets of these numbers, mostly as they were chosen before."""
        if self._chosen.numbers == numbers:
            return self._chosen
        chosen = self._chosen_alone.get(numbers[0]) if len(numbers) == 1 else None
        if chosen is None:
            chosen = _ChosenTargets.of(self._target_table, numbers)
            if len(numbers) == 1:
                self._chosen_alone[numbers[0]] = chosen
        self._chosen = chosen
        return chosen

    def answers(
        self, group: AppendGroup, shared: SendAnswer, store_host: bytes
    ) -> tuple[memoryview, Sequence[int]]:
        """Return the answers to the sends of a group, and where each ends."""
        return self._answers.encode(shared, store_host, cast(StoredColumns, group.stored))
