"""Append groups encoded by machine code, where numba is installed.

They are what `flintmq.store.append_group.python_encoder` makes of the same sends.
"""

from __future__ import annotations

from itertools import accumulate, islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

import numpy as np

from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.stored.index_file import file_size
from flintmq.format.stored.record_layout import TOPIC_LENGTH_SIZE
from flintmq.kernels.compiled import as_bytes
from flintmq.kernels.group_buffers import (
    BODY_SIZE_MAX,
    PHYSICAL_OFFSET,
    QUEUE_OFFSET,
    RECORD_SIZE_MAX,
    SEND_COLUMN_COUNT,
    SEND_GIVEN_COUNT,
    START_COLUMN_COUNT,
    START_OFFSET,
    STORE_TIMESTAMP,
    GroupBuffers,
    GroupHosts,
)
from flintmq.kernels.index import insert_entries
from flintmq.kernels.plain_properties import NOT_PLAIN
from flintmq.kernels.sends import encode_sends
from flintmq.store.append_group.batch_items import ITEM_COUNT_MAX
from flintmq.store.append_group.plain_properties import PlainProperties
from flintmq.store.append_group.sends import (
    AppendGroup,
    AppendPosition,
    NotPlainError,
    QueueSlice,
    Sends,
    SendTarget,
    StoredAt,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from flintmq.kernels.group_buffers import Table
    from flintmq.store.append_group.sends import Queue

_Kind: TypeAlias = tuple[SendTarget, bytes]
"""Sends of one kind have one target, and get the same properties behind their own."""

RECORD_BYTES_MAX: Final = 8 << 20
"""Bytes of the records of a group that is encoded here."""

KEY_COUNT_MAX: Final = 4 * ITEM_COUNT_MAX
_OFFSET_SIZE: Final = 8


class HashedKeys:
    """The keys of an append group as their hashes, in log order."""

    __slots__ = ("_hashes", "_offsets", "count")

    def __init__(self, hashes: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]) -> None:
        self.count = len(hashes)
        self._hashes = hashes
        self._offsets = offsets

    @property
    def last_offset(self) -> int:
        """The physical offset of the last message with a key."""
        return int(self._offsets[-1])

    def kept(self) -> HashedKeys:
        """Return a copy that the next group does not change."""
        return HashedKeys(self._hashes.copy(), self._offsets.copy())

    def insert(self, view: memoryview, *, slots: int, first: int, seconds: int) -> int:
        """Write the entries from number ``first`` on; return how many slots are new."""
        file = np.frombuffer(view, np.uint8)
        return int(insert_entries(file, self._hashes, self._offsets, slots, first, seconds))


class StoredColumns:
    """Where the sends of an append group are stored, as the kernels have it.

    Whoever answers in machine code fills in the rows of the sends that answers need.
    """

    __slots__ = ("first_messages", "messages", "sends", "targets")

    def __init__(
        self,
        messages: Table,
        first_messages: npt.NDArray[np.int64],
        sends: Table,
        targets: Table,
    ) -> None:
        self.messages = messages
        """The tables of messages, sends and targets, see `flintmq.kernels.group_buffers`."""
        self.first_messages = first_messages
        self.sends = sends
        self.targets = targets

    def __iter__(self) -> Iterator[StoredAt]:
        """Give the same send by send."""
        firsts = self.first_messages.tolist()
        queue_offsets = self.messages[self.first_messages[:-1], QUEUE_OFFSET].tolist()
        packed = self.messages[:, PHYSICAL_OFFSET].astype(">i8").tobytes()
        for row, queue_offset in enumerate(queue_offsets):
            offsets = packed[firsts[row] * _OFFSET_SIZE : firsts[row + 1] * _OFFSET_SIZE]
            yield StoredAt(queue_offset, offsets)


