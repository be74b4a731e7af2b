"""Makes Spark find the data source ``flintmq`` without being told.

Spark looks into top-level modules named ``pyspark_*`` for a class ``DefaultSource``.
"""

from flintmq.spark.source import FlintSource

__all__ = ["DefaultSource"]


class DefaultSource(FlintSource):
    """The data source ``flintmq``."""
