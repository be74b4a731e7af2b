"""The parts of a compiled expression: what each is worth for the properties of a message.

A value is a text, a number, a truth or None, which is SQL's NULL: neither true nor false.  Where
Java's evaluator is peculiar, so is this one, since both must choose the same messages:

- ``missing = 'x'`` is NULL, but ``'x' = missing`` is false;
- a property by itself is false, whatever it holds, and NULL if it is missing;
- a truth that is compared with a text on its right is an error, with a number it is false;
- minus a text is NULL.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Final, TypeAlias

from flintmq.filter.errors import EvaluationError, SqlFilterError
from flintmq.filter.expression_limits import DEPTH_MAX, OPERAND_COUNT_MAX
from flintmq.filter.java_numbers import (
    Long,
    compare_doubles,
    double_text,
    read_double,
    read_integer,
)

Value: TypeAlias = str | bool | int | float | None
Properties: TypeAlias = Mapping[str, str]


_COMPARISONS: Final[dict[str, Callable[[int], bool]]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(ABC):
    """A part of an expression."""

    depth: int = field(default=0, init=False)
    operand_count: int = field(default=0, init=False)

    is_boolean = False
    """Whether its value can only be true, false or NULL."""

    @abstractmethod
    def evaluate(self, properties: Properties) -> Value:
        """Return the value for a message; EvaluationError if there is none."""

    @abstractmethod
    def text(self) -> str:
        """Return how Java prints it in its remarks."""

    def _contain(self, *operands: Node) -> None:
        """Note that this is an operation on others; SqlFilterError if there is too much in it."""
        self._set_size(
            depth=1 + max(one.depth for one in operands),
            count=len(operands) + sum(one.operand_count for one in operands),
        )

    def _set_size(self, *, depth: int, count: int) -> None:
        if depth > DEPTH_MAX:
            raise SqlFilterError(f"more than {DEPTH_MAX} operations inside each other")
        if count > OPERAND_COUNT_MAX:
            raise SqlFilterError(f"more than {OPERAND_COUNT_MAX} operands")
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "operand_count", count)


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """A literal."""

    value: Value

    def evaluate(self, properties: Properties) -> Value:
        """Return the literal."""
        return self.value

    def text(self) -> str:
        """Return the literal as SQL has it."""
        if isinstance(self.value, str):
            return "'" + self.value.replace("'", "''") + "'"
        if self.value is None:
            return "NULL"
        if isinstance(self.value, bool):
            return str(self.value).upper()
        return double_text(self.value) if isinstance(self.value, float) else str(int(self.value))


@dataclass(frozen=True, slots=True)
class BooleanConstant(Constant):
    """TRUE, FALSE or NULL."""

    is_boolean = True


@dataclass(frozen=True, slots=True)
class Property(Node):
    """A property of a message, NULL where it has none of that name."""

    name: str

    def evaluate(self, properties: Properties) -> Value:
        """Return what the message has."""
        return properties.get(self.name)

    def text(self) -> str:
        """Return the name."""
        return self.name


@dataclass(frozen=True, slots=True)
class PropertyCondition(Node):
    """A property where a condition is expected: it is never true, since it holds a text."""

    property: Property
    is_boolean = True

    def evaluate(self, properties: Properties) -> Value:
        """Return false, or NULL if the property is missing."""
        return None if self.property.evaluate(properties) is None else False

    def text(self) -> str:
        """Return the name."""
        return self.property.text()


@dataclass(frozen=True, slots=True)
class Negation(Node):
    """A minus before something."""

    operand: Node

    def __post_init__(self) -> None:
        self._contain(self.operand)

    def evaluate(self, properties: Properties) -> Value:
        """Return a number with its sign changed; NULL for what is no number."""
        value = self.operand.evaluate(properties)
        if value is None or isinstance(value, str | bool):
            return None
        return Long(-value) if isinstance(value, Long) else -value

    def text(self) -> str:
        """Return the operand with a minus."""
        return f"(- {self.operand.text()})"


@dataclass(frozen=True, slots=True)
class Not(Node):
    """A condition turned round."""

    operand: Node
    is_boolean = True

    def __post_init__(self) -> None:
        self._contain(self.operand)

    def evaluate(self, properties: Properties) -> Value:
        """Return the opposite, NULL for NULL."""
        value = self.operand.evaluate(properties)
        return None if value is None else not value

    def text(self) -> str:
        """Return the operand with a NOT."""
        return f"(NOT {self.operand.text()})"


@dataclass(frozen=True, slots=True)
class Logic(Node):
    """Conditions with AND or OR between them, judged from left to right until one decides."""

    is_and: bool
    operands: tuple[Node, ...]
    extended: InitVar[Logic | None]
    """The chain that is continued here by its last operand; so a long one is not counted anew."""
    is_boolean = True

    def __post_init__(self, extended: Logic | None) -> None:
        if extended is None:
            self._contain(*self.operands)
        else:
            last = self.operands[-1]
            self._set_size(
                depth=max(extended.depth, 1 + last.depth),
                count=extended.operand_count + 1 + last.operand_count,
            )

    def evaluate(self, properties: Properties) -> Value:
        """Return what decides; NULL if nothing does and one of them is NULL."""
        deciding = not self.is_and
        outcome: Value = self.is_and
        for operand in self.operands:
            value = operand.evaluate(properties)
            if value is deciding:
                return deciding
            if value is None:
                outcome = None
        return outcome

    def text(self) -> str:
        """Return the operands in pairs, the first two innermost."""
        sign = "&&" if self.is_and else "||"
        first, *others = (one.text() for one in self.operands)
        return "(" * len(others) + first + "".join(f" {sign} {one})" for one in others)


@dataclass(frozen=True, slots=True)
class Equality(Node):
    """Two values with ``=`` between them."""

    left: Node
    right: Node
    is_boolean = True

    def __post_init__(self) -> None:
        self._contain(self.left, self.right)

    def evaluate(self, properties: Properties) -> Value:
        """Return whether both are equal; what is missing on the left makes it NULL."""
        left, right = self.left.evaluate(properties), self.right.evaluate(properties)
        if left is None:
            return True if right is None else None
        if right is None:
            return False
        if isinstance(left, bool):
            if isinstance(right, str):
                raise EvaluationError("a truth cannot be compared with a text")
            return isinstance(right, bool) and left is right
        if isinstance(right, bool):
            return isinstance(left, str) and _is_true(left) is right
        if isinstance(left, str) and isinstance(right, str):
            return left == right
        return order(left, right) == 0

    def text(self) -> str:
        """Return both sides."""
        return f"({self.left.text()} == {self.right.text()})"


@dataclass(frozen=True, slots=True)
class IsNull(Node):
    """Whether something is NULL."""

    operand: Node
    is_boolean = True

    def __post_init__(self) -> None:
        self._contain(self.operand)

    def evaluate(self, properties: Properties) -> Value:
        """Return whether it is."""
        return self.operand.evaluate(properties) is None

    def text(self) -> str:
        """Return the comparison that Java makes of it."""
        return f"({self.operand.text()} == NULL)"


@dataclass(frozen=True, slots=True)
class Comparison(Node):
    """Two values with one of ``>``, ``>=``, ``<`` and ``<=`` between them."""

    left: Node
    sign: str
    right: Node
    is_boolean = True

    def __post_init__(self) -> None:
        self._contain(self.left, self.right)

    def evaluate(self, properties: Properties) -> Value:
        """Return whether it holds, NULL if either is missing."""
        left = self.left.evaluate(properties)
        if left is None:
            return None
        right = self.right.evaluate(properties)
        if right is None:
            return None
        if isinstance(left, str) and isinstance(right, str):
            left, right = read_double(left), read_double(right)
        return _COMPARISONS[self.sign](order(left, right))

    def text(self) -> str:
        """Return both sides."""
        return f"({self.left.text()} {self.sign} {self.right.text()})"


@dataclass(frozen=True, slots=True)
class Membership(Node):
    """Whether a property is one of some texts, or none of them."""

    property: Property
    items: tuple[str, ...]
    is_inverted: bool
    _items: frozenset[str] = field(init=False)
    is_boolean = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "_items", frozenset(self.items))
        self._contain(self.property)

    def evaluate(self, properties: Properties) -> Value:
        """Return whether it is, NULL if it is missing."""
        value = self.property.evaluate(properties)
        return None if value is None else (value in self._items) is not self.is_inverted

    def text(self) -> str:
        """Return the property and the texts, without quotes."""
        sign = "NOT IN" if self.is_inverted else "IN"
        return f"{self.property.text()} {sign} ( {', '.join(self.items)} )"


def order(left: Value, right: Value) -> int:
    """Compare numbers, or a text with a number that says as what it is to be read."""
    if isinstance(left, str):
        left = _read_like(left, right)
    elif isinstance(right, str):
        right = _read_like(right, left)
    assert isinstance(left, int | float)
    assert isinstance(right, int | float)
    if isinstance(left, int) and isinstance(right, int):
        return (left > right) - (left < right)
    return compare_doubles(float(left), float(right))


def _is_true(text: str) -> bool:
    # No text of another length is "true" in small letters, and a property may be very long.
    return len(text) == len("true") and text.lower() == "true"


def _read_like(text: str, number: Value) -> int | float:
    if isinstance(number, float):
        return read_double(text)
    assert isinstance(number, int)
    return read_integer(text, number)
