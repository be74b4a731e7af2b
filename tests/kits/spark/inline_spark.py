"""Spark in miniature, in this process: for tests that compare many stores and many splits.

It runs the few calls that the jobs make, and sends tasks and answers through pickles as Spark
does.  The tests that use the real session prove that those calls mean the same there.
"""

import pickle
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, cast

from pyspark import cloudpickle
from pyspark.sql import SparkSession


def _sent(value: Any) -> Any:
    dumps = cast(Callable[[Any], bytes], cloudpickle.dumps)
    return pickle.loads(dumps(value))


class InlineBroadcast:
    """Is sent as a number, as Spark's is; the value goes over once."""

    _known: ClassVar[dict[int, "InlineBroadcast"]] = {}

    def __init__(self, value: Any) -> None:
        self.value = _sent(value)
        self._number = len(self._known)
        self._known[self._number] = self

    def __reduce__(self) -> tuple[Callable[[int], "InlineBroadcast"], tuple[int]]:
        return InlineBroadcast._of, (self._number,)

    @classmethod
    def _of(cls, number: int) -> "InlineBroadcast":
        return cls._known[number]


class InlineRdd:
    def __init__(self, partitions: list[list[Any]]) -> None:
        self._partitions = partitions

    def map(self, function: Callable[[Any], Any]) -> "InlineRdd":
        return self._each(lambda _, items: map(_sent(function), items))

    def flatMap(self, function: Callable[[Any], Iterable[Any]]) -> "InlineRdd":
        return self._each(lambda _, items: (found for item in items for found in function(item)))

    def mapPartitionsWithIndex(
        self, function: Callable[[int, Iterable[Any]], Iterable[Any]]
    ) -> "InlineRdd":
        return self._each(_sent(function))

    def repartitionAndSortWithinPartitions(
        self, count: int, partition_of: Callable[[Any], int]
    ) -> "InlineRdd":
        partitions: list[list[Any]] = [[] for _ in range(count)]
        for item in self.collect():
            partitions[partition_of(item[0]) % count].append(item)
        return InlineRdd([sorted(items, key=lambda item: item[0]) for items in partitions])

    def collect(self) -> list[Any]:
        return [_sent(item) for items in self._partitions for item in items]

    def _each(self, function: Callable[[int, Iterable[Any]], Iterable[Any]]) -> "InlineRdd":
        return InlineRdd(
            [list(function(number, items)) for number, items in enumerate(self._partitions)]
        )


class InlineContext:
    defaultParallelism = 2

    def getLocalProperty(self, name: str) -> str | None:
        return None

    def setLocalProperty(self, name: str, value: str | None) -> None:
        """Nobody looks at the names of stages here."""

    def broadcast(self, value: Any) -> InlineBroadcast:
        return InlineBroadcast(value)

    def parallelize(self, items: Iterable[Any], count: int) -> InlineRdd:
        every = list(items)
        bounds = [len(every) * number // count for number in range(count + 1)]
        return InlineRdd([every[bounds[number] : bounds[number + 1]] for number in range(count)])


class InlineSession:
    sparkContext = InlineContext()


def inline_spark() -> SparkSession:
    """Return a session whose tasks run in this process."""
    return cast(SparkSession, InlineSession())
