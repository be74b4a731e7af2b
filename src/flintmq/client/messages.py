"""Messages as users of a client see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from flintmq.client.errors import UsageError
from flintmq.format.topic_names import name_fault
from flintmq.model import property_names as names
from flintmq.model.message_queue import MessageQueue

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """A message as it comes from a broker."""

    topic: str
    body: bytes
    queue: MessageQueue
    queue_offset: int
    physical_offset: int
    properties: Mapping[str, str]
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    offset_message_id: str
    store_size: int

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
