"""What a consumer group wants of a topic."""

from typing import Final

from flintmq.model.value_class import Value, value_class

TAG: Final = "TAG"
SQL92: Final = "SQL92"
EVERYTHING: Final = "*"


@value_class
class Subscription(Value):
    """A topic and the expression by which its messages are chosen.

    ``codes`` are the Java hashes of ``tags``; a broker compares them with its queues.
    """

    topic: str
    expression: str = EVERYTHING
    expression_type: str = TAG
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()
    version: int = 0
    class_filter_mode: bool = False

    @property
    def is_tag(self) -> bool:
        """Whether tags decide; otherwise the expression is SQL92."""
        return self.expression_type == TAG

    @property
    def wants_all(self) -> bool:
        """Whether every message is wanted."""
        return self.is_tag and self.expression == EVERYTHING
