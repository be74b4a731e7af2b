"""Errors of reading live topics."""

from flintmq.model.message_queue import MessageQueue
from flintmq.spark.errors import SparkSourceError


class LiveError(SparkSourceError):
    """A cluster does not give what it was asked for."""


class UnreachableError(LiveError):
    """No server answered in several attempts; the error names the last cause."""

    def __init__(self, what: str, attempts: int, cause: str) -> None:
        # The arguments of this class, so that the error survives being pickled.
        super().__init__(what, attempts, cause)
        self.what = what
        self.attempts = attempts
        self.cause = cause

    def __str__(self) -> str:
        return f"{self.what}: given up after {self.attempts} attempts: {self.cause}"


class RefusedReadError(LiveError):
    """A server refuses, and would refuse again."""

    def __init__(self, what: str, cause: str) -> None:
        super().__init__(what, cause)
        self.what = what
        self.cause = cause

    def __str__(self) -> str:
        return f"{self.what}: {self.cause}"


class FalseAnswerError(LiveError):
    """A broker has answered with something that is not a sequence of records of the queue."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason)
        self.what = what
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.what}: the answer of the broker makes no sense: {self.reason}"


def queue_text(queue: MessageQueue) -> str:
    """Return how errors and logs name a queue."""
    return f"{queue.topic} queue {queue.queue_id} of {queue.broker_name}"
