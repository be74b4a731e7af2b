"""How many rows the scans of a session have given to its queries."""

import re
from typing import Any, Final

from pyspark.sql import SparkSession

_SCANS: Final = ("BatchScan", "Scan parquet")
_ROWS: Final = "number of output rows"
_NOT_DIGITS: Final = re.compile(r"\D")


class ScanMetrics:
    """Counts what is scanned from the moment this object is made.

    Spark keeps metrics by query execution.  A metric that several of them show, as that of a
    cached table, counts once.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext._jsc.sc()
        self._store: Any = spark._jsparkSession.sharedState().statusStore()
        self._first = self._next_execution()

    def rows(self) -> int:
        """Return how many rows came out of scans."""
        counts: dict[int, int] = {}
        for execution in range(self._first, self._next_execution()):
            if self._store.execution(execution).isDefined():
                counts |= self._scans_of(execution)
        return sum(counts.values())

    def _scans_of(self, execution: int) -> dict[int, int]:
        values = self._store.executionMetrics(execution)
        counts = {}
        for node in _items(self._store.planGraph(execution).allNodes()):
            if not node.name().startswith(_SCANS):
                continue
            for metric in _items(node.metrics()):
                value = values.get(metric.accumulatorId())
                if metric.name() == _ROWS and value.isDefined():
                    counts[metric.accumulatorId()] = int(_NOT_DIGITS.sub("", value.get()) or 0)
        return counts

    def _next_execution(self) -> int:
        self._context.listenerBus().waitUntilEmpty()
        executions = self._store.executionsList()
        size = executions.size()
        return int(executions.apply(size - 1).executionId()) + 1 if size else 0


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]
