"""What is raised for bytes that contradict their notation."""

import copy
from typing import Self

from flintmq.errors import FlintError


class FormatError(FlintError):
    """Some bytes or text are not what their notation allows.

    Codecs know where in their own input the fault is; a caller that knows the file adds it with
    `located`.
    """

    def __init__(self, reason: str, offset: int | None = None, source: str = "") -> None:
        super().__init__(reason, offset, source)
        self.reason = reason
        self.offset = offset
        self.source = source

    def __str__(self) -> str:
        where = [self.source] if self.source else []
        if self.offset is not None:
            where.append(f"at {self.offset}")
        return ": ".join([*where, self.reason])

    def located(self, source: str, base_offset: int = 0) -> Self:
        """Return this error with ``source`` named and its offset moved by ``base_offset``."""
        moved = copy.copy(self)
        moved.source = source
        if self.offset is not None:
            moved.offset = self.offset + base_offset
        return moved


class CorruptRecordError(FormatError):
    """A commit-log record contradicts its own lengths, magic code, offset or checksum."""


class EndOfRecords(CorruptRecordError):
    """Nothing was ever written where a record was looked for: size and magic are zero."""


class CorruptUnitError(FormatError):
    """A unit of a consume queue or of its extension cannot have been written as it stands."""


class CorruptIndexError(FormatError):
    """A header or an entry of a key index cannot have been written as it stands."""


class CorruptCheckpointError(FormatError):
    """A checkpoint page has the wrong size."""


class PropertiesError(FormatError):
    """Properties cannot be written, or strictly read, as a property string."""


class HostError(FormatError):
    """An address and port have no packed form, or packed bytes have the wrong length."""


class MessageIdError(FormatError):
    """A text is not a message id."""


class DelayLevelsError(FormatError):
    """A list of delay levels has an item that is no duration."""


class StateTextError(FormatError):
    """A state file is not the JSON dialect it should be."""


class CompressionError(FormatError):
    """A body does not decompress, or not within its limit."""


class UnpackedSizeError(CompressionError):
    """A body has more bytes than its limit when it is decompressed."""


class BatchError(FormatError):
    """The body of a batch ends within an item, or holds too many of them."""


class RecordTooLargeError(FormatError):
    """A value does not fit the field that would store it."""

    def __init__(self, field: str, value: int, limit: int) -> None:
        super().__init__(f"{field} is {value}, the limit {limit}")
        # The arguments of this class, so that copies and pickles can be made from them.
        self.args = (field, value, limit)
        self.field = field
        self.value = value
        self.limit = limit
