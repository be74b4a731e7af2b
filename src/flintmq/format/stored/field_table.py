"""Tables of fields: the one description from which structs and named offsets are computed.

A layout of fixed-size fields is written down once, as pairs of a name and a `struct` code.  Python
packs and reads by structs made from the table.  Kernels and searches import offsets that are
looked up in it, so that no module types such a number by hand.
"""

import struct
from collections.abc import Iterable
from typing import Final

_BIG_ENDIAN: Final = ">"


class FieldTable:
    """Big-endian fields one behind the other, each with a name and a `struct` code."""

    def __init__(self, fields: Iterable[tuple[str, str]]) -> None:
        self.fields: Final = tuple(fields)
        self.struct: Final = struct.Struct(_BIG_ENDIAN + "".join(code for _, code in self.fields))
        self.size: Final = self.struct.size
        self._sizes = {name: struct.calcsize(_BIG_ENDIAN + code) for name, code in self.fields}
        assert len(self._sizes) == len(self.fields), "a name stands twice"

    def at(self, name: str) -> int:
        """Return where the field begins."""
        names = [known for known, _ in self.fields]
        return sum(self._sizes[before] for before in names[: names.index(name)])

    def end_of(self, name: str) -> int:
        """Return where the field ends."""
        return self.at(name) + self._sizes[name]

    def pick(self, *names: str) -> struct.Struct:
        """Return a struct that reads only these fields, in their order, and skips all others.

        It ends with the last of them, so that a source may be cut off behind it.
        """
        codes, picked_end = [], 0
        for name, code in self.fields:
            is_picked = name in names
            codes.append(code if is_picked else f"{self._sizes[name]}x")
            if is_picked:
                picked_end = len(codes)
        assert sum(name in self._sizes for name in names) == len(names), names
        return struct.Struct(_BIG_ENDIAN + "".join(codes[:picked_end]))

    def repeated(self, count: int) -> struct.Struct:
        """Return the struct of ``count`` such entries one behind the other."""
        return struct.Struct(_BIG_ENDIAN + self.struct.format.removeprefix(_BIG_ENDIAN) * count)
