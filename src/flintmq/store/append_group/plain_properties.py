"""Which sends are plain, judged by their properties text.

A plain message is stored, queued and indexed, and that is all: its properties name nothing of
`STEERING`, and its text looks as clients write it.  Whatever is not plain is put by itself.

The kernel ``flintmq.kernels.plain_properties`` judges by the same rule and the same names.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from flintmq.format.java import encoded_tags_code
from flintmq.format.stored.dispatch_fields import (
    KEYS,
    TAGS,
    UNIQ_KEY,
    has_dispatched,
    split_keys,
)
from flintmq.model import property_names

if TYPE_CHECKING:
    from collections.abc import Sequence

ORDER_COUNT_MAX: Final = 8192
"""Orders of names that are remembered; clients can make up as many as they like."""

NAME_COUNT_MAX: Final = 64
"""Properties of a message whose names are remembered."""

NAMES_SIZE_MAX: Final = 1024
"""Bytes of all names in an order that is remembered."""

BATCH_TEXT_COUNT_MAX: Final = 8192
BATCH_TEXT_SIZE_MAX: Final = 1024
"""Properties of batches that are remembered, and how long each may be."""

_NAME_END: Final = b"\x01"
_PAIR_END: Final = b"\x02"
_WAIT: Final = property_names.WAIT.encode()
_STEERING: Final = frozenset(name.encode() for name in property_names.STEERING)
_WAIT_START: Final = _PAIR_END + _WAIT + _NAME_END
_are_pairs: Final = re.compile(rb"(?:[^\x01\x02]+\x01[^\x01\x02]+\x02)*").fullmatch
"""Matches names and values in turn, none of them empty."""


class NameOrder(NamedTuple):
    """What the names of the properties of a message say, in their order.

    Of a name that matters it has the position of its value among names and values, 0 for none.
    """

    is_plain: bool
    """Whether names are unique and none steers what the broker does."""
    unique_at: int
    keys_at: int
    tags_at: int
    wait_at: int

    @classmethod
    def of(cls, names: tuple[bytes, ...]) -> Self:
        """Judge some names."""
        positions = {name: 2 * number + 1 for number, name in enumerate(names)}
        is_plain = (
            len(positions) == len(names)
            and b"" not in positions
            and positions.keys().isdisjoint(_STEERING)
        )
        return cls(is_plain, *[positions.get(name, 0) for name in (UNIQ_KEY, KEYS, TAGS, _WAIT)])


class PlainProperties:
    """Judges properties texts, and remembers which orders of names it has judged."""

    def __init__(self) -> None:
        self._orders: dict[tuple[bytes, ...], NameOrder] = {}
        self._batch_texts: dict[tuple[bytes, bytes], bytes] = {}

    def judge(self, text: bytes, last: bytes) -> tuple[bytes, Sequence[bytes], int] | None:
        """Return the stored properties of a message, its keys and tags code; None if not plain.

        ``last`` are properties that the message gets behind its own.  The messages of a producer
        have the same names in the same order, so these are judged once.
        """
        if text and text[-1] != 2:
            text += _PAIR_END
        parts = text.replace(_NAME_END, _PAIR_END).split(_PAIR_END)
        names = tuple(parts[:-1:2])
        order = self._orders.get(names) or self._new_order(names)
        if not order.is_plain or _are_pairs(text) is None:
            return None
        _, unique_at, keys_at, tags_at, wait_at = order
        if wait_at == 1:
            text = text[len(_WAIT) + len(parts[1]) + 2 :]
        elif wait_at:
            text = text.replace(_WAIT_START + parts[wait_at] + _PAIR_END, _PAIR_END, 1)
        return (
            text + last,
            split_keys(parts[unique_at] if unique_at else b"", parts[keys_at] if keys_at else b""),
            encoded_tags_code(parts[tags_at]) if tags_at else 0,
        )

    def judge_batch(self, text: bytes, last: bytes) -> bytes | None:
        """Return the properties that the messages of a batch get behind their own.

        None means that the batch is not plain: keys and tags of a whole batch are none of it.
        """
        known = self._batch_texts.get((text, last))
        if known is not None:
            return known
        if len(text) > BATCH_TEXT_SIZE_MAX:
            return None
        judged = self.judge(text, last)
        if judged is None or has_dispatched(text):
            return None
        if len(self._batch_texts) >= BATCH_TEXT_COUNT_MAX:
            self._batch_texts.clear()
        self._batch_texts[text, last] = judged[0]
        return judged[0]

    def _new_order(self, names: tuple[bytes, ...]) -> NameOrder:
        order = NameOrder.of(names)
        if len(names) <= NAME_COUNT_MAX and sum(map(len, names)) <= NAMES_SIZE_MAX:
            if len(self._orders) >= ORDER_COUNT_MAX:
                self._orders.clear()
            self._orders[names] = order
        return order
