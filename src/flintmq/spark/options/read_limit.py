"""How much a micro-batch may read, as the options of a stream say."""

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
)


def read_limit(*, bytes_max: int | None, rows_max: int | None) -> ReadLimit:
    """Return the limit of a micro-batch; Spark takes only one of the two that options may set."""
    if bytes_max is not None:
        return ReadMaxBytes(bytes_max)
    if rows_max is not None:
        return ReadMaxRows(rows_max)
    return ReadAllAvailable()
