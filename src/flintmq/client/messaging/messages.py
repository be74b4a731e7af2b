"""Messages as users of a client see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias, TypedDict

from flintmq.client.errors import UnreadableBodyError
from flintmq.client.messaging.message_checks import check_message
from flintmq.format.compression import CompressionType, decompress
from flintmq.format.errors import CompressionError
from flintmq.format.host import host_text
from flintmq.format.properties import decode_properties, encode_properties
from flintmq.format.stored.pulled_records import PlainRecord
from flintmq.format.stored.record_layout import IPV4_BODY_AT
from flintmq.format.sys_flag import COMPRESSED, compression_type
from flintmq.model import property_names as names
from flintmq.model.message_queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flintmq.format.stored.record import Record

BODY_SIZE_MAX: Final = 4 << 20
RECEIVED_BODY_SIZE_MAX: Final = 64 << 20
"""A compressed body may not become larger than this."""
PULL_BODIES_SIZE_MAX: Final = 256 << 20
"""The compressed bodies of one pull may not become larger than this together."""
NO_PROPERTIES: Final[Mapping[str, str]] = {}
Keys: TypeAlias = list[str] | tuple[str, ...]
"""The keys of a message.  A plain text is none of these: it would be taken letter by letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message to be sent.

    ``keys`` find it again, ``tag`` lets consumers choose, ``delay_level`` (1 to 18 by default)
    holds it back.  So do ``deliver_at_ms``, a time in milliseconds since the Unix epoch, and
    ``delay_ms``, with brokers that know times of delivery: FlintMQ's and RocketMQ 5.  With ``wait``
    false the broker answers before the message is on its disk.
    """

    topic: str
    body: bytes
    tag: str | None = None
    keys: Keys = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    delay_level: int = 0
    flag: int = 0
    wait: bool = True
    sharding_key: str | None = None
    """Messages of one sharding key go to one queue, in their order."""
    deliver_at_ms: int = 0
    delay_ms: int = 0

    def __post_init__(self) -> None:
        check_message(self)

    @property
    def is_held_back(self) -> bool:
        """Whether it is delivered later than it is sent."""
        return bool(self.delay_level or self.deliver_at_ms or self.delay_ms)

    def wire_properties(self) -> dict[str, str]:
        """Return the properties as they are sent, without a unique id."""
        found = dict(self.properties)
        if self.keys:
            found[names.KEYS] = " ".join(self.keys)
        found[names.WAIT] = "true" if self.wait else "false"
        if self.delay_level:
            found[names.DELAY] = str(self.delay_level)
        # By RocketMQ 5's names, so that its brokers understand them, too.
        if self.deliver_at_ms:
            found[names.TIMER_DELIVER_MS] = str(self.deliver_at_ms)
        if self.delay_ms:
            found[names.TIMER_DELAY_MS] = str(self.delay_ms)
        if self.tag:
            found[names.TAGS] = self.tag
        return found

    def wire_text(self) -> bytes:
        """Return `wire_properties` as the bytes that are sent."""
        # What `is_held_back` says is asked here field by field: every message of a batch comes by.
        if (
            self.properties
            or self.keys
            or self.tag
            or self.delay_level
            or self.deliver_at_ms
            or self.delay_ms
        ):
            return encode_properties(self.wire_properties())
        return WAITING_TEXT if self.wait else NOT_WAITING_TEXT


class MessageKeywords(TypedDict, total=False):
    """The fields of `Message` besides its topic and its body, as single keywords."""

    tag: str | None
    keys: Keys
    properties: Mapping[str, str]
    delay_level: int
    flag: int
    wait: bool
    sharding_key: str | None
    deliver_at_ms: int
    delay_ms: int


WAITING_TEXT: Final = encode_properties({names.WAIT: "true"})
"""The `wire_text` of a message that says nothing but that it waits, as most do."""
NOT_WAITING_TEXT: Final = encode_properties({names.WAIT: "false"})
"""The `wire_text` of a message that says nothing but that it does not wait."""


class SendStatus(Enum):
    """How safely a message is stored; it is stored in every case."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """Where a message was stored."""

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
        """Whether the message is stored as safely as its broker is set up to store it."""
        return self.status is SendStatus.SEND_OK


class BodyBudget:
    """Bounds what the compressed bodies of one pull may grow to together."""

    __slots__ = ("_left",)

    def __init__(self, size_max: int = PULL_BODIES_SIZE_MAX) -> None:
        self._left = size_max

    def decompress(self, stored: bytes, kind: CompressionType) -> bytes:
        """Return a body decompressed; CompressionError if it is damaged or there is no room."""
        body = decompress(stored, kind, limit=min(self._left, RECEIVED_BODY_SIZE_MAX))
        self._left -= len(body)
        return body


class ReceivedMessage:
    """A message as it comes from a broker.  It cannot be changed.

    Properties, hosts, ids and compressed bodies are decoded when somebody asks for them: many
    handlers look at the body alone, and one body that cannot be decompressed keeps no other
    message back.  ``topic`` is as the user knows it, by default as stored; ``bounds`` are the
    lowest offset of the queue and the next one, when it was pulled; ``budget`` bounds what the
    bodies of one pull may grow to together.
    """

    __slots__ = (
        "_body",
        "_bounds",
        "_budget",
        "_known",
        "_properties",
        "_queue",
        "_topic",
    )

    def __init__(
        self,
        record: Record | PlainRecord,
        queue: MessageQueue,
        *,
        topic: str | None = None,
        body: bytes | None = None,
        bounds: tuple[int, int] | None = None,
        budget: BodyBudget | None = None,
    ) -> None:
        self._known = record
        self._queue = queue
        self._topic = record.topic if topic is None else topic
        self._body = body
        self._bounds = bounds
        self._budget = budget
        self._properties: Mapping[str, str] | None = None

    @classmethod
    def of_pull(
        cls,
        records: Iterable[Record | PlainRecord],
        queue: MessageQueue,
        *,
        topic: str,
        bounds: tuple[int, int],
        budget: BodyBudget,
    ) -> list[ReceivedMessage]:
        """Return the messages of one pull."""
        found, new = [], cls.__new__
        for record in records:
            # To call the class takes twice as long.
            one = new(cls)
            one._known = record
            one._queue = queue
            one._topic = topic
            one._bounds = bounds
            one._budget = budget
            one._body = one._properties = None
            found.append(one)
        return found

    def __repr__(self) -> str:
        # The body stays out: messages are logged, their contents are not.
        return (
            f"<ReceivedMessage {self.message_id} of {self.topic}, {self.queue.broker_name} "
            f"{self.queue.queue_id}:{self.queue_offset}, {self.stored_body_size} stored bytes>"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReceivedMessage):
            return NotImplemented
        return self._identity == other._identity

    def __hash__(self) -> int:
        return hash((self._queue, self._known.queue_offset))

    @property
    def _record(self) -> Record:
        found = self._known
        if isinstance(found, PlainRecord):
            found = self._known = found.decode()
        return found

    @property
    def _identity(self) -> tuple[object, ...]:
        return self._record, self._queue, self._topic, self._bounds

    def with_topic(self, topic: str) -> ReceivedMessage:
        """Return the same message as one of another topic."""
        return self._changed(self._record, topic)

    def failed_once_more(self) -> ReceivedMessage:
        """Return the same message with one more failure counted."""
        record = self._record._replace(reconsume_times=self._record.reconsume_times + 1)
        return self._changed(record, self._topic)

    def _changed(self, record: Record, topic: str) -> ReceivedMessage:
        return ReceivedMessage(
            record,
            self._queue,
            topic=topic,
            body=self._body,
            bounds=self._bounds,
            budget=self._budget,
        )

    @property
    def topic(self) -> str:
        """Its topic without a namespace; for a retry, the topic that it was first sent to."""
        return self._topic

    @property
    def body(self) -> bytes:
        """Its content, decompressed.

        Raises UnreadableBodyError if it says that it is compressed and cannot be decompressed.  A
        handler that lets the error pass has failed: the message comes again and ends in the dead
        letters, like any other that cannot be handled.  `stored_body` gives the bytes as they are.
        """
        found = self._body
        if found is None:
            known = self._known
            # Nearly all bodies are plain; those come without asking further.
            if known.__class__ is PlainRecord and not known.sys_flag & COMPRESSED:
                found = known.stored[IPV4_BODY_AT : IPV4_BODY_AT + known.body_size]
            else:
                found = self._decoded_body()
            self._body = found
        return found

    @property
    def stored_body(self) -> bytes:
        """Its content as the broker has it, which may be compressed."""
        return bytes(self._known.body)

    @property
    def stored_body_size(self) -> int:
        """How many bytes `stored_body` has."""
        known = self._known
        return known.body_size if known.__class__ is PlainRecord else len(known.body)

    def _decoded_body(self) -> bytes:
        stored, sys_flag = self.stored_body, self._known.sys_flag
        if not sys_flag & COMPRESSED or not stored:
            return stored
        budget = self._budget or BodyBudget()
        try:
            return budget.decompress(stored, compression_type(sys_flag))
        except CompressionError as error:
            raise UnreadableBodyError(self.message_id, error.reason) from error

    @property
    def queue(self) -> MessageQueue:
        """The queue it came from."""
        return self._queue

    @property
    def queue_offset(self) -> int:
        """Its offset in the queue."""
        return self._known.queue_offset

    @property
    def physical_offset(self) -> int:
        """Its offset in the commit log of the broker, in bytes."""
        return self._record.physical_offset

    @property
    def properties(self) -> Mapping[str, str]:
        """Its properties, those of clients and brokers included."""
        found = self._properties
        if found is None:
            decoded = decode_properties(self._known.properties_text)
            if self._bounds is not None:
                low, high = self._bounds
                decoded[names.MIN_OFFSET], decoded[names.MAX_OFFSET] = str(low), str(high)
            found = self._properties = decoded
        return found

    @property
    def flag(self) -> int:
        """A number that its sender chose."""
        return self._record.flag

    @property
    def sys_flag(self) -> int:
        """Bits that clients and brokers set, for compression and transactions."""
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
        """The offset of its half message in the commit log."""
        return self._record.prepared_transaction_offset

    @property
    def offset_message_id(self) -> str:
        """The id that the broker gave it."""
        return self._record.message_id

    @property
    def store_size(self) -> int:
        """Bytes that its record takes in the commit log."""
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