class TargetTable:
    """The kinds of sends of a group, as the kernels have them."""

    def __init__(self, kinds: Sequence[_Kind]) -> None:
        self.kinds = kinds
        self.queues: dict[Queue, int] = {}
        """The queues, and the row of each in the table of queues."""
        shared = b""
        rows = []
        for target, tail in kinds:
            topic = target.topic_part[TOPIC_LENGTH_SIZE:]
            topic_at, tail_at = len(shared), len(shared) + len(topic)
            shared += topic + tail
            rows.append(
                (
                    self.queues.setdefault(target.queue, len(self.queues)),
                    target.queue_id,
                    target.sys_flag,
                    target.flag,
                    target.reconsume_times,
                    target.key_prefix,
                    topic_at,
                    len(topic),
                    tail_at,
                    len(tail),
                    target.is_batch,
                )
            )
        self.rows = np.array(rows, np.int64)
        self.shared = as_bytes(shared)
        """The topics and tails that the rows point to."""


class EncodedSends(NamedTuple):
    """What kernels have made of the sends of a group, besides what is in the buffers."""

    sends: Table
    send_count: int
    targets: Table
    size: int
    key_count: int


class CompiledEncoder:
    """Encodes append groups by machine code, one after the other and one thread at a time.

    It raises NotPlainError for sends that Python may be able to encode: text that is not ASCII,
    groups that do not fit into its buffers.
    """

    def __init__(self) -> None:
        self._properties = PlainProperties()
        self._targets = TargetTable([])
        """The kinds of the last group: mostly those of the next one too."""
        self._host_names: tuple[bytes, tuple[bytes, ...]] = b"", ()
        self._hosts = GroupHosts.of(b"", ())
        self._start = np.empty(START_COLUMN_COUNT, np.int64)
        self._buffers = GroupBuffers.of(
            record_bytes=RECORD_BYTES_MAX, messages=ITEM_COUNT_MAX, keys=KEY_COUNT_MAX
        )
        self.buffers = cast(GroupBuffers, tuple(self._buffers))
        """Where kernels write to; they look at a plain tuple in half the time."""

    def encode(self, sends: Sends, position: AppendPosition) -> AppendGroup:
        """Return the append group of these sends; see `GroupEncoder`."""
        kinds, kind_rows, texts = self._kinds(sends)
        if kinds != self._targets.kinds:
            self._targets = TargetTable(kinds)
        targets, bodies = self._targets, sends.bodies
        born_hosts = dict.fromkeys(sends.born_hosts)
        host_numbers = {host: number for number, host in enumerate(born_hosts)}
        body_sizes, text_sizes = list(map(len, bodies)), list(map(len, texts))
        body_ends = list(accumulate(body_sizes, initial=0))
        text_ends = accumulate(text_sizes, initial=body_ends.pop())
        count = len(bodies)
        table = np.empty((count, SEND_COLUMN_COUNT), np.int64)
        given = (
            *kind_rows,
            *sends.born_timestamps,
            *body_ends,
            *body_sizes,
            *islice(text_ends, count),
            *text_sizes,
            *map(host_numbers.__getitem__, sends.born_hosts),
        )
        table[:, :SEND_GIVEN_COUNT] = np.array(given, np.int64).reshape((SEND_GIVEN_COUNT, -1)).T
        queues = self.queue_table(targets.queues, position)
        size, key_count = encode_sends(
            as_bytes(b"".join([*bodies, *texts])),
            self.start_of(position),
            table,
            targets.rows,
            queues,
            targets.shared,
            self.hosts_of(position.store_host, tuple(born_hosts)),
            self.buffers,
        )
        if size == NOT_PLAIN:
            raise NotPlainError
        encoded = EncodedSends(table, count, targets.rows, size, key_count)
        return self.group(position, encoded, targets.queues, queues)

    def start_of(self, position: AppendPosition) -> npt.NDArray[np.int64]:
        """Return where a group begins as kernels have it; good until the next one."""
        start = self._start
        start[START_OFFSET] = position.physical_offset
        start[STORE_TIMESTAMP] = position.store_timestamp
        start[RECORD_SIZE_MAX] = position.record_size_max
        start[BODY_SIZE_MAX] = position.body_size_max
        return start

    @staticmethod
    def queue_table(queues: Iterable[Queue], position: AppendPosition) -> Table:
        """Return the table of queues as it is before a group."""
        next_offset = position.next_offsets.get
        return np.array([(next_offset(queue, 0), 0, 0) for queue in queues], np.int64)

    def hosts_of(self, store_host: bytes, born_hosts: tuple[bytes, ...]) -> GroupHosts:
        """Return the hosts of a group as kernels have them: mostly those of the last one."""
        if (store_host, born_hosts) != self._host_names:
            self._host_names = store_host, born_hosts
            self._hosts = cast(GroupHosts, tuple(GroupHosts.of(store_host, born_hosts)))
        return self._hosts

    def _kinds(self, sends: Sends) -> tuple[list[_Kind], Iterable[int], Sequence[bytes]]:
        """Return the kinds of sends, the number of the kind of each send, and their texts."""
        targets, last = sends.targets, sends.last_properties
        distinct = dict.fromkeys(targets)
        if any(target.is_batch for target in distinct):
            return self._kinds_with_batches(sends)
        numbers = {target: number for number, target in enumerate(distinct)}
        kinds = [(target, last) for target in distinct]
        return kinds, map(numbers.__getitem__, targets), sends.properties_texts

    def _kinds_with_batches(self, sends: Sends) -> tuple[list[_Kind], list[int], list[bytes]]:
        """Return the same where batches are among the sends: their texts go into their kinds."""
        last, texts = sends.last_properties, list(sends.properties_texts)
        numbers: dict[_Kind, int] = {}
        rows = []
        for row, target in enumerate(sends.targets):
            tail = last
            if target.is_batch:
                judged = self._properties.judge_batch(texts[row], last)
                if judged is None:
                    raise NotPlainError
                tail, texts[row] = judged, b""
            rows.append(numbers.setdefault((target, tail), len(numbers)))
        return list(numbers), rows, texts

    def group(
        self,
        position: AppendPosition,
        encoded: EncodedSends,
        group_queues: Iterable[Queue],
        queue_table: Table,
    ) -> AppendGroup:
        """Return the group that stands in the buffers, with these queues and their table."""
        sends, send_count, targets, size, key_count = encoded
        buffers = self._buffers
        slices: dict[Queue, QueueSlice] = {}
        unit = 0
        for queue, (queue_end, unit_end, log_size) in zip(
            group_queues, queue_table.tolist(), strict=True
        ):
            part = slices[queue] = QueueSlice(queue_end - (unit_end - unit))
            part.end, part.size = queue_end, log_size
            part.units.append(buffers.units_of(unit, unit_end))
            unit = unit_end
        # NamedTuple's own constructor takes twice the time of the tuple's.
        return tuple.__new__(
            AppendGroup,
            (
                position.store_timestamp,
                buffers.records.data[:size],
                position.physical_offset + size,
                slices,
                HashedKeys(buffers.hashes[:key_count], buffers.key_offsets[:key_count]),
                StoredColumns(
                    buffers.messages[:unit],
                    buffers.first_messages[: send_count + 1],
                    sends,
                    targets,
                ),
                True,  # is_compiled
            ),
        )


def ready_encoder() -> CompiledEncoder:
    """Return an encoder whose machine code is loaded, or compiled where it never was."""
    encoder = CompiledEncoder()
    text, host = b"UNIQ_KEY\x01id\x02", bytes(8)
    targets = [SendTarget("warm", 0), SendTarget("warm", 0, is_batch=True)]
    bodies = [b"body", encode_batch([BatchItem(0, b"body", text)])]
    position = AppendPosition(0, {}, 0, host, 1 << 20, 1 << 20)
    group = encoder.encode(Sends(targets, [0, 0], bodies, [text, b""], [host, host], b""), position)
    index = memoryview(bytearray(file_size(1, 3)))
    group.keys.insert(index, slots=1, first=1, seconds=0)
    return encoder
