"""The table ``groups``: what config/subscriptionGroup.json says of each consumer group."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from flintmq.offline.layout import find_store
from flintmq.spark.columns import BOOLEAN, INT, LONG, STRING, ColumnSet
from flintmq.spark.options import ReadOptions
from flintmq.spark.tables.reader import StoreSplit, root_of
from flintmq.spark.tables.state import members, read_state, typed

_FIELDS: Final = {
    "consumeEnable": BOOLEAN,
    "consumeFromMinEnable": BOOLEAN,
    "consumeBroadcastEnable": BOOLEAN,
    "retryQueueNums": INT,
    "retryMaxTimes": INT,
    "brokerId": LONG,
    "whichBrokerWhenConsumeSlowly": LONG,
    "notifyConsumerIdsChangedEnable": BOOLEAN,
}


class GroupTable:
    """One row for each consumer group that the broker knows."""

    columns = ColumnSet({"group": STRING, **_FIELDS, "brokerName": STRING, "path": STRING})

    def splits(self, store: StoreSplit, options: ReadOptions) -> Sequence[StoreSplit]:
        """Return the store itself: it has one small file."""
        return [store]

    def rows(
        self, split: StoreSplit, options: ReadOptions
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield all groups at once."""
        state = read_state(find_store(root_of(split)), "subscriptionGroup.json")
        found = dict(members(state, "subscriptionGroupTable"))
        columns: dict[str, list[Any]] = {
            name: [typed(config.get(name), name, self.columns) for config in found.values()]
            for name in _FIELDS
        }
        yield len(found), {"group": list(found), **columns}
