"""What keeps the Spark source from reading as it was asked to."""

from flintmq.errors import FlintError


class SparkSourceError(FlintError):
    """The data source ``flintmq`` cannot do what it was asked to."""


class OptionError(SparkSourceError):
    """An option is unknown, is missing or has a value that means nothing."""


class ColumnError(SparkSourceError):
    """A schema asks for a column that does not exist, or for another type than it has."""


class CorruptLogError(SparkSourceError):
    """A range of the log holds no whole record, and the reader was told to fail then."""

    def __init__(self, path: str, start: int, end: int, reason: str) -> None:
        # The arguments of this class, so that the error survives being pickled.
        super().__init__(path, start, end, reason)
        self.path = path
        self.start = start
        self.end = end
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.path}: damaged from {self.start} to {self.end}: {self.reason} "
            "(the option onCorruptRecord tells what to do: fail, skip or row)"
        )


class SplitError(SparkSourceError):
    """The records of one split do not end where the next split starts."""

    def __init__(self, path: str, end: int, boundary: int) -> None:
        super().__init__(path, end, boundary)
        self.path = path
        self.end = end
        self.boundary = boundary

    def __str__(self) -> str:
        return (
            f"{self.path}: the records go on to {self.end}, while a consume queue leads to "
            f"{self.boundary}; one of them is damaged (a splitSize of the whole file reads the "
            "log without the queues)"
        )


class _PlacedError(SparkSourceError):
    """Something is wrong at one place: a file, a directory, an archive."""

    advice = ""

    def __init__(self, path: str, reason: str) -> None:
        # The arguments of this class, so that the error survives being pickled.
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}{self.advice}"


class RebuildError(_PlacedError):
    """The files that a rebuild has written are not as they should be; the old ones stay."""


class StateError(_PlacedError):
    """A small file of a store, of which a table is made, says nothing that can be used."""


class DataLossError(_PlacedError):
    """What a stream would read next is not in the store any more."""

    advice = " (the option failOnDataLoss=false goes on without it)"


class ArchiveError(_PlacedError):
    """An archive, or a store that it is made of or restored to, is not as it has to be."""
