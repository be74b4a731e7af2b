"""Errors of the Spark data source and of the jobs on stores and archives."""

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
            "(the option onCorruptRecord, of jobs --on-corrupt, tells what to do: fail or skip)"
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


class PathError(SparkSourceError):
    """Something is wrong with one file, directory or archive."""

    advice = ""

    def __init__(self, path: str, reason: str) -> None:
        # The arguments of this class, so that the error survives being pickled.
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}{self.advice}"


class RebuildError(PathError):
    """The files that a rebuild has written are not as they should be; the old ones stay."""


class StateError(PathError):
    """A state file of a store, from which a table is read, cannot be understood."""


class DataLossError(PathError):
    """What a stream would read next is not in the store any more."""

    advice = " (the option failOnDataLoss=false goes on without it)"


class ArchiveError(PathError):
    """An archive, or a store that it is made of or restored to, is not as it has to be."""
