"""Plain sends stored and answered by machine code, where numba is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from flintmq.broker.stored_answer import encode_stored_answer
from flintmq.format.frame import PREFIX_SIZE
from flintmq.kernels.compiled import as_bytes
from flintmq.kernels.sends import ANSWER_NUMBERS_SIZE, ANSWER_PIECE_COUNT, encode_answers
from flintmq.store.compiled_runs import PlacedSends, ready_encoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

# What stands in a template where the numbers of an answer go.
_MESSAGE_ID: Final = "message-id-of-a-template"
_QUEUE_ID: Final = 7_000_000_000_000_000_001
_QUEUE_OFFSET: Final = 7_000_000_000_000_000_002
_OPAQUE: Final = 7_000_000_000_000_000_003


class AnswerTemplate:
    """The JSON header of answers to sends, cut where their numbers go."""

    def __init__(self, json_start: str, host: bytes) -> None:
        self.json_start = json_start
        self.host = host
        rest = encode_stored_answer(json_start, _OPAQUE, _MESSAGE_ID, _QUEUE_ID, _QUEUE_OFFSET)
        rest, pieces = rest[PREFIX_SIZE:], []
        for mark in (_MESSAGE_ID, _QUEUE_ID, _QUEUE_OFFSET, _OPAQUE):
            piece, _, rest = rest.partition(str(mark).encode())
            pieces.append(piece)
        pieces[0] += host.hex().upper().encode()
        pieces.append(rest)
        assert len(pieces) == ANSWER_PIECE_COUNT
        self._pieces = as_bytes(b"".join(pieces))
        self._ends = np.cumsum([len(piece) for piece in pieces])

    def fill(self, opaques: npt.NDArray[np.int64], placed: PlacedSends) -> bytes:
        """Return the frames of answers, one behind the other."""
        out = np.empty(len(opaques) * (len(self._pieces) + ANSWER_NUMBERS_SIZE), np.uint8)
        end = encode_answers(
            self._pieces,
            self._ends,
            opaques,
            placed.queue_ids,
            placed.queue_offsets,
            placed.physical_offsets,
            out,
        )
        return out[:end].tobytes()


class CompiledSends:
    """Machine code for sends, loaded and ready."""

    def __init__(self) -> None:
        self.encoder = ready_encoder()
        self._template = AnswerTemplate("{", bytes(8))
        opaques = self.opaques([1])
        assert opaques is not None
        nothing = np.zeros(1, np.int64)
        self._template.fill(opaques, PlacedSends(nothing, nothing, np.zeros(8, np.uint8)))

    @staticmethod
    def opaques(numbers: Sequence[int]) -> npt.NDArray[np.int64] | None:
        """Return opaques as `answers` takes them; None if one has more than 32 bits."""
        try:
            return np.array(numbers, np.int32).astype(np.int64)
        except OverflowError:
            return None

    def answers(
        self, json_start: str, host: bytes, opaques: npt.NDArray[np.int64], placed: PlacedSends
    ) -> bytes:
        """Return the frames of answers that tell where messages were stored, as one piece.

        ``json_start`` is that of their `SharedAnswer`.
        """
        template = self._template
        if template.json_start != json_start or template.host != host:
            template = self._template = AnswerTemplate(json_start, host)
        return template.fill(opaques, placed)
