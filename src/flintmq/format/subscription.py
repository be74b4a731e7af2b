"""Subscription expressions: from what a user writes to tags and their codes."""

from flintmq.format.errors import FormatError
from flintmq.format.java import string_hash
from flintmq.model.subscription import EVERYTHING, TAG, Subscription


class ExpressionError(FormatError):
    """A subscription expression cannot be understood."""


def build_subscription(
    topic: str, expression: str | None, expression_type: str | None = TAG, *, version: int = 0
) -> Subscription:
    """Return the subscription to ``topic`` by ``expression``.

    Tags stand with ``||`` between them; nothing or ``*`` means every message.  Other types keep
    the expression as it is.
    """
    if expression_type and expression_type != TAG:
        if not expression:
            raise ExpressionError(f"an empty {expression_type} expression")
        return Subscription(
            topic=topic, expression=expression, expression_type=expression_type, version=version
        )
    if not expression or expression == EVERYTHING:
        return Subscription(topic=topic, version=version)
    tags = frozenset(filter(None, map(str.strip, expression.split("||"))))
    if not tags:
        raise ExpressionError(f"no tag in {expression!r}")
    return Subscription(
        topic=topic,
        expression=expression,
        tags=tags,
        codes=frozenset(map(string_hash, tags)),
        version=version,
    )
