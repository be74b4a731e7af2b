"""SQL92 expressions over the properties of messages: compiled once, then asked for each message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.filter.errors import EvaluationError, SqlFilterError
from flintmq.filter.expression_limits import LENGTH_MAX
from flintmq.filter.java_places import java_units
from flintmq.model.steps import finish

if TYPE_CHECKING:
    from flintmq.filter.nodes import Node, Properties, Value
    from flintmq.model.steps import Steps


class CompiledExpression:
    """An expression that can be asked whether it holds for a message."""

    __slots__ = ("_root", "ignored", "text")

    def __init__(self, text: str, root: Node, ignored: str) -> None:
        self.text = text
        self._root = root
        self.ignored = ignored
        """What stands behind the complete expression; like Java, we do not look at it."""

    @property
    def cost(self) -> int:
        """How many steps a message costs at most."""
        return 1 + self._root.operand_count

    def evaluate(self, properties: Properties) -> Value:
        """Return true, false or None, which is NULL; EvaluationError where Java fails too."""
        return self._root.evaluate(properties)

    def matches(self, properties: Properties) -> bool:
        """Whether it is true: neither false nor NULL, nor an error."""
        try:
            return self._root.evaluate(properties) is True
        except EvaluationError:
            return False


def compile_sql(text: str) -> CompiledExpression:
    """Compile an expression; SqlFilterError with RocketMQ's remark if it is wrong."""
    return finish(compile_in_steps(text))


def compile_in_steps(text: str) -> Steps[CompiledExpression]:
    """Do what `compile_sql` does, and yield wherever it may be interrupted."""
    if len(text) > LENGTH_MAX:
        raise SqlFilterError(
            f"an expression of {len(text)} characters; at most {LENGTH_MAX} are taken"
        )
    # Few brokers have such subscriptions, and the parser library takes a while to load.
    from flintmq.filter.parser import parse

    units = java_units(text)
    parsed = yield from parse(units)
    ignored = "" if parsed.end is None else units[parsed.end :]
    return CompiledExpression(text, parsed.root, ignored)


def load_parser() -> None:
    """Load the parser library and make its tables: that takes too long for whoever serves others.

    Any thread may do it.
    """
    compile_sql("TRUE")
