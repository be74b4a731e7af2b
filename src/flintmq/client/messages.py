"""Messages as users of a client see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from flintmq.client.errors import UsageError
from flintmq.format.host import host_text
from flintmq.format.properties import decode_properties, encode_properties
from flintmq.format.topic_names import name_fault
from flintmq.model import property_names as names
from flintmq.model.message_queue import MessageQueue

if TYPE_CHECKING:
    from flintmq.format.record import Record

BODY_SIZE_MAX: Final = 4 << 20
NO_PROPERTIES: Final[Mapping[str, str]] = {}
RESERVED: Final = frozenset(
    {
        names.KEYS,
        names.TAGS,
        names.WAIT,
        names.DELAY,
        names.RETRY_TOPIC,
        names.REAL_TOPIC,
        names.REAL_QID,
        names.TRAN_MSG,
        names.PRODUCER_GROUP,
        names.MIN_OFFSET,
        names.MAX_OFFSET,
        names.ORIGIN_MESSAGE_ID,
        names.UNIQ_KEY,
        names.CLUSTER,
        names.MSG_TYPE,
        names.CORRELATION_ID,
        names.REPLY_TO_CLIENT,
        names.PUSH_REPLY_TIME,
        names.RECONSUME_TIME,
        names.MAX_RECONSUME_TIMES,
        names.INSTANCE_ID,
        names.TTL,
        names.CONSUME_START_TIME,
    }
)
"""Names of properties that users cannot set: they mean something to clients or brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message to be sent.

    ``keys`` find it again, ``tag`` lets consumers choose, ``delay_level`` (1 to 18 by default)
    holds it back.  With ``wait`` false the broker answers before the message is on its disk.
    """

    topic: str
    body: bytes
    tag: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    delay_level: int = 0
    flag: int = 0
    wait: bool = True
    sharding_key: str | None = None
    """Messages of one sharding key go to one queue, in their order."""

    def __post_init__(self) -> None:
        fault = name_fault(self.topic)
        if fault is not None:
            raise UsageError(fault)
        if not self.body:
            raise UsageError("a message needs a body of at least one byte")
        if self.delay_level < 0:
            raise UsageError("a delay level is not negative")
        for name, value in self.properties.items():
            if name in RESERVED:
                raise UsageError(f"the property {name} is not for users")
            if not name.strip() or not value.strip():
                raise UsageError(f"a property needs a name and a value: {name!r}")

    def wire_properties(self) -> dict[str, str]:
        """Return the properties as they are sent, without a unique id."""
        found = dict(self.properties)
        if self.keys:
            found[names.KEYS] = " ".join(self.keys)
        found[names.WAIT] = "true" if self.wait else "false"
        if self.delay_level:
            found[names.DELAY] = str(self.delay_level)
        if self.tag:
            found[names.TAGS] = self.tag
        return found

    def wire_text(self) -> bytes:
        """Return `wire_properties` as they are written."""
        if self.properties or self.keys or self.delay_level or self.tag:
            return encode_properties(self.wire_properties())
        return _WAITING if self.wait else _NOT_WAITING


_WAITING: Final = encode_properties({names.WAIT: "true"})
_NOT_WAITING: Final = encode_properties({names.WAIT: "false"})


class SendStatus(Enum):
    """How well a message is kept.  All mean that it is stored."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """Where a message went."""

    status: SendStatus
    message_id: str
    """The unique id; those of a batch stand with commas between them."""
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    region: str = "DefaultRegion"
    trace_on: bool = True

    @property
    def ok(self) -> bool:
        """Whether everything that was promised holds."""
        return self.status is SendStatus.SEND_OK


class ReceivedMessage:
    """A message as it comes from a broker.  It cannot be changed.

    Properties, hosts and ids are taken apart when somebody asks for them: many handlers look at
    the body alone.  ``topic`` and ``body`` are as the user knows them, by default as stored;
    ``bounds`` are the lowest offset of the queue and the next one, when it was pulled.
    """

    __slots__ = ("_body", "_bounds", "_properties", "_queue", "_record", "_topic")

    def __init__(
        self,
        record: Record,
        queue: MessageQueue,
        *,
        topic: str | None = None,
        body: bytes | None = None,
        bounds: tuple[int, int] | None = None,
    ) -> None:
        self._record = record
        self._queue = queue
        self._topic = record.topic if topic is None else topic
        self._body = bytes(record.body) if body is None else body
        self._bounds = bounds
        self._properties: Mapping[str, str] | None = None

    def __repr__(self) -> str:
        # The body stays out: messages are logged, their contents are not.
        return (
            f"<ReceivedMessage {self.message_id} of {self.topic}, {self.queue.broker_name} "
            f"{self.queue.queue_id}:{self.queue_offset}, {len(self.body)} bytes>"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReceivedMessage):
            return NotImplemented
        return self._parts == other._parts

    def __hash__(self) -> int:
        return hash((self._queue, self._record.queue_offset))

    @property
    def _parts(self) -> tuple[object, ...]:
        return self._record, self._queue, self._topic, self._body, self._bounds

    def with_topic(self, topic: str) -> ReceivedMessage:
        """Return the same message as one of another topic."""
        return ReceivedMessage(
            self._record, self._queue, topic=topic, body=self._body, bounds=self._bounds
        )

    def failed_once_more(self) -> ReceivedMessage:
        """Return the same message with one more failure counted."""
        record = self._record._replace(reconsume_times=self._record.reconsume_times + 1)
        return ReceivedMessage(
            record, self._queue, topic=self._topic, body=self._body, bounds=self._bounds
        )

    @property
    def topic(self) -> str:
        """Its topic, without a namespace; that it was first sent to if it comes again."""
        return self._topic

    @property
    def body(self) -> bytes:
        """Its content, decompressed."""
        return self._body

    @property
    def queue(self) -> MessageQueue:
        """The queue it came from."""
        return self._queue

    @property
    def queue_offset(self) -> int:
        """Its place in the queue."""
        return self._record.queue_offset

    @property
    def physical_offset(self) -> int:
        """Its place in the log of the broker."""
        return self._record.physical_offset

    @property
    def properties(self) -> Mapping[str, str]:
        """Its properties, those of clients and brokers included."""
        found = self._properties
        if found is None:
            decoded = decode_properties(self._record.properties_text)
            if self._bounds is not None:
                low, high = self._bounds
                decoded[names.MIN_OFFSET], decoded[names.MAX_OFFSET] = str(low), str(high)
            found = self._properties = decoded
        return found

    @property
    def flag(self) -> int:
        """A number of the sender."""
        return self._record.flag

    @property
    def sys_flag(self) -> int:
        """Bits of clients and brokers."""
        return self._record.sys_flag

    @property
    def born_timestamp(self) -> int:
        """When it was sent, in milliseconds."""
        return self._record.born_timestamp

    @property
    def born_host(self) -> str:
        """The address of the sender."""
        return host_text(self._record.born_host)

    @property
    def store_timestamp(self) -> int:
        """When it was stored, in milliseconds."""
        return self._record.store_timestamp

    @property
    def store_host(self) -> str:
        """The address of the broker."""
        return host_text(self._record.store_host)

    @property
    def reconsume_times(self) -> int:
        """How often it has failed."""
        return self._record.reconsume_times

    @property
    def prepared_transaction_offset(self) -> int:
        """Where its half message stands in the log."""
        return self._record.prepared_transaction_offset

    @property
    def offset_message_id(self) -> str:
        """The id that the broker gave it."""
        return self._record.message_id

    @property
    def store_size(self) -> int:
        """Bytes that it takes in the log."""
        return self._record.size

    @property
    def message_id(self) -> str:
        """The unique id that its producer gave it, else the offset id."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_message_id

    @property
    def tag(self) -> str | None:
        """Its tag."""
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """Its keys."""
        return tuple(filter(None, self.properties.get(names.KEYS, "").split(" ")))

    @property
    def delay_level(self) -> int:
        """The level by which it was held back."""
        text = self.properties.get(names.DELAY, "0")
        return int(text) if text.isdigit() else 0
