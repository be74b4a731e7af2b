"""Messages that name a time of delivery, as they are stored until then."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from flintmq.format.delivery_time import delay_class, delivery_time_ms
from flintmq.format.properties import encode_properties
from flintmq.model.property_names import (
    DELIVER_AT,
    DELIVERY_TIMES,
    REAL_QID,
    REAL_TOPIC,
    TIMER_CANCELLED_ID,
    TIMER_OUT_MS,
    WAIT,
)
from flintmq.model.topics import WAITING_TOPIC
from flintmq.store.appending.put_admission import illegal

if TYPE_CHECKING:
    from flintmq.model.message import PutMessage

CANCELLED_ID_LENGTH_MAX: Final = 255
"""Characters of an id that is cancelled: those that are due next are kept in memory."""

UNDISPATCHED_COUNT_MAX: Final = 4096
"""Waiting messages that are remembered one by one until they are dispatched."""


def waiting_put(
    message: PutMessage, *, now_ms: int, delivered_until_ms: int, delay_max_s: int
) -> PutMessage | None:
    """Return a message as it waits in the waiting topic, None if it is due already.

    It waits past ``delivered_until_ms`` in any case: what has been delivered is known by the time
    that it was due, so a clock that was set back must not lead to a time before that.

    A message that cancels another one waits too, to be met a millisecond before that one: so the
    cancelling needs no search, and is as durable as what it cancels.

    Raises:
        PutRefusedError: the time is too far ahead, it is too late to cancel, or the id is too long.
        DeliveryTimeError: the properties name no time.
    """
    named_ms = delivery_time_ms(message.properties, now_ms)
    if named_ms is None:
        return None
    cancels = message.properties.get(TIMER_CANCELLED_ID)
    until_ms = named_ms - 1 if cancels else named_ms
    if cancels and len(cancels) > CANCELLED_ID_LENGTH_MAX:
        raise illegal(
            f"an id of {len(cancels)} characters to cancel, at most {CANCELLED_ID_LENGTH_MAX}"
        )
    if cancels and until_ms <= max(now_ms, delivered_until_ms):
        raise illegal(f"too late to cancel {cancels[:64]}: it is due at {named_ms}")
    if until_ms <= now_ms:
        return None
    if until_ms - now_ms > delay_max_s * 1000:
        raise illegal(
            f"it is to be delivered in {until_ms - now_ms} ms, timerMaxDelaySec is {delay_max_s}"
        )
    until_ms = max(until_ms, delivered_until_ms + 1)
    kept = {name: one for name, one in message.properties.items() if name not in DELIVERY_TIMES}
    properties = kept | {
        # A delay counts from now; told once more it would count from then.
        DELIVER_AT: str(named_ms),
        TIMER_OUT_MS: str(until_ms),
        REAL_TOPIC: message.topic,
        REAL_QID: str(message.queue_id),
    }
    stored = {name: one for name, one in properties.items() if name != WAIT}
    return replace(
        message,
        topic=WAITING_TOPIC,
        queue_id=delay_class(until_ms - now_ms),
        properties=properties,
        properties_text=encode_properties(stored),
    )


class UndispatchedWaiting:
    """Until when messages wait that are in the log and not in their queue yet.

    Nothing that is due later may be delivered before they are there: what has been delivered is
    known by due times.
    """

    def __init__(self) -> None:
        self._messages: deque[tuple[int, int]] = deque()

    def add(self, physical_offset: int, until_ms: int) -> None:
        """Remember a message that was just appended."""
        if len(self._messages) >= UNDISPATCHED_COUNT_MAX:
            until_ms = min(until_ms, self._messages.pop()[1])
        self._messages.append((physical_offset, until_ms))

    def least_until_ms(self, dispatched_offset: int) -> int | None:
        """Return the earliest of their times, None if the log is dispatched past all of them."""
        messages = self._messages
        while messages and messages[0][0] < dispatched_offset:
            messages.popleft()
        return min((until_ms for _, until_ms in messages), default=None)
