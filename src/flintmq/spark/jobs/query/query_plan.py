"""What a query needs of its views, read off the plan that Spark has optimised.

A Python data source is not told which columns a query uses, nor, safely, which filters.  So the
query is planned once over views that hold nothing.  In the optimised plan a column that no
operator refers to cannot change the answer, whatever it holds; and a condition that stands right
above a view holds for every row of it that counts.

Everything here errs to the side of reading more: what is not understood prunes nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

TOPICS_MAX: Final = 1000
_LOGICAL: Final = "org.apache.spark.sql.catalyst.plans.logical."
_EXPRESSIONS: Final = "org.apache.spark.sql.catalyst.expressions."
_VIEW_LEAF: Final = "org.apache.spark.sql.execution.LogicalRDD"
# Operators whose own references are all that they look at; any other uses all it is given.
_KNOWN: Final = frozenset(
    _LOGICAL + name
    for name in (
        "Aggregate",
        "Expand",
        "Filter",
        "Generate",
        "GlobalLimit",
        "Join",
        "LocalLimit",
        "Offset",
        "Project",
        "Sort",
        "Window",
        "WindowGroupLimit",
    )
)
_STRING: Final = "string"


@dataclass(slots=True)
class ViewNeeds:
    """What the plan uses of one view: columns, and the topics it can be restricted to.

    ``topics`` is None where some use of the view is not restricted to any.
    """

    columns: set[str] = field(default_factory=set)
    topics: set[str] | None = field(default_factory=set)

    def add(self, columns: set[str], topics: set[str] | None) -> None:
        """Add one use of the view."""
        self.columns |= columns
        if self.topics is not None:
            self.topics = None if topics is None else self.topics | topics


def view_needs(query: DataFrame, views: Mapping[str, StructType]) -> dict[str, ViewNeeds]:
    """Return what ``query`` needs of those of the views that it uses.

    A view is known by its column names, which differ from those of every other view.
    """
    names = {tuple(schema.fieldNames()): name for name, schema in views.items()}
    assert len(names) == len(views)
    plan: Any = query._jdf.queryExecution().optimizedPlan()
    roots = [plan, *_items(plan.subqueriesAll())]
    used = {number for root in roots for number in _used_numbers(root)}
    needs: dict[str, ViewNeeds] = {}
    for leaf, parent in (found for root in roots for found in _leaves(root, None)):
        attributes = _items(leaf.output())
        view = names.get(tuple(attribute.name() for attribute in attributes))
        if view is not None:
            columns = {one.name() for one in attributes if _number(one) in used}
            needs.setdefault(view, ViewNeeds()).add(columns, _topics(parent, attributes))
    return needs


def _used_numbers(root: Any) -> Iterator[int]:
    """Yield the numbers of all attributes that operators of a plan, or its reader, look at."""
    yield from _numbers(root.outputSet())
    for node in _nodes(root):
        yield from _numbers(node.references())
        if _class_name(node) not in _KNOWN:
            for child in _items(node.children()):
                yield from _numbers(child.outputSet())


def _nodes(root: Any) -> Iterator[Any]:
    yield root
    for child in _items(root.children()):
        yield from _nodes(child)


def _leaves(node: Any, parent: Any) -> Iterator[tuple[Any, Any]]:
    if _class_name(node) == _VIEW_LEAF:
        yield node, parent
    for child in _items(node.children()):
        yield from _leaves(child, node)


def _topics(parent: Any, attributes: list[Any]) -> set[str] | None:
    """Return the topics that a filter right above a view leaves over; None if it names none."""
    if parent is None or _class_name(parent) != f"{_LOGICAL}Filter":
        return None
    topic = [_number(attribute) for attribute in attributes if attribute.name() == "topic"]
    for condition in _conjuncts(parent.condition()):
        found = _equal_texts(condition, topic)
        if found is not None:
            return found
    return None


def _conjuncts(condition: Any) -> Iterator[Any]:
    if _class_name(condition) == f"{_EXPRESSIONS}And":
        yield from _conjuncts(condition.left())
        yield from _conjuncts(condition.right())
    else:
        yield condition


def _equal_texts(condition: Any, numbers: list[int]) -> set[str] | None:
    """Return the texts that an attribute must equal one of; None if that is not what is said."""
    kind = _class_name(condition).removeprefix(_EXPRESSIONS)
    if kind == "EqualTo":
        sides = [condition.left(), condition.right()]
        attributes = [side for side in sides if _is_attribute(side, numbers)]
        others = [side for side in sides if not _is_attribute(side, numbers)]
    elif kind == "In":
        attributes = [one for one in [condition.value()] if _is_attribute(one, numbers)]
        others = _items(condition.list())
    else:
        return None
    texts = [_literal_text(other) for other in others]
    if len(attributes) != 1 or len(texts) > TOPICS_MAX:
        return None
    known = {text for text in texts if text is not None}
    return known if known and len(known) == len(set(texts)) else None


def _is_attribute(expression: Any, numbers: list[int]) -> bool:
    kind = _class_name(expression)
    return kind == f"{_EXPRESSIONS}AttributeReference" and _number(expression) in numbers


def _literal_text(expression: Any) -> str | None:
    # A string with another collation than the plain one has another type.
    if _class_name(expression) != f"{_EXPRESSIONS}Literal":
        return None
    if expression.dataType().simpleString() != _STRING or expression.value() is None:
        return None
    return str(expression.value().toString())


def _numbers(attributes: Any) -> Iterator[int]:
    return (_number(attribute) for attribute in _items(attributes.toSeq()))


def _number(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


def _class_name(one: Any) -> str:
    return str(one.getClass().getName())
