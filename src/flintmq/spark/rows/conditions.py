"""Conditions on rows that are checked on whole Arrow batches: offsets of queues, tags, keys.

``RowFilter`` leaves out records by their fixed fields before rows are built.  What needs the
properties, or a bound for each queue, is done here.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import EqualTo, Filter, In, IsNotNull

from flintmq.spark.options.offset_bounds import OffsetBounds
from flintmq.spark.options.store_options import ReadOptions
from flintmq.spark.rows.columns import MESSAGE_OR_DAMAGE

_TEXTS: Final = ("tags", "keys")
_OFFSET_COLUMNS: Final = ("topic", "queueId", "queueOffset", "brokerName")
_KEY_COLUMNS: Final = ("keys", "msgId", "offsetMsgId")


@dataclass(slots=True)
class RowConditions:
    """Which rows are wanted.

    ``tags`` and ``keys`` come from options: a damaged range, which has neither, stays.  A key is
    one of the words of KEYS, or the unique id.  ``equal`` and ``not_null`` come from Spark and
    compare whole columns as SQL does, which leaves out null.
    """

    offsets: OffsetBounds
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    equal: dict[str, frozenset[str]] = field(default_factory=dict)
    not_null: set[str] = field(default_factory=set)

    @classmethod
    def from_options(cls, options: ReadOptions) -> "RowConditions":
        """Return the conditions that the options state."""
        return cls(options.offsets, options.tags, options.keys)

    def push(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Take over the filters on tags and keys, yield the others."""
        for one in filters:
            if not self._take(one):
                yield one

    def _take(self, one: Filter) -> bool:
        column = getattr(one, "attribute", None)
        if column is None or len(column) != 1 or column[0] not in _TEXTS:
            return False
        name = column[0]
        if isinstance(one, IsNotNull):
            self.not_null.add(name)
            return True
        values: list[object] = []
        if isinstance(one, EqualTo):
            values = [one.value]
        elif isinstance(one, In):
            # No value is equal to null, so null in a list adds nothing.
            values = [value for value in one.value if value is not None]
        else:
            return False
        texts = frozenset(value for value in values if isinstance(value, str))
        if len(texts) != len(set(values)):
            return False
        self.equal[name] = self.equal[name] & texts if name in self.equal else texts
        return True

    @property
    def wanted_keys(self) -> frozenset[str] | None:
        """Keys of which every wanted row has at least one; None if the conditions name no keys."""
        if self.keys is not None:
            return self.keys
        columns = self.equal.get("keys")
        words = None if columns is None else [text.split(" ") for text in columns]
        # A text of blanks alone has no word to look for.
        if words is None or not all(any(found) for found in words):
            return None
        return frozenset(next(filter(None, found)) for found in words)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the conditions look at."""
        needed = {*self.equal, *self.not_null}
        if not self.offsets.is_open:
            needed.update(_OFFSET_COLUMNS)
        if self.tags is not None:
            needed.add("tags")
        if self.keys is not None:
            needed.update(_KEY_COLUMNS)
        if needed:
            needed.add("topic")  # It is null where there is only damage.
        return frozenset(needed)

    def widen(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema with the columns that the conditions look at, besides its own."""
        missing = sorted(self.columns.difference(schema.names))
        kinds = MESSAGE_OR_DAMAGE.kinds
        return pa.schema([*schema, *(pa.field(name, kinds[name][1]) for name in missing)])

    def apply(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return the wanted rows of a batch of the widened schema, in the given one."""
        mask = self._mask(batch)
        if mask is not None:
            batch = batch.filter(mask)
        if batch.num_columns == len(schema):
            return batch
        columns = [batch.column(name) for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _mask(self, batch: pa.RecordBatch) -> pa.Array | None:
        # Here and below: planning knows conditions too, and computes nothing.
        import pyarrow.compute as pc

        optional: list[pa.Array] = []
        if self.tags is not None:
            optional.append(_is_one_of(batch.column("tags"), self.tags))
        if self.keys is not None:
            optional.append(_has_key(batch, self.keys))
        if not self.offsets.is_open:
            optional.append(_within(batch, self.offsets))
        mask: pa.Array | None = None
        for one in optional:
            mask = one if mask is None else pc.and_(mask, one)
        if mask is not None:
            mask = pc.or_(mask, pc.is_null(batch.column("topic")))
        for name, texts in self.equal.items():
            one = _is_one_of(batch.column(name), texts)
            mask = one if mask is None else pc.and_(mask, one)
        for name in self.not_null:
            one = pc.is_valid(batch.column(name))
            mask = one if mask is None else pc.and_(mask, one)
        return mask


def _is_one_of(column: pa.Array, texts: frozenset[str]) -> pa.Array:
    import pyarrow.compute as pc

    found = pc.is_in(column, value_set=pa.array(sorted(texts), pa.string()))
    return pc.fill_null(found, False)


def _has_key(batch: pa.RecordBatch, keys: frozenset[str]) -> pa.Array:
    import pyarrow.compute as pc

    # The index does not know the ids that are only offsets in the log, so they are no keys.
    unique = pc.and_(
        _is_one_of(batch.column("msgId"), keys),
        pc.not_equal(batch.column("msgId"), batch.column("offsetMsgId")),
    )
    # In KEYS a blank stands between words; with one at each end, every word is between blanks.
    words = pc.binary_join_element_wise("", batch.column("keys"), "", " ")
    found = pc.fill_null(unique, False)
    for key in sorted(keys):
        hit = pc.match_substring(words, f" {key} ")
        found = pc.or_(found, pc.fill_null(hit, False))
    return found


def _within(batch: pa.RecordBatch, offsets: OffsetBounds) -> pa.Array:
    """Return which rows lie between the bounds of their queue."""
    topics = batch.column("topic").dictionary_encode()
    codes = topics.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    queue_ids = batch.column("queueId").fill_null(0).to_numpy(zero_copy_only=False)
    queue_offsets = batch.column("queueOffset").fill_null(0).to_numpy(zero_copy_only=False)
    names = topics.dictionary.to_pylist()
    brokers = batch.column("brokerName")
    broker = brokers[0].as_py() if len(brokers) else None
    keep = np.ones(batch.num_rows, bool)
    pairs = np.stack([codes, queue_ids.astype(np.int64)], axis=1)
    for code, queue_id in np.unique(pairs, axis=0).tolist():
        if code < 0:
            continue
        start, end = offsets.bounds(broker, (names[code], queue_id))
        if start is None and end is None:
            continue
        rows = (codes == code) & (queue_ids == queue_id)
        if start is not None:
            keep &= ~rows | (queue_offsets >= start)
        if end is not None:
            keep &= ~rows | (queue_offsets < end)
    return pa.array(keep)
