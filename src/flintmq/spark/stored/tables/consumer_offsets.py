"""The table ``offsets``: how far each group has come in each queue, and what the queue holds.

``maxOffset - offset`` is the lag of a group.  Both ends of a queue are null where the store has
no such queue.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flintmq.offline.layout import QueueKey, StoreLayout, find_store
from flintmq.offline.log_files import LogFiles
from flintmq.offline.queue_files import QueueFiles
from flintmq.offline.regions import Regions
from flintmq.offline.stat import min_offset
from flintmq.spark.options.store_options import ReadOptions
from flintmq.spark.rows.columns import INT, LONG, STRING, ColumnSet
from flintmq.spark.stored.tables.reader import StoreSplit, root_of
from flintmq.spark.stored.tables.state import members, read_state, typed


class ConsumerOffsetRowSource:
    """One row for each group, topic and queue in config/consumerOffset.json."""

    columns = ColumnSet(
        {
            "group": STRING,
            "topic": STRING,
            "queueId": INT,
            "offset": LONG,
            "minOffset": LONG,
            "maxOffset": LONG,
            "brokerName": STRING,
            "path": STRING,
        }
    )

    def splits(self, store: StoreSplit, options: ReadOptions) -> Sequence[StoreSplit]:
        """Return the store itself: it has one small file."""
        return [store]

    def rows(
        self, split: StoreSplit, options: ReadOptions
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield all offsets at once."""
        layout = find_store(root_of(split))
        found = [
            row
            for row in self._committed(layout)
            if options.topics is None or row[1] in options.topics
        ]
        ends = _ends(layout, {(topic, queue_id) for _, topic, queue_id, _ in found})
        bounds = [ends.get((topic, queue_id), (None, None)) for _, topic, queue_id, _ in found]
        yield (
            len(found),
            {
                "group": [row[0] for row in found],
                "topic": [row[1] for row in found],
                "queueId": [row[2] for row in found],
                "offset": [row[3] for row in found],
                "minOffset": [low for low, _ in bounds],
                "maxOffset": [high for _, high in bounds],
            },
        )

    def _committed(self, layout: StoreLayout) -> Iterator[tuple[str, str, int, int]]:
        state = read_state(layout, "consumerOffset.json")
        for name, queues in members(state, "offsetTable"):
            # A topic cannot hold the separator, a group could in old releases.
            topic, separator, group = name.partition("@")
            for queue_id, offset in queues.items() if separator else ():
                key = typed(_number(queue_id), "queueId", self.columns)
                value = typed(offset, "offset", self.columns)
                if key is not None and value is not None:
                    yield group, topic, key, value


def _number(key: object) -> object:
    # fastjson writes the queue ids bare, other writers may quote them.
    if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= 10:
        return int(key)
    return key


def _ends(layout: StoreLayout, keys: set[QueueKey]) -> dict[QueueKey, tuple[int, int]]:
    """Return the lowest offset that is still kept and the next free one, of known queues."""
    found: dict[QueueKey, tuple[int, int]] = {}
    with Regions(layout.files) as regions:
        queues, log = QueueFiles(layout, regions), LogFiles(layout, regions)
        for key in sorted(keys):
            if key in queues:
                end = queues.end(key)
                found[key] = min_offset(key, queues, log.start, end), end
    return found
