"""How far messages that name a time of delivery were delivered: ``config/deliverAt.json``.

The file has for each queue of the waiting topic the first offset that may still wait and the
mark, topics and ids of messages that are cancelled and due, and where the log ended at that time:

    {"logEnd":82112,"queues":{3:{"first":17,"due":1700000000000,"offset":40}},"cancelled":{…}}

A log that ends before ``logEnd`` has lost what was delivered, so the rest of the file is not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from flintmq.format.delivery_time import DELAY_CLASS_COUNT
from flintmq.store.upkeep.waiting_queue import NOTHING_DONE, due_ms_of, key_of, offset_of

if TYPE_CHECKING:
    from collections.abc import Mapping

STATE_NAME: Final = "deliverAt.json"


class WaitingStateError(ValueError):
    """A text is no state of waiting messages."""


class WaitingQueueState(NamedTuple):
    """How far one queue is."""

    first: int
    mark: int


class WaitingState(NamedTuple):
    """How far all queues are."""

    log_end: int = 0
    queues: Mapping[int, WaitingQueueState] = {}
    cancelled: Mapping[str, int] = {}
    """The topics and ids of messages not to be delivered, and when they are due."""

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Read what `to_json` has written.

        Raises:
            WaitingStateError: it is something else.
        """
        try:
            queues = {
                int(queue_id): WaitingQueueState(int(one["first"]), _mark(one))
                for queue_id, one in value["queues"].items()
            }
            cancelled = {str(name): int(due) for name, due in value.get("cancelled", {}).items()}
            log_end = int(value["logEnd"])
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise WaitingStateError("no table of queues, marks and cancelled messages") from error
        if not all(0 <= one < DELAY_CLASS_COUNT for one in queues):
            raise WaitingStateError(f"a queue id that is not from 0 to {DELAY_CLASS_COUNT - 1}")
        return cls(log_end, queues, cancelled)

    def to_json(self) -> dict[str, Any]:
        """Return this as it is written."""
        queues = {
            queue_id: {"first": one.first, "due": due_ms_of(one.mark), "offset": _offset(one.mark)}
            for queue_id, one in self.queues.items()
        }
        return {"logEnd": self.log_end, "queues": queues, "cancelled": dict(self.cancelled)}


def _offset(mark: int) -> int:
    return -1 if mark == NOTHING_DONE else offset_of(mark)


def _mark(one: Mapping[str, Any]) -> int:
    due_ms, offset = int(one["due"]), int(one["offset"])
    return NOTHING_DONE if due_ms < 0 else key_of(due_ms, offset)
