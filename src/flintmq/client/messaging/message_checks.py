"""What a user may put into a message: types and limits, checked where values are handed in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from flintmq.client.errors import UsageError
from flintmq.format.topic_names import name_fault
from flintmq.model import property_names as names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FLAG_MAX: Final = (1 << 31) - 1
TIME_MAX: Final = (1 << 53) - 1
HOLDING_FIELDS: Final = ("delay_level", "deliver_at_ms", "delay_ms")
"""The fields of a message that hold it back."""

_NUMBERS: Final = (
    ("delay_level", 0, FLAG_MAX),
    ("deliver_at_ms", 0, TIME_MAX),
    ("delay_ms", 0, TIME_MAX),
    ("flag", -FLAG_MAX - 1, FLAG_MAX),
)
RESERVED: Final = frozenset(
    {
        names.KEYS,
        names.TAGS,
        names.WAIT,
        names.DELAY,
        *names.DELIVERY_TIMES,
        names.TIMER_OUT_MS,
        names.TIMER_CANCELLED_ID,
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


class CheckedMessage(Protocol):
    """A message to be sent, as its checks see it."""

    @property
    def topic(self) -> str:
        """Its topic."""
        ...

    @property
    def body(self) -> bytes:
        """Its content."""
        ...

    @property
    def keys(self) -> Sequence[str]:
        """Its keys."""
        ...

    @property
    def properties(self) -> Mapping[str, str]:
        """Its properties."""
        ...


def check_message(message: CheckedMessage) -> None:
    """Raise UsageError, with the name of the field, for a message that cannot be sent."""
    _check_type("topic", message.topic, str)
    fault = name_fault(message.topic)
    if fault is not None:
        raise UsageError(fault)
    check_body(message.body)
    if not message.body:
        raise UsageError("a message needs a body of at least one byte")
    for name in ("tag", "sharding_key"):
        value = getattr(message, name)
        if value is not None:
            _check_type(name, value, str)
    _check_keys(message.keys)
    for name, least, most in _NUMBERS:
        value = getattr(message, name)
        _check_type(name, value, int)
        if not least <= value <= most:
            raise UsageError(f"{name} must be from {least} to {most}, not {value}")
    held_by = [name for name in HOLDING_FIELDS if getattr(message, name)]
    if len(held_by) > 1:
        raise UsageError(f"a message is held back by one of these: {', '.join(held_by)}")
    _check_properties(message.properties)


def check_body(body: object) -> None:
    """Raise UsageError for a body that is not made of bytes."""
    if isinstance(body, str):
        raise UsageError("body must be bytes, not str: encode it, for example with body.encode()")
    _check_type("body", body, bytes, bytearray, memoryview)


def _check_type(name: str, value: object, *kinds: type) -> None:
    if not isinstance(value, kinds):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise UsageError(f"{name} must be {expected}, not {type(value).__name__}")


def _check_keys(keys: object) -> None:
    if not keys and not isinstance(keys, str):
        return
    if isinstance(keys, str):
        # Taken as a sequence it would give a key for each of its letters.
        raise UsageError(f"keys must be a list of keys: write keys=[{keys!r}]")
    _check_type("keys", keys, list, tuple)
    assert isinstance(keys, list | tuple)
    for key in keys:
        _check_type("a key", key, str)
        if not key or " " in key:
            raise UsageError(f"a key is a text without blanks, not {key!r}: blanks separate keys")


def _check_properties(properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        _check_type("the name of a property", name, str)
        _check_type(f"the property {name!r}", value, str)
        if name in RESERVED:
            raise UsageError(f"the property {name} is not for users")
        # A value of blanks is one; an empty one no decoder would give back.
        if not name.strip() or not value:
            raise UsageError(f"a property needs a name and a value: {name!r}")
