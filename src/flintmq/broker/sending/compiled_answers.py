"""Answers to stored sends by machine code, where numba is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import numpy as np

from flintmq.broker.sending.stored_answer import encode_stored_answer, stored_header
from flintmq.format.host import IPV4_HOST_SIZE
from flintmq.format.wire.command import Command
from flintmq.format.wire.frame import PREFIX_SIZE, HeaderType
from flintmq.format.wire.headers.send import SendAnswer
from flintmq.kernels.answers import (
    ANSWER_NUMBERS_SIZE,
    ID_END_SIZE,
    SLOT_EXT_SIZE,
    SLOT_IDS,
    SLOT_NOTHING,
    SLOT_OPAQUE,
    SLOT_QUEUE_ID,
    SLOT_QUEUE_OFFSET,
    SLOT_RAW_OPAQUE,
    SLOT_SIZED,
    AnswerPieces,
    encode_answers,
)
from flintmq.kernels.compiled import as_bytes
from flintmq.kernels.group_buffers import (
    MESSAGE_COLUMN_COUNT,
    SEND_COLUMN_COUNT,
    SEND_IS_BINARY,
    SEND_OPAQUE,
    Table,
)
from flintmq.remoting import Answer
from flintmq.store.append_group.compiled_encoder import StoredColumns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flintmq.store.append_group.sends import StoredAt

# What stands in an answer where its numbers go, of which pieces are made.
_MESSAGE_ID: Final = "message-id-of-a-template"
_QUEUE_ID: Final = 1_987_654_322
_QUEUE_OFFSET: Final = 7_000_000_000_000_000_002
_OPAQUE: Final = 1_987_654_321
_JSON_OPAQUE: Final = 7_000_000_000_000_000_003
_LENGTH_SIZE: Final = 4
_BINARY_EXT_SIZE_AT: Final = 17
"""Where a binary header without a remark has the size of its ext fields."""


class _PieceList:
    """Pieces and slots in the order of an answer."""

    def __init__(self, data: bytearray) -> None:
        self._data = data
        self.rows: list[tuple[int, int, int]] = []

    def add(self, piece: bytes, slot: int) -> None:
        """Add a piece and what follows it."""
        self.rows.append((len(self._data), len(piece), slot))
        self._data += piece

    def table(self) -> Table:
        """Return the table of pieces."""
        return np.array(self.rows, np.int64)


def _add_slots(pieces: _PieceList, rest: bytes, slots: Iterable[tuple[object, int]]) -> None:
    """Cut the rest of a header where its slots are."""
    for mark, slot in slots:
        before, found, rest = rest.partition(str(mark).encode())
        assert found, "the mark stands in the answer"
        # The size that stands before a value in a binary header belongs to the slot.
        pieces.add(before[:-_LENGTH_SIZE] if slot & SLOT_SIZED else before, slot)
    pieces.add(rest, SLOT_NOTHING)


def _answer_pieces(shared: SendAnswer, host: bytes) -> AnswerPieces:
    """Return the pieces of answers that share some fields, of a broker with this host."""
    data = bytearray()
    json = _PieceList(data)
    frame = encode_stored_answer(
        shared.encode_json()[:-1], _JSON_OPAQUE, _MESSAGE_ID, _QUEUE_ID, _QUEUE_OFFSET
    )
    json_slots = (
        (_MESSAGE_ID, SLOT_IDS),
        (_QUEUE_ID, SLOT_QUEUE_ID),
        (_QUEUE_OFFSET, SLOT_QUEUE_OFFSET),
        (_JSON_OPAQUE, SLOT_OPAQUE),
    )
    _add_slots(json, frame[PREFIX_SIZE:], json_slots)
    binary = _PieceList(data)
    command = Command(code=0, opaque=_OPAQUE, serialize_type=HeaderType.ROCKETMQ)
    answer = Answer(header=stored_header(shared, _MESSAGE_ID, _QUEUE_ID, _QUEUE_OFFSET))
    header = answer.encode(command)[PREFIX_SIZE:]
    start, number, rest = header.partition(_OPAQUE.to_bytes(_LENGTH_SIZE))
    assert number, "a binary header has its number"
    binary.add(start, SLOT_RAW_OPAQUE)
    ext_size_at = _BINARY_EXT_SIZE_AT - len(start) - len(number)
    binary.add(rest[:ext_size_at], SLOT_EXT_SIZE)
    rest = rest[ext_size_at + _LENGTH_SIZE :]
    slots = [(mark, slot | SLOT_SIZED) for mark, slot in json_slots[:-1]]
    # The fields of a binary header have an order of their own.
    slots.sort(key=lambda one: rest.index(str(one[0]).encode()))
    _add_slots(binary, rest, slots)
    return AnswerPieces(
        as_bytes(bytes(data)),
        json.table(),
        binary.table(),
        as_bytes(host.hex().upper().encode()),
    )


class CompiledAnswers:
    """Machine code for answers, loaded and ready."""

    def __init__(self) -> None:
        self._shared = SendAnswer(region="", trace_on=True)
        self._host = b""
        self._pieces = _answer_pieces(self._shared, bytes(IPV4_HOST_SIZE))
        stored = StoredColumns(
            np.zeros((1, MESSAGE_COLUMN_COUNT), np.int64),
            np.array([0, 1], np.int64),
            np.zeros((1, SEND_COLUMN_COUNT), np.int64),
            np.zeros((1, MESSAGE_COLUMN_COUNT), np.int64),
        )
        self._fill(stored)

    def encode_for(
        self,
        shared: SendAnswer,
        host: bytes,
        stored: Iterable[StoredAt],
        opaques: Sequence[int],
        header_types: Sequence[HeaderType],
    ) -> tuple[memoryview, Sequence[int]]:
        """Return the answers to requests with these numbers and notations; see `encode`."""
        assert isinstance(stored, StoredColumns), "machine code has encoded the group"
        stored.sends[:, SEND_OPAQUE] = opaques
        stored.sends[:, SEND_IS_BINARY] = header_types
        return self.encode(shared, host, stored)

    def encode(
        self, shared: SendAnswer, host: bytes, stored: StoredColumns
    ) -> tuple[memoryview, Sequence[int]]:
        """Return the frames of answers that tell where sends are stored, and where each ends."""
        if shared is not self._shared or host != self._host:
            self._shared, self._host = shared, host
            self._pieces = cast(AnswerPieces, tuple(_answer_pieces(shared, host)))
        return self._fill(stored)

    def _fill(self, stored: StoredColumns) -> tuple[memoryview, Sequence[int]]:
        data, json, binary, host = self._pieces
        count = len(stored.first_messages) - 1
        size = count * (len(data) + ANSWER_NUMBERS_SIZE)
        size += len(stored.messages) * (len(host) + ID_END_SIZE)
        out, ends = np.empty(size, np.uint8), np.empty(count, np.int64)
        end = encode_answers(
            cast(AnswerPieces, (data, json, binary, host)),
            stored.sends,
            count,
            stored.targets,
            stored.messages,
            stored.first_messages,
            out,
            ends,
        )
        return out.data[:end], ends.tolist()
