"""The mark of a row: what a message that the sink sends says about where it came from.

It is a property of the message, with these fields joined by slashes:

    query       id of the streaming query, or of the batch write
    batch       number of the micro-batch
    partition   number of the task's partition
    sequence    number of the row within the partition
    checksum    CRC-32 of the row, in hexadecimal
    floor       end of the queue when the query chose its queues; none of its messages is before
    level       delay level, 0 for none

A row that is sent again has the same mark if the task sees the same rows in the same order.
If it does not, the checksum keeps two different rows from being taken for one.
"""

import re
from typing import Final, NamedTuple, Self

ROW_MARK: Final = "FLINTMQ_ROW"
"""The name of the property."""

MARK_LENGTH_MAX: Final = 256
_WRITE_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MARK: Final = re.compile(
    r"([A-Za-z0-9_-]{1,64})/([0-9]{1,18})/([0-9]{1,9})/([0-9]{1,18})/([0-9a-f]{8})"
    r"/([0-9]{1,18})/([0-9]{1,4})"
)


class BatchSequence(NamedTuple):
    """Messages of one query whose batches follow each other in a queue.

    What is delayed arrives later than what is not, but in the order of its own level.
    """

    query: str
    level: int


class RowMark(NamedTuple):
    """The mark of one row; the module explains its fields."""

    query: str
    batch: int
    partition: int
    sequence: int
    checksum: int
    floor: int = 0
    level: int = 0

    @property
    def batch_sequence(self) -> BatchSequence:
        """The messages that this mark is compared with."""
        return BatchSequence(self.query, self.level)

    @property
    def text(self) -> str:
        """The value of the property."""
        return (
            f"{self.query}/{self.batch}/{self.partition}/{self.sequence}/{self.checksum:08x}"
            f"/{self.floor}/{self.level}"
        )

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """Return the mark that a property holds; None if it is none, whoever wrote it."""
        if text is None or len(text) > MARK_LENGTH_MAX:
            return None
        match = _MARK.fullmatch(text)
        if match is None:
            return None
        query, batch, partition, sequence, checksum, floor, level = match.groups()
        return cls(
            query,
            int(batch),
            int(partition),
            int(sequence),
            int(checksum, 16),
            int(floor),
            int(level),
        )


def is_write_id(text: str) -> bool:
    """Whether a text can be the query of a mark."""
    return _WRITE_ID.fullmatch(text) is not None
