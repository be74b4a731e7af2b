"""Errors of the sink."""

from flintmq.spark.errors import SparkSourceError


class SinkError(SparkSourceError):
    """Rows cannot be written as they were asked to be."""


class RowError(SinkError):
    """A row cannot be sent as a message."""

    def __init__(self, partition: int, sequence: int, reason: str) -> None:
        # The arguments of this class, so that the error survives being pickled.
        super().__init__(partition, sequence, reason)
        self.partition = partition
        self.sequence = sequence
        self.reason = reason

    def __str__(self) -> str:
        return f"row {self.sequence} of partition {self.partition}: {self.reason}"


class SendError(SinkError):
    """Messages were not acknowledged; some of them may be stored all the same."""

    def __init__(self, reason: str, acknowledged: int) -> None:
        super().__init__(reason, acknowledged)
        self.reason = reason
        self.acknowledged = acknowledged

    def __str__(self) -> str:
        return f"{self.reason} ({self.acknowledged} messages of this task were acknowledged)"
