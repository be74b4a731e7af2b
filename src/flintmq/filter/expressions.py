"""Expressions put together from their parts, with the checks that Java makes while it parses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.filter.errors import EvaluationError, SqlFilterError
from flintmq.filter.java_numbers import Long, double_text
from flintmq.filter.java_places import joined_units
from flintmq.filter.nodes import (
    BooleanConstant,
    Comparison,
    Constant,
    Equality,
    Logic,
    Membership,
    Node,
    Not,
    Property,
    PropertyCondition,
    Value,
    order,
)
from flintmq.format.java import parse_int

if TYPE_CHECKING:
    from collections.abc import Sequence

_JAVA_RUNTIME_ERROR: Final = "java.lang.RuntimeException: "
_JAVA_PARSE_ERROR: Final = "org.apache.rocketmq.filter.parser.ParseException: "
_DOUBLE_MAX: Final = 1.7976931348623157e308


def condition(node: Node) -> Node:
    """Return a node as a condition; SqlFilterError if it cannot be one."""
    if node.is_boolean:
        return node
    if isinstance(node, Property):
        return PropertyCondition(node)
    raise SqlFilterError(
        f"{_JAVA_PARSE_ERROR}Expression will not result in a boolean value: {node.text()}"
    )


def string(image: str) -> Node:
    """Return a text from how it is written: in quotes, with quotes inside doubled."""
    return Constant(joined_units(image[1:-1].replace("''", "'")))


def decimal(image: str) -> Node:
    """Return an integer: of 32 bits if it fits, else of 64, whether an L says so or not."""
    digits = image.rstrip("lL")
    value = parse_int(digits, bit_count=64)
    if value is None:
        raise SqlFilterError(f'java.lang.NumberFormatException: For input string: "{digits}"')
    return Constant(Long(value) if value >> 31 else value)


def floating(image: str) -> Node:
    """Return a double; zero and what is too large for one are refused."""
    value = float(image)
    if value > _DOUBLE_MAX:
        raise SqlFilterError(
            f"{_JAVA_RUNTIME_ERROR}{image} is greater than {double_text(_DOUBLE_MAX)}"
        )
    if value == 0:
        raise SqlFilterError(f"{_JAVA_RUNTIME_ERROR}{image} is less than 4.9E-324")
    return Constant(value)


def logic(left: Node, right: Node, *, is_and: bool) -> Node:
    """Return two conditions with AND or OR between them; a chain of them becomes one node."""
    left, right = condition(left), condition(right)
    if isinstance(left, Logic) and left.is_and is is_and:
        return Logic(is_and, (*left.operands, right), left)
    return Logic(is_and, (left, right), None)


def equal(left: Node, right: Node) -> Node:
    """Return whether two values are equal."""
    for one in (left, right):
        if isinstance(one, Constant) and one.value is None:
            raise SqlFilterError(f"{_JAVA_RUNTIME_ERROR}'NULL' cannot be compared.")
    if (
        isinstance(left, BooleanConstant)
        and isinstance(right, Constant)
        and not isinstance(right, BooleanConstant)
    ):
        raise SqlFilterError(
            f"{_JAVA_RUNTIME_ERROR}'{left.text()}' cannot be compared with '{right.text()}'"
        )
    return Equality(left, right)


def compare(left: Node, sign: str, right: Node) -> Node:
    """Return a comparison of numbers, or of properties that hold numbers."""
    for one in (left, right):
        if one.is_boolean or (isinstance(one, Constant) and isinstance(one.value, str)):
            raise SqlFilterError(f"{_JAVA_RUNTIME_ERROR}Value '{one.text()}' cannot be compared.")
    return Comparison(left, sign, right)


def between(operand: Node, low: Node, high: Node, *, is_inverted: bool) -> Node:
    """Return whether a value is within bounds, or outside of them.

    Java looks at constant bounds only where the value shall be within them.
    """
    if not is_inverted and isinstance(low, Constant) and isinstance(high, Constant):
        _check_bounds(low.value, high.value)
    above, below = ("<", ">") if is_inverted else (">=", "<=")
    return logic(
        compare(operand, above, low), compare(operand, below, high), is_and=not is_inverted
    )


def member(operand: Node, images: Sequence[str], *, is_inverted: bool) -> Node:
    """Return whether a property is one of some texts, or none of them."""
    if not isinstance(operand, Property):
        raise SqlFilterError(
            f"{_JAVA_RUNTIME_ERROR}Expected a property for In expression, got: {operand.text()}"
        )
    items = [string(image).evaluate({}) for image in images]
    return Membership(operand, tuple(map(str, items)), is_inverted)


def invert(operand: Node) -> Node:
    """Return a condition turned round."""
    return Not(condition(operand))


def _check_bounds(low: Value, high: Value) -> None:
    """Refuse constant bounds between which nothing can be."""
    if low is None or high is None:
        raise SqlFilterError(
            f"{_JAVA_RUNTIME_ERROR}Illegal values of between, values can not be null!"
        )
    if not _is_ordered(low, high):
        raise SqlFilterError(
            f"{_JAVA_RUNTIME_ERROR}Illegal values of between, left value({_printed(low)}) must "
            f"less than or equal to right value({_printed(high)})"
        )


def _is_ordered(low: Value, high: Value) -> bool:
    if isinstance(low, bool) and isinstance(high, bool):
        return low <= high
    if isinstance(low, bool) or isinstance(high, bool):
        return isinstance(low, str) or isinstance(high, str)  # The comparison refuses these.
    if isinstance(low, str) and isinstance(high, str):
        return low <= high
    try:
        return order(low, high) <= 0
    except EvaluationError as error:
        text = low if isinstance(low, str) else high
        raise SqlFilterError(
            f'{_JAVA_RUNTIME_ERROR}java.lang.NumberFormatException: For input string: "{text}"'
        ) from error


def _printed(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return double_text(value) if isinstance(value, float) else str(value)
