"""Where something is wrong in an expression, said as the parser of RocketMQ says it.

Lines and columns count from one, a column is a 16-bit unit of the text, and a tab leads to the next
multiple of eight.
"""

from typing import Final, NamedTuple

TAB_SIZE: Final = 8

_ESCAPES: Final = {
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
    '"': '\\"',
    "'": "\\'",
    "\\": "\\\\",
}


class Place(NamedTuple):
    """A line and a column."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


def java_units(text: str) -> str:
    """Return a text with one character for each 16-bit unit that Java has for it."""
    if text.isascii():
        return text
    data = text.encode("utf-16-be", "surrogatepass")
    return "".join(chr(data[at] << 8 | data[at + 1]) for at in range(0, len(data), 2))


def joined_units(units: str) -> str:
    """Return the text that `java_units` took apart."""
    if units.isascii():
        return units
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


def place_of(units: str, index: int) -> Place:
    """Return the place of a unit of an expression; of nothing, line and column are zero."""
    if not units:
        return Place(0, 0)
    line, column, before = 1, 0, ""
    for unit in units[: index + 1]:
        if before == "\n" or (before == "\r" and unit != "\n"):
            line, column = line + 1, 0
        column += 1
        if unit == "\t":
            column = ((column - 1) // TAB_SIZE + 1) * TAB_SIZE
        before = unit
    return Place(line, column)


def escaped(units: str) -> str:
    """Return a part of an expression with what cannot be printed escaped."""
    return "".join(map(_escaped_unit, units))


def _escaped_unit(unit: str) -> str:
    known = _ESCAPES.get(unit)
    if known is not None:
        return known
    return unit if " " <= unit <= "~" else f"\\u{ord(unit):04x}"


def lexical_error(units: str, start: int) -> str:
    """Return the remark on a part of an expression that begins no token at ``start``."""
    reached = _reached(units, start)
    if reached >= len(units) - 1:
        line, column = place_of(units, len(units) - 1)
        is_line_end = units[-1] in "\r\n"
        place = Place(line + 1, 0) if is_line_end else Place(line, column + 1)
        found, after = "<EOF>", units[start:]
    else:
        place, after = place_of(units, reached), units[start:reached]
        found = f'"{escaped(units[reached])}" ({ord(units[reached])}),'
        return f'Lexical error at {place}.  Encountered: {found} after : "{escaped(after)}"'
    after = escaped(after) if len(after) > 1 else ""
    return f'Lexical error at {place}.  Encountered: {found} after : "{after}"'


def _reached(units: str, start: int) -> int:
    """Return where it became clear that no token begins at ``start``."""
    if units[start] == "'" or units.startswith("/*", start):
        return len(units)  # The text or the comment never ends.
    return start + 1 if units[start] in "./" else start
