"""What can go wrong with an SQL92 expression: it is wrong itself, or it fails on a message."""

from flintmq.errors import FlintError


class SqlFilterError(FlintError):
    """An SQL92 expression cannot be compiled.  The text is the remark that RocketMQ gives."""


class EvaluationError(FlintError):
    """An expression has no value for the properties of a message; the message does not match."""
