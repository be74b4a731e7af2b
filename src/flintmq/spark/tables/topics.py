"""The table ``topics``: what config/topics.json says of each topic."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from flintmq.offline.layout import find_store
from flintmq.spark.columns import BOOLEAN, INT, STRING, ColumnSet
from flintmq.spark.options import ReadOptions
from flintmq.spark.tables.reader import StoreSplit, root_of
from flintmq.spark.tables.state import members, read_state, typed

_FIELDS: Final = {
    "readQueueNums": INT,
    "writeQueueNums": INT,
    "perm": INT,
    "topicFilterType": STRING,
    "topicSysFlag": INT,
    "order": BOOLEAN,
}


class TopicTable:
    """One row for each topic that the broker knows."""

    columns = ColumnSet({"topic": STRING, **_FIELDS, "brokerName": STRING, "path": STRING})

    def splits(self, store: StoreSplit, options: ReadOptions) -> Sequence[StoreSplit]:
        """Return the store itself: it has one small file."""
        return [store]

    def rows(
        self, split: StoreSplit, options: ReadOptions
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield all topics at once."""
        state = read_state(find_store(root_of(split)), "topics.json")
        found = {
            topic: config
            for topic, config in members(state, "topicConfigTable")
            if options.topics is None or topic in options.topics
        }
        columns: dict[str, list[Any]] = {
            name: [typed(config.get(name), name, self.columns) for config in found.values()]
            for name in _FIELDS
        }
        yield len(found), {"topic": list(found), **columns}
