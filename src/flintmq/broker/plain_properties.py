"""Property strings that hold no surprise, judged by the names in them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from flintmq.format.java import tags_code
from flintmq.format.properties import NAME_END, PAIR_END
from flintmq.model.property_names import (
    CLUSTER,
    DELAY,
    INNER_MULTI_DISPATCH,
    KEYS,
    TAGS,
    TRAN_MSG,
    UNIQ_KEY,
    WAIT,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

SHAPE_COUNT_MAX: Final = 8192
"""Orders of names that are remembered; clients can make up as many as they like."""

SHAPE_NAME_COUNT_MAX: Final = 64
"""Properties of a message whose names are remembered."""

_NOT_PLAIN: Final = frozenset({DELAY, TRAN_MSG, INNER_MULTI_DISPATCH, CLUSTER})
_are_pairs: Final = re.compile(
    f"(?:[^{NAME_END}{PAIR_END}]+{NAME_END}[^{NAME_END}{PAIR_END}]+{PAIR_END})*"
).fullmatch
"""Matches names and values in turn, none of them empty."""
_WAIT_START: Final = PAIR_END + WAIT + NAME_END


class Shape(NamedTuple):
    """What the names of the properties of a message say, in their order.

    Of a name that matters it has where its value stands in the property string, 0 for nowhere.
    """

    is_plain: bool
    """Whether names are unique and none means more than the views have to know."""
    unique_at: int
    keys_at: int
    tags_at: int
    wait_at: int

    @classmethod
    def of(cls, names: tuple[str, ...]) -> Self:
        """Judge some names."""
        places = {name: 2 * number + 1 for number, name in enumerate(names)}
        is_plain = (
            len(places) == len(names)
            and "" not in places
            and _NOT_PLAIN.isdisjoint(places)
            # Its pair is cut out with the end of the one before it.
            and places.get(WAIT) != 1
        )
        return cls(is_plain, *[places.get(name, 0) for name in (UNIQ_KEY, KEYS, TAGS, WAIT)])


class PlainProperties:
    """Judges property strings, and remembers what it saw in them."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, ...], Shape] = {}
        self.last_text = ""
        """Properties that each message gets behind its own."""

    def judge(self, text: str) -> tuple[bytes, Sequence[bytes], int] | None:
        """Return properties as they are stored, their keys and tags code; None if not plain.

        It is what `received_properties` and the appender make of them.  The messages of a
        producer have the same names in the same order, so these are judged once.
        """
        if text and text[-1] != PAIR_END:
            text += PAIR_END
        parts = text.replace(NAME_END, PAIR_END).split(PAIR_END)
        names = tuple(parts[:-1:2])
        shape = self._shapes.get(names) or self._new_shape(names)
        if not shape.is_plain or _are_pairs(text) is None:
            return None
        _, unique_at, keys_at, tags_at, wait_at = shape
        if wait_at:
            text = text.replace(f"{_WAIT_START}{parts[wait_at]}{PAIR_END}", PAIR_END, 1)
        keys = [parts[unique_at].encode()] if unique_at else []
        if keys_at:
            keys += [key.encode() for key in parts[keys_at].split(" ") if key]
        return (
            (text + self.last_text).encode(),
            keys,
            tags_code(parts[tags_at]) if tags_at else 0,
        )

    def _new_shape(self, names: tuple[str, ...]) -> Shape:
        if len(self._shapes) >= SHAPE_COUNT_MAX:
            self._shapes.clear()
        shape = Shape.of(names)
        if len(names) <= SHAPE_NAME_COUNT_MAX:
            self._shapes[names] = shape
        return shape
