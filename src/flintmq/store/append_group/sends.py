"""Append groups: sends that came together, and what they become in log, queues and index.

A *send* is a message or a batch as a producer sent it.  Sends that arrived together are given to
the store as columns (`Sends`); an encoder turns them into an `AppendGroup`, which is everything
that log, consume queues and key index get of them, worked out before anything is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from flintmq.format.java import key_prefix_hash
from flintmq.format.stored.record_encoding import encode_topic
from flintmq.format.stored.record_layout import IPV4_BODY_AT, PROPERTIES_LENGTH_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from flintmq.format.buffer import Buffer
    from flintmq.store.views.key_index_file import ManyKeys

Queue: TypeAlias = tuple[str, int]
"""Topic and queue id."""


class NotPlainError(Exception):
    """An encoder cannot encode some sends as a group.

    ``rows`` are the numbers of the sends in the way, where the encoder knows them.  Whoever puts
    such a send by itself is told what is wrong with it, if anything is.
    """

    def __init__(self, rows: Sequence[int] = ()) -> None:
        super().__init__(rows)
        self.rows = rows


class SendTarget:
    """A queue that sends go to, and what all sends of one kind have in common."""

    __slots__ = (
        "fixed_size",
        "flag",
        "is_batch",
        "key_prefix",
        "queue",
        "queue_id",
        "reconsume_times",
        "sys_flag",
        "topic_part",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        *,
        sys_flag: int = 0,
        flag: int = 0,
        reconsume_times: int = 0,
        is_batch: bool = False,
    ) -> None:
        self.queue = (topic, queue_id)
        self.queue_id = queue_id
        self.is_batch = is_batch
        """Whether the sends are batches, see ``flintmq.format.stored.batch``."""
        self.key_prefix = key_prefix_hash(topic)
        """The hash of what stands before each key of the topic."""
        self.sys_flag = sys_flag
        self.flag = flag
        """The application's; messages of a batch have their own."""
        self.reconsume_times = reconsume_times
        self.topic_part = encode_topic(topic.encode())
        """The topic as it stands in a record, with its length before it."""
        self.fixed_size = IPV4_BODY_AT + len(self.topic_part) + PROPERTIES_LENGTH_SIZE
        """Bytes of a record besides its body and properties, with hosts of IPv4."""


class Sends(NamedTuple):
    """Sends as they came, column by column.

    Nobody has looked at their properties: the encoder decides which sends are plain.
    """

    targets: Sequence[SendTarget]
    born_timestamps: Sequence[int]
    bodies: Sequence[bytes]
    properties_texts: Sequence[bytes]
    born_hosts: Sequence[bytes]
    last_properties: bytes
    """Properties that each message gets behind its own."""


class AppendPosition(NamedTuple):
    """Where an append group begins, and what holds for all of its messages."""

    physical_offset: int
    next_offsets: Mapping[Queue, int]
    """The next queue offset of each queue."""
    store_timestamp: int
    store_host: bytes
    record_size_max: int
    body_size_max: int
    is_shared: bool = False
    """Whether others are to be served meanwhile, so that only machine code takes large batches."""


class QueueSlice:
    """The messages of an append group that go to one queue."""

    __slots__ = ("end", "first", "size", "units")

    def __init__(self, first: int) -> None:
        self.first = self.end = first
        """The queue offset of the first message, and the one behind the last."""
        self.size = 0
        """Bytes of the log that the messages take."""
        self.units: list[bytes] = []
        """Their consume-queue units, to be joined."""

    @property
    def count(self) -> int:
        """How many messages these are."""
        return self.end - self.first


class QueueSlices(dict[Queue, QueueSlice]):
    """The queue slices of an append group, made when a message is the first of its queue."""

    def __init__(self, next_offsets: Mapping[Queue, int]) -> None:
        super().__init__()
        self._next_offsets = next_offsets

    def __missing__(self, queue: Queue) -> QueueSlice:
        made = self[queue] = QueueSlice(self._next_offsets.get(queue, 0))
        return made


class StoredAt(NamedTuple):
    """Where a send is stored: a message, or all messages of a batch."""

    queue_offset: int
    """The queue offset of the first message."""
    physical_offsets: bytes
    """The physical offset of each message, as big-endian numbers of eight bytes."""


class AppendGroup(NamedTuple):
    """Messages that were encoded together: what log, queues and index get of them.

    What an encoder gives is good until it encodes the next group.
    """

    store_timestamp: int
    records: Buffer
    end_offset: int
    """The physical offset behind the last record."""
    slices: dict[Queue, QueueSlice]
    keys: ManyKeys
    stored: Iterable[StoredAt]
    """Where each send is stored, in their order."""
    is_compiled: bool = False
    """Whether machine code has encoded it, so that it is loaded and pays."""

    @property
    def message_count(self) -> int:
        """How many messages the group has."""
        return sum([one.count for one in self.slices.values()])

    def kept(self) -> AppendGroup:
        """Return what the views need of the group, good for as long as it is kept."""
        return self._replace(records=b"", keys=self.keys.kept(), stored=())


class GroupEncoder(Protocol):
    """Encodes sends as an append group; there is one in Python and one in machine code."""

    def encode(self, sends: Sends, position: AppendPosition) -> AppendGroup:
        """Return the group of these sends.

        Raises:
            NotPlainError: a send is special, too large, or a batch that is none.
        """
        ...
